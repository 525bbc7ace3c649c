# SPDX-License-Identifier: Apache-2.0
"""State dicts of PyTorch's optimizers, both ways. PyTorch is needed only where its tensors are to be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .errors import invalid
from .state import State
from .types import DType, ItemOwner

MakeTensor = Callable[["memoryview | float", "DType | None"], Any]
"""Makes what stands for a tensor: out of an array with its shape (16-bit floats are bits) and type, or of a number."""

_PAIRS = {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("step_min", "step_max")}
_FLAGS = ("nesterov", "amsgrad", "maximize", "centered", "decoupled_weight_decay")


def from_torch(state_dict: Mapping[str, Any], names: Sequence[str], hyper_names: Iterable[str]) -> State:
    """The list that the library loads. `names`: of the parameters, in the order of PyTorch's. What only says how PyTorch
    computes (`foreach`, `fused`, ...) is left out."""
    known = set(hyper_names)
    state = State()
    groups = state_dict["param_groups"]
    indices = [index for group in groups for index in group["params"]]
    if len(indices) != len(names):
        raise invalid(f"the state dict has {len(indices)} parameters, the optimizer {len(names)}")
    name_of = dict(zip(indices, names, strict=True))
    group_of = {index: number for number, group in enumerate(groups) for index in group["params"]}
    for number, group in enumerate(groups):
        for name, value in _flat(group):
            if name in known:
                state.set(name, float(value), owner=ItemOwner.GROUP, group=number)
    for index, values in state_dict["state"].items():
        if index not in name_of:
            raise invalid(f"the state dict has state of parameter {index}, which is in none of its groups")
        for key, value in values.items():
            if value is not None:  # as PyTorch says that there is no momentum
                state.set(key, value, owner=ItemOwner.PARAM, param=name_of[index], group=group_of[index])
    return state


def _flat(group: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in group.items():
        yield from zip(_PAIRS[name], value, strict=True) if name in _PAIRS else [(name, value)]


def to_torch(
    state: State, groups: Sequence[Sequence[str]], make_tensor: MakeTensor | None, like: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A dict that the optimizer of the same name in PyTorch loads. `groups`: names of the parameters by group. `like`: such
    an optimizer's state dict, for the settings that only PyTorch has."""
    make = make_tensor or _torch_tensor
    index_of = {name: index for index, name in enumerate(name for group in groups for name in group)}
    hypers: list[dict[str, Any]] = [{} for _ in groups]
    states: dict[int, dict[str, Any]] = {}
    for item in state:
        if item.owner == ItemOwner.GROUP:
            hypers[item.group][item.key] = bool(item.value) if item.key in _FLAGS else item.value
        elif item.param is not None and item.key != "master":  # PyTorch's optimizers have no copies of parameters
            value: Any = item.value
            states.setdefault(index_of[item.param], {})[item.key] = make(value, item.dtype)
    param_groups = []
    for number, names in enumerate(groups):
        usual = dict(like["param_groups"][number]) if like else {}
        param_groups.append({**usual, **_paired(hypers[number]), "params": [index_of[name] for name in names]})
    return {"state": dict(sorted(states.items())), "param_groups": param_groups}


def _paired(hyper: dict[str, Any]) -> dict[str, Any]:
    for pair, (first, second) in _PAIRS.items():
        if first in hyper:
            hyper[pair] = (hyper.pop(first), hyper.pop(second))
    return hyper


def _torch_tensor(value: memoryview | float, dtype: DType | None) -> Any:
    import torch  # type: ignore[import-not-found, unused-ignore]

    if dtype is None or not isinstance(value, memoryview):
        return torch.tensor(float(value))
    types = {DType.F32: torch.float32, DType.F64: torch.float64, DType.F16: torch.float16, DType.BF16: torch.bfloat16}
    if value.nbytes == 0:
        return torch.empty(value.shape, dtype=types[dtype])
    return torch.frombuffer(bytearray(value.tobytes()), dtype=types[dtype]).reshape(value.shape)  # its own memory
