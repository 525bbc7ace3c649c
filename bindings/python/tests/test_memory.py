# SPDX-License-Identifier: Apache-2.0
"""What is taken as memory, what is refused, and that nothing is leaked on either way."""

from __future__ import annotations

import array
import gc
import sys
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ujoin
from ujoin import DType


class Tensor:
    """Shares a NumPy array by DLPack alone, as a tensor of another library does."""

    def __init__(self, values: Any, device: tuple[int, int] = (1, 0), old: bool = False) -> None:
        self.values, self.device, self.old = values, device, old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("max_version came with DLPack 1.0")
        return self.values.__dlpack__(**options)


NUMPY = [np.float32, np.float64, np.float16, np.int32, np.int64]


@pytest.mark.parametrize("dtype", NUMPY)
def test_numpy_in_place(alone: ujoin.Group, dtype: Any) -> None:
    values = np.arange(6, dtype=dtype).reshape(2, 3)
    alone.all_reduce(values)
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]
    out = np.zeros_like(values)
    alone.all_reduce(values, out=out)
    assert out.tolist() == values.tolist()


ARRAYS = [
    np.zeros((2, 3, 4), np.float64),
    np.zeros((), np.float32),  # one number without a dimension
    np.zeros((0, 3), np.float32),
    np.zeros((3, 1), np.int32, order="F"),
    np.zeros(4, np.longlong),
    np.zeros(4, np.uint8),
    np.frombuffer(bytearray(13), np.float32, offset=1),  # not aligned
    np.zeros(4, np.float16).view(type("Mine", (np.ndarray,), {})),
]


@pytest.mark.parametrize("values", ARRAYS)
def test_numpy_and_the_buffer_protocol_say_the_same(values: Any) -> None:
    assert ujoin._ujoin.describe(values, True) == ujoin._ujoin.describe(memoryview(values), True)
    assert ujoin._ujoin.describe(values, True)[0] == values.ctypes.data


def test_numpy_array_is_held(alone: ujoin.Group) -> None:
    values = np.zeros(4, np.float32)
    optimizer = ujoin.ZeroRedundancyOptimizer([values], "sgd", grads=[np.ones(4, np.float32)], group=alone, lr=1.0)
    with pytest.raises(ValueError, match="resize"):
        values.resize(8)
    known = weakref.ref(values)
    del values
    gc.collect()
    optimizer.step()
    kept = known()
    assert kept is not None
    assert kept.tolist() == [-1, -1, -1, -1]
    del optimizer, kept
    gc.collect()
    assert known() is None


@pytest.mark.parametrize(
    ("code", "name"), [("f", "F32"), ("d", "F64"), ("i", "I32"), ("q", "I64"), ("l", "I64"), ("B", "U8")]
)
def test_plain_buffers(alone: ujoin.Group, code: str, name: str) -> None:
    values = array.array(code, [1, 2, 3])
    out = array.array(code, [0, 0, 0])
    alone.all_gather_into_tensor(out, values)
    assert out == values
    assert ujoin._ujoin.describe(values, True)[1:] == (3, DType[name], (3,))


def test_bfloat16_as_pair_and_as_numpy_extension(alone: ujoin.Group) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)  # 1.0, 2.0
    out = np.zeros(2, np.uint16)
    alone.all_reduce((bits, DType.BF16), out=(out, DType.BF16))
    assert out.tolist() == bits.tolist()
    values = np.array([1, 2, 3], ml_dtypes.bfloat16)
    assert ujoin._ujoin.describe(values, True)[1:] == (3, DType.BF16, (3,))
    gathered = np.zeros(3, ml_dtypes.bfloat16)
    alone.all_gather_into_tensor(gathered, values)
    assert gathered.tolist() == [1, 2, 3]


def test_bytes_as_another_type(alone: ujoin.Group) -> None:
    memory = bytearray(np.array([1, 2], np.float32).tobytes())
    alone.all_reduce((memory, DType.F32))
    assert ujoin._ujoin.describe((memory, DType.F32), True)[1:3] == (2, DType.F32)
    with pytest.raises(ujoin.InvalidError, match="items of 8 bytes are not of the given dtype"):
        alone.all_reduce((np.zeros(2), DType.F32))
    with pytest.raises(ujoin.InvalidError, match="99 is not a DType"):
        alone.all_reduce((memory, 99))  # type: ignore[arg-type]


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_without_copy(alone: ujoin.Group, old: bool) -> None:
    values = np.arange(4, dtype=np.float32)
    out = np.zeros(4, np.float32)
    alone.all_reduce(Tensor(values, old=old), out=Tensor(out, old=old))
    assert out.tolist() == [0, 1, 2, 3]
    assert ujoin._ujoin.describe(Tensor(values, old=old), True)[0] == values.ctypes.data


def test_device_tensor_is_refused(alone: ujoin.Group) -> None:
    with pytest.raises(ujoin.UnsupportedError, match=r"on device \(2, 1\).*host memory only"):
        alone.all_reduce(Tensor(np.zeros(1, np.float32), device=(2, 1)))


def test_tensor_that_autograd_follows(alone: ujoin.Group) -> None:
    class Leaf(Tensor):
        requires_grad = True

        def detach(self) -> Tensor:
            return Tensor(self.values)

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("Can't export tensors that require gradient")

    values = np.ones(3, np.float32)
    assert ujoin._ujoin.describe(Leaf(values), True)[0] == values.ctypes.data


def frozen(values: Any) -> Any:
    values.flags.writeable = False
    return values


REFUSED = [
    (frozen(np.zeros(4, np.float32)), "recv: the memory is read-only, but it is written to"),
    (b"12345678", "recv: the memory is read-only, but it is written to"),
    ((b"12345678", DType.F32), "recv: the memory is read-only, but it is written to"),
    (np.zeros((4, 4), np.float32)[:, 1], "recv: the memory is not C-contiguous"),
    (np.zeros((2, 3), np.float32).T, "recv: the memory is not C-contiguous"),
    (Tensor(np.zeros((4, 4), np.float32)[:, 1]), "recv: the memory is not C-contiguous"),
    (np.zeros(4, np.complex64), "element type"),
    (np.zeros(4, ">f4"), "element type"),
    (np.zeros(4, bool), "element type"),
    (memoryview(array.array("h", [1])), 'element type "h" is none of'),
]


@pytest.mark.parametrize(("memory", "text"), REFUSED)
def test_refused_memory(alone: ujoin.Group, memory: Any, text: str) -> None:
    with pytest.raises(ujoin.InvalidError, match=text) as failed:
        alone.all_reduce(memory)
    assert isinstance(failed.value, ValueError)
    assert failed.value.status_name == "UJOIN_E_INVALID"


def test_what_is_no_memory(alone: ujoin.Group) -> None:
    for wrong in (3, "text", [1.0], None, object()):
        with pytest.raises(TypeError, match="neither the buffer protocol nor DLPack"):
            alone.all_reduce(wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="pair"):
        alone.all_reduce((np.zeros(1), 1, 2))  # type: ignore[arg-type]


def test_sizes_and_types_differ(alone: ujoin.Group) -> None:
    with pytest.raises(ujoin.InvalidError, match=r"ujoin_all_reduce: rank 0: send.count is 3; expected 4"):
        alone.all_reduce(np.zeros(3, np.float32), out=np.zeros(4, np.float32))
    with pytest.raises(ujoin.InvalidError, match=r"send is of f64, recv of f32"):
        alone.all_reduce(np.zeros(4), out=np.zeros(4, np.float32))
    with pytest.raises(ujoin.InvalidError, match=r"ujoin_submit: rank 0: send is of f64, recv of f32"):
        alone.all_to_all_single(np.zeros(4, np.float32), np.zeros(4))


def test_nothing_leaks_on_success_or_failure(alone: ujoin.Group) -> None:
    good, small = np.zeros(4, np.float32), np.zeros(3, np.float32)
    strided = np.zeros((4, 4), np.float32)[:, 1]
    tensor = Tensor(good)
    objects = [good, small, strided, tensor, alone]
    before = [sys.getrefcount(thing) for thing in objects]
    for _ in range(200):
        alone.all_reduce(good)
        alone.all_reduce(tensor)
        alone.all_reduce(good, async_op=True).wait()
        alone.submit([ujoin.Op("send", send=good), ujoin.Op("recv", recv=tensor)], async_op=True).wait()
        alone.gather(good, tensor, sizes=[4])
        with pytest.raises(ujoin.InvalidError, match="recv_counts has 2"):
            alone.gather(good, tensor, sizes=[2, 2], async_op=True)
        with pytest.raises(ujoin.InvalidError, match="expected 0 to 0"):
            alone.send(good, 1, async_op=True)
        with pytest.raises(ujoin.InvalidError, match="not C-contiguous"):
            alone.submit([ujoin.Op("all_reduce", recv=good), ujoin.Op("all_reduce", recv=strided)], async_op=True)
        for bad in (small, strided, 3):
            with pytest.raises((ujoin.InvalidError, TypeError)):
                alone.all_reduce(bad, out=good)  # type: ignore[arg-type]
            with pytest.raises((ujoin.InvalidError, TypeError)):
                alone.all_reduce(good, out=bad)  # type: ignore[arg-type]
        with pytest.raises(ujoin.InvalidError):
            ujoin.DistributedDataParallel([good], [small], group=alone)
        with pytest.raises(ujoin.InvalidError, match="unknown"):
            ujoin.ZeroRedundancyOptimizer([good], "sgd", grads=[good], group=alone, unknown=1)
    gc.collect()
    assert [sys.getrefcount(thing) for thing in objects] == before


def test_memory_does_not_grow(alone: ujoin.Group) -> None:
    """A leak of a handle, an error or a callback would show: 20,000 of each."""

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    def work() -> None:
        values = np.zeros(4, np.float32)
        for _ in range(2000):
            alone.all_reduce(values, async_op=True)
            alone.all_reduce_coalesced([values, values], async_op=True)
            with pytest.raises(ujoin.InvalidError):
                alone.broadcast(values, 5)
            assert alone.split(None) is None
            ujoin.State({"a": "b", "n": 1.5})

    work()
    gc.collect()
    start = resident()
    for _ in range(10):
        work()
    gc.collect()
    assert resident() - start < 4 << 20


def test_text_with_nul_and_wrong_types() -> None:
    with pytest.raises(ValueError, match="embedded null"):
        ujoin.Store("memory://a\0b")
    with pytest.raises(TypeError, match="str, bytes or None"):
        ujoin.Store(3)  # type: ignore[arg-type]
    store = ujoin.Store("memory://wrong-handle")
    with pytest.raises(TypeError, match="expected a handle of type ujoin_group"):
        ujoin._ujoin.ujoin_group_rank(store._handle)
    with pytest.raises(TypeError, match=r"ujoin_all_reduce\(\) takes 6 arguments, 2 given"):
        ujoin._ujoin.ujoin_all_reduce(store._handle, None)  # type: ignore[call-arg]
