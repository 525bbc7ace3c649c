# SPDX-License-Identifier: Apache-2.0
"""Join contexts over gradient reduction, the optimizer, and joinables of the program's own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from conftest import DEADLINE, on_ranks, until

import ujoin
from ujoin import Join, Joinable, JoinHook

BATCHES = [2, 5, 3]  # of each rank
RATE = 0.1


def gradient(w: Any, rank: int, batch: int) -> Any:
    """Of a batch of rank + 1 samples."""
    x = np.float64(1 + rank + batch)
    return 2 * (w * x - 3 * x) * x / 100


def one_process() -> Any:
    """The same training in one process: SGD on the mean over the samples of all ranks that have a batch."""
    w = np.array([0.5, -0.25])
    for batch in range(max(BATCHES)):
        active = [rank for rank, count in enumerate(BATCHES) if batch < count]
        total = sum((rank + 1) * gradient(w, rank, batch) for rank in active)
        w -= RATE * total / sum(rank + 1 for rank in active)
    return w


def train(group: ujoin.Group, **options: Any) -> tuple[Any, ujoin.Join, Any]:
    w, g = np.array([0.5, -0.25]) + group.rank, np.zeros(2)  # the start of rank 0 counts
    ddp = ujoin.DistributedDataParallel({"w": w}, {"w": g}, group=group, division="samples")
    opt = ujoin.ZeroRedundancyOptimizer({"w": w}, "sgd", group=group, lr=RATE)
    join = Join([ddp, opt], **options)
    with join:
        for batch in range(BATCHES[group.rank]):
            with ddp.iteration(samples=group.rank + 1):
                g[:] = gradient(w, group.rank, batch)
                ddp.ready("w")
            opt.step()
    return w, join, ddp


def test_uneven_inputs_equal_one_process() -> None:
    def body(group: ujoin.Group) -> Any:
        w, join, ddp = train(group)
        report = join.report
        assert join.rounds == BATCHES
        assert report.rounds == BATCHES[group.rank]
        assert report.shadow_rounds == max(BATCHES) - BATCHES[group.rank]
        assert report.is_last_joiner == (group.rank == 1)
        assert (report.authoritative_rank, report.joined, report.stopped) == (1, 3, False)
        assert (report.shadow_uses > 0) == (report.shadow_rounds > 0)
        assert ddp.report.iterations == BATCHES[group.rank]
        times = (report.shadow_time, report.wait_time, ddp.report.reduce_time, ddp.report.exposed_time)
        assert all(0 <= seconds < DEADLINE for seconds in times)
        assert ddp.report.joined_uneven is True
        group.close()
        return w

    ranks = on_ranks(3, body)
    assert all(w.tobytes() == ranks[0].tobytes() for w in ranks)
    np.testing.assert_allclose(ranks[0], one_process(), rtol=1e-12)


def test_throw_mode_on_every_rank() -> None:
    def body(group: ujoin.Group) -> None:
        with pytest.raises(ujoin.ExhaustedError) as failed:
            train(group, throw_on_early_termination=True)
        assert failed.value.ranks == (0,)
        group.barrier()  # the group is whole
        group.close()

    on_ranks(3, body)


def test_disabled_does_nothing() -> None:
    def body(group: ujoin.Group) -> None:
        join = Join([Counter(group)], enable=False)
        with join:
            assert Join.notify_join_context(join.joinables[0], count_active=True) == 2
        assert join.report.rounds == 0

    on_ranks(2, body)


def until_it_fails(counter: Counter) -> None:
    with Join([counter]):
        while True:
            counter()


class Counter(Joinable):
    """Counts the rounds of all ranks, as the example in PyTorch's documentation does."""

    class Hook(JoinHook):
        def __init__(self, counter: Counter, sync_max: float) -> None:
            self.counter = counter
            self.sync_max = sync_max
            self.told: list[ujoin.HookArgs] = []

        def main_hook(self) -> None:
            self.told.append(self.args)
            assert Join.notify_join_context(self.counter) is None  # this rank has joined
            self.counter.join_process_group.all_reduce(np.ones(1))

        def post_hook(self, is_last_joiner: bool) -> None:
            self.told.append(self.args)
            self.last = is_last_joiner
            if self.sync_max:
                self.counter.join_process_group.broadcast(self.counter.total, self.args.authoritative_rank)

    def __init__(self, group: ujoin.Group) -> None:
        super().__init__(group, name="counter", options=["sync_max_count"])
        self.total = np.zeros(1)

    def __call__(self) -> None:
        Join.notify_join_context(self)
        ones = np.ones(1)
        self.join_process_group.all_reduce(ones)
        self.total += ones

    def join_hook(self, **kwargs: Any) -> JoinHook:
        self.made = Counter.Hook(self, kwargs.get("sync_max_count", 0))
        return self.made


def test_own_joinable() -> None:
    def body(group: ujoin.Group) -> tuple[float, list[Any]]:
        counter = Counter(group)
        with Join([counter], sync_max_count=True):
            for _ in range(BATCHES[group.rank]):
                counter()
        assert counter.made.last == (group.rank == 1)
        group.close()
        return counter.total[0], counter.made.told

    results = on_ranks(3, body)
    assert [total for total, _ in results] == [3 + 3 + 2 + 1 + 1] * 3
    mains = results[0][1][:-1]
    assert [told.round for told in mains] == [2, 3, 4]
    assert all(told.active in (1, 2) for told in mains)  # rank 2 joins at some time meanwhile
    assert all(told.options == {"sync_max_count": 1.0} for told in mains)
    assert all(told.authoritative_rank == -1 for told in mains)
    assert results[0][1][-1][1:4] == (0, False, 1)
    assert [told.is_last_joiner for told in results[1][1]] == [True]


def test_a_context_is_used_again() -> None:
    def body(group: ujoin.Group) -> float:
        counter = Counter(group)
        join = Join([counter], sync_max_count=1)
        for _ in range(3):
            with join:
                for _ in range(BATCHES[group.rank]):
                    counter()
        group.close()
        return float(counter.total[0])

    assert on_ranks(3, body) == [30] * 3


def test_a_raising_hook_names_itself_and_its_cause() -> None:
    class Broken(Counter):
        def join_hook(self, **kwargs: Any) -> JoinHook:
            class Raises(JoinHook):
                def main_hook(self) -> None:
                    raise LookupError("no such batch")

            return Raises()

    def body(group: ujoin.Group) -> None:
        counter = Broken(group)
        if group.rank == 0:
            with pytest.raises(ujoin.CallbackError, match=r"counter.*LookupError: no such batch") as failed, Join([counter]):
                pass
            assert isinstance(failed.value.__cause__, LookupError)
            assert failed.value.__cause__.__traceback__ is not None
        else:
            with pytest.raises(ujoin.AbortedError, match=r"rank 0.*no such batch"):
                until_it_fails(counter)

    on_ranks(2, body)


def test_post_hook_raises() -> None:
    class Broken(Counter):
        def join_hook(self, **kwargs: Any) -> JoinHook:
            class Raises(JoinHook):
                def post_hook(self, is_last_joiner: bool) -> None:
                    raise LookupError("at the end")

            return Raises()

    group = ujoin.Group(backend="self", world_size=1)
    with pytest.raises(ujoin.CallbackError, match="at the end") as failed, Join([Broken(group)]):
        pass
    assert isinstance(failed.value.__cause__, LookupError)
    with pytest.raises(ujoin.CallbackError, match="at the end"):  # the group is broken, by the same cause
        group.barrier()


def test_body_raises_and_peers_are_told() -> None:
    def body(group: ujoin.Group) -> None:
        counter = Counter(group)
        if group.rank == 0:
            with pytest.raises(ValueError, match="bad batch"), Join([counter]):
                raise ValueError("bad batch")
        else:
            with pytest.raises(ujoin.AbortedError, match=r"rank 0.*ValueError: bad batch"):
                until_it_fails(counter)

    on_ranks(2, body)


def test_agreed_stop() -> None:
    """Rank 0 asks in its third round; all leave after the same round."""

    def body(group: ujoin.Group) -> list[int]:
        counter = Counter(group)
        with (join := Join([counter])):
            rounds = 0
            while not join.stopped():
                counter()
                rounds += 1
                if group.rank == 0 and rounds == 3:
                    join.stop()
        assert join.report.stopped
        group.close()
        return join.rounds

    results = on_ranks(2, body)
    assert results[0] == results[1]
    assert results[0][0] == results[0][1] >= 3


def test_notify_counts_the_active() -> None:
    def body(group: ujoin.Group) -> list[int | None]:
        counter = Counter(group)
        seen = []
        with Join([counter]):
            for _ in range(1 + group.rank):
                seen.append(Join.notify_join_context(counter, count_active=True))
                counter.join_process_group.all_reduce(np.ones(1))
        group.close()
        return seen

    assert on_ranks(2, body) == [[2], [2, 1]]


def test_wrong_use(alone: ujoin.Group) -> None:
    counter = Counter(alone)
    with pytest.raises(ujoin.InvalidError, match="sync_max_count"):
        Join([counter], divide=1)
    with pytest.raises(ujoin.InvalidError):
        Join([])
    with pytest.raises(NotImplementedError):
        Join([Joinable(alone)])
    with Join([counter]), pytest.raises(ujoin.StateError), Join([counter]):
        pass
    assert "ujoin" in str(ujoin.InvalidError("ujoin"))


def test_ddp_wrong_use(alone: ujoin.Group) -> None:
    values, grads = np.zeros(2, np.float32), np.zeros(2, np.float32)
    ddp = ujoin.DistributedDataParallel({"w": values}, {"w": grads}, group=alone)
    with pytest.raises(ujoin.InvalidError, match='no parameter is called "v"; there are w'):
        ddp.ready("v")
    with pytest.raises(ujoin.StateError, match="iteration"):
        ddp.ready(0)
    with pytest.raises(ujoin.StateError, match="w"), ddp.iteration():
        pass
    with pytest.raises(ujoin.InvalidError, match=r"\['v'\], and lacks \['w'\]"):
        ujoin.DistributedDataParallel({"w": values}, {"v": grads}, group=alone)
    with pytest.raises(ujoin.InvalidError, match="2 gradients for 1 parameters"):
        ujoin.DistributedDataParallel([values], [grads, grads], group=alone)
    with pytest.raises(ujoin.InvalidError, match='no gradient is known for parameter "0"'):
        ujoin.DistributedDataParallel([np.zeros(2)], group=alone)
    with pytest.raises(ujoin.InvalidError, match='gradient of parameter "w": it has 3 elements, the parameter 2'):
        ujoin.DistributedDataParallel({"w": values}, {"w": np.zeros(3, np.float32)}, group=alone)


def test_ready_from_several_threads(alone: ujoin.Group) -> None:
    grads = [np.full(3, i + 1.0) for i in range(8)]
    ddp = ujoin.DistributedDataParallel(
        [np.zeros(3) for _ in range(8)], grads, group=alone, first_bucket_bytes=1, bucket_bytes=1
    )
    with ddp.iteration():
        threads = [threading.Thread(target=ddp.ready, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    assert [g[0] for g in grads] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert ddp.report.bucket_count >= 2


def test_parameters_are_held_until_the_object_has_ended(alone: ujoin.Group) -> None:
    memory, grad = bytearray(8), bytearray(8)
    ddp = ujoin.DistributedDataParallel([(memory, ujoin.DType.F64)], [(grad, ujoin.DType.F64)], group=alone)
    join = Join([ddp])
    del ddp
    for held in (memory, grad):
        with pytest.raises(BufferError):
            held.extend(b"x")
    del join

    def free() -> bool:
        try:
            memory.extend(b"x")
            grad.extend(b"x")
        except BufferError:
            return False
        return True

    until(free, "the parameters are free")


def test_gradients_of_tensors_with_grad(alone: ujoin.Group) -> None:
    class Tensor:
        def __init__(self) -> None:
            self.data, self.grad = np.ones(2), np.ones(2)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: Any) -> Any:
            return self.data.__dlpack__(**options)

    tensor = Tensor()
    opt = ujoin.ZeroRedundancyOptimizer([("w", tensor)], "sgd", lr=0.5, group=alone)
    opt.step()
    assert tensor.data.tolist() == [0.5, 0.5]
