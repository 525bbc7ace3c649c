# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from . import _ujoin
from .collectives import Collectives
from .errors import error, invalid
from .store import Store
from .types import Timeout, limit, patience


class GroupInfo(NamedTuple):
    """What the ranks of a group agreed on."""

    backend: str
    rank: int
    world_size: int
    local_rank: int
    """among the ranks of this host"""
    local_size: int
    progress: bool
    threads: int
    """whether work advances by itself; else only inside calls (fewer processors than ranks)"""


class Group(Collectives):
    """A set of ranks that communicate: ranks meet, agree on a backend and attach.

    `rendezvous`: "env://" (the environment that ujoin-run sets), "tcp://host:port", "file:///path", "local://name" (ranks
    are threads of one process). `backend`: "auto", "self" (one rank), "local" (threads), "shm" (one host). `rank` and
    `world_size` count only together; else they come from the environment. `name` tells apart several groups of one
    rendezvous. `store`: meet there instead. `timeout`: of a collective, by default 10 minutes. `shadow_collectives`: a rank
    that has joined (see `ujoin.Join`) takes part in the collectives that the program itself calls on this group; it adds
    nothing, AVG divides by the contributors, and `Work.contributors` says who they were. `threads` that compute a step of an
    optimizer, with the caller's: by default variable UJOIN_THREADS, else the rank's share of the processors.

    Collectives are called by every rank in the same order; a failed one breaks the group. Memory is used where it lies, see
    `ujoin.Memory`. As a context manager it closes the group at the end, or aborts it when the block raises.
    """

    __slots__ = ("__weakref__", "_handle")

    def __init__(
        self,
        rendezvous: str | None = None,
        *,
        backend: str | None = None,
        name: str | None = None,
        store: Store | None = None,
        rank: int = 0,
        world_size: int = 0,
        timeout: Timeout = None,
        rendezvous_timeout: Timeout = None,
        shadow_collectives: bool = False,
        threads: int = 0,
    ) -> None:
        self._handle: _ujoin.Handle = _ujoin.ujoin_group_create(
            rendezvous,
            backend,
            name,
            None if store is None else store._handle,
            rank,
            world_size,
            limit(timeout),
            limit(rendezvous_timeout),
            shadow_collectives,
            threads,
        )

    @classmethod
    def _of(cls, handle: _ujoin.Handle) -> Group:
        group = cls.__new__(cls)
        group._handle = handle
        return group

    def split(
        self,
        color: int | None,
        key: int = 0,
        *,
        backend: str | None = None,
        timeout: Timeout = None,
        rendezvous_timeout: Timeout = None,
        shadow_collectives: bool = False,
    ) -> Group | None:
        """A group of the ranks that give the same color, in the order of their keys, then of their ranks.

        Every rank calls it. `color` None: no group for this rank. The new group does not depend on this one: it has its own
        operations, may be used from another thread, and fails alone. `backend`: by default as this group's.
        """
        handle = _ujoin.ujoin_group_split(
            self._handle,
            -1 if color is None else color,
            key,
            backend,
            limit(timeout),
            limit(rendezvous_timeout),
            shadow_collectives,
        )
        return None if handle is None else Group._of(handle)

    @property
    def rank(self) -> int:
        """This process's rank, 0 to size - 1."""
        return _ujoin.ujoin_group_rank(self._handle)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return _ujoin.ujoin_group_size(self._handle)

    @property
    def info(self) -> GroupInfo:
        """What was agreed: backend, ranks of this host, progress; and this rank's threads."""
        backend, rank, size, local_rank, local_size, progress, threads = _ujoin.ujoin_group_get_info(self._handle)
        return GroupInfo(backend, rank, size, local_rank, local_size, bool(progress), threads)

    def close(self, timeout: Timeout = None) -> bool:
        """Waits until all operations are complete and every rank has come here, then ends the group. False: not in this
        time; call again, or drop the group."""
        return _ujoin.ujoin_group_close(self._handle, patience(timeout)) == _ujoin.UJOIN_OK

    def abort(self, reason: str | None = None) -> None:
        """Gives up: everything on this group ends with `AbortedError` on every rank, within a second. From any thread."""
        _ujoin.ujoin_group_abort(self._handle, reason)

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exception is None:
            self.close()
        else:
            self.abort(f"{type(exception).__name__}: {exception}")


# ------------------------------------------------------------------------------------------------------- the process group
_default: Group | None = None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Timeout = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    *,
    rendezvous_timeout: Timeout = None,
    shadow_collectives: bool = False,
    threads: int = 0,
) -> Group:
    """Makes the group that objects of this process use unless they are given another, and returns it.

    Arguments as in PyTorch; see `Group`. Without arguments: what ujoin-run's environment says. Ranks that are threads make
    a `Group` each instead.
    """
    global _default
    if _default is not None:
        raise error(_ujoin.UJOIN_E_STATE, "init_process_group: the process group exists; destroy_process_group() first")
    _default = Group(
        init_method,
        backend=backend,
        name=group_name,
        store=store,
        rank=max(rank, 0),
        world_size=max(world_size, 0),
        timeout=timeout,
        rendezvous_timeout=rendezvous_timeout,
        shadow_collectives=shadow_collectives,
        threads=threads,
    )
    return _default


def destroy_process_group() -> None:
    """Closes the group of `init_process_group`, together with all ranks. Nothing if there is none."""
    global _default
    group, _default = _default, None
    if group is not None:
        group.close()


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Timeout = None,
    backend: str | None = None,
    *,
    group: Group | None = None,
) -> Group | None:
    """A group of these ranks (None: all) of `group`, in their order there; None on the other ranks. All ranks of `group`, by
    default that of `init_process_group`, call it, with the same ranks."""
    whole = process_group(group)
    members = range(whole.size) if ranks is None else ranks
    strange = [rank for rank in members if not 0 <= rank < whole.size]
    if strange or len(set(members)) != len(members):
        raise invalid(
            f"rank {whole.rank}: new_group: expected different ranks from 0 to {whole.size - 1}, not {list(members)}"
        )
    return whole.split(0 if whole.rank in members else None, backend=backend, timeout=timeout)


def is_initialized() -> bool:
    """Whether there is a group of `init_process_group`."""
    return _default is not None


def process_group(group: Group | None = None) -> Group:
    """The given group, or that of `init_process_group`."""
    if group is not None:
        return group
    if _default is None:
        raise error(_ujoin.UJOIN_E_STATE, "there is no process group; call init_process_group() first, or give a group")
    return _default


def get_rank(group: Group | None = None) -> int:
    """This process's rank."""
    return process_group(group).rank


def get_world_size(group: Group | None = None) -> int:
    """The number of ranks."""
    return process_group(group).size


def forget_process_group() -> None:
    """In a forked child: the parent's group is not this process's."""
    global _default
    _default = None
