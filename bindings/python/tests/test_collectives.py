# SPDX-License-Identifier: Apache-2.0
"""Rooted operations, parts of unequal size, messages, lists of operations, groups that are split off."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from conftest import DEADLINE, on_ranks, until

import ujoin
from ujoin import Op, OpKind


def letter(a: int, b: int) -> list[int]:
    """What rank `a` has for rank `b`: as many elements as both together, which tell where they come from."""
    return [100 * a + b] * (a + b)


def letters(pairs: Any) -> np.ndarray:
    return np.array([element for a, b in pairs for element in letter(a, b)], np.int32)


def test_reduce() -> None:
    def body(group: ujoin.Group) -> None:
        r = group.rank
        for dst in range(group.size):
            values = np.array([r + 1, 10], np.float32)
            group.reduce(values, dst)
            assert values.tolist() == ([6, 30] if r == dst else [r + 1, 10])
            out = np.full(2, -1, np.float32)
            mine = np.array([r + 1, 10], np.float32)
            mine.flags.writeable = r == 7  # what is only sent is only read
            group.reduce(mine, dst, "prod", out=out)
            assert out.tolist() == ([6, 1000] if r == dst else [-1, -1])
            assert mine.tolist() == [r + 1, 10]
            work = group.reduce(values := np.array([r], np.int64), dst, ujoin.ReduceOp.MAX, async_op=True)
            assert work.wait()
            assert work.contributors == [0, 1, 2]
            assert values.tolist() == [2 if r == dst else r]
        group.close()

    on_ranks(3, body)


def test_products_and_bytes() -> None:
    assert ujoin.ReduceOp["PRODUCT"] is ujoin.ReduceOp["PROD"]

    def body(group: ujoin.Group) -> None:
        values = np.array([100_000, -3], np.int32)
        group.all_reduce(values, "prod")
        assert values.tolist() == [1_410_065_408, 9]  # wraps
        data = bytearray([200, 1])
        group.all_reduce(data)
        assert list(data) == [144, 2]
        group.close()

    on_ranks(2, body)


def test_gather_and_scatter() -> None:
    def body(group: ujoin.Group) -> None:
        r, n = group.rank, group.size
        for dst in range(n):
            at_dst = r == dst
            output = np.full((n, 2), -1, np.int32) if at_dst else None
            group.gather(np.array([r, 7], np.int32), output, dst)
            assert output is None or output.tolist() == [[0, 7], [1, 7], [2, 7]]
            own = np.full(n, -1.0)
            own[r] = r
            group.gather(None if at_dst else np.array([float(r)]), own, dst)
            assert own[:].tolist() == ([0, 1, 2] if at_dst else [r if k == r else -1 for k in range(n)])

            sizes = [k + 1 for k in range(n)]
            rows = np.full((6, 2), -1, np.int32) if at_dst else None
            work = group.gather(np.full((r + 1, 2), r, np.int32), rows, dst, sizes=sizes, async_op=True)
            assert work.wait()
            assert rows is None or rows[:, 1].tolist() == [0, 1, 1, 2, 2, 2]

            part = np.full((r + 1, 2), -1, np.int32)
            group.scatter(part, rows, dst, sizes=sizes)
            assert part.tolist() == [[r, r]] * (r + 1)
            equal = np.zeros(2, np.uint8)
            group.scatter(None if at_dst else equal, np.arange(2 * n, dtype=np.uint8) if at_dst else None, dst)
            assert equal.tolist() == ([0, 0] if at_dst else [2 * r, 2 * r + 1])
        group.close()

    on_ranks(3, body)


def test_all_to_all() -> None:
    def body(group: ujoin.Group) -> None:
        r, n = group.rank, group.size
        output = np.full(n, -1, np.int64)
        group.all_to_all_single(output, np.array([10 * r + k for k in range(n)], np.int64))
        assert output.tolist() == [10 * k + r for k in range(n)]
        group.all_to_all_single(output)  # in place: and back again
        assert output.tolist() == [10 * r + k for k in range(n)]
        sizes = [k + r for k in range(n)]
        came = np.full(sum(sizes), -1, np.int32)
        group.all_to_all_single(came, letters((r, k) for k in range(n)), sizes, sizes)
        assert came.tolist() == letters((k, r) for k in range(n)).tolist()
        rows = np.full((sum(sizes), 3), -1, np.float32)  # sizes are of the first dimension
        sent = np.full((sum(sizes), 3), r, np.float32)
        assert group.all_to_all_single(rows, sent, sizes, sizes, async_op=True).wait()
        assert rows[:, 2].tolist() == [k for k in range(n) for _ in range(k + r)]
        group.close()

    on_ranks(3, body)


def test_all_gather_and_reduce_scatter_of_unequal_parts() -> None:
    def body(group: ujoin.Group) -> None:
        r, n = group.rank, group.size
        sizes = [k + 1 for k in range(n)]
        everything = letters((k, 1) for k in range(n))
        output = np.full(sum(sizes), -1, np.int32)
        group.all_gather_into_tensor(output, np.array(letter(r, 1), np.int32), sizes=sizes)
        assert output.tolist() == everything.tolist()
        in_place = np.full((sum(sizes), 2), -1, np.int32)
        in_place[sum(sizes[:r]) : sum(sizes[: r + 1])] = r
        assert group.all_gather_into_tensor(in_place, sizes=sizes, async_op=True).wait()
        assert in_place.tolist() == [[0, 0], [1, 1], [1, 1], [2, 2], [2, 2], [2, 2]]
        part = np.full(r + 1, -1, np.int32)
        group.reduce_scatter_tensor(part, everything, sizes=sizes)
        assert part.tolist() == [n * (100 * r + 1)] * (r + 1)
        group.reduce_scatter_tensor(part, everything, "avg", sizes=sizes)
        assert part.tolist() == letter(r, 1)
        group.close()

    on_ranks(3, body)


def test_messages() -> None:
    def body(group: ujoin.Group) -> None:
        r, n = group.rank, group.size
        if r == 0:
            group.send(np.arange(4.0), 1)
            works = [group.send(np.full(70_000, k, np.float32), 2, async_op=True) for k in range(3)]
            assert all(work.wait() for work in works)
        elif r == 1:
            got = np.zeros(4)
            group.recv(got, 0)
            assert got.tolist() == [0, 1, 2, 3]
        else:
            for k in range(3):  # in the order in which they were sent
                got = np.full(70_000, -1, np.float32)
                assert group.recv(got, 0, async_op=True).wait()
                assert set(got.tolist()) == {k}
        # Around, all at once: none waits for another.
        following, previous = (r + 1) % n, (r - 1) % n
        big, small = np.full(100_000, -1, np.int64), np.full(1, 99, np.uint8)
        group.submit(
            [
                Op("send", send=np.full(100_000, r, np.int64), peer=following),
                Op("recv", recv=big, peer=previous),
                Op("send", send=np.array([r], np.uint8), peer=following),
                Op(OpKind.RECV, recv=small, peer=previous),
            ]
        )
        assert set(big.tolist()) == {previous}
        assert small.tolist() == [previous]
        group.close()

    on_ranks(3, body)


def test_lists() -> None:
    def body(group: ujoin.Group) -> None:
        r, n = group.rank, group.size
        tensors = [np.full(k + 1, r + 1, np.float32 if k < 3 else np.int32) for k in range(5)]
        group.all_reduce_coalesced(tensors)
        assert [t.tolist() for t in tensors] == [[3] * (k + 1) for k in range(5)]
        group.all_reduce_coalesced(tensors, "avg", async_op=True).wait()
        assert [t.tolist() for t in tensors] == [[3] * (k + 1) for k in range(5)]

        total, parts, root = np.full(2, 9.0), np.zeros(2, np.int32), bytearray([7 + r])
        work = group.submit(
            [
                Op("all_reduce", send=np.full(2, r + 1.0), recv=total, reduce="max"),
                Op("all_gather", send=np.array([r], np.int32), recv=parts),
                Op("broadcast", recv=root, peer=1),
                Op("barrier"),
                Op("reduce_scatter", send=np.ones(3), recv=(mine := np.zeros(1 + r)), recv_counts=[1, 2]),
            ],
            async_op=True,
        )
        assert work.wait()
        assert work.is_completed()
        assert (total.tolist(), parts.tolist(), list(root), mine.tolist()) == ([2, 2], [0, 1], [8], [n] * (1 + r))
        group.close()

    on_ranks(2, body)


def test_memory_of_lists_is_held_until_the_end_of_the_work() -> None:
    go = threading.Event()

    def can_grow(memory: bytearray) -> bool:
        try:
            memory.extend(b"x")
        except BufferError:
            return False
        return True

    def body(group: ujoin.Group) -> None:
        peer = 1 - group.rank
        if group.rank == 1:
            assert go.wait(DEADLINE)
            group.submit([Op("send", send=b"abcd", peer=peer), Op("recv", recv=bytearray(8), peer=peer)])
        else:
            sent, received = bytearray(8), bytearray(4)
            group.submit([Op("send", send=sent, peer=peer), Op("recv", recv=received, peer=peer)], async_op=True)
            assert not can_grow(sent)
            assert not can_grow(received)
            go.set()
            until(lambda: can_grow(sent) and can_grow(received), "the memory of the dropped work is free")
            assert received.startswith(b"abcd")
        group.close()

    on_ranks(2, body)


def test_split() -> None:
    def body(group: ujoin.Group) -> None:
        r = group.rank
        part = group.split(None if r == 3 else r // 2, key=-r)
        if part is None:
            assert r == 3
        else:
            assert (part.rank, part.size) == [(1, 2), (0, 2), (0, 1)][r]  # the higher rank has the lower key
            values = np.array([r])
            part.all_reduce(values)
            assert values.tolist() == [[1, 1, 2][r]]
            part.abort("on its own")
        group.barrier()
        evens = ujoin.new_group([2, 0], group=group)
        assert (evens is None) == (r % 2 == 1)
        if evens is not None:
            assert (evens.rank, evens.size) == (r // 2, 2)
            assert evens.close()
        whole = ujoin.new_group(group=group, timeout=DEADLINE)
        assert whole is not None
        assert (whole.rank, whole.size, whole.info.backend) == (r, 4, "local")
        group.close()
        whole.barrier()
        whole.close()

    on_ranks(4, body)


def test_split_takes_options(alone: ujoin.Group) -> None:
    part = alone.split(5, backend="shm", timeout=DEADLINE, rendezvous_timeout=DEADLINE, shadow_collectives=True)
    assert part is not None
    assert part.info.backend == "shm"
    part.close()
    with pytest.raises(ujoin.UnsupportedError, match="mars"):
        alone.split(0, backend="mars")
    with pytest.raises(ujoin.InvalidError, match=r"expected different ranks from 0 to 0, not \[0, 0\]"):
        ujoin.new_group([0, 0], group=alone)
    with pytest.raises(ujoin.InvalidError, match=r"not \[1\]"):
        ujoin.new_group([1], group=alone)
    with pytest.raises(ujoin.StateError, match="init_process_group"):
        ujoin.new_group()


def test_wrong_operations(alone: ujoin.Group) -> None:
    one, two = np.zeros(1), np.zeros(2)
    with pytest.raises(
        ujoin.InvalidError, match=r"rank 0: ops\[0\]\.recv_counts has 2 elements; expected 1, one for each rank"
    ):
        alone.submit([Op("gather", send=one, recv=one, recv_counts=[1, 0])])
    with pytest.raises(ujoin.InvalidError, match=r"ops\[1\]\.send_counts\[0\] is -1"):
        alone.submit([Op("barrier"), Op("all_to_all", send=one, recv=one, send_counts=[-1])])
    with pytest.raises(ujoin.InvalidError, match=r"ops\[0\]\.recv_counts add up to 1; recv\.count is 2"):
        alone.all_gather_into_tensor(two, one, sizes=[1])
    with pytest.raises(ujoin.InvalidError, match=r"ops\[0\]\.peer is 4; expected 0 to 0"):
        alone.send(one, 4)
    with pytest.raises(ujoin.InvalidError, match="each send needs its recv"):
        alone.send(one, 0)
    with pytest.raises(ujoin.InvalidError, match=r"ops\[0\]\.recv: the memory is read-only"):
        alone.recv(b"read-only", 0)
    with pytest.raises(ujoin.InvalidError, match="gather: output is None, but this rank is dst"):
        alone.gather(one)
    with pytest.raises(ujoin.InvalidError, match="scatter: tensor is None, but this rank is src"):
        alone.scatter(one)
    with pytest.raises(ujoin.InvalidError, match="no operations are given"):
        alone.submit([])
    with pytest.raises(ujoin.InvalidError, match="'sum' is no OpKind; expected one of barrier, all_reduce, reduce"):
        alone.submit([Op("sum", recv=one)])
    with pytest.raises(OverflowError, match="32 bits"):
        alone.send(one, 2**40)
    assert alone.barrier() is None  # type: ignore[func-returns-value]


def test_messages_that_differ_or_do_not_come() -> None:
    gone = threading.Event()

    def differs(group: ujoin.Group) -> None:
        op = Op("send", send=np.zeros(3, np.float32), peer=1) if group.rank == 0 else Op("recv", recv=np.zeros(3))
        with pytest.raises(ujoin.MismatchError, match=r"f32.*f64|f64.*f32"):
            group.submit([op])

    def missing(group: ujoin.Group) -> None:
        if group.rank == 1:
            assert gone.wait(DEADLINE)
            return
        with pytest.raises(ujoin.TimeoutError) as failed:
            group.send(np.zeros(3), 1, timeout=0.05)
        assert failed.value.ranks == (1,)
        gone.set()

    on_ranks(2, differs)
    on_ranks(2, missing)
