# SPDX-License-Identifier: Apache-2.0
"""Saved state as a typed list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _ujoin
from .errors import invalid
from .types import DType, ItemKind, ItemOwner, Memory, view

Value = str | float | bytes
"""A value of the program's own."""


@dataclass(frozen=True)
class Item:
    """One item. Tensors come as a `memoryview` over a copy, with their shape (`numpy.asarray` takes it); 16-bit floats as
    their bits. Numbers are floats."""

    key: str
    value: str | float | bytes | memoryview
    kind: ItemKind
    owner: ItemOwner
    param: str | None
    """name of the parameter that owns it"""
    group: int
    """the param group of the parameter or hyper-parameter"""
    dtype: DType | None
    """of a tensor"""
    shape: tuple[int, ...]
    """of a tensor"""


class State:
    """A typed list of saved items: the program's own of `ZeroRedundancyOptimizer.save`, or an optimizer's state.

    The program's own items read like a dict: `state["epoch"] = 3`, `state["epoch"]`. Iteration gives every `Item`, in order
    of owner, group, parameter and key.
    """

    __slots__ = ("_handle",)

    def __init__(self, values: Mapping[str, Value] | None = None) -> None:
        self._handle = _ujoin.ujoin_state_create()
        for key, value in (values or {}).items():
            self[key] = value

    @classmethod
    def _of(cls, handle: _ujoin.Handle) -> State:
        state = cls.__new__(cls)
        state._handle = handle
        return state

    def __len__(self) -> int:
        return _ujoin.ujoin_state_count(self._handle)

    def __iter__(self) -> Iterator[Item]:
        for index in range(len(self)):
            yield _item(_ujoin.ujoin_state_get(self._handle, index))

    def __getitem__(self, key: str) -> str | float | bytes | memoryview:
        """The value of an item of the program's own. `InvalidError`: there is none of this name."""
        return _item(_ujoin.ujoin_state_find(self._handle, key)).value

    def __setitem__(self, key: str, value: Value) -> None:
        self.set(key, value)

    def set(
        self,
        key: str,
        value: Value | Memory,
        *,
        owner: ItemOwner = ItemOwner.PROGRAM,
        param: str | None = None,
        group: int = 0,
    ) -> None:
        """Adds an item, or replaces the one with the same key: text, a number, `bytes`, or any array as a tensor. Copied."""
        kind, number, data, dtype, shape = _stored(value)
        _ujoin.ujoin_state_set(self._handle, kind, owner, group, param, key, number, data, dtype, shape)

    def values(self) -> dict[str, str | float | bytes | memoryview]:
        """The program's own items."""
        return {item.key: item.value for item in self if item.owner == ItemOwner.PROGRAM}


def _stored(value: Any) -> tuple[ItemKind, float, Any, int, tuple[int, ...]]:
    if isinstance(value, str):
        return ItemKind.TEXT, 0.0, value.encode(), 0, ()
    if isinstance(value, bytes):
        return ItemKind.BYTES, 0.0, value, 0, ()
    if isinstance(value, int | float):
        return ItemKind.NUMBER, float(value), b"", 0, ()
    if value is None:
        raise invalid("a saved item is text, a number, bytes or an array, not None")
    _, count, dtype, shape = _ujoin.describe(value, False)
    memory = value[0] if isinstance(value, tuple) else value
    return ItemKind.TENSOR, 0.0, memory, dtype, shape or (count,)


def _item(fields: _ujoin.ItemFields) -> Item:
    kind, owner, group, param, key, number, data, dtype, shape = fields
    value: str | float | bytes | memoryview = data
    if kind == ItemKind.NUMBER:
        value = number
    elif kind == ItemKind.TEXT:
        value = data.decode()
    elif kind == ItemKind.TENSOR:
        value = view(memoryview(data), DType(dtype), shape)
    return Item(
        key, value, ItemKind(kind), ItemOwner(owner), param, group, DType(dtype) if kind == ItemKind.TENSOR else None, shape
    )
