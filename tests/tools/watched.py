# SPDX-License-Identifier: Apache-2.0
"""Runs one program so that nothing it does can outlast it: deadline, private TMPDIR, and a search for what it left."""
import ctypes
import dataclasses
import os
import pathlib
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid

MARKER = "UJOIN_TEST_ID"
OUTPUT_LIMIT = 200_000  # characters of output kept for a report
# What a launcher or a user may have set, and would change what a test sees.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GTEST_FILTER")
FOREIGN_PREFIXES = ("UJOIN_", "SLURM_", "OMPI_", "PMI_", "PET_", "TORCHELASTIC_", "GTEST_", "CMOCKA_")
KEPT = ("UJOIN_TEST_LONG",)

_spawn = threading.Lock()  # guards _running, and keeps the search away from a child that has not executed yet
_running = {}  # pid -> marker of the programs that run now
_shm_seen = {}  # name in /dev/shm -> markers of the programs that may have made it
_shm_known = None


def prepare():
    """Makes this process the parent of whatever the programs leave behind, also of what cleared its environment."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


@dataclasses.dataclass
class Outcome:
    code: int  # exit code, or minus the signal
    output: str
    seconds: float
    faults: list  # texts: what was wrong apart from what the program said itself
    late: bool
    marker: str


def clean_environment():
    env = {k: v for k, v in os.environ.items() if k not in FOREIGN and not k.startswith(FOREIGN_PREFIXES)}
    env.update({k: os.environ[k] for k in KEPT if k in os.environ})
    return env


def _environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        text = ""
    return f"{pid} {text or '?'}"


def _alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state not in "ZX"
    except (OSError, IndexError):
        return False


def marked_processes(marker):
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and wanted in _environment_of(entry) and _alive(int(entry)):
            found.append(int(entry))
    return found


def _children():
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            found += [int(p) for p in pathlib.Path(f"/proc/self/task/{task}/children").read_text().split()]
        except OSError:
            pass
    return found


def unmarked_orphans():
    """Children of this process that it did not start and that carry the marker of no program: adopted ones. Reaps."""
    found = []
    with _spawn:
        for pid in _children():
            if pid in _running:
                continue
            if not _alive(pid):
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
            elif not any(v.startswith(MARKER.encode() + b"=") for v in _environment_of(pid)):
                found.append(pid)
    return found


def _kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _shm():
    try:
        return {n for n in os.listdir("/dev/shm") if "ujoin" in n}
    except OSError:
        return set()


def _shm_in_foreign_use(name):
    """Whether a process that no running program of ours owns has it mapped or open."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if f"/dev/shm/{name}" in pathlib.Path(f"/proc/{entry}/maps").read_text():
                return True
        except OSError:
            pass
    return False


def _find_shm(marker, alone):
    """Segments that this program left. With others running at the same time they are only suspects until the end."""
    left = []
    for name in _shm() - _shm_known:
        makers = _shm_seen.setdefault(name, set())
        if not makers:
            makers.update({marker} | set(_running.values()))
        if alone and makers == {marker} and not _shm_in_foreign_use(name):
            left.append(name)
    return left


def shm_left_at_the_end():
    """After all programs: what is still in /dev/shm and nobody uses, with the markers of those that may have made it."""
    return {n: m for n, m in _shm_seen.items() if n in _shm() and not _shm_in_foreign_use(n)}


def remove_shm(name):
    try:
        os.unlink(f"/dev/shm/{name}")
    except OSError:
        pass


class _Reader(threading.Thread):
    """Takes the output as it comes; keeps the beginning and the end of very long ones."""

    def __init__(self, stream, each_line):
        super().__init__(daemon=True)
        self.stream, self.each_line = stream, each_line
        self.head, self.tail, self.cut = [], [], False
        self.start()

    def run(self):
        head_size = tail_size = 0
        for raw in self.stream:
            line = raw.decode(errors="replace")
            if self.each_line:
                self.each_line(line)
            if head_size < OUTPUT_LIMIT // 2:
                self.head.append(line)
                head_size += len(line)
                continue
            self.tail.append(line)
            tail_size += len(line)
            while tail_size > OUTPUT_LIMIT // 2 and len(self.tail) > 1:
                tail_size -= len(self.tail.pop(0))
                self.cut = True

    def text(self):
        return "".join(self.head) + ("[...]\n" if self.cut else "") + "".join(self.tail)


def _search(marker, tmp, grace):
    """Waits up to `grace` seconds until nothing is left; returns texts about what stays, after removing it."""
    end = time.monotonic() + grace
    while True:
        processes = marked_processes(marker)
        # TSan's own runtime has one for a moment at start, and cannot remove it when its process is killed just then.
        files = sorted(str(p.relative_to(tmp)) for p in tmp.rglob("*") if not p.name.startswith("tsan.rodata."))
        with _spawn:
            segments = _find_shm(marker, alone=not _running)
        if not processes and not files and not segments:
            return []
        if time.monotonic() >= end:
            break
        time.sleep(0.02)
    faults = []
    if processes:
        faults.append("processes left running (killed now): " + "; ".join(_command_of(p) for p in processes))
        _kill(processes)
    if files:
        faults.append("files left in TMPDIR: " + ", ".join(files[:20]))
    for name in segments:
        faults.append(f"shared memory left: /dev/shm/{name}")
        remove_shm(name)
    return faults


def _ends_within(process, seconds):
    """Waits without polling where the system has pidfds (Popen.wait with a timeout looks every 50 ms)."""
    try:
        fd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        try:
            process.wait(timeout=seconds)
            return True
        except subprocess.TimeoutExpired:
            return False
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = bool(poll.poll(seconds * 1000))
    os.close(fd)
    return ended


def run(command, deadline, env=None, factor=1.0, each_line=None, cwd=None, grace=2.0):
    """Runs `command`. Never raises for what the program does, and returns when nothing of it is left."""
    global _shm_known
    with _spawn:
        if _shm_known is None:
            _shm_known = _shm()
    marker = str(uuid.uuid4())
    tmp = pathlib.Path(tempfile.mkdtemp(prefix="ujoin-test-"))
    environment = clean_environment()
    environment.update({"TMPDIR": str(tmp), MARKER: marker, "UJOIN_TEST_SLACK": str(factor)})
    environment.update(env or {})
    start = time.monotonic()
    late = False

    try:
        with _spawn:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       env=environment, cwd=cwd, start_new_session=True)
            _running[process.pid] = marker
    except OSError as error:
        shutil.rmtree(tmp, ignore_errors=True)
        return Outcome(127, f"{command[0]}: {error.strerror}", 0.0, [f"cannot be executed: {error.strerror}"], False, marker)
    reader = _Reader(process.stdout, each_line)
    if not _ends_within(process, deadline):
        late = True
        _kill([process.pid] + marked_processes(marker))
    code = process.wait()
    seconds = time.monotonic() - start
    with _spawn:
        del _running[process.pid]
    faults = [f"ran past its deadline of {deadline:.0f} s and was killed"] if late else []
    found = _search(marker, tmp, 0.2 if late else grace * factor)
    if not late:
        faults += found  # of a program that was killed nobody expects that it cleans up
    reader.join(timeout=2)
    shutil.rmtree(tmp, ignore_errors=True)
    return Outcome(code, reader.text(), seconds, faults, late, marker)
