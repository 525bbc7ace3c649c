# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks and their collectives."""

from __future__ import annotations

from types import TracebackType
from typing import Literal, NamedTuple, overload

from . import _ujoin
from .errors import error
from .store import Store
from .types import Memory, ReduceOp, Timeout, choose, limit, patience


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


class Work:
    """An operation in flight. Its memory is held, wherever this object goes, until the operation has its final status:
    until then do not read what is received, nor write to what is sent."""

    __slots__ = ("_handle",)

    def __init__(self, handle: _ujoin.Handle) -> None:
        self._handle = handle

    def wait(self, timeout: Timeout = None) -> bool:
        """Waits; False if the operation was not complete in time. Raises the operation's error, every time."""
        return _ujoin.ujoin_work_wait(self._handle, -1 if timeout is None else patience(timeout)) == _ujoin.UJOIN_OK

    def is_completed(self) -> bool:
        """Whether it is complete; never waits. Raises the operation's error. From any thread."""
        return _ujoin.ujoin_work_test(self._handle) == _ujoin.UJOIN_OK

    @property
    def contributors(self) -> list[int]:
        """The ranks that contributed, once it is complete: all, unless joined ranks shadowed it. Until then, and if it
        failed, none. From any thread."""
        return _ujoin.ujoin_work_contributors(self._handle)

    def abort(self) -> None:
        """Gives up; its status is `AbortedError` on every rank, and its group is broken. From any thread."""
        _ujoin.ujoin_work_abort(self._handle)


class Group:
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

    # ------------------------------------------------------------------------------------------------------- collectives
    @overload
    def all_reduce(
        self,
        tensor: Memory,
        op: ReduceOp | str = ...,
        *,
        out: Memory | None = ...,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def all_reduce(
        self,
        tensor: Memory,
        op: ReduceOp | str = ...,
        *,
        out: Memory | None = ...,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def all_reduce(
        self,
        tensor: Memory,
        op: ReduceOp | str = ReduceOp.SUM,
        *,
        out: Memory | None = None,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Reduces over all ranks, in rank order: in place, or into `out`. Bit-identical on all ranks."""
        if type(op) is not ReduceOp:
            op = choose(ReduceOp, op)
        if out is None:
            send, recv = None, tensor
        else:
            send, recv = tensor, out
        work = _ujoin.ujoin_all_reduce(self._handle, send, recv, op, 0 if timeout is None else limit(timeout), async_op)
        return Work(work) if async_op else None

    @overload
    def broadcast(
        self, tensor: Memory, src: int = ..., *, async_op: Literal[False] = ..., timeout: Timeout = ...
    ) -> None: ...
    @overload
    def broadcast(self, tensor: Memory, src: int = ..., *, async_op: Literal[True], timeout: Timeout = ...) -> Work: ...
    def broadcast(self, tensor: Memory, src: int = 0, *, async_op: bool = False, timeout: Timeout = None) -> Work | None:
        """Copies the memory of rank `src` into every rank's."""
        work = _ujoin.ujoin_broadcast(self._handle, tensor, src, limit(timeout), async_op)
        return Work(work) if async_op else None

    @overload
    def all_gather_into_tensor(
        self,
        output: Memory,
        tensor: Memory | None = ...,
        *,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def all_gather_into_tensor(
        self, output: Memory, tensor: Memory | None = ..., *, async_op: Literal[True], timeout: Timeout = ...
    ) -> Work: ...
    def all_gather_into_tensor(
        self, output: Memory, tensor: Memory | None = None, *, async_op: bool = False, timeout: Timeout = None
    ) -> Work | None:
        """Gathers `tensor` of every rank, in rank order, into `output` (size times as long). None: this rank's part lies in
        `output` already."""
        work = _ujoin.ujoin_all_gather(self._handle, tensor, output, limit(timeout), async_op)
        return Work(work) if async_op else None

    @overload
    def reduce_scatter_tensor(
        self,
        output: Memory,
        tensor: Memory,
        op: ReduceOp | str = ...,
        *,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def reduce_scatter_tensor(
        self,
        output: Memory,
        tensor: Memory,
        op: ReduceOp | str = ...,
        *,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def reduce_scatter_tensor(
        self,
        output: Memory,
        tensor: Memory,
        op: ReduceOp | str = ReduceOp.SUM,
        *,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Reduces `tensor` (size times as long as `output`) and leaves part r in `output` of rank r."""
        reduce = choose(ReduceOp, op)
        work = _ujoin.ujoin_reduce_scatter(self._handle, tensor, output, reduce, limit(timeout), async_op)
        return Work(work) if async_op else None

    def barrier(self, timeout: Timeout = None) -> None:
        """Returns when every rank has come here."""
        _ujoin.ujoin_barrier(self._handle, 0 if timeout is None else limit(timeout))


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
