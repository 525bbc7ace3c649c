# SPDX-License-Identifier: Apache-2.0
"""Groups, collectives, work in flight."""

from __future__ import annotations

import datetime
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from conftest import DEADLINE, local_group, on_ranks, unique, until

import ujoin
from ujoin import ReduceOp


def test_facts(alone: ujoin.Group) -> None:
    assert (alone.rank, alone.size) == (0, 1)
    assert alone.info[:5] == ("self", 0, 1, 0, 1)
    assert alone.info.threads >= 1
    assert ujoin.backends()["local"][0] is True
    assert ujoin.__version__.count(".") == 2


def test_threads() -> None:
    with ujoin.Group(f"local://{unique('threads')}", backend="self", world_size=1, threads=3) as group:
        assert group.info.threads == 3
    with pytest.raises(ujoin.InvalidError, match="threads is -1"):
        ujoin.Group(f"local://{unique('threads')}", backend="self", world_size=1, threads=-1)


@pytest.mark.parametrize(
    ("op", "expected"), [(ReduceOp.SUM, 6), ("sum", 6), ("avg", 2), ("min", 1), ("max", 3), (ReduceOp.MAX, 3)]
)
def test_reductions(op: Any, expected: float) -> None:
    def body(group: ujoin.Group) -> list[float]:
        values = np.full(5, group.rank + 1, np.float32)
        group.all_reduce(values, op)
        group.close()
        return list(values)

    assert on_ranks(3, body) == [[expected] * 5] * 3


def test_all_collectives() -> None:
    def body(group: ujoin.Group) -> None:
        r, n = group.rank, group.size
        values = np.full(2, r, np.int64)
        group.broadcast(values, src=1)
        assert values.tolist() == [1, 1]
        gathered = np.zeros(2 * n, np.int32)
        group.all_gather_into_tensor(gathered, np.full(2, r, np.int32))
        assert gathered.tolist() == [0, 0, 1, 1, 2, 2]
        gathered[:] = -1
        gathered[2 * r : 2 * r + 2] = 7 + r
        group.all_gather_into_tensor(gathered)
        assert gathered.tolist() == [7, 7, 8, 8, 9, 9]
        part = np.zeros(2)
        group.reduce_scatter_tensor(part, np.arange(2 * n, dtype=np.float64), "sum")
        assert part.tolist() == [3 * 2 * r, 3 * (2 * r + 1)]
        group.barrier()
        assert group.close()

    on_ranks(3, body)


def test_asynchronous_collectives() -> None:
    def body(group: ujoin.Group) -> None:
        r, n = group.rank, group.size
        a, b, c, d = (np.full(4, r + 1.0) for _ in range(4))
        out, part = np.zeros(4 * n), np.zeros(4)
        works = [
            group.all_reduce(a, async_op=True),
            group.broadcast(b, 1, async_op=True),
            group.all_gather_into_tensor(out, c, async_op=True),
            group.reduce_scatter_tensor(part, np.ones(4 * n), async_op=True),
        ]
        assert all(work.wait() for work in works)
        assert all(work.is_completed() for work in works)
        assert a.tolist() == [3] * 4
        assert b.tolist() == [2] * 4
        assert out.tolist() == [1] * 4 + [2] * 4
        assert part.tolist() == [2] * 4
        assert d.tolist() == [r + 1] * 4
        group.close()

    on_ranks(2, body)


def test_wait_runs_out_and_the_work_lives_on() -> None:
    """Rank 1 joins the operation only when rank 0 has seen the time-out."""
    seen = threading.Event()

    def body(group: ujoin.Group) -> None:
        values = np.ones(3)
        if group.rank == 1:
            assert seen.wait(DEADLINE)
            group.all_reduce(values)
        else:
            work = group.all_reduce(values, async_op=True)
            assert work.wait(0.05) is False
            assert work.wait(datetime.timedelta(0)) is False
            assert work.is_completed() is False
            seen.set()
            assert work.wait() is True
        assert values.tolist() == [2, 2, 2]
        group.close()

    on_ranks(2, body)


def test_memory_is_held_until_the_end_of_the_work() -> None:
    """Also when the work is dropped at once: what is in flight cannot be resized."""
    go = threading.Event()

    def body(group: ujoin.Group) -> None:
        if group.rank == 1:
            assert go.wait(DEADLINE)
            group.all_reduce((bytearray(8), ujoin.DType.F32))
            group.all_reduce((bytearray(8), ujoin.DType.F32))
        else:
            kept, dropped = bytearray(8), bytearray(8)
            work = group.all_reduce((kept, ujoin.DType.F32), async_op=True)
            group.all_reduce((dropped, ujoin.DType.F32), async_op=True)
            for memory in (kept, dropped):
                with pytest.raises(BufferError):
                    memory.extend(b"more")
            go.set()
            work.wait()
            kept.extend(b"more")
            until(lambda: can_grow(dropped), "the memory of the dropped work is free")
        group.close()

    def can_grow(memory: bytearray) -> bool:
        try:
            memory.extend(b"x")
        except BufferError:
            return False
        return True

    on_ranks(2, body)


def test_deadline_names_who_is_missing() -> None:
    name = unique("late")
    ready, done = threading.Event(), threading.Event()

    def late() -> None:
        group = local_group(name, 1, 2)
        ready.set()
        done.wait(DEADLINE)
        del group

    thread = threading.Thread(target=late)
    thread.start()
    group = local_group(name, 0, 2)
    assert ready.wait(DEADLINE)
    with pytest.raises(ujoin.TimeoutError, match="rank 0 of 2") as failed:
        group.barrier(timeout=0.1)
    done.set()
    thread.join(DEADLINE)
    error = failed.value
    assert isinstance(error, TimeoutError)
    assert error.ranks == (1,)
    assert error.status_name == "UJOIN_E_TIMEOUT"
    assert "1" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.ranks, copy.status) == (str(error), (1,), error.status)
    with pytest.raises(ujoin.TimeoutError):  # the group is broken: the first cause again
        group.barrier()


def test_abort_reaches_the_other_rank() -> None:
    waiting = threading.Event()

    def body(group: ujoin.Group) -> str:
        if group.rank == 1:
            assert waiting.wait(DEADLINE)
            group.abort("the disk is full")
            return ""
        work = group.all_reduce(np.zeros(1), async_op=True)
        waiting.set()
        with pytest.raises(ujoin.AbortedError) as failed:
            work.wait()
        return str(failed.value)

    text = on_ranks(2, body)[0]
    assert "the disk is full" in text
    assert "rank 1" in text


def test_abort_of_work() -> None:
    aborted = threading.Event()

    def body(group: ujoin.Group) -> None:
        if group.rank == 0:
            group.all_reduce(np.zeros(1), async_op=True).abort()
            aborted.set()
        assert aborted.wait(DEADLINE)
        with pytest.raises(ujoin.AbortedError, match="aborted"):
            go_on(group)

    def go_on(group: ujoin.Group) -> None:
        if group.rank == 1:
            group.all_reduce(np.zeros(1))  # what rank 0 had brought may still count; another operation would differ
        group.barrier()

    on_ranks(2, body)


def test_lost_peer_is_named() -> None:
    def body(group: ujoin.Group) -> None:
        if group.rank == 1:
            return  # drops its group
        with pytest.raises(ujoin.PeerLostError, match="rank 1") as failed:
            group.barrier()
        assert failed.value.ranks == (1,)
        assert isinstance(failed.value, ConnectionError)

    on_ranks(2, body)


def test_mismatch_has_both_descriptions() -> None:
    def body(group: ujoin.Group) -> None:
        with pytest.raises(ujoin.MismatchError, match=r"all_reduce.*f32.*f64|f64.*f32"):
            group.all_reduce(np.zeros(2, np.float32 if group.rank == 0 else np.float64))

    on_ranks(2, body)


def test_context_manager_aborts_when_the_block_raises() -> None:
    def body(group: ujoin.Group) -> None:
        if group.rank == 1:
            with pytest.raises(ZeroDivisionError), group:
                1 / 0  # noqa: B018
        else:
            with pytest.raises(ujoin.AbortedError, match="ZeroDivisionError: division by zero"):
                group.barrier()

    on_ranks(2, body)


def test_one_call_at_a_time() -> None:
    """A second thread's call on a group is an error, not a race."""
    waiting = threading.Event()

    def body(group: ujoin.Group) -> None:
        if group.rank == 1:
            assert waiting.wait(DEADLINE)
            group.barrier()
            group.close()
            return
        errors: list[BaseException] = []

        def second() -> None:
            def busy() -> bool:
                with pytest.raises(ujoin.Error) as failed:
                    group.broadcast(np.zeros(1), 99)
                errors.append(failed.value)
                return isinstance(failed.value, ujoin.StateError)

            until(busy, "the first thread is in the barrier")
            waiting.set()

        thread = threading.Thread(target=second)
        thread.start()

        def passed() -> bool:
            try:
                group.barrier()
            except ujoin.StateError:  # met the other thread's call instead
                return False
            return True

        until(passed, "the barrier")
        thread.join(DEADLINE)
        assert "one call at a time" in str(errors[-1])
        group.close()

    on_ranks(2, body)


def test_closed_and_wrong(alone: ujoin.Group) -> None:
    group = ujoin.Group(backend="self", world_size=1)
    assert group.close()
    with pytest.raises(ujoin.StateError, match="closed"):
        group.barrier()
    with pytest.raises(ujoin.InvalidError, match="root is 3; expected 0 to 0"):
        alone.broadcast(np.zeros(1), 3)
    with pytest.raises(ujoin.InvalidError, match="expected one of sum, avg, min, max, prod"):
        alone.all_reduce(np.zeros(1), "xor")
    with pytest.raises(ujoin.InvalidError, match="-1 seconds"):
        alone.barrier(timeout=-1)
    with pytest.raises(ujoin.UnsupportedError, match="mars"):
        ujoin.Group(backend="mars", world_size=1)


def test_process_group() -> None:
    assert not ujoin.is_initialized()
    with pytest.raises(ujoin.StateError, match="init_process_group"):
        ujoin.get_rank()
    group = ujoin.init_process_group("self", world_size=1, rank=0)
    try:
        assert ujoin.is_initialized()
        assert (ujoin.get_rank(), ujoin.get_world_size()) == (0, 1)
        with pytest.raises(ujoin.StateError, match="destroy_process_group"):
            ujoin.init_process_group("self", world_size=1)
        group.barrier()
    finally:
        ujoin.destroy_process_group()
    assert not ujoin.is_initialized()
    ujoin.destroy_process_group()


def test_a_group_meets_at_a_store() -> None:
    name = unique("meeting")
    sums: list[float] = []

    def rank(number: int) -> None:
        store = ujoin.Store(f"memory://{name}")
        group = ujoin.Group(store=store, rank=number, world_size=2, rendezvous_timeout=DEADLINE)
        values = np.ones(1)
        group.all_reduce(values)
        sums.append(values[0])
        group.close()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert sums == [2, 2]
