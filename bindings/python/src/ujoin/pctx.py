# SPDX-License-Identifier: Apache-2.0
"""Worker processes: start, watch, log, stop."""

from __future__ import annotations

import os
import pickle
import signal as signals
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from . import _ujoin, functions
from .errors import ChildFailedError, UnsupportedError, invalid
from .types import (
    Binding,
    ConsolePolicy,
    Containment,
    Path,
    StartMethod,
    Std,
    Stdin,
    Timeout,
    WorkerState,
    choose,
    limit,
    patience,
)


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
    failure_time: float
    """of a failed or stopped one: the time in its error file, else `end`; 0 otherwise"""
    last_output: float
    user_time: float
    system_time: float
    peak_bytes: int
    stdout_bytes: int
    stderr_bytes: int
    dropped_lines: int
    """of the console"""
    value: bytes | None
    """what a function worker returned; that of a Python function is pickled"""
    message: str
    """of error.json, else of the signal, else how to get one; "" if it did not fail"""
    traceback: str
    """of error.json, else the last lines of stderr; "" if there are none"""
    stdout_path: str
    """"" if there is no file"""
    stderr_path: str
    error_path: str
    """of the error.json that it wrote; "" if it wrote none"""


class WorkerHealth(NamedTuple):
    """What a worker does now; its group's words are its own. Times are seconds since 1970, to a few ms."""

    state: WorkerState
    rank: int
    pid: int
    group_pid: int
    """the process that has the group: the worker, or one that it started"""
    group_rank: int | None
    """None: it has no group that tells; then only its state and output are known"""
    group_size: int
    groups: int
    """that tell, 4 at most; the one described waits longest, else is busy longest, else is the first"""
    in_operation: bool
    in_context: bool
    """a join context is armed"""
    joined: bool
    """it works for the others"""
    broken: bool
    """an operation has failed: the group is of no use any more"""
    sequence: int
    """number of the operation that its group is in, or was in last, from 1; 0: none yet"""
    round: int | None
    """of the join context that is armed"""
    since: float
    """what it does now began; 0 without a group"""
    last_output: float
    """0: nothing yet, or the stream is not read here"""
    missing: tuple[int, ...]
    """the ranks of its group that it waits for"""
    operation: str
    """such as "all_reduce": the last one that began"""
    waiting_for: str
    """such as "all_reduce(sum, f32, 100)"; "": it does not wait"""
    group: str
    """the group's name"""
    text: str
    """all this in one line for a person"""


@dataclass(frozen=True)
class ProcessFailure:
    """A worker that failed by itself. `exitcode` is negative where a signal ended it."""

    local_rank: int
    pid: int
    exitcode: int
    message: str
    """what it left in its error.json, if it did"""
    traceback: str = ""
    """of an exception, or the last lines of its stderr"""
    timestamp: float = 0
    """seconds since 1970"""
    error_file: str = ""
    """the error.json that it wrote; "" if it wrote none"""

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
    report: str = ""
    """the failure for a person"""

    def is_failed(self) -> bool:
        """Whether a worker failed."""
        return bool(self.failures)

    def check(self) -> RunProcsResult:
        """Itself, or `ChildFailedError` with the report."""
        if self.is_failed():
            raise ChildFailedError(self.report, _ujoin.UJOIN_E_CHILD_FAILED, ranks=tuple(self.failures))
        return self


class PContext:
    """A job of `nprocs` workers; `start_processes` makes and starts one.

    `entrypoint`: a program (a path, or a name in PATH; no shell), or a Python function, which is pickled with its arguments
    and runs in a new interpreter, as multiprocessing's "spawn" has it: the main module is imported there under another
    name, so a script starts workers under `if __name__ == "__main__":`. Its result comes back in
    `RunProcsResult.return_values`, its exception in `ProcessFailure`. `function` instead: a name given to
    `ujoin.register`, or "library.so:symbol" (an ujoin_worker_fn). None of them: each worker has its own program
    (`set_worker`).

    `args`: of all workers, or by rank; `envs`: by rank, over what a worker inherits (None removes a variable).
    `redirects`: streams that go to files instead of the console, `tee`: to both; for all, or by rank. `log_dir`: None = a
    fresh temporary one if a file is needed. `prefix`: of console lines, with ${role_name}, ${rank}, ${local_rank}, ${time};
    coloured by rank if the console is a terminal, unless `colour` is False. `console_ranks`: only these on the console.
    `stdout_filters`, `stderr_filters`: console lines with one of these texts also go to filtered_stdout.log (stderr) of the
    attempt. `output`: gets `(rank, Std.OUT or Std.ERR, bytes)`, whole lines or parts of 64 KiB, besides files and instead of
    an untouched console; it runs in `wait` and `close`. `rotate_bytes`: a log file of this size (4096 or more) becomes
    <name>.1; `rotate_keep` old ones are kept, by default one. `console`: what a slow console does. `error_files=False`:
    workers get no path for error.json. `binding`: placement on processors. `status_line`: how the job stands, in the
    last line of a terminal on stderr that no worker writes to.
    `grace`: between the polite signal and SIGKILL, by default 30 s. `drain`: for output that a grandchild still holds
    after a worker's end, by default 1 s. `partial_line`: an unfinished line goes to the console after this, 0.2 s.
    As a context manager it ends all workers when it is left.
    """

    def __init__(
        self,
        name: str,
        entrypoint: Path | Callable[..., Any] | None = None,
        args: Sequence[Any] | Mapping[int, Sequence[Any]] = (),
        envs: Mapping[int, Mapping[str, str | None]] | None = None,
        log_dir: Path | None = None,
        redirects: Std | Mapping[int, Std] = Std.NONE,
        tee: Std | Mapping[int, Std] = Std.NONE,
        *,
        nprocs: int | None = None,
        function: str | None = None,
        start_method: StartMethod | str = StartMethod.SPAWN,
        run_id: str | None = None,
        prefix: str | None = None,
        grace: Timeout = None,
        drain: Timeout = None,
        partial_line: Timeout = None,
        first_rank: int = 0,
        restart_count: int = 0,
        containment: Containment = Containment.GROUP,
        same_session: bool = False,
        console_ranks: Sequence[int] | None = None,
        stdout_filters: Sequence[str] = (),
        stderr_filters: Sequence[str] = (),
        output: Callable[[int, Std, bytes], None] | None = None,
        rotate_bytes: int = 0,
        rotate_keep: int | None = None,
        console: ConsolePolicy | str = ConsolePolicy.BLOCK,
        binding: Binding | str = Binding.NONE,
        error_files: bool = True,
        colour: bool = True,
        status_line: bool = False,
    ) -> None:
        method = choose(StartMethod, start_method)
        self._callable: Callable[..., Any] | None
        program: Path | None
        self._callable, program = (entrypoint, None) if callable(entrypoint) else (None, entrypoint)
        if self._callable is not None:
            if function is not None:
                raise invalid("entrypoint is a function; function is for one without it")
            function = functions.CALLABLE
        if method != StartMethod.SPAWN and function is not None and ":" not in function:
            raise UnsupportedError(
                "functions of Python's start by SPAWN only: a forked interpreter has threads that are not there",
                _ujoin.UJOIN_E_UNSUPPORTED,
            )
        self.name = name
        self.nprocs = _count(args, envs, nprocs)
        self._has_stdin = function is not None and method == StartMethod.SPAWN
        everyone = () if isinstance(args, Mapping) or self._callable is not None else _texts(args)
        sink = None if output is None else _on_output(output)
        self._handle = _ujoin.pctx_create(
            name,
            None if program is None else os.fsencode(program),
            function,
            everyone,
            None if log_dir is None else os.fsencode(log_dir),
            run_id,
            prefix,
            console_ranks,
            stdout_filters,
            stderr_filters,
            sink,
            limit(grace),
            limit(drain),
            limit(partial_line),
            rotate_bytes,
            0 if rotate_keep is None else rotate_keep or -1,
            self.nprocs,
            first_rank,
            restart_count,
            Std.NONE if isinstance(redirects, Mapping) else redirects,
            Std.NONE if isinstance(tee, Mapping) else tee,
            method,
            containment,
            choose(ConsolePolicy, console),
            choose(Binding, binding),
            not error_files,
            same_session,
            not colour,
            status_line,
        )
        if self._has_stdin:
            self._set_worker(None, stdin=functions.bootstrap())
        self._set_workers(args, redirects, tee)
        for rank, variables in (envs or {}).items():
            for variable, value in variables.items():
                self.set_env(variable, value, rank)

    def _set_workers(self, args: Any, redirects: Any, tee: Any) -> None:
        if self._callable is None and not any(isinstance(choice, Mapping) for choice in (args, redirects, tee)):
            return
        for rank in range(self.nprocs):
            own = args.get(rank, ()) if isinstance(args, Mapping) else None
            streams = [choice.get(rank, Std.NONE) if isinstance(choice, Mapping) else choice for choice in (redirects, tee)]
            call = None
            if self._callable is not None:
                call, own = pickle.dumps((self._callable, tuple(args if own is None else own))), None
            self.set_worker(rank, args=own, input=call, redirects=streams[0], tee=streams[1])

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
        input: bytes | None = None,
        stdin: Stdin | bytes | str | os.PathLike[str] | None = None,
        cpus: Sequence[int] | None = None,
        limits: Mapping[str, float] | None = None,
        umask: int | None = None,
        pass_fds: Iterable[int] | Mapping[int, int] | None = None,
    ) -> None:
        """Gives one worker, or all, what is not None: a program, arguments, a working directory, streams. Before the
        start.

        `stdin`: bytes, the path of a file, or `Stdin`; by default nothing. `cpus`: processors, with `Binding.LIST`; memory
        comes from their nodes. `limits`: resource limits by name, such as {"nofile": 4096, "core": 0}; `math.inf` =
        unlimited. `input`: for a registered function. `pass_fds`: descriptors of this process that the worker inherits,
        under the same numbers, or as {number in the worker: descriptor here}; 3 or more, and open at the start. Every other
        one is closed in it.
        """
        if stdin is not None and self._has_stdin:
            raise UnsupportedError(
                "a worker that runs a function has no stdin of its own: its interpreter starts from it",
                _ujoin.UJOIN_E_UNSUPPORTED,
            )
        self._set_worker(
            rank, program=program, args=args, directory=directory, redirects=redirects, tee=tee, input=input, stdin=stdin,
            cpus=cpus, limits=limits, umask=umask, pass_fds=pass_fds,
        )  # fmt: skip

    def _set_worker(
        self,
        rank: int | None,
        *,
        program: Path | None = None,
        args: Sequence[Any] | None = None,
        directory: Path | None = None,
        redirects: Std | None = None,
        tee: Std | None = None,
        input: bytes | None = None,
        stdin: Any = None,
        cpus: Sequence[int] | None = None,
        limits: Mapping[str, float] | None = None,
        umask: int | None = None,
        pass_fds: Iterable[int] | Mapping[int, int] | None = None,
    ) -> None:
        data, path, source = _stdin(stdin)
        _ujoin.pctx_set_worker(
            self._handle,
            -1 if rank is None else rank,
            None if program is None else os.fsencode(program),
            None if args is None else _texts(args),
            None if directory is None else os.fsencode(directory),
            input,
            data,
            path,
            source,
            cpus,
            limits or {},
            -1 if umask is None else umask,
            0 if redirects is None else redirects | _ujoin.UJOIN_STD_SET,
            0 if tee is None else tee | _ujoin.UJOIN_STD_SET,
            None if pass_fds is None else _descriptors(pass_fds),
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
        return RunProcsResult(
            {} if self.failed else {worker.rank: self._value(worker) for worker in results},
            {worker.rank: _failure(worker) for worker in results if worker.failed},
            {worker.rank: worker.stdout_path for worker in results},
            {worker.rank: worker.stderr_path for worker in results},
            self.report,
        )

    def _value(self, worker: WorkerResult) -> Any:
        """What a worker returned: of a Python function the object, of a registered one its bytes."""
        if self._callable is None or worker.value is None:
            return worker.value
        return pickle.loads(worker.value)

    def result(self, rank: int) -> WorkerResult:
        """What is known of one worker, at any time."""
        fields = _ujoin.pctx_get_result(self._handle, rank)
        state, number, pid, code, signal, failed, stopped, containment, *times_and_rest = fields
        seconds = [nanoseconds / 1e9 for nanoseconds in times_and_rest[:4]]
        seconds += [microseconds / 1e6 for microseconds in times_and_rest[4:6]]
        ended = WorkerState(state), number, pid, code, signal, failed != 0, stopped != 0, Containment(containment)
        return WorkerResult(*ended, *seconds, *times_and_rest[6:])

    def health(self, rank: int) -> WorkerHealth:
        """What a worker does now, out of memory that it shares with its groups: it is asked nothing, so this works for one
        that hangs; one that has died keeps what it was doing. From any thread."""
        fields = _ujoin.pctx_health(self._handle, rank)
        state, number, pid, group_pid, group_rank, size, groups, busy, armed, joined, broken, sequence, *rest = fields
        turn, since, last_output, missing, *texts = rest
        return WorkerHealth(
            WorkerState(state), number, pid, group_pid, None if group_rank < 0 else group_rank, size, groups, busy != 0,
            armed != 0, joined != 0, broken != 0, sequence, None if turn < 0 else turn, since / 1e9, last_output / 1e9,
            tuple(missing), *texts,
        )  # fmt: skip

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
        """The failure for a person: the other failures, then the first cause with exit code or signal, and its traceback,
        message or last lines of stderr. "" if nothing failed."""
        return _ujoin.pctx_report(self._handle)

    @property
    def report_json(self) -> str:
        """All results as one JSON object: name, run_id, first_failure and workers, with the fields of `WorkerResult`."""
        return _ujoin.pctx_report_json(self._handle)

    def signal(self, signal: int, rank: int | None = None) -> None:
        """Sends a signal to one worker's process group, or to all. From any thread."""
        _ujoin.pctx_signal(self._handle, -1 if rank is None else rank, signal)

    def ask_stop(self) -> None:
        """Asks the workers for an agreed stop: their join contexts, also later ones, leave after the same round
        (`Join.stopped`), and the workers have the time to save. Ends nobody. From any thread."""
        _ujoin.pctx_stop(self._handle)

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
    entrypoint: Path | Callable[..., Any] | None = None,
    args: Sequence[Any] | Mapping[int, Sequence[Any]] = (),
    envs: Mapping[int, Mapping[str, str | None]] | None = None,
    log_dir: Path | None = None,
    redirects: Std | Mapping[int, Std] = Std.NONE,
    tee: Std | Mapping[int, Std] = Std.NONE,
    *,
    nprocs: int | None = None,
    **options: Any,
) -> PContext:
    """Starts workers that run a program (a path, or a name in PATH; no shell) or a Python function, and returns their
    `PContext`, whose class says what the arguments are.

        result = start_processes("trainer", "./train", args={0: ("a",), 1: ("b",)}, log_dir="logs", redirects=Std.ALL).wait()
        if result.is_failed(): ...
        result = start_processes("trainer", train, args={0: (data, 1), 1: (data, 2)}).wait().check()
        print(result.return_values[0])
    """
    context = PContext(name, entrypoint, args, envs, log_dir, redirects, tee, nprocs=nprocs, **options)
    context.start()
    return context


def _failure(worker: WorkerResult) -> ProcessFailure:
    code = -worker.signal or worker.exit_code
    about = worker.message, worker.traceback, worker.failure_time, worker.error_path
    return ProcessFailure(worker.rank, worker.pid, code, *about)


def _on_output(output: Callable[[int, Std, bytes], None]) -> Callable[[int, int, bytes], None]:
    def run(rank: int, stream: int, data: bytes) -> None:
        output(rank, Std(stream), data)

    return run


def _descriptors(given: Iterable[int] | Mapping[int, int]) -> list[int]:
    """Descriptor here, number in the worker, and so on."""
    pairs = ((here, there) for there, here in given.items()) if isinstance(given, Mapping) else ((fd, fd) for fd in given)
    return [number for pair in pairs for number in pair]


def _stdin(given: Any) -> tuple[bytes | None, bytes | None, int]:
    """Bytes, path and kind."""
    if given is None:
        return None, None, 0
    if isinstance(given, Stdin):
        return None, None, given
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given), None, _ujoin.UJOIN_STDIN_BYTES
    return None, os.fsencode(given), _ujoin.UJOIN_STDIN_FILE


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
