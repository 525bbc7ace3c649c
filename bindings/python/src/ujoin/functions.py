# SPDX-License-Identifier: Apache-2.0
"""Functions as workers, and what a worker leaves when it fails."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from multiprocessing import spawn
from typing import NamedTuple, ParamSpec, TypeVar

from . import _ujoin
from .errors import ChildFailedError, Error
from .types import Memory

P = ParamSpec("P")
Result = TypeVar("Result")

CALLABLE = "ujoin.callable"
"""The registered function that runs a pickled one."""


class WorkerArgs(NamedTuple):
    """What a registered function is told."""

    args: tuple[str, ...]
    input: bytes
    """`PContext.set_worker(input=...)`"""
    rank: int
    nprocs: int


def register(name: str, function: Callable[[WorkerArgs], None]) -> None:
    """Gives a function a name that `PContext(function=name)` starts, in the launcher and in its workers alike: at the top
    level of a module that both import, such as the script itself. What it gives to `return_value` comes back in
    `WorkerResult.value`; what it raises is the worker's failure."""

    def run(args: tuple[str, ...], given: bytes, rank: int, nprocs: int) -> str | None:
        return _guarded(lambda: function(WorkerArgs(args, given, rank, nprocs)))

    _ujoin.pctx_register(name, run)


def return_value(data: Memory | bytes) -> None:
    """In a registered function that runs as a worker: what it returns to the launcher. Copied, once, of any size."""
    _ujoin.pctx_return(data)


def record_error(message: str, traceback: str | None = None, code: int = 0) -> None:
    """Writes error.json for this worker, where TORCHELASTIC_ERROR_FILE says; the launcher's report shows it. A later record
    replaces an earlier one."""
    _ujoin.pctx_record_error(message, traceback, code)


def record_crashes() -> None:
    """From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a record with a backtrace in error.json, then go to the
    handler that was there before (such as faulthandler's). Process-wide."""
    _ujoin.pctx_record_crashes()


def record(function: Callable[P, Result]) -> Callable[P, Result]:
    """A decorator for the main function of a worker: an exception that leaves it is recorded as `record_error` does, with
    its traceback, and goes on. A `ChildFailedError` (of `RunProcsResult.check`) hands on the record of the worker that
    failed first."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        failure: Exception | None = None
        leaving: BaseException | None = None

        def call() -> Result | None:
            nonlocal failure, leaving
            try:
                return function(*args, **kwargs)
            except Exception as error:
                failure = error
                raise
            except BaseException as error:  # sys.exit is no failure
                leaving = error
                return None

        try:
            result = _ujoin.pctx_record(call)
        except Error:
            if failure is None:
                raise
        if leaving is not None:
            raise leaving
        if failure is None:
            return result  # type: ignore[no-any-return]
        if not isinstance(failure, ChildFailedError):
            record_error(_summary(failure), _trace(failure))
        raise failure

    return run


# ------------------------------------------------------------------------------------------------------ inside a worker
_failure: BaseException | None = None


def bootstrap() -> bytes:
    """The program that a new interpreter reads from its stdin: it becomes what this process is, as multiprocessing's spawn
    has it (path, main module under the name "__mp_main__"), and runs its function."""
    facts = spawn.get_preparation_data("ujoin")
    facts.pop("authkey", None)
    return (
        f"import sys; sys.path[:] = {sys.path!a}; sys.executable = {sys.executable!a}\n"
        f"from ujoin import functions; functions.main({pickle.dumps(facts)!a})\n"
    ).encode()


def main(facts: bytes) -> None:
    """What `bootstrap` runs."""
    with open(os.devnull, "rb") as nothing:  # stdin was for this program
        os.dup2(nothing.fileno(), 0)
    try:
        spawn.prepare(pickle.loads(facts))
        _ujoin.pctx_register(CALLABLE, _run_pickled)
    except Exception as error:
        record_error(_summary(error), _trace(error))
        raise
    code = worker_main()
    if _failure is not None and os.environ.get("TORCHELASTIC_ERROR_FILE"):
        record_error(_summary(_failure), _trace(_failure))
    sys.exit(code)


def worker_main() -> int | None:
    """If this process is a function worker, runs its function and returns the exit code; None: it is none. Python's workers
    do it by themselves."""
    done, code = _ujoin.pctx_worker_main()
    return code if done else None


def _run_pickled(args: tuple[str, ...], given: bytes, rank: int, nprocs: int) -> str | None:
    def call() -> None:
        function, arguments = pickle.loads(given)
        try:
            value = function(*arguments)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
            value = None
        _ujoin.pctx_return(pickle.dumps(value))

    return _guarded(call)


def _guarded(call: Callable[[], None]) -> str | None:
    """The text of what is raised, which is kept for the error file."""
    global _failure
    try:
        call()
    except BaseException as error:
        _failure = error
        return f"{_summary(error)}\n\n{_trace(error)}"
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return None


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
