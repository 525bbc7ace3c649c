# SPDX-License-Identifier: Apache-2.0
"""Parameters and gradients as programs have them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from . import _ujoin
from .errors import invalid
from .types import Memory

Params: TypeAlias = "Mapping[str, Memory] | Iterable[Memory] | Iterable[tuple[str, Memory]]"
"""Parameters: a dict by name, arrays (their names are their indices), or pairs (name, array)."""

Gradients: TypeAlias = "Mapping[str, Memory | None] | Sequence[Memory | None] | None"
"""Gradients of parameters: by name, or in their order. None: those that the program has named before (`tensor.grad`, or the
gradients of a `DistributedDataParallel` over the same memory)."""


class Param(Protocol):
    """One parameter as the library takes it."""

    name: str
    data: Any
    grad: Any


def named(params: Params) -> list[tuple[str, Any]]:
    """Names and arrays, in order."""
    if isinstance(params, Mapping):
        return list(params.items())
    items: list[Any] = list(params)
    if all(isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in items):
        return [(name, array) for name, array in items]
    return [(str(index), array) for index, array in enumerate(items)]


class Reducer(Protocol):
    """What knows the gradients of parameters."""

    def gradient_at(self, address: int) -> Any | None:
        """The gradient of the parameter that lies there."""


_lock = threading.Lock()
_reducers: list[weakref.ref[Reducer]] = []


def remember(reducer: Reducer) -> None:
    """From now on the gradients of this reducer are found by the memory of its parameters, as long as it lives."""
    with _lock:
        _reducers[:] = [known for known in _reducers if known() is not None]
        _reducers.append(weakref.ref(reducer))


def _known_gradient(array: Any) -> Any | None:
    grad = getattr(array, "grad", None)
    if grad is not None:
        return grad
    address = _ujoin.describe(array, False)[0]
    with _lock:
        reducers = [known() for known in reversed(_reducers)]
    return next((g for r in reducers if r is not None and (g := r.gradient_at(address)) is not None), None)


def _without(grads: Gradients, pairs: list[tuple[str, Any]], names: set[str], what: str) -> Gradients:
    """The gradients of the other parameters; a sequence has places for all."""
    if grads is None:
        return None
    if isinstance(grads, Mapping):
        return {name: grad for name, grad in grads.items() if name not in names}
    listed = _as_many(list(grads), pairs, what)
    return [grad for (name, _), grad in zip(pairs, listed, strict=True) if name not in names]


def _as_many(grads: list[Any], pairs: list[tuple[str, Any]], what: str) -> list[Any]:
    if len(grads) != len(pairs):
        raise invalid(f"{what}: {len(grads)} gradients for {len(pairs)} parameters")
    return grads


def flagged(
    triples: list[tuple[str, Any, Any]], names: Collection[str], flag: int, what: str
) -> list[tuple[str, Any, Any, int]]:
    """With the flag at the parameters of these names."""
    unknown = set(names) - {name for name, _, _ in triples}
    if unknown:
        raise invalid(f"{what}: no parameter is called {sorted(unknown)}; there are {', '.join(n for n, _, _ in triples)}")
    return [(name, array, grad, flag if name in names else 0) for name, array, grad in triples]


def with_gradients(
    params: Params, grads: Gradients, what: str, may_lack: bool | Collection[str] = False
) -> list[tuple[str, Any, Any]]:
    """Tuples (name, array, gradient or None); an error names the parameter whose gradient is not known. `may_lack`: all,
    or those of these names, need none."""
    pairs = named(params)
    if grads is None and may_lack is True:
        return [(name, array, getattr(array, "grad", None)) for name, array in pairs]
    if not isinstance(may_lack, bool) and may_lack:
        lacking = {name for name, _ in pairs if name in may_lack}
        others = [pair for pair in pairs if pair[0] not in lacking]
        rest = with_gradients(others, _without(grads, pairs, lacking, what), what)
        known = {name: grad for name, _, grad in rest}
        return [(name, array, known.get(name)) for name, array in pairs]
    if grads is None:
        triples = [(name, array, _known_gradient(array)) for name, array in pairs]
        for name, _, grad in triples:
            if grad is None:
                raise invalid(f'{what}: no gradient is known for parameter "{name}"; give grads (None in it: has none yet)')
        return triples
    if isinstance(grads, Mapping):
        unknown = [name for name in grads if name not in dict(pairs)]
        missing = [name for name, _ in pairs if name not in grads]
        if unknown or missing:
            raise invalid(f"{what}: grads has no parameter's name in {unknown}, and lacks {missing}")
        return [(name, array, grads[name]) for name, array in pairs]
    listed = _as_many(list(grads), pairs, what)
    return [(name, array, grad) for (name, array), grad in zip(pairs, listed, strict=True)]
