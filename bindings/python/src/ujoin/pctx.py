# SPDX-License-Identifier: Apache-2.0
"""Worker processes: start, watch, log, stop."""

from __future__ import annotations

import os
import signal as signals
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from . import _ujoin
from .errors import ChildFailedError, UnsupportedError, invalid
from .types import Containment, Path, Std, Timeout, WorkerState, limit, patience


class WorkerResult(NamedTuple):
    """A worker: what is known now, and how it ended. Times are in seconds, those of the day since 1970."""

    state: WorkerState
    rank: int
    pid: int
    exit_code: int
    """-1 unless exited"""
    signal: int
    """0 unless signaled"""
    failed: bool
    """by itself"""
    stopped: bool
    """ended because of another's failure, or on request: a victim, not a cause"""
    containment: Containment
    start: float
    end: float
    """0 while it runs"""
    last_output: float
    user_time: float
    system_time: float
    peak_bytes: int
    stdout_bytes: int
    stderr_bytes: int
    stdout_path: str
    """"" if there is no file"""
    stderr_path: str


@dataclass(frozen=True)
class ProcessFailure:
    """A worker that failed by itself. `exitcode` is negative where a signal ended it."""

    local_rank: int
    pid: int
    exitcode: int
    message: str

    def signal_name(self) -> str:
        """Such as "SIGSEGV"; "<N/A>" where no signal ended it."""
        return signals.Signals(-self.exitcode).name if self.exitcode < 0 else "<N/A>"


@dataclass(frozen=True)
class RunProcsResult:
    """How all workers ended."""

    return_values: dict[int, Any] = field(default_factory=dict)
    """by rank; None for programs"""
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    """path of the file, "" if there is none"""
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether a worker failed."""
        return bool(self.failures)


class PContext:
    """A job of `nprocs` workers that run programs; `start_processes` makes and starts one.

    `args`: of all workers, or by rank; `envs`: by rank, over what a worker inherits (None removes a variable).
    `redirects`: streams that go to files instead of the console, `tee`: to both; for all, or by rank. `log_dir`: None = a
    fresh temporary one if a file is needed. `prefix`: of console lines, with ${role_name}, ${rank}, ${local_rank}.
    `grace`: between the polite signal and SIGKILL, by default 30 s. `drain`: for output that a grandchild still holds
    after a worker's end, by default 1 s. `partial_line`: an unfinished line goes to the console after this, 0.2 s.
    As a context manager it ends all workers when it is left.
    """

    def __init__(
        self,
        name: str,
        entrypoint: Path,
        args: Sequence[Any] | Mapping[int, Sequence[Any]] = (),
        envs: Mapping[int, Mapping[str, str | None]] | None = None,
        log_dir: Path | None = None,
        redirects: Std | Mapping[int, Std] = Std.NONE,
        tee: Std | Mapping[int, Std] = Std.NONE,
        *,
        nprocs: int | None = None,
        run_id: str | None = None,
        prefix: str | None = None,
        grace: Timeout = None,
        drain: Timeout = None,
        partial_line: Timeout = None,
        first_rank: int = 0,
        restart_count: int = 0,
        containment: Containment = Containment.GROUP,
        same_session: bool = False,
    ) -> None:
        if callable(entrypoint):
            raise UnsupportedError(
                "start_processes runs programs; functions as workers are not in this version", _ujoin.UJOIN_E_UNSUPPORTED
            )
        self.name = name
        self.nprocs = _count(args, envs, nprocs)
        everyone = () if isinstance(args, Mapping) else _texts(args)
        self._handle = _ujoin.pctx_create(
            name,
            os.fsencode(entrypoint),
            everyone,
            None if log_dir is None else os.fsencode(log_dir),
            run_id,
            prefix,
            limit(grace),
            limit(drain),
            limit(partial_line),
            self.nprocs,
            first_rank,
            restart_count,
            Std.NONE if isinstance(redirects, Mapping) else redirects,
            Std.NONE if isinstance(tee, Mapping) else tee,
            containment,
            same_session,
        )
        self._set_workers(args, redirects, tee)
        for rank, variables in (envs or {}).items():
            for variable, value in variables.items():
                self.set_env(variable, value, rank)

    def _set_workers(self, args: Any, redirects: Any, tee: Any) -> None:
        if not any(isinstance(choice, Mapping) for choice in (args, redirects, tee)):
            return
        for rank in range(self.nprocs):
            own = args.get(rank, ()) if isinstance(args, Mapping) else None
            streams = [choice.get(rank, Std.NONE) if isinstance(choice, Mapping) else choice for choice in (redirects, tee)]
            self.set_worker(rank, args=own, redirects=streams[0], tee=streams[1])

    def set_env(self, name: str, value: str | None, rank: int | None = None) -> None:
        """Sets a variable for one worker, or all; None removes it. Before the start."""
        text = None if value is None else os.fsencode(value)
        _ujoin.pctx_set_env(self._handle, -1 if rank is None else rank, name, text)

    def set_worker(
        self,
        rank: int | None = None,
        *,
        program: Path | None = None,
        args: Sequence[Any] | None = None,
        directory: Path | None = None,
        redirects: Std | None = None,
        tee: Std | None = None,
    ) -> None:
        """Gives one worker, or all, what is not None: a program, arguments, a working directory, streams. Before the
        start."""
        _ujoin.pctx_set_worker(
            self._handle,
            -1 if rank is None else rank,
            None if program is None else os.fsencode(program),
            None if args is None else _texts(args),
            None if directory is None else os.fsencode(directory),
            0 if redirects is None else redirects | _ujoin.UJOIN_STD_SET,
            0 if tee is None else tee | _ujoin.UJOIN_STD_SET,
        )

    def start(self) -> None:
        """Starts all workers, or none. `SystemError` says which one could not be executed, and why."""
        _ujoin.pctx_start(self._handle)

    def wait(self, timeout: Timeout = -1, period: float = 1) -> RunProcsResult | None:
        """Waits until all workers have ended well, or one has failed and the others have been ended because of it. None:
        neither in this time. A negative timeout is for ever; `period` is PyTorch's and not needed."""
        forever = isinstance(timeout, int | float) and timeout < 0
        try:
            if _ujoin.pctx_wait(self._handle, patience(None if forever else timeout)) == _ujoin.UJOIN_PENDING:
                return None
        except ChildFailedError:
            pass
        return self._result()

    def _result(self) -> RunProcsResult:
        results = self.results
        report = self.report
        return RunProcsResult(
            {} if self.failed else {worker.rank: None for worker in results},
            {w.rank: ProcessFailure(w.rank, w.pid, -w.signal or w.exit_code, report) for w in results if w.failed},
            {worker.rank: worker.stdout_path for worker in results},
            {worker.rank: worker.stderr_path for worker in results},
        )

    def result(self, rank: int) -> WorkerResult:
        """What is known of one worker, at any time."""
        fields = _ujoin.pctx_get_result(self._handle, rank)
        state, number, pid, code, signal, failed, stopped, containment, start, end, last, user, system, *rest = fields
        held, seconds = Containment(containment), (start / 1e9, end / 1e9, last / 1e9, user / 1e6, system / 1e6)
        return WorkerResult(WorkerState(state), number, pid, code, signal, failed != 0, stopped != 0, held, *seconds, *rest)

    @property
    def results(self) -> list[WorkerResult]:
        """What is known of all workers."""
        return [self.result(rank) for rank in range(self.nprocs)]

    def pids(self) -> dict[int, int]:
        """The process numbers, by rank."""
        return {worker.rank: worker.pid for worker in self.results}

    @property
    def failed(self) -> bool:
        """Whether a worker has failed by itself."""
        return _ujoin.pctx_failed(self._handle) != 0

    @property
    def first_failure(self) -> int | None:
        """The rank of the worker that failed first, never a victim; None if none did."""
        rank = _ujoin.pctx_first_failure(self._handle)
        return None if rank < 0 else rank

    @property
    def report(self) -> str:
        """The failure for a person: first cause, exit code or signal, last lines of its stderr. "" if nothing failed."""
        return _ujoin.pctx_report(self._handle)

    def signal(self, signal: int, rank: int | None = None) -> None:
        """Sends a signal to one worker's process group, or to all. From any thread."""
        _ujoin.pctx_signal(self._handle, -1 if rank is None else rank, signal)

    def close(self, death_sig: int | None = None, timeout: Timeout = 30) -> bool:
        """Ends all workers: the signal (SIGTERM) to their groups, SIGKILL to what is left after `timeout` seconds, then
        reads the rest of their output. False: the console does not take it."""
        return _ujoin.pctx_close(self._handle, death_sig or 0, patience(timeout)) == _ujoin.UJOIN_OK

    def abort(self) -> None:
        """Kills all workers now and wakes whoever waits. From any thread."""
        _ujoin.pctx_abort(self._handle)

    def __enter__(self) -> PContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_processes(
    name: str,
    entrypoint: Path,
    args: Sequence[Any] | Mapping[int, Sequence[Any]] = (),
    envs: Mapping[int, Mapping[str, str | None]] | None = None,
    log_dir: Path | None = None,
    redirects: Std | Mapping[int, Std] = Std.NONE,
    tee: Std | Mapping[int, Std] = Std.NONE,
    *,
    nprocs: int | None = None,
    **options: Any,
) -> PContext:
    """Starts workers that run a program (a path, or a name in PATH; no shell) and returns their `PContext`, whose class
    says what the arguments are. Functions as workers are not in this version.

        result = start_processes("trainer", "./train", args={0: ("a",), 1: ("b",)}, log_dir="logs", redirects=Std.ALL).wait()
        if result.is_failed(): ...
    """
    context = PContext(name, entrypoint, args, envs, log_dir, redirects, tee, nprocs=nprocs, **options)
    context.start()
    return context


def _texts(args: Sequence[Any]) -> list[bytes]:
    return [os.fsencode(arg) if isinstance(arg, str | bytes | os.PathLike) else str(arg).encode() for arg in args]


def _count(args: Any, envs: Mapping[int, Any] | None, nprocs: int | None) -> int:
    """The number of workers: as given, or as the dicts by rank have it."""
    counts = {len(given) for given in (args, envs) if isinstance(given, Mapping)}
    counts |= {nprocs} if nprocs is not None else set()
    if len(counts) > 1:
        raise invalid(f"args, envs and nprocs are about different numbers of workers: {sorted(counts)}")
    for given in (args, envs):
        if isinstance(given, Mapping) and set(given) != set(range(len(given))):
            raise invalid(f"args and envs by rank must have the ranks 0 to {len(given) - 1}, not {sorted(given)}")
    return counts.pop() if counts else 1
