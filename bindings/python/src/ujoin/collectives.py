# SPDX-License-Identifier: Apache-2.0
"""The operations of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, overload

from . import _ujoin
from .errors import invalid
from .types import Memory, OpKind, ReduceOp, Timeout, choose, limit
from .work import Work

Sizes: TypeAlias = Sequence[int] | None
"""Of the parts of a tensor, one for each rank, along its first dimension. None: all equal."""


def elements(sizes: Sizes, memory: Memory) -> list[int] | None:
    """Sizes along the first dimension as numbers of elements."""
    if sizes is None:
        return None
    _, count, _, shape = _ujoin.describe(memory, False)
    row = count // shape[0] if shape and shape[0] > 0 else 1
    return [int(size) * row for size in sizes]


class Op(NamedTuple):
    """An operation for `Group.submit`: `Op("send", send=a, peer=1)`. What a kind does not use on this rank is not looked
    at."""

    kind: OpKind | str
    send: Memory | None = None
    """None: in place, what this rank sends lies in `recv`"""
    recv: Memory | None = None
    peer: int = 0
    """the root, or the other rank of "send" and "recv\""""
    reduce: ReduceOp | str = ReduceOp.SUM
    send_counts: Sequence[int] | None = None
    """elements for each rank, end to end in `send`; None: equal parts"""
    recv_counts: Sequence[int] | None = None
    """likewise in `recv`; of "all_gather" and "reduce_scatter", the same on every rank"""

    def _flat(self) -> _ujoin.FlatOp:
        kind, reduce = choose(OpKind, self.kind), choose(ReduceOp, self.reduce)
        return kind, reduce, self.peer, self.send, self.recv, self.send_counts, self.recv_counts


class Collectives:
    """What a group does with memory. Operations return when they are done, or with `async_op=True` at once, with their
    `Work`. `timeout`: the deadline, by default the group's."""

    __slots__ = ()

    _handle: _ujoin.Handle

    def _rank(self) -> int:
        return _ujoin.ujoin_group_rank(self._handle)

    def _submit(self, ops: Sequence[_ujoin.FlatOp], async_op: bool, timeout: Timeout) -> Work | None:
        work = _ujoin.ujoin_submit(self._handle, ops, limit(timeout), async_op)
        return Work(work) if async_op else None

    def _run(self, op: _ujoin.FlatOp, async_op: bool, timeout: Timeout) -> Work | None:
        return self._submit((op,), async_op, timeout)

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
        out: Memory | None = None,  # by name; a marker that says so would cost as much as the call into the library
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
        sizes: Sizes = ...,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def all_gather_into_tensor(
        self,
        output: Memory,
        tensor: Memory | None = ...,
        *,
        sizes: Sizes = ...,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def all_gather_into_tensor(
        self,
        output: Memory,
        tensor: Memory | None = None,
        *,
        sizes: Sizes = None,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Gathers `tensor` of every rank, in rank order, into `output` (size times as long). None: this rank's part lies in
        `output` already. `sizes`: of each rank's part, the same on every rank."""
        if sizes is not None:
            op = _ujoin.UJOIN_OP_ALL_GATHER, 0, 0, tensor, output, None, elements(sizes, output)
            return self._run(op, async_op, timeout)
        work = _ujoin.ujoin_all_gather(self._handle, tensor, output, limit(timeout), async_op)
        return Work(work) if async_op else None

    @overload
    def reduce_scatter_tensor(
        self,
        output: Memory,
        tensor: Memory,
        op: ReduceOp | str = ...,
        *,
        sizes: Sizes = ...,
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
        sizes: Sizes = ...,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def reduce_scatter_tensor(
        self,
        output: Memory,
        tensor: Memory,
        op: ReduceOp | str = ReduceOp.SUM,
        *,
        sizes: Sizes = None,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Reduces `tensor` (size times as long as `output`) and leaves part r in `output` of rank r. `sizes`: of each rank's
        part, the same on every rank."""
        reduce = choose(ReduceOp, op)
        if sizes is not None:
            parts = elements(sizes, tensor)
            return self._run((_ujoin.UJOIN_OP_REDUCE_SCATTER, reduce, 0, tensor, output, None, parts), async_op, timeout)
        work = _ujoin.ujoin_reduce_scatter(self._handle, tensor, output, reduce, limit(timeout), async_op)
        return Work(work) if async_op else None

    @overload
    def reduce(
        self,
        tensor: Memory,
        dst: int = ...,
        op: ReduceOp | str = ...,
        *,
        out: Memory | None = ...,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def reduce(
        self,
        tensor: Memory,
        dst: int = ...,
        op: ReduceOp | str = ...,
        *,
        out: Memory | None = ...,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def reduce(
        self,
        tensor: Memory,
        dst: int = 0,
        op: ReduceOp | str = ReduceOp.SUM,
        *,
        out: Memory | None = None,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Reduces over all ranks, in rank order, to rank `dst`: in place there, or into its `out`. The other ranks' memory
        is only read."""
        reduce, at_dst = choose(ReduceOp, op), self._rank() == dst
        if at_dst and out is None:
            return self._run((_ujoin.UJOIN_OP_REDUCE, reduce, dst, None, tensor, None, None), async_op, timeout)
        recv = out if at_dst else None
        return self._run((_ujoin.UJOIN_OP_REDUCE, reduce, dst, tensor, recv, None, None), async_op, timeout)

    @overload
    def gather(
        self,
        tensor: Memory | None,
        output: Memory | None = ...,
        dst: int = ...,
        *,
        sizes: Sizes = ...,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def gather(
        self,
        tensor: Memory | None,
        output: Memory | None = ...,
        dst: int = ...,
        *,
        sizes: Sizes = ...,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def gather(
        self,
        tensor: Memory | None,
        output: Memory | None = None,
        dst: int = 0,
        *,
        sizes: Sizes = None,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Gathers `tensor` of every rank, in rank order, into `output` (size times as long) of rank `dst`; the others need
        none. `tensor` None: there this rank's part lies in `output` already. `sizes`: at `dst`, of each rank's part."""
        if self._rank() != dst:
            return self._run((_ujoin.UJOIN_OP_GATHER, 0, dst, tensor, None, None, None), async_op, timeout)
        if output is None:
            raise invalid(f"rank {dst}: gather: output is None, but this rank is dst")
        parts = elements(sizes, output)
        return self._run((_ujoin.UJOIN_OP_GATHER, 0, dst, tensor, output, None, parts), async_op, timeout)

    @overload
    def scatter(
        self,
        output: Memory | None,
        tensor: Memory | None = ...,
        src: int = ...,
        *,
        sizes: Sizes = ...,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def scatter(
        self,
        output: Memory | None,
        tensor: Memory | None = ...,
        src: int = ...,
        *,
        sizes: Sizes = ...,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def scatter(
        self,
        output: Memory | None,
        tensor: Memory | None = None,
        src: int = 0,
        *,
        sizes: Sizes = None,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Part r of `tensor` (size times as long) of rank `src` goes into `output` of rank r; the others need no `tensor`.
        `output` None: there its own part stays where it is. `sizes`: at `src`, of each rank's part."""
        if self._rank() != src:
            return self._run((_ujoin.UJOIN_OP_SCATTER, 0, src, None, output, None, None), async_op, timeout)
        if tensor is None:
            raise invalid(f"rank {src}: scatter: tensor is None, but this rank is src")
        parts = elements(sizes, tensor)
        return self._run((_ujoin.UJOIN_OP_SCATTER, 0, src, tensor, output, parts, None), async_op, timeout)

    @overload
    def all_to_all_single(
        self,
        output: Memory,
        tensor: Memory | None = ...,
        output_split_sizes: Sizes = ...,
        input_split_sizes: Sizes = ...,
        *,
        async_op: Literal[False] = ...,
        timeout: Timeout = ...,
    ) -> None: ...
    @overload
    def all_to_all_single(
        self,
        output: Memory,
        tensor: Memory | None = ...,
        output_split_sizes: Sizes = ...,
        input_split_sizes: Sizes = ...,
        *,
        async_op: Literal[True],
        timeout: Timeout = ...,
    ) -> Work: ...
    def all_to_all_single(
        self,
        output: Memory,
        tensor: Memory | None = None,
        output_split_sizes: Sizes = None,
        input_split_sizes: Sizes = None,
        *,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """Part r of `tensor` goes to rank r, and what rank r has for this one becomes part r of `output`: equal parts, or of
        these sizes. `tensor` None: in place, with equal parts."""
        given = elements(output_split_sizes, output)
        parts = None if input_split_sizes is None else elements(input_split_sizes, output if tensor is None else tensor)
        return self._run((_ujoin.UJOIN_OP_ALL_TO_ALL, 0, 0, tensor, output, parts, given), async_op, timeout)

    @overload
    def send(self, tensor: Memory, dst: int, *, async_op: Literal[False] = ..., timeout: Timeout = ...) -> None: ...
    @overload
    def send(self, tensor: Memory, dst: int, *, async_op: Literal[True], timeout: Timeout = ...) -> Work: ...
    def send(self, tensor: Memory, dst: int, *, async_op: bool = False, timeout: Timeout = None) -> Work | None:
        """Sends to rank `dst`, which calls `recv`. It is complete when it has been received, so two ranks that send to each
        other do so in flight, or by one `submit`."""
        return self._run((_ujoin.UJOIN_OP_SEND, 0, dst, tensor, None, None, None), async_op, timeout)

    @overload
    def recv(self, tensor: Memory, src: int, *, async_op: Literal[False] = ..., timeout: Timeout = ...) -> None: ...
    @overload
    def recv(self, tensor: Memory, src: int, *, async_op: Literal[True], timeout: Timeout = ...) -> Work: ...
    def recv(self, tensor: Memory, src: int, *, async_op: bool = False, timeout: Timeout = None) -> Work | None:
        """Receives what rank `src` sends: as many elements, of the same type, in the order of its sends to this rank."""
        return self._run((_ujoin.UJOIN_OP_RECV, 0, src, None, tensor, None, None), async_op, timeout)

    @overload
    def all_reduce_coalesced(
        self, tensors: Sequence[Memory], op: ReduceOp | str = ..., *, async_op: Literal[False] = ..., timeout: Timeout = ...
    ) -> None: ...
    @overload
    def all_reduce_coalesced(
        self, tensors: Sequence[Memory], op: ReduceOp | str = ..., *, async_op: Literal[True], timeout: Timeout = ...
    ) -> Work: ...
    def all_reduce_coalesced(
        self,
        tensors: Sequence[Memory],
        op: ReduceOp | str = ReduceOp.SUM,
        *,
        async_op: bool = False,
        timeout: Timeout = None,
    ) -> Work | None:
        """`all_reduce` of many tensors, in place: those of one type that are neighbours are a single operation."""
        reduce = choose(ReduceOp, op)
        ops = [(_ujoin.UJOIN_OP_ALL_REDUCE, reduce, 0, None, tensor, None, None) for tensor in tensors]
        return self._submit(ops, async_op, timeout)

    @overload
    def submit(self, ops: Sequence[Op], *, async_op: Literal[False] = ..., timeout: Timeout = ...) -> None: ...
    @overload
    def submit(self, ops: Sequence[Op], *, async_op: Literal[True], timeout: Timeout = ...) -> Work: ...
    def submit(self, ops: Sequence[Op], *, async_op: bool = False, timeout: Timeout = None) -> Work | None:
        """Runs operations as one: they are complete together. Every rank gives the same ones in the same order; "send" and
        "recv" concern their two ranks only, and go before the others, all at once, so that none waits for another (PyTorch's
        batch_isend_irecv). Neighbours of one kind, type, reduction and root become a single operation."""
        return self._submit([op._flat() for op in ops], async_op, timeout)

    def barrier(self, timeout: Timeout = None) -> None:
        """Returns when every rank has come here."""
        _ujoin.ujoin_barrier(self._handle, 0 if timeout is None else limit(timeout))
