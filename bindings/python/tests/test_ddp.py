# SPDX-License-Identifier: Apache-2.0
"""Gradient reduction: unused parameters, accumulation, the library's own gradients, buffers, hooks; contributors."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from conftest import on_ranks

import ujoin
from ujoin import Bucket, BufferTime, CommHook, DistributedDataParallel, DType, Join, ReduceOp, Work


def two(dtype: Any = np.float32) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of six and two elements, with gradients."""
    params = {"a": np.ones((2, 3), dtype), "b": np.ones(2, dtype)}
    return params, {name: np.zeros_like(value) for name, value in params.items()}


def run_once(ddp: Any, grads: dict[str, Any], value: float) -> None:
    with ddp.iteration():
        for name, grad in grads.items():
            grad[...] = value
            ddp.ready(name)


def test_find_unused_parameters() -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = two()
        ddp = DistributedDataParallel(params, grads, group=group, find_unused_parameters=True)
        grads["a"][:] = group.rank + 1
        grads["b"][:] = 7
        with ddp.iteration():
            if group.rank == 0:
                ddp.ready("a")
        assert grads["a"].tolist() == [[0.5] * 3] * 2  # rank 0 has 1, rank 1 counts as zeros; divided by two ranks
        assert grads["b"].tolist() == [7, 7]  # used by nobody: left alone
        assert ddp.used == {"a": 1, "b": 0}
        group.close()

    on_ranks(2, body)


def test_static_graph_refuses_another_parameter() -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = two()
        ddp = DistributedDataParallel(params, grads, group=group, static_graph=True)
        for _ in range(2):
            with ddp.iteration():
                ddp.ready("a")
        assert ddp.used == {"a": 2, "b": 0}
        ddp.forward()
        with pytest.raises(ujoin.StateError, match="b"):
            ddp.ready("b")

    on_ranks(2, body)


def test_ignored_parameters_take_no_part() -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = two()
        params["b"][:] = group.rank
        ddp = DistributedDataParallel(params, {"a": grads["a"]}, group=group, ignore=["b"])
        ddp.forward()
        ddp.ready("b")  # without effect
        grads["a"][:] = 2
        ddp.ready("a")
        ddp.finish()
        assert params["b"].tolist() == [group.rank] * 2
        assert ddp.gradient("b") is None
        assert ddp.gradient("a") is not None
        group.close()

    on_ranks(2, body)
    with ujoin.Group(backend="self", world_size=1) as group, pytest.raises(ujoin.InvalidError, match=r"called \['x'\]"):
        DistributedDataParallel(*two(), group=group, ignore=["x"])


def test_no_sync_accumulates_samples_and_reduces_nothing() -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = two()
        ddp = DistributedDataParallel(params, grads, group=group, division="samples", gradient_kind="sum")
        with ddp.no_sync(), ddp.iteration(samples=3):
            for name, grad in grads.items():
                grad[...] = 3 + group.rank
                ddp.ready(name)
        assert grads["b"].tolist() == [3 + group.rank] * 2
        assert ddp.report.iterations == 0
        with ddp.iteration(samples=1):
            for name, grad in grads.items():
                grad += 1
                ddp.ready(name)
        assert ddp.report.samples == 8
        assert grads["b"].tolist() == [9 / 8] * 2  # (3 + 1) + (4 + 1), over 8 samples
        group.close()

    on_ranks(2, body)


def test_gradient_as_bucket_view() -> None:
    def body(group: ujoin.Group) -> Any:
        params, _ = two(np.float64)
        ddp = DistributedDataParallel(params, group=group, gradient_as_bucket_view=True)
        views = {name: np.asarray(ddp.gradient(name)) for name in params}
        assert (views["a"].shape, views["a"].dtype.name) == ((2, 3), "float64")
        assert not views["a"].any()
        opt = ujoin.ZeroRedundancyOptimizer(params, "sgd", group=group, lr=1)  # finds the gradients
        run_once(ddp, views, group.rank + 1)
        assert views["a"].tolist() == [[1.5] * 3] * 2
        opt.step()
        assert params["b"].tolist() == [-0.5, -0.5]
        again = np.asarray(ddp.gradient(1))
        assert again.ctypes.data == views["b"].ctypes.data
        del ddp, opt
        gc.collect()
        assert again.tolist() == [1.5, 1.5]  # the view keeps the memory
        return None

    on_ranks(2, body)


@pytest.mark.parametrize("broadcast", [True, False])
def test_buffers(broadcast: bool) -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = two()
        count, mean = np.array([group.rank + 5]), np.full(2, group.rank, np.float32)
        buffers = {"count": count, "mean": mean}
        ddp = DistributedDataParallel(params, grads, group=group, buffers=buffers, broadcast_buffers=broadcast)
        assert (count.tolist(), mean.tolist()) == ([5], [0, 0])  # rank 0's at the start
        count += group.rank
        run_once(ddp, grads, 1)
        assert count.tolist() == [5 if broadcast else 5 + group.rank]
        group.close()

    on_ranks(2, body)


@pytest.mark.parametrize("time", list(BufferTime))
def test_buffer_hooks(time: BufferTime) -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = two()
        seen = []
        values = np.array([group.rank + 1, 0], np.int64)

        def largest(buffer: Bucket) -> None:
            assert buffer.dtype == DType.I64
            seen.append((buffer.index, buffer.is_last, buffer.params, buffer.source_rank))
            buffer.group.all_reduce(buffer.memory, ReduceOp.MAX)

        ddp = DistributedDataParallel(params, grads, group=group, buffers=[values], init_sync=False)
        ddp.set_buffer_hook(largest, time=time)
        ddp.forward()
        assert values[0] == (2 if time == BufferTime.BEFORE_FORWARD else group.rank + 1)
        for name in grads:
            ddp.ready(name)
        ddp.finish()
        assert values[0] == 2
        assert seen == [(0, True, (), 0)]
        group.close()

    on_ranks(2, body)


def test_average_of_buffers() -> None:
    def body(group: ujoin.Group) -> None:
        values = np.array([group.rank], np.float32)
        ddp = DistributedDataParallel(*two(), group=group, buffers=[values], init_sync=False)
        ddp.set_buffer_hook(CommHook.ALL_REDUCE)
        with ddp.iteration():
            ddp.ready("a")
            ddp.ready("b")
        assert values.tolist() == [0.5]
        group.close()

    on_ranks(2, body)


def test_comm_hooks_by_name() -> None:
    third = float(np.float32(1 / 3))

    def body(group: ujoin.Group) -> dict[str, float]:
        results = {}
        for name in ("all_reduce", "f16", "bf16", "low_rank"):
            params, grads = two()
            ddp = DistributedDataParallel(params, grads, group=group)
            ddp.set_comm_hook(name, rank=1 if name == "low_rank" else 0, start_iteration=-1 if name == "low_rank" else 0)
            run_once(ddp, grads, third)
            results[name] = float(grads["a"][0, 0])
            with pytest.raises(ujoin.StateError):
                ddp.set_comm_hook(name)
        group.close()
        return results

    (found, other) = on_ranks(2, body)
    assert found == other
    assert found["all_reduce"] == third
    assert found["f16"] == float(np.float16(1 / 3))
    assert 0 < abs(found["bf16"] - third) < 2e-3  # eight bits of significand
    assert found["low_rank"] == pytest.approx(third, rel=1e-5)  # a constant matrix has rank one


def test_a_hook_in_two_parts() -> None:
    """`start` passes out work in flight, `then` divides; the buckets say which parameters they hold."""

    def body(group: ujoin.Group) -> None:
        params, grads = two()
        calls: list[Any] = []
        ddp = DistributedDataParallel(params, grads, group=group, first_bucket_bytes=8, bucket_bytes=8)

        def start(bucket: Bucket) -> Work:
            calls.append(("start", bucket.index, bucket.params, bucket.offsets, bucket.is_last, bucket.iteration))
            assert (bucket.dtype, bucket.divisor, bucket.is_shadow) == (DType.F32, 2, False)
            assert (bucket.group.rank, bucket.group.size) == (group.rank, 2)
            return bucket.group.all_reduce(bucket.buffer, async_op=True)

        def then(bucket: Bucket) -> None:
            calls.append(("then", bucket.index))
            np.asarray(bucket.buffer)[:] *= 10

        ddp.set_comm_hook(start, then)
        run_once(ddp, grads, group.rank + 1)
        assert grads["a"].tolist() == [[30] * 3] * 2
        assert calls[:2] == [("start", 0, (1,), (0,), False, 0), ("start", 1, (0,), (0,), True, 0)]
        assert calls[2:] == [("then", 0), ("then", 1)]
        group.close()

    on_ranks(2, body)


def test_a_failing_hook_aborts_the_group() -> None:
    kept: list[Bucket] = []

    def body(group: ujoin.Group) -> None:
        params, grads = two()
        ddp = DistributedDataParallel(params, grads, group=group)

        def hook(bucket: Bucket) -> None:
            if group.rank == 1:
                kept.append(bucket)
                raise ArithmeticError("overflow")
            bucket.group.all_reduce(bucket.buffer)

        ddp.set_comm_hook(hook)
        expected = ujoin.CallbackError if group.rank == 1 else ujoin.AbortedError
        with pytest.raises((expected, ujoin.CallbackError), match="overflow") as failed:
            run_once(ddp, grads, 1)
        if group.rank == 1:
            assert isinstance(failed.value.__cause__, ArithmeticError)

    on_ranks(2, body)
    with pytest.raises(ujoin.StateError, match="one call of a hook"):
        kept[0].group.barrier()


def test_wrong_hooks() -> None:
    params, grads = two()
    ddp = DistributedDataParallel(params, grads, group=ujoin.Group(backend="self", world_size=1))
    with pytest.raises(ujoin.InvalidError, match="expected one of all_reduce, f16, bf16, low_rank"):
        ddp.set_comm_hook("f8")
    with pytest.raises(ujoin.InvalidError, match="then goes with"):
        ddp.set_comm_hook("f16", lambda bucket: None)
    ddp.set_comm_hook(lambda bucket: 3)  # type: ignore[arg-type,return-value]
    with pytest.raises(ujoin.CallbackError, match="a hook returns a Work or None, not int"):
        run_once(ddp, grads, 1)


def test_buckets_are_rebuilt_in_the_order_of_readiness(alone: ujoin.Group) -> None:
    params, grads = two()
    ddp = DistributedDataParallel(params, grads, group=alone, first_bucket_bytes=8, bucket_bytes=8)
    assert ddp.report.rebuilt is False
    for _ in range(2):
        run_once(ddp, grads, 1)
    assert ddp.report.rebuilt is True
    assert ddp.report.bucket_count == 2


def test_shadowed_collectives_name_their_contributors() -> None:
    """A rank that has joined takes part in what the loop itself calls; it adds nothing."""
    batches = [1, 3]

    def body(group: ujoin.Group) -> Any:
        params, grads = two()
        ddp = DistributedDataParallel(params, grads, group=group, division="active")
        seen = []
        with Join([ddp]):
            for _ in range(batches[group.rank]):
                run_once(ddp, grads, 1)
                loss = np.array([group.rank + 1.0])
                work = group.all_reduce(loss, "avg", async_op=True)
                assert work.wait()
                seen.append((loss[0], work.contributors))
        group.close()
        return seen

    both, last = (1.5, [0, 1]), (2.0, [1])
    assert on_ranks(2, body, shadow_collectives=True) == [[both], [both, last, last]]
