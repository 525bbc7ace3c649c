# SPDX-License-Identifier: Apache-2.0
"""Choices, and what may be given as memory. Wherever a choice is expected its name as text does too: "avg", "samples"."""

from __future__ import annotations

import datetime
import enum
import math
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from . import _ujoin
from .errors import UnsupportedError, invalid

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SupportsDLPack(Protocol):
    """An array that shares its memory by DLPack."""

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...


class DType(enum.IntEnum):
    """Element types."""

    F32 = _ujoin.UJOIN_F32
    F64 = _ujoin.UJOIN_F64
    F16 = _ujoin.UJOIN_F16
    BF16 = _ujoin.UJOIN_BF16
    I32 = _ujoin.UJOIN_I32
    I64 = _ujoin.UJOIN_I64
    U8 = _ujoin.UJOIN_U8


Memory: TypeAlias = "Buffer | SupportsDLPack | tuple[Buffer | SupportsDLPack, DType]"
"""Memory of the program's, used where it lies and never copied: an object with the buffer protocol (NumPy arrays,
`array.array`, `bytearray`), a tensor with DLPack in host memory, or a pair of a buffer and a type, for what a buffer cannot
say: `(bits_as_uint16, DType.BF16)`. It must be C-contiguous, and writable where it is written to."""

Timeout: TypeAlias = "float | datetime.timedelta | None"
"""Seconds. None is for ever where something is awaited, and the default where it limits an operation."""

Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"


class ReduceOp(enum.IntEnum):
    """Reductions. AVG divides by the number of contributors; MIN and MAX propagate NaN."""

    SUM = _ujoin.UJOIN_SUM
    AVG = _ujoin.UJOIN_AVG
    MIN = _ujoin.UJOIN_MIN
    MAX = _ujoin.UJOIN_MAX


class Division(enum.IntEnum):
    """What a summed gradient is divided by."""

    INITIAL = _ujoin.UJOIN_DIVISION_INITIAL
    """the size of the group"""
    ACTIVE = _ujoin.UJOIN_DIVISION_ACTIVE
    """the ranks that have not joined"""
    SAMPLES = _ujoin.UJOIN_DIVISION_SAMPLES
    """the samples of all ranks: equals one process that sees every sample"""


class GradientKind(enum.IntEnum):
    """What the program's gradients are, for `Division.SAMPLES`."""

    MEAN = _ujoin.UJOIN_GRADIENT_MEAN
    SUM = _ujoin.UJOIN_GRADIENT_SUM


class Optimizer(enum.IntEnum):
    """Update rules, with PyTorch's names and defaults of hyper-parameters."""

    SGD = _ujoin.UJOIN_OPTIMIZER_SGD
    ADAM = _ujoin.UJOIN_OPTIMIZER_ADAM
    ADAMW = _ujoin.UJOIN_OPTIMIZER_ADAMW


class SavePart(enum.IntFlag):
    """What `ZeroRedundancyOptimizer.save` writes and `load` reads."""

    STATE = _ujoin.UJOIN_SAVE_STATE
    PARAMETERS = _ujoin.UJOIN_SAVE_PARAMETERS


class ItemKind(enum.IntEnum):
    """Kinds of saved items."""

    TENSOR = _ujoin.UJOIN_ITEM_TENSOR
    NUMBER = _ujoin.UJOIN_ITEM_NUMBER
    TEXT = _ujoin.UJOIN_ITEM_TEXT
    BYTES = _ujoin.UJOIN_ITEM_BYTES


class ItemOwner(enum.IntEnum):
    """What a saved item belongs to."""

    PROGRAM = _ujoin.UJOIN_ITEM_OF_PROGRAM
    PARAM = _ujoin.UJOIN_ITEM_OF_PARAM
    GROUP = _ujoin.UJOIN_ITEM_OF_GROUP


class Std(enum.IntFlag):
    """Standard streams of a worker."""

    NONE = _ujoin.UJOIN_STD_NONE
    OUT = _ujoin.UJOIN_STD_OUT
    ERR = _ujoin.UJOIN_STD_ERR
    ALL = _ujoin.UJOIN_STD_ALL

    @classmethod
    def from_str(cls, text: str, nprocs: int | None = None) -> Std | dict[int, Std]:
        """Reads "3" (all ranks) or "0:1,12:3" (rank:value), as torchrun's options have them.

        Without `nprocs` as PyTorch does: one value, or a dict with the ranks that are named. With it: a dict of all ranks;
        ranks that are not named get NONE.
        """
        if nprocs is not None:
            return {rank: cls(value) for rank, value in enumerate(_ujoin.pctx_parse_std(text, nprocs))}
        if ":" not in text:
            return cls(_ujoin.pctx_parse_std(text, 1)[0])
        named = {int(part.partition(":")[0]) for part in text.split(",") if part.partition(":")[0].strip().isdigit()}
        values = _ujoin.pctx_parse_std(text, max(named, default=0) + 1)
        return {rank: cls(values[rank]) for rank in sorted(named)}


class Containment(enum.IntEnum):
    """How workers and their descendants are held."""

    GROUP = _ujoin.UJOIN_CONTAINMENT_GROUP
    WARDEN = _ujoin.UJOIN_CONTAINMENT_WARDEN


class WorkerState(enum.IntEnum):
    """State of a worker."""

    CREATED = _ujoin.UJOIN_WORKER_CREATED
    RUNNING = _ujoin.UJOIN_WORKER_RUNNING
    EXITED = _ujoin.UJOIN_WORKER_EXITED
    SIGNALED = _ujoin.UJOIN_WORKER_SIGNALED
    UNKNOWN = _ujoin.UJOIN_WORKER_UNKNOWN
    UNKILLABLE = _ujoin.UJOIN_WORKER_UNKILLABLE


Choice = TypeVar("Choice", bound=enum.IntEnum)


def choose(kind: type[Choice], value: Choice | int | str) -> Choice:
    """A choice by itself, its number or its name."""
    try:
        return kind[value.upper()] if isinstance(value, str) else kind(value)
    except (KeyError, ValueError):
        known = ", ".join(member.name.lower() for member in kind)
        raise invalid(f"{value!r} is no {kind.__name__}; expected one of {known}") from None


def milliseconds(timeout: float | datetime.timedelta) -> int:
    """At least one unless there is none to wait; -1 for infinity."""
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
    if seconds == math.inf:
        return -1
    if not seconds >= 0:
        raise invalid(f"a timeout of {seconds} seconds; expected 0 or more, infinity, or None")
    return math.ceil(seconds * 1000)


def patience(timeout: Timeout) -> int:
    """How long to wait, as a parameter: 0 = now, -1 = for ever."""
    return -1 if timeout is None else milliseconds(timeout)


def limit(timeout: Timeout) -> int:
    """A duration in options: 0 = the default."""
    if timeout is None:
        return 0
    return milliseconds(timeout) or int(_ujoin.UJOIN_NOW)


def adapt(memory: Any) -> tuple[Any, int] | None:
    """For objects whose memory the wrapper cannot read: a pair (buffer or DLPack capsule, dtype or 0); None = no way."""
    name = getattr(getattr(memory, "dtype", None), "name", None)
    if name == "bfloat16" and hasattr(memory, "view"):  # NumPy with ml_dtypes: a buffer cannot name this type
        return memory.view("uint16"), DType.BF16
    if not hasattr(memory, "__dlpack__") or not hasattr(memory, "__dlpack_device__"):
        return None
    device = memory.__dlpack_device__()
    if int(device[0]) not in (1, 3):  # host memory, page-locked host memory
        text = f"the tensor is on device {tuple(map(int, device))} (type, index); this version has host memory only"
        raise UnsupportedError(text, _ujoin.UJOIN_E_UNSUPPORTED)
    if getattr(memory, "requires_grad", False):  # PyTorch does not export what autograd follows
        memory = memory.detach()
    try:
        return memory.__dlpack__(max_version=(1, 0)), 0
    except TypeError:  # a producer older than DLPack 1.0
        return memory.__dlpack__(), 0
