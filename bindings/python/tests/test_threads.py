# SPDX-License-Identifier: Apache-2.0
"""The interpreter lock, signals, callbacks from foreign threads, fork, the end of the interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import DEADLINE, local_group, on_ranks, run_python, unique, until

import ujoin


@contextlib.contextmanager
def counting() -> Iterator[Callable[[], int]]:
    """Another thread that counts, a step a millisecond."""
    ticks, stop = [0], threading.Event()

    def count() -> None:
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    yield lambda: ticks[0]
    stop.set()
    thread.join(DEADLINE)


class Late:
    """Rank 1 of a pair, which comes only when the other thread has counted to 50 since rank 0 began to wait."""

    def __init__(self, ticks: Callable[[], int]) -> None:
        self.ticks = ticks
        self.waits = threading.Event()

    def begin(self) -> int:
        start = self.ticks()
        self.waits.set()
        return start

    def come(self) -> None:
        assert self.waits.wait(DEADLINE)
        start = self.ticks()
        until(lambda: self.ticks() >= start + 50, "another thread counts while this one waits")
        self.waits.clear()


def collectives(group: ujoin.Group) -> list[tuple[str, Callable[[], Any]]]:
    """Every call that waits for the other rank."""
    values, part, many = np.zeros(2), np.zeros(1), np.zeros(4)
    return [
        ("barrier", group.barrier),
        ("all_reduce", lambda: group.all_reduce(values)),
        ("broadcast", lambda: group.broadcast(values, 1)),
        ("all_gather", lambda: group.all_gather_into_tensor(many, values)),
        ("reduce_scatter", lambda: group.reduce_scatter_tensor(part, values)),
        ("work.wait", lambda: group.all_reduce(values, async_op=True).wait()),
        ("ddp", lambda: ujoin.DistributedDataParallel([values], [values.copy()], group=group)),
        ("zero", lambda: ujoin.ZeroRedundancyOptimizer([values], grads=[values.copy()], group=group)),
        ("close", group.close),
    ]


def test_waiting_lets_other_threads_run() -> None:
    """BINDINGS-01: a call that kept the interpreter lock would stop the counter, and the late rank would never come."""
    with counting() as ticks:
        late = Late(ticks)

        def body(group: ujoin.Group) -> None:
            for name, call in collectives(group):
                if group.rank == 1:
                    late.come()
                    call()
                else:
                    start = late.begin()
                    call()
                    assert ticks() >= start + 50, name

        on_ranks(2, body)


def test_objects_wait_without_the_lock() -> None:
    """The same for step, consolidation, saving, the end of a join context, and gradient reduction."""
    with counting() as ticks:
        late = Late(ticks)

        def body(group: ujoin.Group) -> None:
            w, g = np.zeros(2), np.zeros(2)
            ddp = ujoin.DistributedDataParallel([w], [g], group=group)
            opt = ujoin.ZeroRedundancyOptimizer([w], grads=[g], group=group)
            join = ujoin.Join([ddp, opt])

            def reduce() -> None:
                with ddp.iteration():
                    ddp.ready(0)

            def joined() -> None:
                with join:
                    pass

            calls: list[tuple[str, Callable[[], Any]]] = [
                ("step", opt.step),
                ("consolidate", opt.consolidate_state_dict),
                ("reduce", reduce),
                ("join", joined),
                ("close", group.close),
            ]
            for name, call in calls:
                if group.rank == 1:
                    late.come()
                    call()
                else:
                    start = late.begin()
                    call()
                    assert ticks() >= start + 50, name

        on_ranks(2, body)


def test_stores_and_workers_wait_without_the_lock() -> None:
    with counting() as ticks:
        start = ticks()
        assert ujoin.Store("memory://" + unique("s")).get("never", 0.5) is None
        assert ujoin.Store("memory://" + unique("s")).wait(["never"], 0.5) is False
        job = ujoin.start_processes("s", "sleep", args=[1000])
        assert job.wait(timeout=0.5) is None
        job.close()
        assert ticks() - start >= 50


def test_computing_lets_other_threads_run(alone: ujoin.Group) -> None:
    """With no switches by time, another thread runs only while a step has released the lock."""
    w, g = np.zeros(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    opt = ujoin.ZeroRedundancyOptimizer([w], grads=[g], group=alone)
    go, ran = threading.Event(), threading.Event()
    interval = sys.getswitchinterval()

    def other() -> None:
        assert go.wait(DEADLINE)
        ran.set()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        sys.setswitchinterval(1000)
        go.set()
        steps = 0
        while not ran.is_set() and steps < 10_000:
            opt.step()
            steps += 1
    finally:
        sys.setswitchinterval(interval)
    assert ran.is_set()
    thread.join(DEADLINE)


def test_two_threads_wait_in_two_groups() -> None:
    """Threads blocked in two groups go on independently, in the order in which their peers come."""
    names = [unique("a"), unique("b")]
    passed: list[int] = []

    def rank0(which: int) -> None:
        group = local_group(names[which], 0, 2)
        group.barrier()
        passed.append(which)
        group.close()

    def rank1(which: int) -> None:
        group = local_group(names[which], 1, 2)
        until(lambda: len(passed) == 1 - which, "the other group's turn")
        group.barrier()
        group.close()

    threads = [threading.Thread(target=body, args=(which,)) for which in range(2) for body in (rank0, rank1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert passed == [1, 0]


# ------------------------------------------------------------------------------------------------------------------ signals

BLOCKING = """
import os, signal, sys, threading, numpy as np, ujoin
me = threading.main_thread().ident
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
name = "local://interrupt"
def other(): # a second rank that meets, and then never comes
    global peer
    peer = ujoin.Group(name, backend="local", rank=1, world_size=2)
    if sys.argv[1] in ("ddp_finish", "step", "join"):
        g1 = np.zeros(1)
        keep.append(ujoin.DistributedDataParallel([np.zeros(1)], [g1], group=peer))
        keep.append(ujoin.ZeroRedundancyOptimizer([np.zeros(1)], grads=[g1], group=peer))
        if sys.argv[1] == "join":
            keep.append(ujoin.Join([keep[0]])); keep[-1].__enter__()
keep = []
if sys.argv[1] != "create":
    thread = threading.Thread(target=other); thread.start()
    group = ujoin.Group(name, backend="local", rank=0, world_size=2)
    w, g = np.zeros(1), np.zeros(1)
    if sys.argv[1] in ("ddp_finish", "step", "join"):
        ddp = ujoin.DistributedDataParallel([w], [g], group=group)
        opt = ujoin.ZeroRedundancyOptimizer([w], grads=[g], group=group)
    thread.join()
store = ujoin.Store("memory://interrupt")
def finish():
    ddp.forward(); ddp.ready(0); ddp.finish()
def join():
    with ujoin.Join([ddp]): pass
calls = dict(
    create=lambda: ujoin.Group(name, backend="local", rank=0, world_size=2),
    barrier=lambda: group.barrier(), all_reduce=lambda: group.all_reduce(w),
    wait=lambda: group.all_reduce(w, async_op=True).wait(), close=lambda: group.close(),
    store_get=lambda: store.get("never"), store_wait=lambda: store.wait(["never"]),
    pctx=lambda: job.wait(), ddp_finish=finish, step=lambda: opt.step(), join=join,
)
if sys.argv[1] == "pctx":
    job = ujoin.start_processes("s", "sleep", args=[1000])
def interrupt():
    # Sent again and again: the first may come before the call has begun.
    import time
    while not done.wait(0.3): signal.pthread_kill(me, signal.SIGINT)
done = threading.Event()
sender = threading.Thread(target=interrupt)
class Alarm(Exception): pass
if sys.argv[2] == "handler":
    def handler(*_): raise Alarm("from a handler")
    signal.signal(signal.SIGINT, handler)
try:
    sender.start()
    calls[sys.argv[1]]()
except KeyboardInterrupt:
    done.set(); print("KeyboardInterrupt")
except Alarm as error:
    done.set(); print("Alarm", error)
sender.join()
if sys.argv[1] == "pctx":
    assert job.wait(timeout=0) is None # as it was
    job.close()
"""
CALLS = ["create", "barrier", "all_reduce", "wait", "close", "store_get", "store_wait", "pctx", "ddp_finish", "step", "join"]


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_every_wait(call: str) -> None:
    done = run_python(BLOCKING, call, "default")
    assert (done.returncode, done.stdout, done.stderr) == (0, "KeyboardInterrupt\n", "")


def test_an_exception_of_a_handler_comes_as_it_is() -> None:
    done = run_python(BLOCKING, "barrier", "handler")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Alarm from a handler\n", "")


# ---------------------------------------------------------------------------------------------------- errors and callbacks


def test_40000_errors_of_four_threads() -> None:
    """BINDINGS-02 (a): each exception is of the right class, with the text of its own call."""
    wrong: list[str] = []

    def fail(number: int) -> None:
        group = ujoin.Group(backend="self", world_size=1)
        memory = bytearray(4)
        for i in range(10_000):
            root = 1 + 10_000 * number + i
            try:
                group.broadcast(memory, root)
            except ujoin.InvalidError as error:
                if f"root is {root};" not in str(error) or error.status != -1:
                    wrong.append(str(error))
            else:
                wrong.append("no error")

    threads = [threading.Thread(target=fail, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def garbage(store: ujoin.Store, times: int = 1) -> None:
    """Makes the thread of a store's server log that it dropped a client."""
    host, port = store.url.removeprefix("tcp://").rsplit(":", 1)
    for _ in range(times):
        with (
            socket.create_connection((host, int(port)), timeout=DEADLINE) as client,
            contextlib.suppress(ConnectionError),
        ):
            client.sendall(b"\xff" * 64)
            while client.recv(64):
                pass


@pytest.fixture
def logging_again() -> Iterator[None]:
    yield
    ujoin.set_log_level(logging.WARNING)


def test_log_lines_reach_logging(caplog: pytest.LogCaptureFixture) -> None:
    store = ujoin.Store("tcp://127.0.0.1:0", listen=True)
    garbage(store)
    until(lambda: bool(caplog.records), "the line has come")
    record = caplog.records[0]
    assert (record.name, record.levelno) == ("ujoin", logging.WARNING)
    assert "dropped a client" in record.getMessage()


@pytest.mark.usefixtures("logging_again")
def test_sink_on_library_threads_at_once_and_replaced() -> None:
    """BINDINGS-02 (b): one call in ten raises; the others go on. The sink is replaced while lines come."""
    stores = [ujoin.Store("tcp://127.0.0.1:0", listen=True) for _ in range(4)]
    mine, lines, raised = threading.get_ident(), [], []
    threads = set()

    def sink(level: int, text: str) -> None:
        assert level == logging.WARNING
        threads.add(threading.get_ident())
        lines.append(text)
        if len(lines) % 10 == 0:
            raise LookupError("in the sink")

    def unraisable(args: Any) -> None:
        raised.append(args.exc_value)

    old, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        ujoin.set_log_sink(sink)
        senders = [threading.Thread(target=garbage, args=(store, 25)) for store in stores]
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            ujoin.set_log_sink(sink)  # waits for who is inside, who waits for the interpreter
        until(lambda: len(lines) == 100, "every line has come")
    finally:
        sys.unraisablehook = old
    assert len(threads - {mine}) >= 4
    assert len(raised) == 10
    assert all(isinstance(error, LookupError) for error in raised)
    ujoin.set_log_sink(None)
    garbage(stores[0])
    assert len(lines) == 100


def test_sink_is_dropped_when_replaced() -> None:
    class Sink:
        def __call__(self, level: int, text: str) -> None:
            pass

    sink = Sink()
    before = sys.getrefcount(sink)
    ujoin.set_log_sink(sink)
    ujoin.set_log_level(logging.WARNING)
    until(lambda: sys.getrefcount(sink) == before, "the sink is free")


def address_of(capsule: Any) -> int:
    """The C handle in a capsule of the binding's: the first word of what it points to."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(ctypes.c_void_p.from_address(pointer(capsule, b"ujoin_ctx")).value or 0)


def test_hooks_on_12000_foreign_threads(alone: ujoin.Group) -> None:
    """Threads that Python does not know run a hook each; no thread state is left behind."""

    class Hook(ujoin.JoinHook):
        runs = 0
        threads: set[int] = set()  # noqa: RUF012

        def post_hook(self, is_last_joiner: bool) -> None:
            Hook.runs += is_last_joiner
            Hook.threads.add(threading.get_ident())

    class Mine(ujoin.Joinable):
        def join_hook(self, **kwargs: Any) -> ujoin.JoinHook:
            return Hook()

    join = ujoin.Join([Mine(alone)])
    library, libc = ctypes.CDLL(ujoin_library()), ctypes.CDLL(None)
    finish = ctypes.cast(library.ujoin_ctx_finish, ctypes.c_void_p)
    handle, thread, status = ctypes.c_void_p(address_of(join._handle)), ctypes.c_void_p(), ctypes.c_void_p()

    def run(count: int) -> int:
        for _ in range(count):
            join.__enter__()
            assert libc.pthread_create(ctypes.byref(thread), None, finish, handle) == 0
            assert libc.pthread_join(thread, ctypes.byref(status)) == 0
            assert (status.value or 0) & 0xFFFFFFFF == 0
        gc.collect()
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    start = run(2000)
    assert run(10_000) - start < 4 << 20
    assert Hook.runs == 12_000
    assert threading.get_ident() not in Hook.threads


def ujoin_library() -> str:
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "libujoin.so" in line)


# ---------------------------------------------------------------------------------------------------------- fork and exit

FORK = """
import os, sys, numpy as np, ujoin
group = ujoin.init_process_group("self", world_size=1)
w = np.ones(2)
opt = ujoin.ZeroRedundancyOptimizer([w], "sgd", grads=[np.ones(2)], lr=0.5)
work = group.all_reduce(w, async_op=True)
work.wait()
job = ujoin.start_processes("s", "sleep", args=[1000])
child = os.fork()
if child == 0:
    assert not ujoin.is_initialized()
    for call in (lambda: group.rank, group.barrier, opt.step, work.wait, job.wait, lambda: group.all_reduce(w)):
        try: call()
        except ujoin.StateError as error: assert "fork" in str(error), error
        else: raise SystemExit(f"no error")
    own = ujoin.init_process_group("self", world_size=1)
    own.all_reduce(w, async_op=True).wait()
    del group, opt, work, job
    ujoin.destroy_process_group()
    print("child", flush=True)
    sys.exit(0) # the whole way out of the interpreter
assert os.waitpid(child, 0)[1] == 0
opt.step()
assert w.tolist() == [0.5, 0.5], w
assert job.wait(timeout=0) is None
job.close()
print("parent")
"""


def test_fork() -> None:
    done = run_python(FORK)
    assert (done.returncode, done.stdout, done.stderr) == (0, "child\nparent\n", "")


EXIT = """
import sys, threading, numpy as np, ujoin
mode = sys.argv[1]
group = ujoin.init_process_group("self", world_size=1)
w, g = np.ones(2), np.ones(2)
ddp = ujoin.DistributedDataParallel([w], [g])
opt = ujoin.ZeroRedundancyOptimizer([w], lr=0.5)
join = ujoin.Join([ddp, opt])
job = ujoin.start_processes("s", "sleep", args=[1000])
server = ujoin.Store("tcp://127.0.0.1:0", listen=True)
ready = threading.Event()
class Hook(ujoin.JoinHook):
    def main_hook(self):
        a.all_reduce(np.zeros(1))
class Mine(ujoin.Joinable):
    def join_hook(self, **kwargs): return Hook()
def blocked():
    global a
    a = ujoin.Group("local://exit", backend="local", rank=0, world_size=2)
    ready.set()
    if mode == "barrier": a.barrier()
    if mode == "join":
        with ujoin.Join([Mine(a)], skew_warning_rounds=-1): pass
    if mode == "store": server.get("never")
def peer():
    global b
    b = ujoin.Group("local://exit", backend="local", rank=1, world_size=2)
    if mode == "join":
        m = Mine(b)
        with ujoin.Join([m]):
            while True: # the daemon's hooks run all the time, also while the interpreter ends
                ujoin.Join.notify_join_context(m); b.all_reduce(np.zeros(1))
threads = [threading.Thread(target=target, daemon=True) for target in (blocked, peer)]
for thread in threads: thread.start()
ready.wait()
group.all_reduce(w, async_op=True)
if mode == "join":
    import time
    time.sleep(0.05)
print("end")
"""


@pytest.mark.parametrize("mode", ["barrier", "store", "join"])
def test_exit_with_a_daemon_thread_in_a_call(mode: str) -> None:
    """BINDINGS-02 (c): 20 of 20, with everything still alive."""
    for _ in range(20):
        done = run_python(EXIT, mode)
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_objects_die_in_any_order_without_a_word() -> None:
    done = run_python(
        "import gc, numpy as np, ujoin\n"
        "class Loop: pass\n"
        "loop = Loop(); loop.me = loop\n"
        "loop.group = ujoin.Group(backend='self', world_size=1)\n"
        "loop.opt = ujoin.ZeroRedundancyOptimizer([np.zeros(1)], grads=[np.zeros(1)], group=loop.group)\n"
        "loop.join = ujoin.Join([loop.opt]); loop.join.__enter__()\n"
        "del loop; gc.collect()\n"
        "kept = ujoin.Group(backend='self', world_size=1)\n"
        "import builtins; builtins.kept = kept; builtins.work = kept.all_reduce(np.zeros(1), async_op=True)\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_interrupt_check_does_not_disturb_other_threads() -> None:
    """A wait of a thread that is not the main one goes on when a signal comes."""
    hits: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda *_: hits.append(1))
    try:
        name = unique("quiet")
        done = threading.Event()

        def wait() -> None:
            group = local_group(name, 0, 2)
            group.barrier()
            group.close()
            done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        peer = local_group(name, 1, 2)
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: bool(hits), "the handler has run")
        time.sleep(0)
        assert not done.is_set()
        peer.barrier()
        peer.close()
        thread.join(DEADLINE)
        assert done.is_set()
    finally:
        signal.signal(signal.SIGUSR1, old)
