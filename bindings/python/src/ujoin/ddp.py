# SPDX-License-Identifier: Apache-2.0
"""Gradient reduction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import _ujoin
from .errors import invalid
from .group import Group, process_group
from .join import Joinable, JoinHook
from .params import Gradients, Params, remember, with_gradients
from .types import Division, GradientKind, Timeout, choose, limit


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
    joined_uneven: bool
    """has been in a join context with uneven inputs"""


class DistributedDataParallel(Joinable):
    """Sums gradients over the ranks while the backward pass still runs, and divides them.

    `params` and `grads` are arrays of the program's, see `ujoin.Params` and `ujoin.Gradients`; they are used where they
    lie, and held until this object has ended. At the start all ranks get the values of `source_rank`
    (`init_sync=False`: they are equal already). `division`: see `ujoin.Division`. `bucket_bytes`: gradients are reduced
    together up to this size, by default 25 MiB (the first one 1 MiB). `idle_timeout`: without progress of the peers, by
    default none.

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
    ) -> None:
        triples = with_gradients(params, grads, "DistributedDataParallel")
        self.join_process_group = process_group(group)
        self._index = {name: index for index, (name, _, _) in enumerate(triples)}
        self._handle = _ujoin.ujoin_ddp_create(
            self.join_process_group._handle,
            choose(Division, division),
            choose(GradientKind, gradient_kind),
            not init_sync,
            source_rank,
            first_bucket_bytes,
            bucket_bytes,
            limit(idle_timeout),
            triples,
        )
        self._joinable = _ujoin.ujoin_ddp_joinable(self._handle)
        self._hook = JoinHook()
        self._gradients = {_ujoin.describe(array, False)[0]: grad for _, array, grad in triples}
        remember(self)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Does nothing here: the library shadows a reducer itself."""
        return JoinHook()

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
        """The gradient of a parameter, by index or name, is complete. Any order, any thread."""
        if isinstance(parameter, str):
            if parameter not in self._index:
                raise invalid(f'ready: no parameter is called "{parameter}"; there are {", ".join(self._index)}')
            parameter = self._index[parameter]
        _ujoin.ujoin_ddp_ready(self._handle, parameter)

    def finish(self) -> None:
        """Ends an iteration: waits for the reductions."""
        _ujoin.ujoin_ddp_finish(self._handle)

    @property
    def report(self) -> DDPReport:
        """Counts, divisor and times."""
        report = _ujoin.ujoin_ddp_get_report(self._handle)
        iterations, divisor, samples, reduce_us, exposed_us, buckets, uneven = report
        return DDPReport(iterations, divisor, samples, reduce_us / 1e6, exposed_us / 1e6, buckets, uneven != 0)

    def gradient_at(self, address: int) -> Any | None:
        """The gradient of the parameter that lies at an address; for optimizers over the same parameters."""
        return self._gradients.get(address)
