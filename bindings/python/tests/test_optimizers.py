# SPDX-License-Identifier: Apache-2.0
"""The optimizer: rules, own rules, 16-bit parameters, frozen ones, clipping, loss scaling, schedules, memory."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np
import pytest
from conftest import on_ranks

import ujoin
from ujoin import DType, LossScaler, Optimizer, Rule, RuleArgs, SavePart, Schedule, ZeroRedundancyOptimizer

G = np.array([0.5, -2.0])
RMS = 0.1 / (np.sqrt(0.01 * G * G) + 1e-8) * G
# One step from ones with gradient G and lr 0.1.
FIRST_STEPS: dict[str, Any] = {
    "adagrad": 0.1 * np.sign(G),
    "rmsprop": RMS,
    "adadelta": 0.1 * np.sqrt(1e-6) / np.sqrt(0.1 * G * G + 1e-6) * G,
    "adamax": 0.1 * np.sign(G),
    "nadam": None,
    "radam": 0.1 * G,  # too few steps for its adaptive form
    "rprop": 0.1 * np.sign(G),
    "lamb": None,
    "lion": 0.1 * np.sign(G),
}


@pytest.mark.parametrize("name", FIRST_STEPS)
def test_each_rule_makes_its_first_step(alone: ujoin.Group, name: str) -> None:
    w = np.ones(2)
    opt = ZeroRedundancyOptimizer([w], name, grads=[G.copy()], group=alone, lr=0.1)
    opt.step()
    moved = 1 - w
    if FIRST_STEPS[name] is not None:
        np.testing.assert_allclose(moved, FIRST_STEPS[name], rtol=1e-6)
    assert (np.sign(moved) == np.sign(G)).all()
    if name == "lamb":  # the step is as long as |w| lr
        np.testing.assert_allclose(np.linalg.norm(moved), 0.1 * math.sqrt(2), rtol=1e-6)
    assert Optimizer[name.upper()].name.lower() == name


# ----------------------------------------------------------------------------------------------------------- own rules


def momentum(args: RuleArgs) -> None:
    velocity, data = np.asarray(args.state["velocity"]), np.asarray(args.data)
    velocity[:] = args.hyper["decay"] * velocity + np.asarray(args.grad)
    data -= args.hyper["lr"] * velocity


def start_at_one(args: RuleArgs) -> None:
    assert args.step == 1
    np.asarray(args.state["velocity"])[:] = 1


OWN = Rule("own", momentum, start_at_one, state=("velocity",), hyper={"lr": 0.5, "decay": 0.5})


def test_a_rule_of_the_program_on_each_rank(tmp_path: pathlib.Path) -> None:
    def make(group: ujoin.Group) -> tuple[dict[str, Any], ZeroRedundancyOptimizer]:
        params = {"a": np.zeros((2, 2)), "b": np.zeros(3)}
        grads = {name: np.ones_like(value) for name, value in params.items()}
        return params, ZeroRedundancyOptimizer(params, OWN, grads=grads, group=group, decay=0.25)

    def body(group: ujoin.Group) -> None:
        params, opt = make(group)
        assert dict(opt.param_groups[0]) == {"lr": 0.5, "decay": 0.25}
        opt.step()  # velocity 1.25
        assert params["a"].tolist() == [[-0.625] * 2] * 2
        opt.save(tmp_path / "own", parts=SavePart.STATE | SavePart.PARAMETERS)
        other, again = make(group)
        again.load(tmp_path / "own", parts=SavePart.STATE | SavePart.PARAMETERS)
        for one in (opt, again):
            one.step()  # velocity 1.3125
        assert params["b"].tolist() == other["b"].tolist() == [-0.625 - 0.65625] * 3
        opt.consolidate_state_dict()
        if group.rank == 0:
            keys = {(item.param, item.key) for item in opt.state_dict()}
            assert ("a", "velocity") in keys
        group.close()

    on_ranks(2, body)


def test_what_a_rule_is_told(alone: ujoin.Group) -> None:
    told: list[RuleArgs] = []
    params: dict[str, Any] = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1)}
    grads: dict[str, Any] = {"a": np.ones((2, 3), np.float32), "b": np.ones(1)}
    opt = ZeroRedundancyOptimizer(params, Rule("spy", told.append), grads=grads, group=alone)
    opt.step()
    opt.step()
    facts = sorted((t.param, t.step, t.name, t.shape, t.offset, t.group, len(t.data), t.data.format, t.state) for t in told)
    assert facts == [
        (0, 1, "a", (2, 3), 0, 0, 6, "f", {}),
        (0, 2, "a", (2, 3), 0, 0, 6, "f", {}),
        (1, 1, "b", (1,), 0, 0, 1, "d", {}),
        (1, 2, "b", (1,), 0, 0, 1, "d", {}),
    ]


def test_a_rule_that_raises() -> None:
    def broken(args: RuleArgs) -> None:
        raise ArithmeticError(args.name)

    w = np.zeros(1)
    group = ujoin.Group(backend="self", world_size=1)
    opt = ZeroRedundancyOptimizer({"w": w}, Rule("broken", broken), grads=[w.copy()], group=group)
    with pytest.raises(ujoin.CallbackError, match="ArithmeticError: w") as failed:
        opt.step()
    assert isinstance(failed.value.__cause__, ArithmeticError)
    with pytest.raises(ujoin.Error):
        opt.step()
    many = Rule("many", broken, state=tuple(map(str, range(9))))
    single = ujoin.Group(backend="self", world_size=1)
    with pytest.raises(ujoin.InvalidError, match="8"):
        ZeroRedundancyOptimizer([w], many, grads=[w], group=single)


# ------------------------------------------------------------------------------------------------------ 16-bit parameters


def test_master_copies_keep_small_steps(alone: ujoin.Group) -> None:
    """256 steps of 1/512 move a bfloat16 only if there is a copy with more bits, or rounding is random."""
    moved = {}
    ways: dict[str, dict[str, Any]] = {
        "master": {},
        "none": {"master_copy": False},
        "random": {"master_copy": False, "stochastic_rounding": True, "seed": 7},
    }
    for name, options in ways.items():
        bits = np.full(64, 0x3F80, np.uint16)  # 1.0
        grads = np.full(64, 0x3B00, np.uint16)  # 1 / 512
        opt = ZeroRedundancyOptimizer(
            [(bits, DType.BF16)], "sgd", grads=[(grads, DType.BF16)], group=alone, lr=1, maximize=1, **options
        )
        for _ in range(256):
            opt.step()
        moved[name] = (bits.astype(np.uint32) << 16).view(np.float32).mean() - 1
    assert moved["master"] == 0.5
    assert moved["none"] == 0
    assert 0.4 < moved["random"] < 0.6


# --------------------------------------------------------------------------------------------------- frozen, clipping


def test_frozen_parameters() -> None:
    def body(group: ujoin.Group) -> None:
        params = {"a": np.ones(8), "b": np.ones(4), "c": np.ones(4)}
        grads = {name: np.ones_like(value) for name, value in params.items()}
        opt = ZeroRedundancyOptimizer(params, "sgd", grads=grads, group=group, lr=0.5, frozen=["a"], balance_trainable=True)
        owners = {shard.param: shard.rank for shard in opt.shards}
        assert owners["b"] != owners["c"]
        opt.step()
        assert [params[name][0] for name in "abc"] == [1, 0.5, 0.5]
        opt.set_frozen("a", False)
        opt.set_frozen(1)
        opt.step()
        assert [params[name][0] for name in "abc"] == [0.5, 0.5, 0]
        with pytest.raises(ujoin.InvalidError, match=r"\['x'\]"):
            ZeroRedundancyOptimizer(params, "sgd", grads=grads, group=group, frozen=["x"])
        group.close()

    on_ranks(2, body)


def test_clipping() -> None:
    def body(group: ujoin.Group) -> None:
        params = {"a": np.zeros(1), "b": np.zeros(1)}
        grads = {"a": np.array([3.0]), "b": np.array([-4.0])}
        opt = ZeroRedundancyOptimizer(params, "sgd", grads=grads, group=group, lr=1)
        opt.step()
        assert opt.grad_norm is None
        opt.step(max_norm=1)
        assert opt.grad_norm == pytest.approx(5)
        np.testing.assert_allclose([params["a"][0], params["b"][0]], [-3.6, 4.8], rtol=1e-5)
        assert grads["a"].tolist() == [3]  # clipped as they are used
        assert opt.clip_grad_norm(2, math.inf) == 4
        np.testing.assert_allclose([grads["a"][0], grads["b"][0]], [1.5, -2], rtol=1e-5)
        assert not opt.skipped
        if group.rank == 1:
            grads["a"][:] = grads["b"][:] = math.nan
        before = params["a"].copy()
        opt.step(skip_nonfinite=True)
        assert opt.skipped
        assert params["a"] == before
        opt.clip_grad_norm(1)
        assert opt.skipped
        grads["a"][:] = grads["b"][:] = 1
        opt.step(skip_nonfinite=True)
        assert not opt.skipped
        group.close()

    on_ranks(2, body)


def test_loss_scaling() -> None:
    def body(group: ujoin.Group) -> None:
        w, g = np.zeros(1), np.zeros(1)
        opt = ZeroRedundancyOptimizer([w], "sgd", grads=[g], group=group, lr=1)
        scaler = LossScaler(scale=8, interval=2)
        assert scaler.state == (8, 2, 0.5, 2, 0, 0)
        g[:] = 3 * scaler.scale
        opt.step(scaler=scaler)
        assert w.tolist() == [-3]
        opt.step(scaler=scaler)
        assert scaler.scale == 16  # after two good steps
        g[:] = math.inf
        opt.step(scaler=scaler)
        assert opt.skipped
        assert w.tolist() == [-6]
        assert scaler.scale == 8
        assert LossScaler(*scaler.state).state == scaler.state
        assert scaler.state.skipped == 1
        group.close()

    on_ranks(2, body)
    assert LossScaler().scale == 65536
    with pytest.raises(ujoin.InvalidError, match="growth"):
        LossScaler(growth=0.5)


def test_schedules() -> None:
    cosine = Schedule(1.0, "cosine", warmup_steps=2, total_steps=12, minimum=0.1)
    assert [cosine(0), cosine(1)] == [0.5, 1]
    assert cosine(7) == pytest.approx(0.55)
    assert cosine(12) == cosine(100) == pytest.approx(0.1)
    assert [Schedule(2.0)(step) for step in (0, 9)] == [2, 2]
    assert Schedule(1.0, "linear", total_steps=4)(1) == 0.75
    assert Schedule(1.0, "step", every=3, gamma=0.5)(6) == 0.25
    with pytest.raises(ujoin.InvalidError, match="total_steps"):
        Schedule(1.0, "linear")(0)
    with pytest.raises(ujoin.InvalidError, match="expected one of constant, cosine"):
        Schedule(1.0, "sine")(0)


def test_memory_is_counted() -> None:
    def body(group: ujoin.Group) -> tuple[int, int]:
        params = [np.zeros(100), np.zeros(100)]
        opt = ZeroRedundancyOptimizer(params, "adam", grads=[p.copy() for p in params], group=group)
        assert opt.memory.state < 800
        opt.step()
        memory = opt.memory
        assert (memory.parameters, memory.gradients) == (1600, 1600)
        group.close()
        return memory.state, memory.full_state

    ((state0, full0), (state1, full1)) = on_ranks(2, body)
    assert full0 == full1 == state0 + state1
    assert full0 >= 2 * 1600


def test_saved_on_two_ranks_and_loaded_on_one(tmp_path: pathlib.Path) -> None:
    def make(group: ujoin.Group) -> tuple[list[Any], ZeroRedundancyOptimizer]:
        params = [np.zeros(3), np.ones(2)]
        return params, ZeroRedundancyOptimizer(params, "adam", grads=[p + 1 for p in params], group=group, lr=0.1)

    both = SavePart.STATE | SavePart.PARAMETERS

    def body(group: ujoin.Group) -> Any:
        params, opt = make(group)
        opt.step()
        opt.save(tmp_path / "saved", parts=both, extra={"rank": group.rank})
        opt.step()
        group.close()
        return [p.tolist() for p in params]

    expected = on_ranks(2, body)[0]
    with ujoin.Group(backend="self", world_size=1) as group:
        params, opt = make(group)
        assert opt.load(tmp_path / "saved", parts=both)["rank"] == 0
        opt.step()
        assert [p.tolist() for p in params] == expected


def test_param_groups_may_be_frozen_or_empty(alone: ujoin.Group) -> None:
    w = [np.ones(1) for _ in range(2)]
    groups: list[dict[str, Any]] = [{"params": {"w": w[0]}, "grads": {"w": np.ones(1)}, "frozen": ["w"]}]
    opt = ZeroRedundancyOptimizer(groups, "sgd", group=alone, lr=1)
    opt.add_param_group({"params": [], "grads": []})
    opt.add_param_group({"params": {"v": w[1]}, "grads": {"v": np.ones(1)}, "frozen": []})
    assert len(opt.param_groups) == 3
    opt.step()
    assert [value[0] for value in w] == [1, 0]
    with pytest.raises(ujoin.InvalidError, match="frozen go into the param groups"):
        ZeroRedundancyOptimizer(groups, "sgd", group=alone, frozen=["w"])
