# SPDX-License-Identifier: Apache-2.0
"""The sharded optimizer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from . import _ujoin
from .errors import invalid
from .group import Group, process_group
from .join import Joinable, JoinHook
from .params import Gradients, Params, with_gradients
from .state import State, Value
from .types import Memory, Optimizer, Path, SavePart, Timeout, choose, limit

Loss = TypeVar("Loss")


@dataclass(frozen=True)
class Shard:
    """One piece of the partition: which part of which parameter belongs to which rank."""

    param: str
    offset: int
    """elements"""
    count: int
    rank: int
    """the owner"""
    group: int
    """param group"""


class ParamGroup(MutableMapping[str, float]):
    """The hyper-parameters of one param group, live: `opt.param_groups[0]["lr"] = 1e-3` counts from the next step on.

    Set the same on every rank: the step compares.
    """

    __slots__ = ("_index", "_optimizer")

    def __init__(self, optimizer: ZeroRedundancyOptimizer, index: int) -> None:
        self._optimizer = optimizer
        self._index = index

    @property
    def params(self) -> list[str]:
        """The names of its parameters."""
        return list(self._optimizer._groups[self._index])

    def __getitem__(self, name: str) -> float:
        return _ujoin.zero_get_hyper(self._optimizer._handle, self._index, name)

    def __setitem__(self, name: str, value: float) -> None:
        _ujoin.zero_set_hyper(self._optimizer._handle, self._index, name, value)

    def __delitem__(self, name: str) -> None:
        raise TypeError("hyper-parameters cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._optimizer.hyper_names)

    def __len__(self) -> int:
        return len(self._optimizer.hyper_names)


class ZeroRedundancyOptimizer(Joinable):
    """An optimizer whose state is sharded over the ranks: each updates its parameters, all get the new values.

    `params` (float32 or float64) and their gradients are arrays of the program's, see `ujoin.Params` and
    `ujoin.Gradients`; they are used where they lie, and held until this object has ended. `params` may also be a list of
    param groups, `[{"params": ..., "lr": ...}, ...]`, each with "grads" and hyper-parameters of its own.
    `optimizer_class`: "sgd", "adam", "adamw", `ujoin.Optimizer`, or a class with one of these names. `defaults` are
    hyper-parameters with PyTorch's names and defaults (`lr`, `betas`, `eps`, `weight_decay`, `momentum`, ...).
    """

    def __init__(
        self,
        params: Params | list[dict[str, Any]],
        optimizer_class: Optimizer | str | type = Optimizer.ADAMW,
        *,
        grads: Gradients = None,
        group: Group | None = None,
        idle_timeout: Timeout = None,
        **defaults: float | tuple[float, float],
    ) -> None:
        rule = optimizer_class.__name__ if isinstance(optimizer_class, type) else optimizer_class
        self.join_process_group = process_group(group)
        self._hook = JoinHook()
        self._defaults = _hypers(defaults)
        first, others = _param_groups(params, grads)
        triples = with_gradients(first["params"], first.get("grads"), "ZeroRedundancyOptimizer")
        own = {name: value for name, value in first.items() if name not in ("params", "grads")}
        self._groups = [[name for name, _, _ in triples]]
        self._handle = _ujoin.zero_create(
            self.join_process_group._handle,
            choose(Optimizer, rule),
            self._defaults | _hypers(own),
            limit(idle_timeout),
            triples,
        )
        self._joinable = _ujoin.zero_joinable(self._handle)
        self._sizes = [_ujoin.describe(array, False)[1:3] for _, array, _ in triples]
        self.hyper_names = tuple(_names(self._handle))
        for more in others:
            self.add_param_group(more)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Does nothing here: the library shadows an optimizer itself."""
        return JoinHook()

    # ----------------------------------------------------------------------------------------------------------- stepping
    def step(self, closure: Callable[[], Loss] | None = None) -> Loss | None:
        """One step. The closure computes loss and gradients anew, before the update; its result is returned.

        Parameters without gradient are skipped and keep their step count. After a failure in the middle the object is
        broken: parameters and state must be loaded anew.
        """
        return _ujoin.zero_step(self._handle, closure)  # type: ignore[no-any-return]

    def zero_grad(self) -> None:
        """Sets the gradients of all parameters to zero."""
        _ujoin.zero_clear_gradients(self._handle)

    def set_gradient(self, parameter: int | str, grad: Memory | None) -> None:
        """Where the gradient of a parameter (index or name) lies from now on; None: it has none and is skipped."""
        index = self._find(parameter)
        if grad is not None and _ujoin.describe(grad, True)[1:3] != self._sizes[index]:
            raise invalid(f"set_gradient: the gradient of parameter {parameter!r} has another size or type than it")
        _ujoin.zero_set_gradient(self._handle, index, grad)

    def _find(self, parameter: int | str) -> int:
        if isinstance(parameter, int):
            if not 0 <= parameter < len(self._sizes):
                raise invalid(f"there is no parameter {parameter}; there are {len(self._sizes)}")
            return parameter
        names = self.param_names
        if parameter not in names:
            raise invalid(f'no parameter is called "{parameter}"; there are {", ".join(names)}')
        return names.index(parameter)

    # ---------------------------------------------------------------------------------------- groups and hyper-parameters
    @property
    def param_names(self) -> list[str]:
        """The names of all parameters, by index."""
        return [name for group in self._groups for name in group]

    @property
    def param_groups(self) -> list[ParamGroup]:
        """The param groups: live hyper-parameters by name."""
        return [ParamGroup(self, index) for index in range(_ujoin.zero_group_count(self._handle))]

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Adds parameters: {"params": ..., "grads": ..., "lr": ...}; what is absent is as at the start. On every rank."""
        triples = with_gradients(param_group["params"], param_group.get("grads"), "add_param_group")
        own = {name: value for name, value in param_group.items() if name not in ("params", "grads")}
        start = len(self._sizes)
        if not isinstance(param_group["params"], Mapping):  # names that are indices go on from the last
            triples = [(str(int(n) + start) if n == str(i) else n, a, g) for i, (n, a, g) in enumerate(triples)]
        _ujoin.zero_add_param_group(self._handle, triples, _hypers(own))
        self._groups.append([name for name, _, _ in triples])
        self._sizes += [_ujoin.describe(array, False)[1:3] for _, array, _ in triples]

    def set_hyper(self, name: str, value: float, group: int | None = None) -> None:
        """Changes a hyper-parameter of one param group, or of all, from the next step on. The same on every rank."""
        _ujoin.zero_set_hyper(self._handle, -1 if group is None else group, name, value)

    @property
    def shards(self) -> list[Shard]:
        """The partition: which part of which parameter belongs to which rank."""
        names = self.param_names
        pieces = [_ujoin.zero_get_shard(self._handle, i) for i in range(_ujoin.zero_shard_count(self._handle))]
        return [Shard(names[param], offset, count, rank, group) for param, offset, count, rank, group in pieces]

    # -------------------------------------------------------------------------------------------------------------- state
    def consolidate_state_dict(self, to: int = 0) -> None:
        """Sends every rank's state to rank `to`, where `state_dict` then gives it. On every rank."""
        _ujoin.zero_consolidate_state_dict(self._handle, to)

    def state_dict(self) -> State:
        """The consolidated state, a copy. `StateError`: nothing was consolidated to this rank."""
        return State._of(_ujoin.zero_state_dict(self._handle))

    def load_state_dict(self, state: State) -> None:
        """Takes state and hyper-parameters, by parameter name; each rank keeps its shard. On every rank."""
        _ujoin.zero_load_state_dict(self._handle, state._handle)

    def save(
        self,
        path: Path,
        *,
        parts: SavePart = SavePart.STATE,
        extra: Mapping[str, Value] | State | None = None,
        sync: bool = True,
    ) -> None:
        """Saves, on every rank: the state in a directory (one file per rank and an index), the parameters with it or alone
        in one safetensors file. `extra`: this rank's own texts, numbers and bytes. What was there before stays whole until
        all is written."""
        own = extra if extra is None or isinstance(extra, State) else State(extra)
        handle = None if own is None else own._handle
        _ujoin.zero_save(self._handle, os.fsencode(path), handle, parts, not sync)

    def load(self, path: Path, *, parts: SavePart = SavePart.STATE) -> State:
        """Loads what `save` wrote, on as many ranks; returns this rank's own items. Mends a broken optimizer if state and
        parameters are loaded."""
        return State._of(_ujoin.zero_load(self._handle, os.fsencode(path), parts))


def _param_groups(params: Any, grads: Gradients) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if isinstance(params, list) and params and all(isinstance(part, dict) and "params" in part for part in params):
        if grads is not None:
            raise invalid("grads goes into the param groups, where there are several")
        return params[0], params[1:]
    return {"params": params, "grads": grads}, []


def _hypers(values: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by the library's names; PyTorch's pair `betas` is two of them."""
    result: dict[str, float] = {}
    for name, value in values.items():
        if name == "betas":
            result["beta1"], result["beta2"] = map(float, value)
        else:
            result[name] = float(value)
    return result


def _names(handle: _ujoin.Handle) -> Iterator[str]:
    index = 0
    while (name := _ujoin.zero_hyper_name(handle, index)) is not None:
        yield name
        index += 1
