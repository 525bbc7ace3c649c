#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/conformance/data/optim_vectors.json: what PyTorch's optimizers make of known gradients.

Needs PyTorch (the file names the version it was made with). Gradients are not stored: step t of element i is
gradient(seed, t, i), exact in binary floating point, and the test computes the same. Each case has the parameter in f32
after some steps and in f64 after the last, the state in f32 after the last, and by how much PyTorch's f32 is off its f64.
"""
import json
import pathlib

import torch

STEPS = 100
SHOWN = [1, 2, 10, 100]
COUNT = 7


def gradient(seed, step, index):
    x = (seed * 0x9E3779B1 + step * 0x85EBCA77 + index * 0xC2B2AE3D) & 0xFFFFFFFF
    for _ in range(2):
        x ^= x >> 15
        x = x * 0x2C1B3C6D & 0xFFFFFFFF
    x ^= x >> 16
    return ((x >> 12) / 2.0**20 - 0.5) * 4.0 ** (index % 4 - 2)


def start(seed, index):
    return gradient(seed, 0, index) * 4


RULES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad,
         "rmsprop": torch.optim.RMSprop, "adadelta": torch.optim.Adadelta, "adamax": torch.optim.Adamax,
         "nadam": torch.optim.NAdam, "radam": torch.optim.RAdam, "rprop": torch.optim.Rprop}
FLAGS = ("nesterov", "amsgrad", "maximize", "centered", "decoupled_weight_decay")
PAIRS = {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("step_min", "step_max")}
ADAM = [
    {},
    {"lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1},
    {"lr": 0.003, "amsgrad": 1},
    {"lr": 0.02, "beta1": 0.0, "weight_decay": 0.05, "amsgrad": 1, "maximize": 1},
]
CASES = {
    "sgd": [
        {"lr": 0.1},
        {"lr": 0.05, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.02},
        {"lr": 0.02, "momentum": 0.8, "nesterov": 1, "weight_decay": 0.01},
        {"lr": 0.03, "momentum": 0.7, "weight_decay": 0.1, "maximize": 1},
    ],
    "adam": ADAM,
    "adamw": ADAM,
    "adagrad": [
        {},
        {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.05},
        {"lr": 0.05, "initial_accumulator_value": 0.5, "eps": 1e-6},
        {"lr": 0.05, "lr_decay": 0.1, "initial_accumulator_value": 0.1, "weight_decay": 0.01, "maximize": 1},
    ],
    "rmsprop": [
        {},
        {"lr": 0.005, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1},
        {"lr": 0.005, "momentum": 0.9},
        {"lr": 0.003, "centered": 1, "alpha": 0.95, "eps": 1e-3},
        {"lr": 0.002, "centered": 1, "momentum": 0.5, "weight_decay": 0.01, "eps": 1e-3, "maximize": 1},
    ],
    "adadelta": [
        {},
        {"lr": 0.5, "rho": 0.95, "eps": 1e-5, "weight_decay": 0.1},
        {"rho": 0.8, "maximize": 1},
    ],
    "adamax": [
        {},
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1},
        {"lr": 0.01, "maximize": 1},
    ],
    "nadam": [
        {},
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1, "momentum_decay": 0.01},
        {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": 1},
        {"lr": 0.005, "momentum_decay": 0.0, "maximize": 1},
    ],
    "radam": [
        {},
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1},
        {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": 1},
        {"lr": 0.01, "beta2": 0.9, "maximize": 1},
    ],
    "rprop": [
        {},
        {"lr": 0.1, "etaminus": 0.3, "etaplus": 1.5, "step_min": 1e-4, "step_max": 0.5},
        {"lr": 0.02, "maximize": 1},
    ],
}


def with_pairs(rule, hyper):
    """Our names to PyTorch's: flags as bool, pairs as tuples."""
    given = {key: bool(value) if key in FLAGS else value for key, value in hyper.items()}
    for pair, names in PAIRS.items():
        if any(name in given for name in names):
            usual = rule([torch.zeros(1)]).defaults[pair]
            given[pair] = tuple(given.pop(name, value) for name, value in zip(names, usual))
    return given


def run(name, hyper, dtype, seed, skip):
    """The parameter after each step that is shown, and the state in the end."""
    param = torch.tensor([start(seed, i) for i in range(COUNT)], dtype=dtype, requires_grad=True)
    optimizer = RULES[name]([param], foreach=False, **with_pairs(RULES[name], hyper))
    shown = {}
    for step in range(1, STEPS + 1):
        param.grad = None if skip and step % skip == 0 else torch.tensor(
            [gradient(seed, step, i) for i in range(COUNT)], dtype=dtype)
        optimizer.step()
        if step in SHOWN:
            shown[step] = param.detach().clone()
    state = {key: rounded(value) if value.ndim == 1 else float(value)
             for key, value in optimizer.state[param].items() if torch.is_tensor(value)}
    return shown, state


def rounded(values):
    return [float(f"{value:.12g}" if values.dtype == torch.float64 else f"{value:.9g}") for value in values.tolist()]


def make_case(number, name, hyper):
    seed, skip = number + 1, 3 if number % 3 == 1 else 0
    shown, state = run(name, hyper, torch.float32, seed, skip)
    exact, _ = run(name, hyper, torch.float64, seed, skip)
    return {"optimizer": name, "hyper": hyper, "seed": seed, "skip": skip,
            "f32": {str(step): rounded(values) for step, values in shown.items()}, "state": state,
            "f64": rounded(exact[STEPS]), "off": float(f"{(shown[STEPS].double() - exact[STEPS]).abs().max():.3g}")}


def main():
    torch.set_num_threads(1)
    cases = [make_case(number, name, hyper) for number, (name, hyper) in
             enumerate((name, hyper) for name, list_of in CASES.items() for hyper in list_of)]
    path = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "optim_vectors.json"
    version = f"PyTorch {torch.__version__}" + (" (package 1.13.1)" if torch.__version__.startswith("1.13.0a0") else "")
    head = {"made_with": version, "steps": STEPS, "count": COUNT}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    print(path, path.stat().st_size, "bytes,", len(cases), "cases")


if __name__ == "__main__":
    main()
