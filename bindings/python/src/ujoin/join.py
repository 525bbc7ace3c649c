# SPDX-License-Identifier: Apache-2.0
"""Training on uneven inputs: join contexts, and joinables of the program's own."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from . import _ujoin
from .errors import ExhaustedError
from .group import Group, process_group
from .types import Timeout, limit


class HookArgs(NamedTuple):
    """What a hook is told."""

    round: int
    """rounds of the context so far, from 0"""
    active: int
    """ranks that have not joined; 0 in post hooks"""
    is_last_joiner: bool
    """post hook: this rank ran no shadow"""
    authoritative_rank: int
    """post hook: the largest last joiner, the same on every rank; -1 in main hooks"""
    options: dict[str, float]
    """as given to the context"""


_hook_args: Callable[[tuple[Any, ...]], HookArgs] = functools.partial(tuple.__new__, HookArgs)  # each use makes one


class JoinHook:
    """What a joined rank does for a joinable. Subclass it; what is not overridden does nothing.

    Hooks run on the thread that leaves the join context. They may issue collectives on the joinable's group. A hook that
    raises ends the context on all ranks: `CallbackError` here, with the exception as its cause, `AbortedError` there.
    """

    args: HookArgs
    """what the hook that is running was told"""

    def main_hook(self) -> None:
        """The collectives of one use of the joinable, in their order. What they contribute does not count."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Once per rank, after all have joined."""


class Joinable:
    """A participant of a join context: something with collectives in each round, which a joined rank must shadow.

    A class of the program's own calls `super().__init__(group)`, returns its hook from `join_hook`, and calls
    `Join.notify_join_context(self)` before its collectives in each round. `options` names the keyword arguments of `Join`
    that its hook knows; they are numbers.
    """

    _joinable: _ujoin.Handle
    _hook: JoinHook

    def __init__(self, group: Group | None = None, *, name: str | None = None, options: Sequence[str] = ()) -> None:
        self.join_process_group: Group = process_group(group)
        self._hook = JoinHook()
        me = weakref.ref(self)

        def run(post: bool, told: tuple[Any, ...]) -> None:
            this = me()
            if this is None:
                return
            hook = this._hook
            hook.args = _hook_args(told)
            if post:
                hook.post_hook(hook.args.is_last_joiner)
            else:
                hook.main_hook()

        self._joinable = _ujoin.ujoin_joinable_create(
            self.join_process_group._handle, run, name or type(self).__name__, options
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook for one context, made when the context is; `kwargs` are those of `Join`."""
        raise NotImplementedError(f"{type(self).__name__}.join_hook")


class JoinReport(NamedTuple):
    """What happened in a context since its last start. Times are in seconds."""

    rounds: int
    """of this rank's own"""
    shadow_rounds: int
    """that it worked for others"""
    shadow_uses: int
    """main hooks run"""
    shadow_time: float
    wait_time: float
    is_last_joiner: bool
    authoritative_rank: int
    """-1 before the end"""
    joined: int
    """ranks that have joined by now"""
    stopped: bool
    """an agreed stop ended it"""


class Join:
    """Trains on uneven inputs: `with Join([ddp, opt]): ...` around the loop over a rank's batches.

    A rank that leaves the block works for the others until all are done. When the block raises, all ranks get
    `AbortedError`. The object can be entered again, once per epoch.

    `enable=False`: inputs are known to be even, nothing is done. `throw_on_early_termination`: no shadows; when one rank
    has no more inputs all get `ExhaustedError`. `idle_timeout`: without progress of any rank, by default none.
    `skew_warning_rounds`: a joined rank warns once after so many, by default 1000; negative = never. `strict`: once per use
    of the first joinable every hook in list order, as PyTorch does. Other keyword arguments go to the joinables' hooks;
    they are numbers, and a name that no joinable knows is an error.
    """

    __slots__ = ("__weakref__", "_handle", "_hooks", "joinables")

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        *,
        idle_timeout: Timeout = None,
        skew_warning_rounds: int = 0,
        strict: bool = False,
        **kwargs: float,
    ) -> None:
        self.joinables = list(joinables)
        handles = [joinable._joinable for joinable in self.joinables]
        self._handle = _ujoin.ujoin_ctx_create(
            handles,
            kwargs,
            limit(idle_timeout),
            skew_warning_rounds,
            not enable,
            throw_on_early_termination,
            strict,
        )
        self._hooks = [joinable.join_hook(**kwargs) for joinable in self.joinables]

    def __enter__(self) -> Join:
        for joinable, hook in zip(self.joinables, self._hooks, strict=True):
            joinable._hook = hook
        _ujoin.ujoin_ctx_start(self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exception is None:
            _ujoin.ujoin_ctx_finish(self._handle)
        elif not isinstance(exception, ExhaustedError):  # which has disarmed the context, on every rank
            _ujoin.ujoin_ctx_abort(self._handle, f"{type(exception).__name__}: {exception}")

    @staticmethod
    def notify_join_context(joinable: Joinable, count_active: bool = False) -> int | None:
        """Says that a joinable begins one use: one set of its collectives. `ddp` and `opt` say it themselves.

        With `count_active` it waits until every rank has started this round or joined, and returns how many started; else
        0. None: called from a hook on a joined rank. Without an armed context it does nothing.
        """
        return _ujoin.ujoin_joinable_notify(joinable._joinable, count_active)

    def stop(self) -> None:
        """Asks all ranks to leave after the same round (a signal, a time limit, early stopping). Any rank, any thread."""
        _ujoin.ujoin_ctx_stop(self._handle)

    def stopped(self) -> bool:
        """True when the round that has just ended was the last one by an agreed stop, on every rank alike. Ask between
        rounds, and leave the loop when it is."""
        return _ujoin.ujoin_ctx_stopped(self._handle) != 0

    def abort(self, reason: str | None = None) -> None:
        """Gives up: every peer gets `AbortedError`. Breaks the group. Nothing if the context is not entered."""
        _ujoin.ujoin_ctx_abort(self._handle, reason)

    @property
    def report(self) -> JoinReport:
        """Rounds, shadows and times since the last start."""
        report = _ujoin.ujoin_ctx_get_report(self._handle)
        rounds, shadow_rounds, uses, shadow_us, wait_us, last, authoritative, joined, stopped = report
        return JoinReport(
            rounds, shadow_rounds, uses, shadow_us / 1e6, wait_us / 1e6, last != 0, authoritative, joined, stopped != 0
        )

    @property
    def rounds(self) -> list[int]:
        """The rounds that each rank ran before it joined, by rank; -1: not joined yet."""
        return _ujoin.ujoin_ctx_rounds(self._handle)
