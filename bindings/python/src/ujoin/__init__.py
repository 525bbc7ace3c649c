# SPDX-License-Identifier: Apache-2.0
"""ujoin: join contexts, sharded optimizers and process contexts for data-parallel training.

    group = ujoin.init_process_group()
    ddp = ujoin.DistributedDataParallel(params, grads, division="samples")
    opt = ujoin.ZeroRedundancyOptimizer(params, "adamw", lr=3e-4)
    with ujoin.Join([ddp, opt]):
        for x, y in batches:                       # ranks have different numbers of batches
            with ddp.iteration(samples=len(x)):
                backward(x, y, ready=ddp.ready)
            opt.step()

Rules. **Memory** is the program's: arrays are used where they lie, and held (a `bytearray` cannot be resized) until a call
has returned, the `Work` has its final status, or the object over them has ended. **Threads**: any, one call at a time per
object, except where "from any thread" is said; a second call raises `StateError`. Every call that can wait releases the
interpreter lock. **Signals**: Ctrl-C, and any other signal with a handler, ends a wait of the main thread. **Errors** are
`ujoin.Error`s that name rank, operation and cause; a failed operation breaks its group. **Fork**: the child makes objects of
its own; the parent's raise `StateError` there. Running out of time is no error where something is awaited: False or None.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from . import _ujoin, errors, log
from . import types as _types
from .collectives import Op
from .ddp import Bucket, DDPReport, DistributedDataParallel
from .errors import (
    AbortedError,
    BackendError,
    CallbackError,
    ChildFailedError,
    Error,
    ExhaustedError,
    InternalError,
    InvalidError,
    MismatchError,
    NoMemoryError,
    PeerLostError,
    StateError,
    SystemError,
    TimeoutError,
    UnsupportedError,
)
from .functions import WorkerArgs, record, record_crashes, record_error, register, return_value, worker_main
from .group import (
    Group,
    GroupInfo,
    destroy_process_group,
    forget_process_group,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)
from .join import HookArgs, Join, Joinable, JoinHook, JoinReport
from .log import set_log_level, set_log_sink
from .memory import SharedMemory
from .params import Gradients, Params
from .pctx import PContext, ProcessFailure, RunProcsResult, WorkerHealth, WorkerResult, start_processes
from .schedule import LossScaler, ScalerState, Schedule
from .state import Item, State
from .store import Store
from .types import (
    Binding,
    BufferTime,
    CommHook,
    ConsolePolicy,
    Containment,
    Division,
    DType,
    GradientKind,
    GradientSync,
    ItemKind,
    ItemOwner,
    Memory,
    OpKind,
    Optimizer,
    Partition,
    ReduceOp,
    SavePart,
    ScheduleKind,
    StartMethod,
    Std,
    Stdin,
    WorkerState,
)
from .work import Work
from .zero import ParamGroup, Rule, RuleArgs, Shard, ZeroMemory, ZeroRedundancyOptimizer

if _ujoin.ujoin_abi_version() < _ujoin.UJOIN_ABI_VERSION:
    raise ImportError(
        f"libujoin {_ujoin.ujoin_version()} has ABI {_ujoin.ujoin_abi_version()}, "
        f"but this package was built for {_ujoin.UJOIN_ABI_VERSION}"
    )

__version__ = _ujoin.ujoin_version()


def backends() -> dict[str, tuple[bool, str]]:
    """What this build and this machine can do: for each backend whether it can be used, and why not or with what."""
    lines = [line.split("\t") for line in _ujoin.ujoin_backends().splitlines()]
    return {name: (able == "yes", note) for name, able, note in lines}


def _after_fork_in_child() -> None:
    _ujoin.after_fork()
    forget_process_group()


_ujoin.install(errors.BY_STATUS, _types.adapt)
atexit.register(_ujoin.leave)  # before anything of the program's, so that it runs after it
os.register_at_fork(after_in_child=_after_fork_in_child)
_ujoin.ujoin_set_interrupt_check(threading.main_thread().ident or 0)
log.set_log_level(logging.WARNING)

__all__ = [
    "AbortedError",
    "BackendError",
    "Binding",
    "Bucket",
    "BufferTime",
    "CallbackError",
    "ChildFailedError",
    "CommHook",
    "ConsolePolicy",
    "Containment",
    "DDPReport",
    "DType",
    "DistributedDataParallel",
    "Division",
    "Error",
    "ExhaustedError",
    "GradientKind",
    "GradientSync",
    "Gradients",
    "Group",
    "GroupInfo",
    "HookArgs",
    "InternalError",
    "InvalidError",
    "Item",
    "ItemKind",
    "ItemOwner",
    "Join",
    "JoinHook",
    "JoinReport",
    "Joinable",
    "LossScaler",
    "Memory",
    "MismatchError",
    "NoMemoryError",
    "Op",
    "OpKind",
    "Optimizer",
    "PContext",
    "ParamGroup",
    "Params",
    "Partition",
    "PeerLostError",
    "ProcessFailure",
    "ReduceOp",
    "Rule",
    "RuleArgs",
    "RunProcsResult",
    "SavePart",
    "ScalerState",
    "Schedule",
    "ScheduleKind",
    "Shard",
    "SharedMemory",
    "StartMethod",
    "State",
    "StateError",
    "Std",
    "Stdin",
    "Store",
    "SystemError",
    "TimeoutError",
    "UnsupportedError",
    "Work",
    "WorkerArgs",
    "WorkerHealth",
    "WorkerResult",
    "WorkerState",
    "ZeroMemory",
    "ZeroRedundancyOptimizer",
    "backends",
    "destroy_process_group",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_initialized",
    "new_group",
    "record",
    "record_crashes",
    "record_error",
    "register",
    "return_value",
    "set_log_level",
    "set_log_sink",
    "start_processes",
    "worker_main",
]
