# SPDX-License-Identifier: Apache-2.0
"""Schedules of hyper-parameters, and loss scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import _ujoin
from .types import ScheduleKind, choose


@dataclass(frozen=True)
class Schedule:
    """A value that depends on the step alone: `opt.set_hyper("lr", schedule(step))`, with `step` from 0.

    `base` is the value after warm-up; in step i of `warmup_steps` it is base (i + 1) / warmup_steps. `total_steps`, warm-up
    included, are those of COSINE and LINEAR, which end at `minimum`. STEP multiplies by `gamma` every `every` steps, counted
    from the end of warm-up.
    """

    base: float
    kind: ScheduleKind | str = ScheduleKind.CONSTANT
    warmup_steps: int = 0
    total_steps: int = 0
    minimum: float = 0
    gamma: float = 0.1
    every: int = 0

    def __call__(self, step: int) -> float:
        """The value at a step. `InvalidError` names the field that makes no sense."""
        kind = choose(ScheduleKind, self.kind)
        return _ujoin.zero_schedule(
            kind, self.base, self.minimum, self.gamma, self.warmup_steps, self.total_steps, self.every, step
        )


class ScalerState(NamedTuple):
    """The state of a `LossScaler`: `LossScaler(*state)` goes on from it."""

    scale: float
    growth: float
    backoff: float
    interval: int
    good_steps: int
    """since the last change"""
    skipped: int
    """steps, in all"""


class LossScaler:
    """A dynamic loss scale for one optimizer, the same on every rank: multiply the loss by `scale`, and give the scaler to
    `ZeroRedundancyOptimizer.step`.

    0 is the default everywhere: a `scale` of 65536, times `growth` (2) after `interval` (2000) good steps in a row, times
    `backoff` (0.5) after a step that was skipped.
    """

    __slots__ = ("_handle",)

    def __init__(
        self,
        scale: float = 0,
        growth: float = 0,
        backoff: float = 0,
        interval: int = 0,
        good_steps: int = 0,
        skipped: int = 0,
    ) -> None:
        self._handle = _ujoin.zero_scaler_create(scale, growth, backoff, interval, good_steps, skipped)

    @property
    def scale(self) -> float:
        """The scale of the next loss, the same on every rank after each step."""
        return _ujoin.zero_scaler_scale(self._handle)

    @property
    def state(self) -> ScalerState:
        """The present state, to be saved."""
        return ScalerState(*_ujoin.zero_scaler_get(self._handle))
