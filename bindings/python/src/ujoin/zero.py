# SPDX-License-Identifier: Apache-2.0
"""The sharded optimizer."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from . import _ujoin
from .ddp import DistributedDataParallel
from .errors import invalid
from .group import Group, process_group
from .join import Joinable, JoinHook
from .params import Gradients, Params, flagged, with_gradients
from .schedule import LossScaler
from .state import State, Value
from .torch_state import MakeTensor, from_torch, to_torch
from .types import ITEM_SIZES, DType, Memory, Optimizer, Partition, Path, SavePart, Timeout, choose, limit, view

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


class ZeroMemory(NamedTuple):
    """Bytes that this rank holds for an optimizer."""

    parameters: int
    """the program's"""
    gradients: int
    """the program's, of parameters that have one"""
    state: int
    """of this rank's shard, master copies included, as it is now"""
    buffers: int
    """what a step needs beside that, and the memory of `parameters_as_bucket_view`"""
    full_state: int
    """state of all parameters with every step made: what an unsharded optimizer holds"""


class RuleArgs(NamedTuple):
    """What a `Rule` updates: a parameter, or a piece of one, that this rank owns. Its views are there for the time of the
    call; `numpy.asarray` takes them."""

    name: str
    """of the parameter"""
    data: memoryview
    """updated in place; float32 or float64 (for 16-bit parameters float32)"""
    grad: memoryview
    """the reduced gradient, unscaled and clipped, of data's type"""
    state: dict[str, memoryview]
    """an array as long as data for each state name, of its type"""
    hyper: dict[str, float]
    """of its param group"""
    shape: tuple[int, ...]
    """of the whole parameter"""
    offset: int
    """where the piece begins in the parameter, in elements"""
    param: int
    """index of the parameter"""
    step: int
    """which update of this parameter it is, from 1"""
    group: int
    """param group"""


@dataclass(frozen=True)
class Rule:
    """An optimizer of the program's own: `ZeroRedundancyOptimizer(params, Rule("signs", step, hyper={"lr": 0.1}))`.

    `step` updates data and state, on the thread that is in `ZeroRedundancyOptimizer.step`, or leaves a join context, one
    parameter after the other. `init` fills a parameter's state before its first update (None: zeros). `name` and the state
    names go into saved state. What they raise is the cause of the `CallbackError` of the step, which breaks the optimizer.
    """

    name: str
    step: Callable[[RuleArgs], None]
    init: Callable[[RuleArgs], None] | None = None
    state: tuple[str, ...] = ()
    """at most 8 names, such as those of Adam: "exp_avg" and "exp_avg_sq" here"""
    hyper: Mapping[str, float] = field(default_factory=dict)
    """names and defaults"""
    per_tensor: bool = False
    """needs whole parameters (a norm, a shape): refused with `Partition.ELEMENTS`"""

    def _parts(self) -> tuple[Any, ...]:
        init = None if self.init is None else self._called(self.init)
        hyper = {n: float(v) for n, v in self.hyper.items()}
        return self.name, self._called(self.step), init, tuple(self.state), hyper, self.per_tensor

    def _called(self, function: Callable[[RuleArgs], None]) -> Callable[..., None]:
        names, hypers = tuple(self.state), tuple(self.hyper)

        def run(name: str, data: memoryview, grad: memoryview, state: Any, hyper: Any, *more: Any) -> None:
            shape, offset, param, step, group, number = more
            kind = DType(number)
            arrays = {key: view(memory, kind) for key, memory in zip(names, state, strict=True)}
            values = dict(zip(hypers, hyper, strict=True))
            function(RuleArgs(name, view(data, kind), view(grad, kind), arrays, values, shape, offset, param, step, group))

        return run


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

    `params` and their gradients are arrays of the program's, of any floating-point type, see `ujoin.Params` and
    `ujoin.Gradients`; they are used where they lie, and held until this object has ended. `params` may also be a list of
    param groups, `[{"params": ..., "lr": ...}, ...]`, each with "grads", "frozen" and hyper-parameters of its own.
    `optimizer_class`: "sgd", "adamw", "lamb", ... (see `ujoin.Optimizer`), a class with one of these names, or a `Rule`.
    `defaults` are hyper-parameters with PyTorch's names and defaults (`lr`, `betas`, `eps`, `weight_decay`, ...).

    `frozen`: names of parameters that are not trained for now. `balance_trainable`: they do not count when parameters are
    given to ranks. State of 16-bit parameters is float32, with a master copy of their values (`master_copy=False`: without;
    then `stochastic_rounding` rounds bfloat16 up or down at random, right on average, by `seed` and not by the number of
    ranks).

    `partition`: whole parameters, as PyTorch has it, or "elements". `parameters_as_bucket_view`: parameters move into the
    library's memory, side by side; `param_data` tells where, and holds it. `consolidate_timeout`: of
    `consolidate_state_dict`, without progress (None: the group's).

    `ddp`: the reducer of the same gradients makes the steps. Each of its iterations that synchronises ends with one, bucket
    by bucket while later buckets are reduced, with the bits that `step` would have; `step` and `clip_grad_norm` are refused.
    With `gradient_sync="to_owner"` of that reducer its iterations sum nothing, and `step` comes after each: it sums, updates
    and shares, piece by piece in the cache.
    """

    def __init__(
        self,
        params: Params | list[dict[str, Any]],
        optimizer_class: Optimizer | Rule | str | type = Optimizer.ADAMW,
        *,
        grads: Gradients = None,
        group: Group | None = None,
        idle_timeout: Timeout = None,
        frozen: Collection[str] = (),
        balance_trainable: bool = False,
        master_copy: bool = True,
        stochastic_rounding: bool = False,
        seed: int = 0,
        partition: Partition | str = Partition.PARAMETERS,
        parameters_as_bucket_view: bool = False,
        consolidate_timeout: Timeout = None,
        ddp: DistributedDataParallel | None = None,
        **defaults: float | tuple[float, float],
    ) -> None:
        own_rule = optimizer_class if isinstance(optimizer_class, Rule) else None
        kind = optimizer_class.__name__ if isinstance(optimizer_class, type) else optimizer_class
        self.join_process_group = process_group(group)
        self._hook = JoinHook()
        self._defaults = _hypers(defaults)
        self.skipped = False
        self.grad_norm: float | None = None
        first, others = _param_groups(params, grads, frozen)
        triples = with_gradients(first["params"], first.get("grads"), "ZeroRedundancyOptimizer")
        own = {name: value for name, value in first.items() if name not in _PARTS}
        self._groups = [[name for name, _, _ in triples]]
        self._handle = _ujoin.zero_create(
            self.join_process_group._handle,
            _ujoin.UJOIN_OPTIMIZER_CUSTOM if isinstance(kind, Rule) else choose(Optimizer, kind),
            self._defaults | _hypers(own),
            limit(idle_timeout),
            None if own_rule is None else own_rule._parts(),
            seed,
            balance_trainable,
            not master_copy,
            stochastic_rounding,
            choose(Partition, partition),
            limit(consolidate_timeout),
            parameters_as_bucket_view,
            None if ddp is None else ddp._handle,
            flagged(triples, first.get("frozen", ()), _ujoin.UJOIN_PARAM_FROZEN, "ZeroRedundancyOptimizer"),
        )
        self._joinable = _ujoin.zero_joinable(self._handle)
        self._shapes = [_ujoin.describe(array, False)[1:] for _, array, _ in triples]
        self.hyper_names = tuple(_names(self._handle))
        for more in others:
            self.add_param_group(more)
        if ddp is not None:
            ddp._optimizer = self  # which steps as long as the reducer lives, whoever else holds it

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Does nothing here: the library shadows an optimizer itself."""
        return JoinHook()

    # ----------------------------------------------------------------------------------------------------------- stepping
    skipped: bool
    """whether the last `step` or `clip_grad_norm` found a gradient that is not finite, and changed nothing, on any rank"""
    grad_norm: float | None
    """the global norm before the last `step(max_norm=...)` or `clip_grad_norm`; None: that step had no max_norm"""

    def step(
        self,
        closure: Callable[[], Loss] | None = None,
        *,
        scaler: LossScaler | None = None,
        max_norm: float = 0,
        norm_type: float = 2,
        skip_nonfinite: bool = False,
    ) -> Loss | None:
        """One step. The closure computes loss and gradients anew, before the update; its result is returned.

        Parameters that are frozen or without gradient are skipped and keep their step count. After a failure in the middle
        the object is broken: parameters and state must be loaded anew.

        `scaler`: gradients carry its scale; they are divided by it and checked, and it is adapted. `max_norm`: gradients are
        clipped to this global norm as they are used (`norm_type` of infinity: the largest magnitude), `grad_norm` has what
        it was. `skip_nonfinite`: gradients are checked, as with the others; `skipped` says whether one was not finite. All
        but the closure are the same on every rank.
        """
        handle = None if scaler is None else scaler._handle
        loss, status, norm = _ujoin.zero_step(self._handle, closure, handle, max_norm, norm_type, skip_nonfinite)
        self.skipped = status == _ujoin.UJOIN_SKIPPED
        self.grad_norm = norm if max_norm else None
        return loss  # type: ignore[no-any-return]

    def clip_grad_norm(self, max_norm: float, norm_type: float = 2) -> float:
        """Scales all gradients so that their global norm is at most max_norm, on every rank; returns the norm before. Each
        parameter counts once, frozen ones do not. `skipped`: one is not finite, and nothing was changed. Not in a join
        context: there, give max_norm to `step`."""
        _, status, norm = _ujoin.zero_clip_grad_norm(self._handle, max_norm, norm_type)
        self.skipped = status == _ujoin.UJOIN_SKIPPED
        self.grad_norm = norm
        return norm

    def set_frozen(self, parameter: int | str, frozen: bool = True) -> None:
        """Freezes a parameter (index or name), or trains it again, from the next step on; its state is kept. The same on
        every rank: the step compares."""
        _ujoin.zero_set_frozen(self._handle, self._find(parameter), frozen)

    def zero_grad(self) -> None:
        """Sets the gradients of all parameters to zero."""
        _ujoin.zero_clear_gradients(self._handle)

    def set_gradient(self, parameter: int | str, grad: Memory | None) -> None:
        """Where the gradient of a parameter (index or name) lies from now on; None: it has none and is skipped."""
        index = self._find(parameter)
        if grad is not None and _ujoin.describe(grad, True)[1:3] != self._shapes[index][:2]:
            raise invalid(f"set_gradient: the gradient of parameter {parameter!r} has another size or type than it")
        _ujoin.zero_set_gradient(self._handle, index, grad)

    def param_data(self, parameter: int | str) -> memoryview:
        """Where a parameter (index or name) lies: with `parameters_as_bucket_view` in the library's memory while it is
        trained, and in the program's while it is frozen; else always in the program's. The view holds this object;
        `numpy.asarray` takes it, 16-bit floats are bits (see `view(dtype)`)."""
        index = self._find(parameter)
        count, number, shape = self._shapes[index]
        dtype = DType(number)
        memory = _ujoin.zero_param_data(self._handle, index, count * ITEM_SIZES[dtype])
        return memoryview(b"") if memory is None else view(memory, dtype, shape)

    def _find(self, parameter: int | str) -> int:
        if isinstance(parameter, int):
            if not 0 <= parameter < len(self._shapes):
                raise invalid(f"there is no parameter {parameter}; there are {len(self._shapes)}")
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
        """Adds parameters: {"params": ..., "grads": ..., "frozen": [...], "lr": ...}; what is absent is as at the start.
        There may be none. On every rank."""
        triples = with_gradients(param_group["params"], param_group.get("grads"), "add_param_group")
        own = {name: value for name, value in param_group.items() if name not in _PARTS}
        frozen = param_group.get("frozen", ())
        start = len(self._shapes)
        if not isinstance(param_group["params"], Mapping):  # names that are indices go on from the last
            triples = [(str(int(n) + start) if n == str(i) else n, a, g) for i, (n, a, g) in enumerate(triples)]
        quads = flagged(triples, frozen, _ujoin.UJOIN_PARAM_FROZEN, "add_param_group")
        _ujoin.zero_add_param_group(self._handle, quads, _hypers(own))
        self._groups.append([name for name, _, _ in triples])
        self._shapes += [_ujoin.describe(array, False)[1:] for _, array, _ in triples]

    def set_hyper(self, name: str, value: float, group: int | None = None) -> None:
        """Changes a hyper-parameter of one param group, or of all, from the next step on. The same on every rank."""
        _ujoin.zero_set_hyper(self._handle, -1 if group is None else group, name, value)

    @property
    def shards(self) -> list[Shard]:
        """The partition: which part of which parameter belongs to which rank."""
        names = self.param_names
        pieces = [_ujoin.zero_get_shard(self._handle, i) for i in range(_ujoin.zero_shard_count(self._handle))]
        return [Shard(names[param], offset, count, rank, group) for param, offset, count, rank, group in pieces]

    @property
    def memory(self) -> ZeroMemory:
        """The bytes that this rank holds."""
        return ZeroMemory(*_ujoin.zero_get_memory(self._handle))

    # -------------------------------------------------------------------------------------------------------------- state
    def consolidate_state_dict(self, to: int = 0) -> None:
        """Brings all state together on rank `to`, where `state_dict` then gives it until the next step or load. The others
        send their shards, once, and need no memory for it. On every rank; `TimeoutError` names those that did not come."""
        _ujoin.zero_consolidate_state_dict(self._handle, to)

    def state_dict(self) -> State:
        """The consolidated state, which stays as it is. `StateError`: nothing was consolidated to this rank, or a step, a
        load or a new param group has come after it."""
        return State._of(_ujoin.zero_state_dict(self._handle))

    def load_state_dict(self, state: State | Mapping[str, Any]) -> None:
        """Takes state and hyper-parameters, by parameter name; each rank keeps its shard. A mapping is the state dict of the
        optimizer of this name in PyTorch, over the same parameters in the same order. On every rank."""
        if not isinstance(state, State):
            state = from_torch(state, self.param_names, self.hyper_names)
        _ujoin.zero_load_state_dict(self._handle, state._handle)

    def torch_state_dict(
        self, make_tensor: MakeTensor | None = None, *, like: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The consolidated state as the optimizer of this name in PyTorch loads it. `make_tensor` makes what stands for a
        tensor, out of an array and its type or of a number (None: tensors of PyTorch's). `like`: a state dict of such an
        optimizer, for settings that only PyTorch has (`foreach`, ...)."""
        return to_torch(self.state_dict(), self._groups, make_tensor, like)

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
        """Loads what `save` wrote, on any number of ranks; returns the own items of the rank of this number (of rank 0 if so
        many did not save). Mends a broken optimizer if state and parameters are loaded."""
        return State._of(_ujoin.zero_load(self._handle, os.fsencode(path), parts))


_PARTS = ("params", "grads", "frozen")


def _param_groups(params: Any, grads: Gradients, frozen: Collection[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if isinstance(params, list) and params and all(isinstance(part, dict) and "params" in part for part in params):
        if grads is not None or frozen:
            raise invalid("grads and frozen go into the param groups, where there are several")
        return params[0], params[1:]
    return {"params": params, "grads": grads, "frozen": frozen}, []


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
