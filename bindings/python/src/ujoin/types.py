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


FORMATS = {DType.F32: "f", DType.F64: "d", DType.I32: "i", DType.I64: "q", DType.U8: "B", DType.F16: "H", DType.BF16: "H"}

ITEM_SIZES = {DType.F32: 4, DType.F64: 8, DType.F16: 2, DType.BF16: 2, DType.I32: 4, DType.I64: 8, DType.U8: 1}

Memory: TypeAlias = "Buffer | SupportsDLPack | tuple[Buffer | SupportsDLPack, DType]"
"""Memory of the program's, used where it lies and never copied: an object with the buffer protocol (NumPy arrays,
`array.array`, `bytearray`), a tensor with DLPack in host memory, or a pair of a buffer and a type, for what a buffer cannot
say: `(bits_as_uint16, DType.BF16)`. It must be C-contiguous, and writable where it is written to."""

Timeout: TypeAlias = "float | datetime.timedelta | None"
"""Seconds. None is for ever where something is awaited, and the default where it limits an operation."""

Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"


class ReduceOp(enum.IntEnum):
    """Reductions. AVG divides by the number of contributors (integers: toward zero); MIN and MAX propagate NaN; sums and
    products of integers wrap."""

    SUM = _ujoin.UJOIN_SUM
    AVG = _ujoin.UJOIN_AVG
    MIN = _ujoin.UJOIN_MIN
    MAX = _ujoin.UJOIN_MAX
    PROD = _ujoin.UJOIN_PROD
    PRODUCT = PROD
    """PyTorch's name"""


class OpKind(enum.IntEnum):
    """Kinds of operations. n = elements, W = size of the group; what a rank sends -> what it receives."""

    BARRIER = _ujoin.UJOIN_OP_BARRIER
    ALL_REDUCE = _ujoin.UJOIN_OP_ALL_REDUCE
    """n -> n"""
    REDUCE = _ujoin.UJOIN_OP_REDUCE
    """n -> n at the root; elsewhere nothing is written"""
    BROADCAST = _ujoin.UJOIN_OP_BROADCAST
    """n at the root -> n: the root gives `send` or `recv`, the others `recv`"""
    ALL_GATHER = _ujoin.UJOIN_OP_ALL_GATHER
    """n -> W n, by rank, or `recv_counts`"""
    GATHER = _ujoin.UJOIN_OP_GATHER
    """n -> W n at the root, or its `recv_counts`"""
    SCATTER = _ujoin.UJOIN_OP_SCATTER
    """W n at the root, or its `send_counts` -> n"""
    REDUCE_SCATTER = _ujoin.UJOIN_OP_REDUCE_SCATTER
    """W n -> n, or `recv_counts`"""
    ALL_TO_ALL = _ujoin.UJOIN_OP_ALL_TO_ALL
    """W n -> W n, or `send_counts` and `recv_counts`"""
    SEND = _ujoin.UJOIN_OP_SEND
    """n to the rank `peer`"""
    RECV = _ujoin.UJOIN_OP_RECV
    """n from the rank `peer`"""


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


class GradientSync(enum.IntEnum):
    """Who sums the gradients."""

    ALL = _ujoin.UJOIN_GRADIENT_SYNC_ALL
    """the reducer, for every rank"""
    TO_OWNER = _ujoin.UJOIN_GRADIENT_SYNC_TO_OWNER
    """the step of the optimizer that is made with the reducer, each element for the rank that owns it"""


class Optimizer(enum.IntEnum):
    """Update rules, with PyTorch's names and defaults of hyper-parameters."""

    SGD = _ujoin.UJOIN_OPTIMIZER_SGD
    ADAM = _ujoin.UJOIN_OPTIMIZER_ADAM
    ADAMW = _ujoin.UJOIN_OPTIMIZER_ADAMW
    ADAGRAD = _ujoin.UJOIN_OPTIMIZER_ADAGRAD
    RMSPROP = _ujoin.UJOIN_OPTIMIZER_RMSPROP
    ADADELTA = _ujoin.UJOIN_OPTIMIZER_ADADELTA
    ADAMAX = _ujoin.UJOIN_OPTIMIZER_ADAMAX
    NADAM = _ujoin.UJOIN_OPTIMIZER_NADAM
    RADAM = _ujoin.UJOIN_OPTIMIZER_RADAM
    RPROP = _ujoin.UJOIN_OPTIMIZER_RPROP
    LAMB = _ujoin.UJOIN_OPTIMIZER_LAMB
    LION = _ujoin.UJOIN_OPTIMIZER_LION


class CommHook(enum.IntEnum):
    """Ways to reduce a bucket of gradients."""

    ALL_REDUCE = _ujoin.UJOIN_COMM_HOOK_ALL_REDUCE
    """the gradients as they are"""
    F16 = _ujoin.UJOIN_COMM_HOOK_F16
    """as float16 on the way; what is beyond 65504 becomes infinite"""
    BF16 = _ujoin.UJOIN_COMM_HOOK_BF16
    """as bfloat16 on the way"""
    LOW_RANK = _ujoin.UJOIN_COMM_HOOK_LOW_RANK
    """matrices as low-rank factors with error feedback (PowerSGD)"""


class BufferTime(enum.IntEnum):
    """When a buffer hook runs."""

    AFTER_FORWARD = _ujoin.UJOIN_BUFFER_AFTER_FORWARD
    """in `DistributedDataParallel.finish`"""
    BEFORE_FORWARD = _ujoin.UJOIN_BUFFER_BEFORE_FORWARD
    """in `DistributedDataParallel.forward`"""


class ScheduleKind(enum.IntEnum):
    """Shapes of schedules."""

    CONSTANT = _ujoin.UJOIN_SCHEDULE_CONSTANT
    COSINE = _ujoin.UJOIN_SCHEDULE_COSINE
    """from base to minimum along half a cosine, at total_steps and then on"""
    LINEAR = _ujoin.UJOIN_SCHEDULE_LINEAR
    """likewise, in a straight line"""
    STEP = _ujoin.UJOIN_SCHEDULE_STEP
    """times gamma every `every` steps, but not below minimum"""


class Partition(enum.IntEnum):
    """How `ZeroRedundancyOptimizer` gives parameters to ranks. Rules that work element by element give the same bits with
    either, and on any number of ranks."""

    PARAMETERS = _ujoin.UJOIN_PARTITION_PARAMETERS
    """whole ones, largest first, to the rank with the fewest elements: PyTorch's"""
    ELEMENTS = _ujoin.UJOIN_PARTITION_ELEMENTS
    """each param group end to end, cut at cache lines: within one of equal parts"""


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
    """session and process group"""
    WARDEN = _ujoin.UJOIN_CONTAINMENT_WARDEN
    """a helper process outlives this one and ends all, also if this one is killed"""
    CGROUP = _ujoin.UJOIN_CONTAINMENT_CGROUP
    """the same, and all are in a cgroup of their own, which is killed as one; `SystemError` where none can be made"""
    BEST = _ujoin.UJOIN_CONTAINMENT_BEST
    """a cgroup where one can be made, else a warden"""


class StartMethod(enum.IntEnum):
    """How a worker that runs a function of a library comes to be. Functions of Python's are always SPAWN."""

    SPAWN = _ujoin.UJOIN_START_SPAWN
    """the interpreter is executed again"""
    FORK = _ujoin.UJOIN_START_FORK
    """a copy of this process, without an interpreter that can run"""


class ConsolePolicy(enum.IntEnum):
    """What happens when the console is slower than the workers; files always get everything."""

    BLOCK = _ujoin.UJOIN_CONSOLE_BLOCK
    """the workers wait"""
    DROP = _ujoin.UJOIN_CONSOLE_DROP
    """lines are dropped and counted; a note in their place says how many"""
    SPILL = _ujoin.UJOIN_CONSOLE_SPILL
    """what is late is in the log file alone"""


class Stdin(enum.IntEnum):
    """Where a worker's stdin comes from, if not from bytes or a file."""

    NULL = _ujoin.UJOIN_STDIN_NULL
    INHERIT = _ujoin.UJOIN_STDIN_INHERIT
    """this process's; one worker at most"""


class Binding(enum.IntEnum):
    """Placement of workers on the processors that this process may use, and their memory nodes."""

    NONE = _ujoin.UJOIN_BINDING_NONE
    SPREAD = _ujoin.UJOIN_BINDING_SPREAD
    """worker after worker on another memory node, a part of its processors for each"""
    COMPACT = _ujoin.UJOIN_BINDING_COMPACT
    """side by side: equal parts of the processors in their order"""
    LIST = _ujoin.UJOIN_BINDING_LIST
    """`PContext.set_worker(cpus=...)`"""


class WorkerState(enum.IntEnum):
    """State of a worker."""

    CREATED = _ujoin.UJOIN_WORKER_CREATED
    RUNNING = _ujoin.UJOIN_WORKER_RUNNING
    EXITED = _ujoin.UJOIN_WORKER_EXITED
    SIGNALED = _ujoin.UJOIN_WORKER_SIGNALED
    UNKNOWN = _ujoin.UJOIN_WORKER_UNKNOWN
    UNKILLABLE = _ujoin.UJOIN_WORKER_UNKILLABLE
    NO_VALUE = _ujoin.UJOIN_WORKER_NO_VALUE
    """exited with 0, but its function had not returned: a failure"""


Choice = TypeVar("Choice", bound=enum.IntEnum)


def view(memory: memoryview, dtype: DType, shape: tuple[int, ...] = ()) -> memoryview:
    """Bytes of the library's as elements: float16 and bfloat16 as their bits (format "H")."""
    flat = memory.cast(FORMATS[dtype])  # type: ignore[call-overload]
    if len(shape) > 1 and len(flat) > 0:
        return memory.cast(FORMATS[dtype], shape)  # type: ignore[call-overload,no-any-return]
    return flat  # type: ignore[no-any-return]


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
