# SPDX-License-Identifier: Apache-2.0
"""The sharded optimizer and its state."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from conftest import on_ranks

import ujoin
from ujoin import ItemKind, ItemOwner, Partition, Rule, RuleArgs, SavePart, State

STEPS = 4


def adamw(w: Any, gradients: list[Any], lr: float) -> Any:
    m = v = np.zeros_like(w)
    w = w.copy()
    for step, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w -= lr * 0.01 * w
        w -= lr * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return w


def model() -> tuple[dict[str, Any], dict[str, Any]]:
    return {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(4)}, {"a": np.zeros((2, 3)), "b": np.zeros(4)}


def gradients(name: str, step: int) -> Any:
    return (step + 1) * np.linspace(-1, 1, 6 if name == "a" else 4)


def train(opt: Any, grads: dict[str, Any], steps: range) -> None:
    for step in steps:
        for name, grad in grads.items():
            grad.reshape(-1)[:] = gradients(name, step)
        opt.step()


def test_adamw_equals_the_formula_on_each_rank() -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = model()
        opt = ujoin.ZeroRedundancyOptimizer(params, "adamw", grads=grads, group=group, lr=0.1)
        train(opt, grads, range(STEPS))
        for name, start in model()[0].items():
            expected = adamw(start.reshape(-1), [gradients(name, s) for s in range(STEPS)], 0.1)
            np.testing.assert_allclose(params[name].reshape(-1), expected, rtol=1e-12)
        assert {(s.param, s.offset, s.count, s.group) for s in opt.shards} == {("a", 0, 6, 0), ("b", 0, 4, 0)}
        assert sorted(s.rank for s in opt.shards) == [0, 1]
        group.close()

    on_ranks(2, body)


def test_hyper_parameters(alone: ujoin.Group) -> None:
    class AdamW:  # a class by its name
        pass

    params, grads = model()
    opt = ujoin.ZeroRedundancyOptimizer(params, AdamW, grads=grads, group=alone, betas=(0.8, 0.9), eps=1e-6)
    (group,) = opt.param_groups
    assert dict(group) == {
        "lr": 1e-3, "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.01, "amsgrad": 0, "maximize": 0,
    }  # fmt: skip
    assert group.params == ["a", "b"]
    group["lr"] = 0.5
    opt.set_hyper("eps", 1e-7)
    assert (opt.param_groups[0]["lr"], group["eps"]) == (0.5, 1e-7)
    for wrong in ("rate", "a\u00e9"):
        with pytest.raises(ujoin.InvalidError, match=r"lr, beta1, beta2"):
            group[wrong] = 1
    with pytest.raises(TypeError, match="cannot be deleted"):
        del group["lr"]
    with pytest.raises(ujoin.InvalidError, match="expected one of sgd, adam, adamw, adagrad"):
        ujoin.ZeroRedundancyOptimizer(params, "lbfgs", grads=grads, group=alone)
    with pytest.raises(ujoin.InvalidError, match="momentums"):
        ujoin.ZeroRedundancyOptimizer(params, "sgd", grads=grads, group=alone, momentums=1)


def test_param_groups(alone: ujoin.Group) -> None:
    values = [np.ones(2) for _ in range(3)]
    ones = [np.ones(2) for _ in range(3)]
    groups: list[dict[str, Any]] = [
        {"params": values[:1], "grads": ones[:1]},
        {"params": values[1:2], "grads": ones[1:2], "lr": 0.5},
    ]
    opt = ujoin.ZeroRedundancyOptimizer(groups, "sgd", group=alone, lr=0.25)
    opt.add_param_group({"params": {"named": values[2]}, "grads": {"named": ones[2]}, "lr": 1})
    assert [group["lr"] for group in opt.param_groups] == [0.25, 0.5, 1]
    assert [group.params for group in opt.param_groups] == [["0"], ["1"], ["named"]]
    opt.step()
    assert [v.tolist() for v in values] == [[0.75] * 2, [0.5] * 2, [0] * 2]
    opt.zero_grad()
    assert [g.tolist() for g in ones] == [[0, 0]] * 3
    opt.set_gradient("named", None)
    opt.set_gradient(0, np.full(2, 2.0))
    opt.step()
    assert [v.tolist() for v in values] == [[0.25] * 2, [0.5] * 2, [0] * 2]
    with pytest.raises(ujoin.InvalidError, match="another size or type"):
        opt.set_gradient(0, np.ones(3))
    with pytest.raises(ujoin.InvalidError, match="there is no parameter 3; there are 3"):
        opt.set_gradient(3, None)
    with pytest.raises(ujoin.InvalidError, match='no parameter is called "x"; there are 0, 1, named'):
        opt.set_gradient("x", None)
    with pytest.raises(ujoin.InvalidError, match="param groups"):
        ujoin.ZeroRedundancyOptimizer([{"params": values}], "sgd", grads=ones, group=alone)


def test_closure(alone: ujoin.Group) -> None:
    w, g = np.ones(2), np.zeros(2)
    opt = ujoin.ZeroRedundancyOptimizer([w], "sgd", grads=[g], group=alone, lr=0.5)

    def closure() -> str:
        g[:] = 1
        return "loss"

    assert opt.step(closure) == "loss"
    assert w.tolist() == [0.5, 0.5]
    assert opt.step() is None

    def broken() -> float:
        raise ArithmeticError("nan")

    with pytest.raises(ujoin.CallbackError, match=r"zero_step.*ArithmeticError: nan") as failed:
        opt.step(broken)
    assert isinstance(failed.value.__cause__, ArithmeticError)

    def exits() -> float:
        raise SystemExit(3)

    other = ujoin.ZeroRedundancyOptimizer([w], "sgd", grads=[g], group=ujoin.Group(backend="self", world_size=1))
    with pytest.raises(SystemExit):
        other.step(exits)


def test_an_object_is_not_called_from_its_own_callback() -> None:
    group = ujoin.Group(backend="self", world_size=1)
    w = np.ones(2)
    opt = ujoin.ZeroRedundancyOptimizer([w], "sgd", grads=[w.copy()], group=group)
    with pytest.raises(ujoin.CallbackError) as failed:
        opt.step(opt.step)
    assert "own callbacks" in str(failed.value.__cause__)
    assert isinstance(failed.value.__cause__, ujoin.StateError)


def test_save_and_load_go_on_alike(tmp_path: pathlib.Path) -> None:
    both = SavePart.STATE | SavePart.PARAMETERS

    def body(group: ujoin.Group) -> None:
        params, grads = model()
        opt = ujoin.ZeroRedundancyOptimizer(params, "adam", grads=grads, group=group, lr=0.1)
        train(opt, grads, range(2))
        opt.save(tmp_path / "saved", parts=both, extra={"epoch": 3, "name": f"rank {group.rank}", "rng": b"\0\1"})
        train(opt, grads, range(2, 4))
        expected = {name: value.copy() for name, value in params.items()}

        params, grads = model()
        opt = ujoin.ZeroRedundancyOptimizer(params, "adam", grads=grads, group=group, lr=0.7)
        own = opt.load(tmp_path / "saved", parts=both)
        assert own.values() == {"epoch": 3.0, "name": f"rank {group.rank}", "rng": b"\0\1"}
        assert opt.param_groups[0]["lr"] == 0.1
        train(opt, grads, range(2, 4))
        for name, value in params.items():
            assert value.tobytes() == expected[name].tobytes()
        with pytest.raises(ujoin.SystemError, match="nowhere") as failed:
            opt.load(tmp_path / "nowhere")
        assert isinstance(failed.value, OSError)
        assert failed.value.errno == 2
        group.close()

    on_ranks(2, body)


def test_consolidated_state_moves_to_another_optimizer() -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = model()
        opt = ujoin.ZeroRedundancyOptimizer(params, "adam", grads=grads, group=group, lr=0.1)
        train(opt, grads, range(2))
        opt.consolidate_state_dict(to=0)
        if group.rank != 0:
            with pytest.raises(ujoin.StateError):
                opt.state_dict()
            return
        state = opt.state_dict()
        items = {(item.param, item.key): item for item in state}
        moment = items["a", "exp_avg"]
        assert (moment.kind, moment.owner, moment.dtype) == (ItemKind.TENSOR, ItemOwner.PARAM, ujoin.DType.F64)
        assert moment.shape == (2, 3)
        expected = 0.9 * 0.1 * gradients("a", 0) + 0.1 * gradients("a", 1)
        np.testing.assert_allclose(np.asarray(moment.value), expected.reshape(2, 3), rtol=1e-12)
        assert items["b", "step"].value == 2.0

        other_params, other_grads = model()
        for name, value in params.items():
            other_params[name][:] = value
        single = ujoin.Group(backend="self", world_size=1)
        other = ujoin.ZeroRedundancyOptimizer(other_params, "adam", grads=other_grads, group=single)
        other.load_state_dict(state)
        assert other.param_groups[0]["lr"] == 0.1
        other.consolidate_state_dict()
        again = {(item.param, item.key): item.value for item in other.state_dict()}
        assert bytes(again["a", "exp_avg_sq"]) == bytes(items["a", "exp_avg_sq"].value)  # type: ignore[arg-type]

    on_ranks(2, body)


def test_state_by_hand() -> None:
    state = State({"text": "h\u00e9", "number": 2, "bytes": b"\0"})
    state["text"] = "again"
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    state.set("exp_avg", tensor, owner=ItemOwner.PARAM, param="w")
    state.set("half", (np.array([0x3C00], np.uint16), ujoin.DType.F16), owner=ItemOwner.PARAM, param="w")
    state.set("lr", 0.5, owner=ItemOwner.GROUP, group=0)
    assert len(state) == 6
    assert state.values() == {"text": "again", "number": 2.0, "bytes": b"\0"}
    assert (state["text"], state["number"], state["bytes"]) == ("again", 2.0, b"\0")
    items = {item.key: item for item in state}
    assert np.asarray(items["exp_avg"].value).tolist() == tensor.tolist()
    assert np.asarray(items["half"].value).view(np.float16).tolist() == [1.0]
    assert items["lr"].owner == ItemOwner.GROUP
    assert items["exp_avg"].param == "w"
    with pytest.raises(ujoin.InvalidError, match="missing"):
        state["missing"]
    with pytest.raises(ujoin.InvalidError, match="not None"):
        state.set("none", None)  # type: ignore[arg-type]


def test_parameters_saved_alone_are_one_file(alone: ujoin.Group, tmp_path: pathlib.Path) -> None:
    params, grads = model()
    opt = ujoin.ZeroRedundancyOptimizer(params, "sgd", grads=grads, group=alone)
    opt.save(tmp_path / "model.safetensors", parts=SavePart.PARAMETERS, sync=False)
    raw = (tmp_path / "model.safetensors").read_bytes()
    assert params["a"].tobytes() in raw
    assert params["b"].tobytes() in raw
    with pytest.raises(ujoin.InvalidError, match="extra"):
        opt.save(tmp_path / "x", parts=SavePart.PARAMETERS, extra={"a": 1})


def test_the_partition_by_elements_gives_the_same_bits(tmp_path: pathlib.Path) -> None:
    def train_with(partition: Partition | str, group: ujoin.Group) -> tuple[ujoin.ZeroRedundancyOptimizer, Any]:
        w, grad = np.linspace(-1, 1, 1000), np.zeros(1000)
        opt = ujoin.ZeroRedundancyOptimizer({"w": w}, "adam", grads={"w": grad}, group=group, partition=partition)
        for step in range(3):
            grad[:] = np.sin(np.arange(1000) + step)
            opt.step(max_norm=1)
        return opt, w

    def body(group: ujoin.Group) -> None:
        whole, expected = train_with(Partition.PARAMETERS, group)
        parts, got = train_with("elements", group)
        assert [s.count for s in whole.shards] == [1000]
        assert [(s.rank, s.offset, s.count) for s in parts.shards] == [(0, 0, 504), (1, 504, 496)]
        assert got.tobytes() == expected.tobytes()
        parts.save(tmp_path / "elements")
        whole.load(tmp_path / "elements")
        w, own = np.ones(4), Rule("own", lambda args: None, per_tensor=True)
        for rule in ("lamb", own):
            with pytest.raises(ujoin.UnsupportedError, match="needs whole parameters"):
                ujoin.ZeroRedundancyOptimizer([w], rule, grads=[w], group=group, partition=Partition.ELEMENTS)
        group.close()

    on_ranks(2, body)


def test_a_rule_sees_its_piece() -> None:
    def body(group: ujoin.Group) -> None:
        seen: list[tuple[int, int, tuple[int, ...]]] = []

        def step(args: RuleArgs) -> None:
            seen.append((args.offset, len(args.data), args.shape))
            np.asarray(args.data)[:] = args.offset

        w = np.ones(100)
        opt = ujoin.ZeroRedundancyOptimizer([w], Rule("own", step), grads=[w.copy()], group=group, partition="elements")
        opt.step()
        assert seen == [[(0, 48, (100,))], [(48, 52, (100,))]][group.rank]
        assert w.tolist() == [0] * 48 + [48] * 52
        group.close()

    on_ranks(2, body)


def test_parameters_as_bucket_view(alone: ujoin.Group) -> None:
    params, grads = model()
    opt = ujoin.ZeroRedundancyOptimizer(params, "sgd", grads=grads, group=alone, lr=0.5, parameters_as_bucket_view=True)
    a, b = np.asarray(opt.param_data("a")), np.asarray(opt.param_data("b"))
    assert a.shape == (2, 3)
    assert a.tolist() == params["a"].tolist()
    assert b.ctypes.data == a.ctypes.data + a.nbytes  # side by side
    grads["a"][:] = 1
    grads["b"][:] = 1
    opt.step()
    assert b.tolist() == [0.5] * 4
    assert params["b"].tolist() == [1] * 4
    opt.set_frozen("b")
    assert params["b"].tolist() == [0.5] * 4  # out of the library's memory
    assert np.asarray(opt.param_data("b")).ctypes.data == params["b"].ctypes.data
    opt.set_frozen("b", False)
    assert np.asarray(opt.param_data("b")).ctypes.data == b.ctypes.data
    opt.step()
    expected = a.tolist()
    del opt
    assert a.tolist() == expected  # the view holds it
    assert b.tolist() == [0] * 4


def test_consolidated_state_is_given_until_the_next_step(alone: ujoin.Group) -> None:
    w = np.ones(2)
    opt = ujoin.ZeroRedundancyOptimizer([w], "sgd", grads=[w.copy()], group=alone, consolidate_timeout=30)
    opt.step()
    opt.consolidate_state_dict()
    opt.state_dict()
    opt.step()
    with pytest.raises(ujoin.StateError, match="outdated"):
        opt.state_dict()


def as_array(value: Any, dtype: ujoin.DType | None) -> Any:
    """What stands for PyTorch's tensors here."""
    return np.float32(value) if dtype is None else np.asarray(value).copy()


def test_pytorchs_state_dict_moves_both_ways() -> None:
    def body(group: ujoin.Group) -> None:
        params, grads = model()
        opt = ujoin.ZeroRedundancyOptimizer(params, "adamw", grads=grads, group=group, lr=0.1, betas=(0.9, 0.999))
        train(opt, grads, range(2))
        for to in range(group.size):
            opt.consolidate_state_dict(to)
            if to == group.rank:
                state_dict = opt.torch_state_dict(as_array, like={"param_groups": [{"foreach": None, "lr": 7}]})
        assert state_dict["param_groups"] == [
            {
                "foreach": None, "lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False,
                "maximize": False, "params": [0, 1],
            }
        ]  # fmt: skip
        assert sorted(state_dict["state"]) == [0, 1]
        assert state_dict["state"][0]["step"] == 2
        assert state_dict["state"][0]["exp_avg"].shape == (2, 3)
        train(opt, grads, range(2, STEPS))

        # PyTorch's own, one without what is not used: it says that by None.
        state_dict["state"][1]["max_exp_avg_sq"] = None
        other_params, other_grads = model()
        start = {
            name: adamw(value.reshape(-1), [gradients(name, s) for s in range(2)], 0.1) for name, value in model()[0].items()
        }
        for name, value in other_params.items():
            value.reshape(-1)[:] = start[name]
        other = ujoin.ZeroRedundancyOptimizer(other_params, "adamw", grads=other_grads, group=group, partition="elements")
        other.load_state_dict(state_dict)
        assert other.param_groups[0]["lr"] == 0.1
        train(other, other_grads, range(2, STEPS))
        for name, value in params.items():
            np.testing.assert_allclose(other_params[name], value, rtol=1e-12)
        with pytest.raises(ujoin.InvalidError, match="the state dict has 1 parameters, the optimizer 2"):
            other.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]})
        with pytest.raises(ujoin.InvalidError, match="state of parameter 5"):
            other.load_state_dict({"state": {5: {}}, "param_groups": [{"params": [0, 1]}]})
        group.close()

    on_ranks(2, body)


def test_pytorchs_momentum_goes_on(alone: ujoin.Group) -> None:
    w = np.array([1.0, 2.0])
    opt = ujoin.ZeroRedundancyOptimizer([w], "sgd", grads=[np.ones(2)], group=alone)
    settings = {"lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False}
    opt.load_state_dict(
        {
            "state": {0: {"momentum_buffer": np.ones(2)}},
            "param_groups": [{**settings, "foreach": None, "differentiable": False, "params": [0]}],
        }
    )
    opt.step()
    np.testing.assert_allclose(w, [1 - 0.19, 2 - 0.19], rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_fused_steps(shared: bool) -> None:
    def body(group: ujoin.Group) -> None:
        def train(fused: bool) -> dict[str, Any]:
            params, grads = model()
            if fused and shared:
                memory = ujoin.SharedMemory(4096, group=group)
                assert len(memory) == 4096
                whole = np.frombuffer(memory.buffer, np.float64)
                assert not whole.any()
                del memory  # the arrays hold it
                for at, (name, value) in zip((0, 64), params.items(), strict=True):
                    whole[at : at + value.size] = value.reshape(-1)
                    params[name] = whole[at : at + value.size].reshape(value.shape)
                    grads[name] = whole[at + 16 : at + 16 + value.size].reshape(value.shape)
            sync = ujoin.GradientSync.TO_OWNER if fused else "all"
            ddp = ujoin.DistributedDataParallel(params, grads, group=group, gradient_sync=sync)
            opt = ujoin.ZeroRedundancyOptimizer(params, "adamw", grads=grads, group=group, ddp=ddp if fused else None)
            with ujoin.Join([ddp, opt]):
                for step in range(2 + group.rank):
                    with ddp.iteration():
                        for name, grad in grads.items():
                            grad.reshape(-1)[:] = gradients(name, step + group.rank) + params[name].reshape(-1)
                            ddp.ready(name)
                    before = {name: grad.copy() for name, grad in grads.items()}
                    opt.step()
                    if fused:
                        assert all(before[name].tolist() == grad.tolist() for name, grad in grads.items())
                        with pytest.raises(ujoin.StateError, match="since the last step"):
                            opt.step()
            return params

        apart, fused = train(False), train(True)
        for name, value in apart.items():
            assert fused[name].tolist() == value.tolist()
            assert value.tolist() != model()[0][name].tolist()
        group.close()

    on_ranks(2, body)


@pytest.mark.parametrize("rule", ["adamw", Rule("own", lambda args: descend(args))])
def test_a_reducer_makes_the_steps(rule: Any) -> None:
    def body(group: ujoin.Group) -> None:
        def train(overlap: bool) -> dict[str, Any]:
            params, grads = model()
            ddp = ujoin.DistributedDataParallel(params, grads, group=group, bucket_bytes=16)
            opt = ujoin.ZeroRedundancyOptimizer(params, rule, grads=grads, group=group, ddp=ddp if overlap else None)
            if overlap:
                with pytest.raises(ujoin.StateError, match=r"options\.ddp"):
                    opt.step()
                del opt  # the reducer holds it
            with ujoin.Join([ddp] if overlap else [ddp, opt]):
                for step in range(2 + group.rank):
                    with ddp.iteration():
                        for name, grad in grads.items():
                            grad.reshape(-1)[:] = gradients(name, step + group.rank) + params[name].reshape(-1)
                            ddp.ready(name)
                    if not overlap:
                        opt.step()
            return params

        apart, overlapped = train(False), train(True)
        for name, value in apart.items():
            assert overlapped[name].tolist() == value.tolist()
            assert value.tolist() != model()[0][name].tolist()
        group.close()

    on_ranks(2, body)


def descend(args: RuleArgs) -> None:
    np.asarray(args.data)[:] -= 0.1 * np.asarray(args.grad)


def test_a_rule_that_raises_in_a_reducers_iteration(alone: ujoin.Group) -> None:
    def fails(args: RuleArgs) -> None:
        raise KeyError("lost")

    w, g = np.ones(2), np.ones(2)
    ddp = ujoin.DistributedDataParallel([w], [g], group=alone)
    opt = ujoin.ZeroRedundancyOptimizer([w], Rule("own", fails), grads=[g], group=alone, ddp=ddp)
    ddp.forward()
    ddp.ready(0)
    with pytest.raises((KeyError, ujoin.CallbackError), match="lost"):
        ddp.finish()
    with pytest.raises(ujoin.StateError, match="half-way"):
        ddp.forward()
    del opt
