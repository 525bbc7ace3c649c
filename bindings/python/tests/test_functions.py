# SPDX-License-Identifier: Apache-2.0
"""Functions as workers; what a worker records of its failure."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest
from conftest import DEADLINE, run_python

import ujoin
from ujoin import PContext, WorkerState, start_processes


def combine(text: str, number: int) -> tuple[str, int, int, bytes]:
    return text, number * 2, os.getpid(), sys.stdin.buffer.read()


def raise_value_error(what: str) -> None:
    raise ValueError(f"bad {what}")


def leave(code: int) -> None:
    sys.exit(code)


def leave_at_once() -> None:
    os._exit(0)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def large(size: int) -> bytes:
    return b"x" * size


def finish(job: PContext) -> ujoin.RunProcsResult:
    result = job.wait(timeout=DEADLINE)
    assert result is not None
    return result


def test_arguments_and_values_by_rank(tmp_path: pathlib.Path) -> None:
    job = start_processes("fn", combine, args={0: ("a", 1), 1: ("b", 2)}, log_dir=tmp_path, redirects=ujoin.Std.ALL)
    values = finish(job).check().return_values
    assert [values[rank][:2] for rank in range(2)] == [("a", 2), ("b", 4)]
    assert [values[rank][2] for rank in range(2)] == list(job.pids().values())
    assert [values[rank][3] for rank in range(2)] == [b"", b""]  # the program's stdin is not the function's


def test_arguments_of_all_and_large_values() -> None:
    result = finish(start_processes("fn", large, args=(3_000_000,), nprocs=2))
    assert [len(value) for value in result.return_values.values()] == [3_000_000] * 2


@pytest.mark.parametrize("with_files", [True, False])
def test_an_exception_comes_back_with_its_traceback(tmp_path: pathlib.Path, with_files: bool) -> None:
    log_dir = tmp_path if with_files else os.devnull
    job = start_processes("fn", raise_value_error, args=("input",), log_dir=log_dir, output=lambda *line: None)
    result = finish(job)
    assert result.is_failed()
    assert result.return_values == {}
    failure = result.failures[0]
    assert failure.exitcode == 1
    assert failure.message.startswith("ValueError: bad input")
    trace = failure.traceback if with_files else failure.message
    assert "in raise_value_error" in trace
    assert trace.rstrip().endswith("ValueError: bad input")
    assert failure.timestamp > 0
    assert bool(failure.error_file) == with_files
    with pytest.raises(ujoin.ChildFailedError, match="ValueError: bad input") as failed:
        result.check()
    assert failed.value.ranks == (0,)
    assert "ValueError: bad input" in job.report


def test_exits_and_signals() -> None:
    assert finish(start_processes("fn", leave, args=(0,))).return_values == {0: None}
    assert "SystemExit: 3" in finish(start_processes("fn", leave, args=(3,))).failures[0].message
    job = start_processes("fn", leave_at_once)
    assert finish(job).is_failed()
    assert job.result(0).state == WorkerState.NO_VALUE
    assert finish(start_processes("fn", die)).failures[0].signal_name() == "SIGKILL"


def test_what_cannot_be_a_worker() -> None:
    with pytest.raises(Exception, match="pickle"):
        PContext("fn", lambda: None)
    with pytest.raises(ujoin.InvalidError, match="function is for one without it"):
        PContext("fn", combine, function="x")
    job = PContext("fn", combine, args=("a", 1))
    with pytest.raises(ujoin.UnsupportedError, match="no stdin of its own"):
        job.set_worker(stdin=b"x")
    with pytest.raises(ujoin.UnsupportedError, match="SPAWN only"):
        PContext("fn", function="name", start_method="fork")


SCRIPT = """
import os, sys, ujoin

def double(args):
    ujoin.return_value(bytes(args.input * 2) + f" {args.args} {args.rank} of {args.nprocs}".encode())
def fail(args):
    raise KeyError(args.args[0])
def plain(number):
    return number + OFFSET
ujoin.register("double", double)
ujoin.register("fail", fail)
OFFSET = 40

if __name__ == "__main__":
    job = ujoin.PContext("fn", function="double", args={0: ("x", "y")})
    job.set_worker(0, input=b"ab")
    job.start()
    print(job.wait().return_values[0])
    for name in ("fail", "none"):
        result = ujoin.start_processes("fn", function=name, args=["k"], log_dir="/dev/null").wait()
        print(result.failures[0].message.split("\\n")[0])
    print(ujoin.start_processes("fn", plain, args=(2,)).wait().return_values)  # of the main module
    try: ujoin.register("double", double)
    except ujoin.InvalidError as error: print(error)
    try: ujoin.return_value(b"")
    except ujoin.StateError as error: print(error)
    print(ujoin.worker_main())
"""


def test_registered_functions_of_a_script(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["b\"abab ('x', 'y') 0 of 1\"", "KeyError: 'k'"], done.stderr
    assert "double" in lines[2]
    assert "fail" in lines[2]
    assert lines[3] == "{0: 42}"
    assert 'the function name "double" is taken' in lines[4]
    assert "pctx_return" in lines[5]
    assert lines[6] == "None"


def test_a_script_without_a_guard_does_not_start_workers_of_workers(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import ujoin\n"
        "def work(): return 1\n"
        "result = ujoin.start_processes('fn', work, log_dir='/dev/null').wait()\n"
        "print('failed', result.is_failed())\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL
    )
    assert done.stdout == "failed True\n"
    assert "pctx_worker_main" in done.stderr


# --------------------------------------------------------------------------------------------------------------- records
def run_recorded(tmp_path: pathlib.Path, body: str) -> tuple[int, dict[str, Any] | None, str]:
    """Runs a program with an error file: its exit code, the message of the record, its stderr."""
    path = tmp_path / "error.json"
    done = run_python("import ujoin\n" + body, env={"TORCHELASTIC_ERROR_FILE": str(path)})
    record = json.loads(path.read_text())["message"] if path.exists() else None
    return done.returncode, record, done.stderr


def test_record_decorator(tmp_path: pathlib.Path) -> None:
    code, record, stderr = run_recorded(
        tmp_path,
        "@ujoin.record\n"
        "def main(value):\n"
        "    'doc'\n"
        "    if value: raise LookupError(value)\n"
        "    return 7\n"
        "assert (main(0), main.__name__, main.__doc__) == (7, 'main', 'doc')\n"
        "main('lost')\n",
    )
    assert code == 1
    assert record is not None
    assert record["message"] == "LookupError: lost"
    assert "in main" in record["extraInfo"]["py_callstack"]
    assert stderr.rstrip().endswith("LookupError: lost")


def test_record_leaves_exits_alone(tmp_path: pathlib.Path) -> None:
    code, record, _ = run_recorded(tmp_path, "import sys\nujoin.record(lambda: sys.exit(5))()")
    assert (code, record) == (5, None)


def test_a_childs_record_is_handed_on(tmp_path: pathlib.Path) -> None:
    code, record, _ = run_recorded(
        tmp_path,
        "import sys\n"
        "@ujoin.record\n"
        "def main():\n"
        '    child = \'import ujoin, sys; ujoin.record_error("from below", "stack", 9); sys.exit(9)\'\n'
        f"    job = ujoin.start_processes('c', sys.executable, args=['-c', child], log_dir={str(tmp_path / 'logs')!r})\n"
        "    job.wait().check()\n"
        "main()\n",
    )
    assert code == 1
    assert record is not None
    assert record["message"] == "from below"
    assert record["errorCode"] == 9


def test_record_crashes(tmp_path: pathlib.Path) -> None:
    code, record, _ = run_recorded(
        tmp_path, "import os, signal\nujoin.record_crashes()\nos.kill(os.getpid(), signal.SIGSEGV)"
    )
    assert code == -signal.SIGSEGV
    assert record is not None
    assert "SIGSEGV" in record["message"]


def test_report_json_and_failure_fields(tmp_path: pathlib.Path) -> None:
    child = "import ujoin, sys; ujoin.record_error('text', 'stack', 4); sys.exit(4)"
    job = start_processes("c", sys.executable, args=["-c", child], log_dir=tmp_path, run_id="r")
    failure = finish(job).failures[0]
    assert (failure.message, failure.traceback, failure.exitcode) == ("text", "stack", 4)
    assert failure.error_file == job.result(0).error_path == str(tmp_path / "r" / "attempt_0" / "0" / "error.json")
    told = json.loads(job.report_json)
    assert (told["name"], told["run_id"], told["first_failure"]) == ("c", "r", 0)
    assert told["workers"][0]["exit_code"] == 4
