# SPDX-License-Identifier: Apache-2.0
"""Nothing of ujoin.h is out of reach."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

import ujoin
from ujoin import _ujoin

# What a program in Python uses for each function of the header.
REACHED_BY = {
    "ujoin_version": "__version__",
    "ujoin_abi_version": "_ujoin.ujoin_abi_version",
    "ujoin_backends": "backends",
    "ujoin_last_error": "Error.__str__",
    "ujoin_last_errno": "errors.Error",
    "ujoin_last_missing": "errors.Error",
    "ujoin_status_name": "Error.status_name",
    "ujoin_set_last_error": "CallbackError",
    "ujoin_set_interrupt_check": "_ujoin.ujoin_set_interrupt_check",
    "ujoin_set_log_sink": "set_log_sink",
    "ujoin_store_create": "Store",
    "ujoin_store_prefix": "Store.prefix",
    "ujoin_store_url": "Store.url",
    "ujoin_store_set": "Store.set",
    "ujoin_store_get": "Store.get",
    "ujoin_store_add": "Store.add",
    "ujoin_store_wait": "Store.wait",
    "ujoin_store_abort": "Store.abort",
    "ujoin_store_destroy": "Store",
    "ujoin_group_create": "Group",
    "ujoin_group_split": "Group.split",
    "ujoin_group_rank": "Group.rank",
    "ujoin_group_size": "Group.size",
    "ujoin_group_get_info": "Group.info",
    "ujoin_group_close": "Group.close",
    "ujoin_group_abort": "Group.abort",
    "ujoin_group_destroy": "Group",
    "ujoin_all_reduce": "Group.all_reduce",
    "ujoin_broadcast": "Group.broadcast",
    "ujoin_all_gather": "Group.all_gather_into_tensor",
    "ujoin_reduce_scatter": "Group.reduce_scatter_tensor",
    "ujoin_submit": "Group.submit",
    "ujoin_barrier": "Group.barrier",
    "ujoin_work_wait": "Work.wait",
    "ujoin_work_test": "Work.is_completed",
    "ujoin_work_contributors": "Work.contributors",
    "ujoin_work_abort": "Work.abort",
    "ujoin_work_destroy": "Work",
    "ujoin_joinable_create": "Joinable",
    "ujoin_joinable_destroy": "Joinable",
    "ujoin_joinable_notify": "Join.notify_join_context",
    "ujoin_ctx_create": "Join",
    "ujoin_ctx_start": "Join.__enter__",
    "ujoin_ctx_finish": "Join.__exit__",
    "ujoin_ctx_stop": "Join.stop",
    "ujoin_ctx_stopped": "Join.stopped",
    "ujoin_ctx_abort": "Join.abort",
    "ujoin_ctx_get_report": "Join.report",
    "ujoin_ctx_rounds": "Join.rounds",
    "ujoin_ctx_destroy": "Join",
    "ujoin_ddp_create": "DistributedDataParallel",
    "ujoin_ddp_joinable": "DistributedDataParallel",
    "ujoin_ddp_forward": "DistributedDataParallel.forward",
    "ujoin_ddp_ready": "DistributedDataParallel.ready",
    "ujoin_ddp_finish": "DistributedDataParallel.finish",
    "ujoin_ddp_set_sync": "DistributedDataParallel.no_sync",
    "ujoin_ddp_set_comm_hook": "DistributedDataParallel.set_comm_hook",
    "ujoin_ddp_set_buffer_hook": "DistributedDataParallel.set_buffer_hook",
    "ujoin_ddp_gradient": "DistributedDataParallel.gradient",
    "ujoin_ddp_used": "DistributedDataParallel.used",
    "ujoin_ddp_get_report": "DistributedDataParallel.report",
    "ujoin_ddp_destroy": "DistributedDataParallel",
    "zero_create": "ZeroRedundancyOptimizer",
    "zero_joinable": "ZeroRedundancyOptimizer",
    "zero_step": "ZeroRedundancyOptimizer.step",
    "zero_add_param_group": "ZeroRedundancyOptimizer.add_param_group",
    "zero_group_count": "ZeroRedundancyOptimizer.param_groups",
    "zero_hyper_name": "ParamGroup.__iter__",
    "zero_set_hyper": "ZeroRedundancyOptimizer.set_hyper",
    "zero_get_hyper": "ParamGroup.__getitem__",
    "zero_param_data": "ZeroRedundancyOptimizer.param_data",
    "zero_set_gradient": "ZeroRedundancyOptimizer.set_gradient",
    "zero_set_frozen": "ZeroRedundancyOptimizer.set_frozen",
    "zero_clip_grad_norm": "ZeroRedundancyOptimizer.clip_grad_norm",
    "zero_clear_gradients": "ZeroRedundancyOptimizer.zero_grad",
    "zero_consolidate_state_dict": "ZeroRedundancyOptimizer.consolidate_state_dict",
    "zero_state_dict": "ZeroRedundancyOptimizer.state_dict",
    "zero_load_state_dict": "ZeroRedundancyOptimizer.load_state_dict",
    "zero_save": "ZeroRedundancyOptimizer.save",
    "zero_load": "ZeroRedundancyOptimizer.load",
    "zero_shard_count": "ZeroRedundancyOptimizer.shards",
    "zero_get_shard": "ZeroRedundancyOptimizer.shards",
    "zero_get_memory": "ZeroRedundancyOptimizer.memory",
    "zero_destroy": "ZeroRedundancyOptimizer",
    "ujoin_state_create": "State",
    "ujoin_state_set": "State.set",
    "ujoin_state_count": "State.__len__",
    "ujoin_state_get": "State.__iter__",
    "ujoin_state_find": "State.__getitem__",
    "ujoin_state_destroy": "State",
    "zero_schedule": "Schedule.__call__",
    "ujoin_memory_create": "SharedMemory",
    "ujoin_memory_data": "SharedMemory.buffer",
    "ujoin_memory_size": "SharedMemory.__len__",
    "ujoin_memory_destroy": "SharedMemory",
    "zero_scaler_create": "LossScaler",
    "zero_scaler_scale": "LossScaler.scale",
    "zero_scaler_get": "LossScaler.state",
    "zero_scaler_destroy": "LossScaler",
    "pctx_parse_std": "Std.from_str",
    "pctx_create": "PContext",
    "pctx_set_env": "PContext.set_env",
    "pctx_set_worker": "PContext.set_worker",
    "pctx_start": "PContext.start",
    "pctx_wait": "PContext.wait",
    "pctx_failed": "PContext.failed",
    "pctx_first_failure": "PContext.first_failure",
    "pctx_get_result": "PContext.result",
    "pctx_health": "PContext.health",
    "pctx_report": "PContext.report",
    "pctx_report_json": "PContext.report_json",
    "pctx_signal": "PContext.signal",
    "pctx_stop": "PContext.ask_stop",
    "pctx_close": "PContext.close",
    "pctx_abort": "PContext.abort",
    "pctx_destroy": "PContext",
    "pctx_register": "register",
    "pctx_worker_main": "worker_main",
    "pctx_return": "return_value",
    "pctx_record": "record",
    "pctx_record_error": "record_error",
    "pctx_record_crashes": "record_crashes",
}


def exported() -> set[str]:
    """The functions of the library that is loaded."""
    library = pathlib.Path(ujoin.__file__).parent / "lib" / "libujoin.so.0"
    table = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {match[1] for match in re.finditer(r" T (\w+)", table)}


def test_every_function_is_reached() -> None:
    assert exported() == set(REACHED_BY)
    for name in REACHED_BY.values():
        thing: object = ujoin
        for part in name.split("."):
            thing = getattr(thing, part)


def test_every_function_is_called_by_the_module() -> None:
    """What the extension imports from the library is all of it."""
    assert _ujoin.__file__ is not None
    table = subprocess.run(["nm", "-D", "--undefined-only", _ujoin.__file__], capture_output=True, text=True, check=True)
    imported = {match[1] for match in re.finditer(r" U (\w+)", table.stdout)}
    assert exported() <= imported
    for name in exported():
        assert name.endswith("_destroy") or callable(getattr(_ujoin, name))


def test_only_the_limited_api_is_used() -> None:
    """The module is for every CPython from 3.11 on: it needs nothing that only this one has."""
    assert _ujoin.__file__ is not None
    assert _ujoin.__file__.endswith("/_ujoin.abi3.so")
    table = subprocess.run(["nm", "-D", "--undefined-only", _ujoin.__file__], capture_output=True, text=True, check=True)
    assert not re.findall(
        r" U (_Py(?!_NoneStruct|_TrueStruct|_FalseStruct|_NotImplementedStruct|_Dealloc|\w+_SizeT|Object_New)\w+)",
        table.stdout,
    )


def test_everything_public_is_documented_and_typed() -> None:
    for name in ujoin.__all__:
        thing = getattr(ujoin, name)
        if isinstance(thing, type) or callable(thing):
            assert thing.__doc__, name


def test_an_older_library_is_refused(tmp_path: pathlib.Path) -> None:
    program = (
        "import sys, types, importlib.util\n"
        "import ujoin._ujoin as real\n"
        "for name in [n for n in sys.modules if n.startswith('ujoin')]: del sys.modules[name]\n"
        "class Old(types.ModuleType):\n"
        "    def __getattr__(self, name): return getattr(real, name)\n"
        "    def ujoin_abi_version(self): return real.UJOIN_ABI_VERSION - 1\n"
        "sys.modules['ujoin._ujoin'] = Old('ujoin._ujoin')\n"
        "try: import ujoin\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert re.match(r"libujoin 0\.\d+\.\d+ has ABI 0, but this package was built for 1", done.stdout)


@pytest.mark.parametrize("status", sorted(range(-14, 0)))
def test_each_status_has_a_class(status: int) -> None:
    error = ujoin.errors.error(status, "text")
    assert type(error) is ujoin.errors.BY_STATUS[status]
    assert error.status_name.startswith("UJOIN_E_")
    assert (str(error), error.status, error.errno, error.ranks) == ("text", status, 0, ())
