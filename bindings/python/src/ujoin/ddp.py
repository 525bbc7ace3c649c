# SPDX-License-Identifier: Apache-2.0
"""Gradient reduction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from . import _ujoin
from .errors import invalid
from .group import Group, process_group
from .join import Joinable, JoinHook
from .params import Gradients, Params, flagged, remember, with_gradients
from .types import (
    ITEM_SIZES,
    BufferTime,
    CommHook,
    Division,
    DType,
    GradientKind,
    GradientSync,
    Memory,
    Timeout,
    choose,
    limit,
    view,
)
from .work import Work


class DDPReport(NamedTuple):
    """What a reducer did. Times are in seconds."""

    iterations: int
    """synchronised ones"""
    divisor: float
    """of the last one; 0: no rank had a sample, gradients were left alone"""
    samples: float
    """of all ranks in the last one"""
    reduce_time: float
    """that reductions took, all iterations"""
    exposed_time: float
    """of that, the time spent waiting in `finish`: the rest was hidden"""
    bucket_count: int
    rebuilt: bool
    """buckets follow the order in which gradients became ready"""
    joined_uneven: bool
    """has been in a join context with uneven inputs"""


@dataclass(frozen=True)
class Bucket:
    """A bucket as a comm hook sees it, or a buffer as a buffer hook does. It is there for the time of the call, and of the
    operation that the hook passes out."""

    group: Group
    """where the hook's collectives go: the same ones on every rank, shadows included"""
    buffer: memoryview
    """this rank's undivided gradients, end to end; the hook leaves the result here. 16-bit floats as their bits"""
    dtype: DType
    params: tuple[int, ...]
    """indices of the parameters in it; none for a buffer"""
    offsets: tuple[int, ...]
    """where each begins, in elements"""
    divisor: float
    """of the sum over the ranks; with `Division.SAMPLES` and means 1 (0: no rank has a sample)"""
    iteration: int
    """synchronised ones before it, those that this rank shadowed too"""
    index: int
    """of the bucket in the order of launch, or of the buffer"""
    is_last: bool
    is_shadow: bool
    """this rank has joined: the contribution is zero"""
    source_rank: int
    """the lowest rank that has not joined"""

    @property
    def memory(self) -> tuple[memoryview, DType]:
        """The buffer for a collective, of whatever type."""
        return self.buffer, self.dtype


BucketHook: TypeAlias = Callable[[Bucket], "Work | None"]
"""A part of a hook: reduces now, or returns the work in flight, which is the library's from then on."""


class DistributedDataParallel(Joinable):
    """Sums gradients over the ranks while the backward pass still runs, and divides them.

    `params` and `grads` are arrays of the program's, see `ujoin.Params` and `ujoin.Gradients`; they are used where they
    lie, and held until this object has ended. At the start all ranks get the values of `source_rank`
    (`init_sync=False`: they are equal already). `division`: see `ujoin.Division`. `bucket_bytes`: gradients are reduced
    together up to this size, by default 25 MiB (the first one 1 MiB). `idle_timeout`: without progress of the peers, by
    default none. `gradient_sync="to_owner"`: see `GradientSync`; `finish` then reduces nothing, and the `step` of the
    optimizer made with this object comes after each iteration.

    `find_unused_parameters`: parameters may get no gradient in an iteration; `finish` takes them as unused.
    `static_graph`: likewise, but each rank uses the same ones in every iteration. `gradient_as_bucket_view`: the library has
    the gradients' memory, see `gradient`; `grads` may be left out. `params_released_on_ready`: a parameter is not read any
    more once its gradient is ready; an optimizer that was made with this object then updates it, on every rank, while later
    gradients are still computed. `ignore`: names of parameters that take no part.
    `buffers`: memory that is synchronised and not trained (running statistics), of any type: at the start all ranks get
    `source_rank`'s, and in each iteration those of the lowest rank that has not joined (`broadcast_buffers=False`: not).

    Each iteration: `with ddp.iteration(samples=n):`, and inside of it `ddp.ready(name)` as each gradient is complete.
    After the block the gradients hold the divided sum, on every rank.
    """

    def __init__(
        self,
        params: Params,
        grads: Gradients = None,
        *,
        group: Group | None = None,
        division: Division | str = Division.INITIAL,
        gradient_kind: GradientKind | str = GradientKind.MEAN,
        init_sync: bool = True,
        source_rank: int = 0,
        first_bucket_bytes: int = 0,
        bucket_bytes: int = 0,
        idle_timeout: Timeout = None,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        gradient_as_bucket_view: bool = False,
        ignore: Collection[str] = (),
        buffers: Mapping[str, Memory] | Sequence[Memory] = (),
        broadcast_buffers: bool = True,
        gradient_sync: GradientSync | str = GradientSync.ALL,
        params_released_on_ready: bool = False,
    ) -> None:
        what = "DistributedDataParallel"
        triples = with_gradients(params, grads, what, gradient_as_bucket_view or ignore)
        quads = flagged(triples, ignore, _ujoin.UJOIN_PARAM_IGNORED, what)
        self.join_process_group = process_group(group)
        self._index = {name: index for index, (name, _, _) in enumerate(triples)}
        self._handle = _ujoin.ujoin_ddp_create(
            self.join_process_group._handle,
            choose(Division, division),
            choose(GradientKind, gradient_kind),
            find_unused_parameters,
            static_graph,
            gradient_as_bucket_view,
            not broadcast_buffers,
            not init_sync,
            source_rank,
            first_bucket_bytes,
            bucket_bytes,
            limit(idle_timeout),
            choose(GradientSync, gradient_sync),
            params_released_on_ready,
            list(buffers.values() if isinstance(buffers, Mapping) else buffers),
            quads,
        )
        self._joinable = _ujoin.ujoin_ddp_joinable(self._handle)
        self._hook = JoinHook()
        self._shapes = [_ujoin.describe(array, False)[1:] if not flags else (0, 0, ()) for _, array, _, flags in quads]
        self._gradients = {
            _ujoin.describe(array, False)[0]: self._gradient_memory(index) if gradient_as_bucket_view else grad
            for index, (_, array, grad, flags) in enumerate(quads)
            if not flags
        }
        self._optimizer: Joinable | None = None  # that it steps
        remember(self)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Does nothing here: the library shadows a reducer itself."""
        return JoinHook()

    # --------------------------------------------------------------------------------------------------------- iterations
    @contextlib.contextmanager
    def iteration(self, samples: float = 1) -> Iterator[None]:
        """One iteration on a batch of so many samples: `forward`, the block, `finish`."""
        self.forward(samples)
        yield
        self.finish()

    def forward(self, samples: float = 1) -> None:
        """Begins an iteration and notifies the join context. 0 samples are allowed."""
        _ujoin.ujoin_ddp_forward(self._handle, samples)

    def ready(self, parameter: int | str) -> None:
        """The gradient of a parameter, by index or name, is complete. Any order, any thread. Hooks may run, and with
        `params_released_on_ready` updates are made, for which it waits for the other ranks."""
        if isinstance(parameter, str):
            parameter = self._find(parameter, "ready")
        _ujoin.ujoin_ddp_ready(self._handle, parameter)

    def finish(self) -> None:
        """Ends an iteration: waits for the reductions, and for the step of an optimizer that was made with this object."""
        _ujoin.ujoin_ddp_finish(self._handle)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Iterations inside accumulate: nothing is reduced, samples add up until the next one that synchronises. On every
        rank alike."""
        self.set_sync(False)
        try:
            yield
        finally:
            self.set_sync(True)

    def set_sync(self, enabled: bool) -> None:
        """Whether the next iterations synchronise, or accumulate. The same on every rank, and not within an iteration."""
        _ujoin.ujoin_ddp_set_sync(self._handle, enabled)

    # -------------------------------------------------------------------------------------------------------------- hooks
    def set_comm_hook(
        self,
        hook: CommHook | str | BucketHook,
        then: BucketHook | None = None,
        *,
        rank: int = 0,
        start_iteration: int = 0,
    ) -> None:
        """Chooses how buckets are reduced: a `CommHook`, or a function of the program's that gets a `Bucket`. Once, before
        the first iteration, the same on every rank.

        A function reduces now, or returns the `Work` in flight; `then` is called when that is complete, and may return
        more. The result is what they leave in the bucket: dividing is theirs. They run in `ready`, `finish` and, as
        shadows, at the end of a join context. One that raises aborts the group. `rank` (of the factors, default 1) and
        `start_iteration` (plain before this one, default 1000; negative: from the first on) are for LOW_RANK.
        """
        kind, start, after = _hook_parts(hook, then)
        _ujoin.ujoin_ddp_set_comm_hook(self._handle, kind, rank, start_iteration, start, after)

    def set_buffer_hook(
        self,
        hook: CommHook | str | BucketHook,
        then: BucketHook | None = None,
        *,
        time: BufferTime | str = BufferTime.AFTER_FORWARD,
    ) -> None:
        """Replaces the broadcast of buffers: called for each in each synchronised iteration. `CommHook.ALL_REDUCE` is the
        average. Work that it returns is complete when `forward` or `finish` returns. Otherwise as `set_comm_hook`."""
        kind, start, after = _hook_parts(hook, then)
        _ujoin.ujoin_ddp_set_buffer_hook(self._handle, choose(BufferTime, time), kind, start, after)

    # ------------------------------------------------------------------------------------------------------------- answers
    def gradient(self, parameter: int | str) -> memoryview | None:
        """Where a gradient lies: with `gradient_as_bucket_view` in the library's memory, the same place as long as this
        object lives (which the view holds); else the program's own. `numpy.asarray` takes it; 16-bit floats are bits (see
        `view(dtype)`). None: ignored."""
        memory = self._gradient_memory(self._find(parameter, "gradient"))
        return None if memory is None else memory[0]

    def _gradient_memory(self, index: int) -> tuple[memoryview, DType] | None:
        count, number, shape = self._shapes[index]
        if number == 0:
            return None
        dtype = DType(number)
        memory = _ujoin.ujoin_ddp_gradient(self._handle, index, count * ITEM_SIZES[dtype])
        return None if memory is None else (view(memory, dtype, shape), dtype)

    def _find(self, parameter: int | str, what: str) -> int:
        index = self._index.get(parameter, -1) if isinstance(parameter, str) else parameter
        if not 0 <= index < len(self._index):
            raise invalid(f'{what}: no parameter is called "{parameter}"; there are {", ".join(self._index)}')
        return index

    @property
    def used(self) -> dict[str, int]:
        """How many ranks used each parameter in the last synchronised iteration (static graph: in the first one); joined
        ranks do not count."""
        return dict(zip(self._index, _ujoin.ujoin_ddp_used(self._handle), strict=True))

    @property
    def report(self) -> DDPReport:
        """Counts, divisor and times."""
        report = _ujoin.ujoin_ddp_get_report(self._handle)
        iterations, divisor, samples, reduce_us, exposed_us, buckets, rebuilt, uneven = report
        times = reduce_us / 1e6, exposed_us / 1e6
        return DDPReport(iterations, divisor, samples, *times, buckets, rebuilt != 0, uneven != 0)

    def gradient_at(self, address: int) -> Any | None:
        """The gradient of the parameter that lies at an address; for optimizers over the same parameters."""
        return self._gradients.get(address)


def _hook_parts(hook: Any, then: Any) -> tuple[int, Any, Any]:
    """The kind of a hook, and its functions as the library's module calls them."""
    if callable(hook) and not isinstance(hook, CommHook):
        return _ujoin.UJOIN_COMM_HOOK_CUSTOM, _on_bucket(hook), None if then is None else _on_bucket(then)
    if then is not None:
        raise invalid("then goes with a function of the program's")
    return choose(CommHook, hook), None, None


def _on_bucket(function: BucketHook) -> Callable[..., _ujoin.Handle | None]:
    def run(group: _ujoin.Handle, memory: memoryview, dtype: int, params: Any, offsets: Any, *more: Any) -> Any:
        divisor, iteration, index, is_last, is_shadow, source_rank = more
        kind = DType(dtype)
        facts = params, offsets, divisor, iteration, index, is_last != 0, is_shadow != 0, source_rank
        work = function(Bucket(Group._of(group), view(memory, kind), kind, *facts))
        if work is None or isinstance(work, Work):
            return None if work is None else work._handle
        raise TypeError(f"a hook returns a Work or None, not {type(work).__name__}")

    return run
