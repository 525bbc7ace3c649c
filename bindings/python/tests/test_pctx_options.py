# SPDX-License-Identifier: Apache-2.0
"""Options of worker processes: stdin, limits, placement, output, filters, rotation."""

from __future__ import annotations

import math
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest
from conftest import DEADLINE, run_python

import ujoin
from ujoin import Binding, Containment, PContext, Std, Stdin, WorkerState, start_processes


def output_of(job: PContext) -> str:
    """What the first worker wrote to its file."""
    job.start()
    result = job.wait(timeout=DEADLINE)
    assert result is not None
    result.check()
    return pathlib.Path(result.stdouts[0]).read_text()


def shell(tmp_path: pathlib.Path, script: str, **options: Any) -> PContext:
    return PContext("job", "/bin/sh", args=["-c", script], log_dir=tmp_path, redirects=Std.OUT, **options)


def test_stdin_of_bytes_and_of_a_file(tmp_path: pathlib.Path) -> None:
    job = PContext("job", "/bin/cat", nprocs=4, log_dir=tmp_path, redirects=Std.OUT)
    file = tmp_path / "input"
    file.write_text("from a file")
    job.set_worker(0, stdin=b"bytes\0")
    job.set_worker(1, stdin=file)
    job.set_worker(2, stdin=b"")
    job.start()
    result = job.wait(timeout=DEADLINE)
    assert result is not None
    texts = [pathlib.Path(result.stdouts[rank]).read_bytes() for rank in range(4)]
    assert texts == [b"bytes\0", b"from a file", b"", b""]
    absent = PContext("job", "/bin/cat")
    absent.set_worker(stdin="/no/such")
    with pytest.raises(ujoin.SystemError, match="/no/such"):
        absent.start()


def test_stdin_is_inherited_by_one_worker_at_most() -> None:
    job = PContext("job", "/bin/cat", nprocs=2)
    job.set_worker(stdin=Stdin.INHERIT)
    with pytest.raises(ujoin.InvalidError, match="0, 1 ask for it"):
        job.start()


def test_limits_and_umask(tmp_path: pathlib.Path) -> None:
    job = shell(tmp_path, "ulimit -n; ulimit -c; umask")
    job.set_worker(limits={"nofile": 77, "core": 0}, umask=0o27)
    assert output_of(job).split() == ["77", "0", "0027"]
    for wrong in ({"files": 1}, {"nofile": -math.inf}):
        job = shell(tmp_path, "true")
        with pytest.raises(ujoin.InvalidError, match=next(iter(wrong))):
            job.set_worker(limits=wrong)


def test_descriptors_that_workers_inherit(tmp_path: pathlib.Path) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as from_pipe, (tmp_path / "file").open("w+b") as file:
        os.write(write, b"through a pipe")
        os.close(write)
        file.write(b"a file")
        file.flush()
        file.seek(0)
        job = shell(tmp_path, "ls /proc/self/fd; cat <&7", containment=Containment.WARDEN)
        job.set_worker(pass_fds={7: from_pipe.fileno()})
        assert output_of(job).split("\n") == ["0", "1", "2", "3", "7", "through a pipe"]  # 3 is the directory that ls reads
        job = shell(tmp_path, f"cat /proc/self/fd/{file.fileno()}")
        job.set_worker(pass_fds=[file.fileno()])
        assert output_of(job) == "a file"
    for wrong, text in (([2], "standard streams"), ({5: -1}, "from is -1"), ({-2: 0}, "to is -2")):
        job = shell(tmp_path, "true")
        with pytest.raises(ujoin.InvalidError, match=text):
            job.set_worker(pass_fds=wrong)
    job = shell(tmp_path, "true")
    job.set_worker(pass_fds={9: 700})
    with pytest.raises(ujoin.InvalidError, match=r"descriptor 700 .* is not open"):
        job.start()


def read_descriptor(number: int) -> str:
    return os.read(number, 100).decode()


def test_descriptors_of_python_functions() -> None:
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as text:
        text.write("for the function")
        text.flush()
        job = PContext("job", read_descriptor, args=(3,))
        job.set_worker(0, pass_fds={3: read})
        job.start()
        result = job.wait(timeout=DEADLINE)
        assert result is not None
        assert result.check().return_values == {0: "for the function"}


def test_containment_by_the_best_that_is_possible(tmp_path: pathlib.Path) -> None:
    job = shell(tmp_path, "echo held", containment=Containment.BEST)
    assert output_of(job) == "held\n"
    assert job.result(0).containment in (Containment.CGROUP, Containment.WARDEN)


def test_children_of_the_program_are_its_own() -> None:
    """subprocess and os.waitpid get every status of theirs, and none of a worker's."""
    for containment in (Containment.GROUP, Containment.WARDEN):
        job = PContext("job", "/bin/sh", nprocs=3, args=["-c", "sleep 0.${local_rank}; exit 0"], containment=containment)
        job.start()
        for code in range(20):
            with subprocess.Popen(["/bin/sh", "-c", f"exit {code}"]) as beside:
                assert subprocess.run(["/bin/sh", "-c", f"exit {code + 30}"], check=False).returncode == code + 30
                assert beside.wait(timeout=DEADLINE) == code
            pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {code + 60}"], {})
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code + 60
        result = job.wait(timeout=DEADLINE)
        assert result is not None
        result.check()
        assert [job.result(rank).state for rank in range(3)] == [WorkerState.EXITED] * 3
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)


def test_placement(tmp_path: pathlib.Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    job = shell(tmp_path, "grep Cpus_allowed_list /proc/self/status", binding=Binding.LIST)
    job.set_worker(0, cpus=[cpu])
    assert output_of(job).split()[1] == str(cpu)
    with pytest.raises(ujoin.InvalidError, match="rank 0 has no processors"):
        shell(tmp_path, "true", binding="list").start()


@pytest.mark.parametrize("binding", [Binding.SPREAD, Binding.COMPACT])
def test_workers_are_placed_apart(tmp_path: pathlib.Path, binding: Binding) -> None:
    script = f"exec {sys.executable} -c 'import os; print(*os.sched_getaffinity(0))'"
    job = shell(tmp_path, script, nprocs=2, binding=binding)
    output_of(job)
    first, second = ({int(cpu) for cpu in pathlib.Path(job.result(rank).stdout_path).read_text().split()} for rank in (0, 1))
    ours = os.sched_getaffinity(0)
    assert first
    assert second
    assert first | second <= ours
    assert first.isdisjoint(second) or len(ours) == 1


def test_the_output_callback_gets_whole_lines() -> None:
    lines: list[tuple[int, Std, bytes]] = []
    script = 'echo "out $0"; echo err >&2; printf end'
    job = start_processes(
        "job", "/bin/sh", args={0: ("-c", script, "a"), 1: ("-c", script, "b")}, output=lambda *line: lines.append(line)
    )
    result = job.wait(timeout=DEADLINE)
    assert result is not None
    assert sorted(line for line in lines if line[0] == 1) == [
        (1, Std.OUT, b"end"),
        (1, Std.OUT, b"out b\n"),
        (1, Std.ERR, b"err\n"),
    ]
    assert len(lines) == 6
    assert all(isinstance(stream, Std) for _, stream, _ in lines)


def test_an_output_callback_that_raises() -> None:
    def broken(rank: int, stream: Std, data: bytes) -> None:
        raise ArithmeticError(data.decode().strip())

    job = start_processes("job", "/bin/echo", args=["words"], output=broken)
    with pytest.raises(ujoin.CallbackError, match="ArithmeticError: words") as failed:
        job.wait(timeout=DEADLINE)
    assert isinstance(failed.value.__cause__, ArithmeticError)
    job.abort()


def test_console_ranks_filters_and_prefixes(tmp_path: pathlib.Path) -> None:
    program = (
        "import sys, ujoin\n"
        "script = 'echo keep $0; echo drop $0; echo keep err >&2'\n"
        "job = ujoin.start_processes('n', '/bin/sh', args={r: ('-c', script, r) for r in range(2)}, tee=ujoin.Std.ALL,\n"
        "    log_dir=sys.argv[1], run_id='r', console_ranks=[1], stdout_filters=['keep 1'], stderr_filters=['err'],\n"
        "    prefix='<${rank}>', colour=False)\n"
        "assert not job.wait().is_failed()\n"
    )
    done = run_python(program, str(tmp_path))
    assert done.stdout.splitlines() == ["<1>keep 1", "<1>drop 1"], done.stderr
    assert done.stderr.splitlines() == ["<1>keep err"]
    attempt = tmp_path / "r" / "attempt_0"
    assert (attempt / "filtered_stdout.log").read_text().splitlines() == ["<1>keep 1"]
    assert (attempt / "filtered_stderr.log").read_text().splitlines() == ["<1>keep err"]
    assert (attempt / "0" / "stdout.log").read_text() == "keep 0\ndrop 0\n"


def test_rotation(tmp_path: pathlib.Path) -> None:
    script = "i=0; while [ $i -lt 100 ]; do echo $i; printf '%0200d\\n' 0; i=$((i+1)); done"
    for keep, expected in ((None, 1), (2, 2), (0, 0)):
        job = shell(tmp_path / str(keep), script, rotate_bytes=4096, rotate_keep=keep)
        text = output_of(job)
        assert text.splitlines()[-2] == "99"
        assert len(text) <= 2 * 4096
        log = pathlib.Path(job.result(0).stdout_path)
        assert len(list(log.parent.glob("stdout.log.*"))) == expected
    with pytest.raises(ujoin.InvalidError, match="rotate_bytes"):
        shell(tmp_path, "true", rotate_bytes=1)


def test_error_files_and_other_choices(tmp_path: pathlib.Path) -> None:
    script = "echo ${TORCHELASTIC_ERROR_FILE:-none}"
    assert output_of(shell(tmp_path, script, error_files=False, console="drop")) == "none\n"
    with_file = shell(tmp_path, script, run_id="run", console=ujoin.ConsolePolicy.SPILL)
    assert output_of(with_file).strip() == str(tmp_path / "run" / "attempt_0" / "0" / "error.json")
    assert with_file.result(0).dropped_lines == 0
    with pytest.raises(ujoin.InvalidError, match="expected one of block, drop, spill"):
        shell(tmp_path, script, console="wait")


def test_programs_of_their_own_alone(tmp_path: pathlib.Path) -> None:
    jobs = [PContext("job", nprocs=2, log_dir=tmp_path, redirects=Std.OUT) for _ in range(2)]
    for job in jobs:
        job.set_worker(0, program="/bin/echo", args=["zero"])
    with pytest.raises(ujoin.InvalidError, match="no program of their own: 1"):
        jobs[0].start()
    jobs[1].set_worker(1, program="/bin/true")
    assert output_of(jobs[1]) == "zero\n"


def test_a_victim_has_a_time_and_a_cause_has_a_message() -> None:
    job = start_processes("job", "/bin/sh", args={0: ("-c", "exec sleep 1000"), 1: ("-c", "kill -SEGV $$")}, grace=5)
    result = job.wait(timeout=DEADLINE)
    assert result is not None
    assert "SIGSEGV" in result.failures[1].message
    assert result.failures[1].exitcode == -signal.SIGSEGV
    victim = job.result(0)
    assert (victim.failed, victim.stopped, victim.value) == (False, True, None)
    assert victim.failure_time == victim.end > 0
    assert job.result(1).failure_time <= victim.failure_time
