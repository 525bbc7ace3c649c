# SPDX-License-Identifier: Apache-2.0
"""Worker processes, and ujoin-run as pip installs it."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
from conftest import DEADLINE, run_python, ujoin_run, until

import ujoin
from ujoin import Containment, Std, WorkerState, start_processes


def test_workers_with_files(tmp_path: pathlib.Path) -> None:
    job = start_processes(
        "trainer",
        "/bin/sh",
        args={rank: ("-c", 'echo out $0 $NAME; echo err >&2; echo "$HOME"', rank) for rank in range(2)},
        envs={0: {"NAME": "zero", "HOME": None}, 1: {"NAME": "one", "HOME": "/h"}},
        log_dir=tmp_path,
        redirects=Std.ALL,
        run_id="run",
    )
    result = job.wait()
    assert result is not None
    assert not result.is_failed()
    assert result.return_values == {0: None, 1: None}
    assert [pathlib.Path(result.stdouts[rank]).read_text() for rank in range(2)] == ["out 0 zero\n\n", "out 1 one\n/h\n"]
    assert pathlib.Path(result.stderrs[1]).read_text() == "err\n"
    assert result.stdouts[1] == str(tmp_path / "run" / "attempt_0" / "1" / "stdout.log")
    worker = job.result(1)
    assert (worker.state, worker.exit_code, worker.failed, worker.containment) == (
        WorkerState.EXITED, 0, False, Containment.GROUP,
    )  # fmt: skip
    assert worker.start < worker.end
    assert worker.last_output > 0
    assert worker.user_time + worker.system_time > 0
    assert worker.peak_bytes > 0
    assert (worker.stdout_bytes, worker.stderr_bytes) == (13, 4)
    assert (job.failed, job.first_failure, job.report) == (False, None, "")
    assert job.wait() == result


def test_streams_by_rank(tmp_path: pathlib.Path) -> None:
    job = start_processes(
        "echo", "/bin/echo", args=["hello"], nprocs=2, log_dir=tmp_path, redirects={0: Std.OUT}, tee={1: Std.ERR}
    )
    assert job.wait() is not None
    assert pathlib.Path(job.result(0).stdout_path).read_text() == "hello\n"
    assert job.result(1).stdout_path == ""
    assert job.result(1).stderr_path != ""
    assert job.result(0).stderr_path == ""


def test_first_failure_is_told_and_others_are_victims() -> None:
    job = start_processes("job", "/bin/sh", args={0: ("-c", "exec sleep 1000"), 1: ("-c", "exit 7")}, grace=5)
    result = job.wait()
    assert result is not None
    assert result.is_failed()
    assert list(result.failures) == [1]
    assert (result.failures[1].exitcode, result.failures[1].signal_name()) == (7, "<N/A>")
    assert result.return_values == {}
    assert job.first_failure == 1
    assert job.report.startswith("=====")
    assert "rank      : 1 (local_rank: 1)" in job.report
    assert result.report == job.report
    assert job.result(0).stopped
    assert job.result(0).signal == signal.SIGTERM


TRAINS_UNTIL_STOPPED = """
import pathlib, sys, ujoin
with ujoin.Group() as group:
    counter = ujoin.Joinable(group)
    counter.join_hook = lambda **_: ujoin.JoinHook()
    rounds = 0
    with ujoin.Join([counter]) as join:
        while not join.stopped():
            ujoin.Join.notify_join_context(counter)
            rounds += 1
            pathlib.Path(sys.argv[1]).touch()
    print(rounds, flush=True)
"""


def test_an_agreed_stop(tmp_path: pathlib.Path) -> None:
    job = start_processes(
        "trainer",
        sys.executable,
        args=["-c", TRAINS_UNTIL_STOPPED, tmp_path / "trains"],
        nprocs=2,
        envs={
            rank: {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
            for rank in range(2)
        },
        log_dir=tmp_path / "logs",
        redirects=Std.ALL,
    )
    with job:
        until(lambda: (tmp_path / "trains").exists(), "the workers train")
        until(lambda: (job.health(1).round or 0) > 0, "rank 1 tells of its rounds")
        health = job.health(1)
        assert health.state == WorkerState.RUNNING
        assert (health.rank, health.group_rank, health.group_size) == (1, 1, 2)
        assert health.in_context
        assert not health.joined
        assert not health.broken
        assert health.text.startswith(f"rank 1 (pid {health.pid}): ")
        job.ask_stop()
        result = job.wait(timeout=DEADLINE)
        assert result is not None, "they stop by themselves"
        assert not result.is_failed()
        rounds = {pathlib.Path(result.stdouts[rank]).read_text() for rank in range(2)}
        assert len(rounds) == 1, rounds


def test_signal_wait_and_close() -> None:
    with start_processes("sleep", "sleep", args=[1000], nprocs=2) as job:
        assert job.wait(timeout=0) is None
        assert all(pid > 0 for pid in job.pids().values())
        job.signal(signal.SIGKILL, rank=1)
        result = job.wait(timeout=DEADLINE)
        assert result is not None
        assert result.failures[1].exitcode == -signal.SIGKILL
        assert result.failures[1].signal_name() == "SIGKILL"
    assert job.close()
    assert job.result(0).end > 0
    assert not pathlib.Path(f"/proc/{job.pids()[0]}").exists()


def test_abort_wakes_who_waits() -> None:
    job = start_processes("sleep", "sleep", args=[1000])
    thread = threading.Timer(0.05, job.abort)
    thread.start()
    with pytest.raises(ujoin.AbortedError):
        job.wait()
    thread.join(DEADLINE)
    job.close(timeout=0)


def test_directory_and_program_of_one_worker(tmp_path: pathlib.Path) -> None:
    job = ujoin.PContext("job", "/bin/false", nprocs=1, redirects=Std.OUT, log_dir=tmp_path)
    job.set_worker(0, program="/bin/pwd", directory=tmp_path)
    job.start()
    assert job.wait() is not None
    assert pathlib.Path(job.result(0).stdout_path).read_text().strip() == os.path.realpath(tmp_path)
    with pytest.raises(ujoin.StateError):
        job.start()


def test_wrong_use() -> None:
    with pytest.raises(ujoin.UnsupportedError, match="start by SPAWN only"):
        start_processes("train", test_wrong_use, start_method="fork")
    with pytest.raises(ujoin.SystemError, match="/no/such/program") as failed:
        start_processes("train", "/no/such/program")
    assert failed.value.errno == 2
    with pytest.raises(ujoin.InvalidError, match=r"different numbers of workers: \[1, 2\]"):
        start_processes("train", "true", args={0: ()}, nprocs=2)
    with pytest.raises(ujoin.InvalidError, match="ranks 0 to 0"):
        start_processes("train", "true", args={1: ()})
    with pytest.raises(ValueError, match="embedded null"):
        start_processes("train", "true", args=["a\0b"])


def test_std() -> None:
    assert Std.from_str("3") == Std.ALL
    assert Std.from_str("0:1,2:3") == {0: Std.OUT, 2: Std.ALL}
    assert Std.from_str("1:2", nprocs=3) == {0: Std.NONE, 1: Std.ERR, 2: Std.NONE}
    with pytest.raises(ujoin.InvalidError, match="5"):
        Std.from_str("5")


# ---------------------------------------------------------------------------------------------------------- as installed


@pytest.mark.parametrize("start", [[], ["-m", "ujoin.run"]])
def test_ujoin_run(tmp_path: pathlib.Path, start: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys, numpy, ujoin\n"
        "assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN  # Python's own, not inherited\n"
        "group = ujoin.init_process_group()\n"
        "values = numpy.full(3, group.rank + 1, numpy.float32)\n"
        "group.all_reduce(values)\n"
        "sys.stdout.write(f'sum {values.tolist()} {group.info.backend} {sys.executable}\\n')\n"
        "ujoin.destroy_process_group()\n"
        "sys.exit(3 if group.rank == int(sys.argv[1]) else 0)\n"
    )
    command = [sys.executable, *start] if start else [ujoin_run()]
    for fails in (-1, 1):
        done = subprocess.run(
            [*command, "--standalone", "--nproc-per-node", "2", str(script), str(fails)],
            capture_output=True, text=True, timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == (3 if fails == 1 else 0), done.stderr
        assert done.stdout.count("sum [3.0, 3.0, 3.0] shm " + sys.executable) == 2


def test_run_becomes_the_program_with_default_signals() -> None:
    """SIGPIPE is ignored by Python; the workers of ujoin-run must not inherit that."""
    done = subprocess.run(
        [ujoin_run(), "--no-python", "/bin/grep", "SigIgn", "/proc/self/status"],
        capture_output=True, text=True, timeout=DEADLINE, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert int(done.stdout.split()[-1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_warden_of_the_wheel(tmp_path: pathlib.Path) -> None:
    """The helper program is found beside the package; it ends the workers of a launcher that is killed."""
    program = (
        "import sys, time, ujoin\n"
        "job = ujoin.start_processes('s', 'sleep', args=[1000], containment=ujoin.Containment.WARDEN)\n"
        "print(job.pids()[0], flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        assert pathlib.Path(f"/proc/{pid}").exists()
        launcher.kill()
    until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the worker has been ended")


def test_what_pip_installed() -> None:
    package = pathlib.Path(ujoin.__file__).parent
    assert importlib.metadata.version("ujoin") == ujoin.__version__
    assert (package / "py.typed").exists()
    assert "site-packages" in str(package), "the tests must run against the installed wheel"
    done = run_python("import ujoin; print(open('/proc/self/maps').read())")
    libraries = {line.split()[-1] for line in done.stdout.splitlines() if "libujoin" in line}
    assert libraries == {str(package / "lib" / "libujoin.so.0")}
    assert "UJOIN" not in "".join(name for name in os.environ if name == "UJOIN_LIBEXEC_DIR")
