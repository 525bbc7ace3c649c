#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/conformance/data/optim_vectors.json: what PyTorch's optimizers make of known gradients.

Needs PyTorch (the file names the version it was made with). Gradients are not stored: step t of element i is
gradient(seed, t, i), exact in binary floating point, and the test computes the same.
"""
import json
import pathlib

import torch

STEPS = 100
SHOWN = [1, 2, 3, 10, 31, 100]
COUNT = 11


def gradient(seed, step, index):
    x = (seed * 0x9E3779B1 + step * 0x85EBCA77 + index * 0xC2B2AE3D) & 0xFFFFFFFF
    for _ in range(2):
        x ^= x >> 15
        x = x * 0x2C1B3C6D & 0xFFFFFFFF
    x ^= x >> 16
    return ((x >> 12) / 2.0**20 - 0.5) * 4.0 ** (index % 4 - 2)


def start(seed, index):
    return gradient(seed, 0, index) * 4


RULES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
ADAM = [
    {},
    {"lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1},
    {"lr": 0.003, "amsgrad": 1},
    {"lr": 0.02, "beta1": 0.0, "weight_decay": 0.05, "amsgrad": 1, "maximize": 1},
]
CASES = (
    [("sgd", h) for h in (
        {"lr": 0.1},
        {"lr": 0.05, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.02},
        {"lr": 0.02, "momentum": 0.8, "nesterov": 1, "weight_decay": 0.01},
        {"lr": 0.03, "momentum": 0.7, "weight_decay": 0.1, "maximize": 1},
    )]
    + [("adam", h) for h in ADAM]
    + [("adamw", h) for h in ADAM]
)


def run(name, hyper, dtype, seed, skip):
    param = torch.tensor([start(seed, i) for i in range(COUNT)], dtype=dtype, requires_grad=True)
    given = dict(hyper)
    for flag in ("nesterov", "amsgrad", "maximize"):
        if flag in given:
            given[flag] = bool(given[flag])
    if name != "sgd":
        given["betas"] = (given.pop("beta1", 0.9), given.pop("beta2", 0.999))
    optimizer = RULES[name]([param], foreach=False, **given)
    shown = []
    for step in range(1, STEPS + 1):
        param.grad = None if skip and step % skip == 0 else torch.tensor(
            [gradient(seed, step, i) for i in range(COUNT)], dtype=dtype)
        optimizer.step()
        if step in SHOWN:
            entry = {"after": step, "param": param.detach().tolist()}
            for key, value in optimizer.state[param].items():
                if torch.is_tensor(value) and value.ndim == 1:
                    entry[key] = value.tolist()
                elif value is not None:
                    entry[key] = float(value)
            shown.append({k: [rounded(x, dtype) for x in v] if isinstance(v, list) else v for k, v in entry.items()})
    return {"optimizer": name, "hyper": hyper, "dtype": "f64" if dtype == torch.float64 else "f32", "seed": seed,
            "skip": skip, "shown": shown}


def rounded(value, dtype):
    return float(f"{value:.12g}" if dtype == torch.float64 else f"{value:.9g}")


def main():
    torch.set_num_threads(1)
    cases = []
    for number, (name, hyper) in enumerate(CASES):
        for dtype in (torch.float32, torch.float64):
            if dtype == torch.float64 and number % 2:
                continue
            cases.append(run(name, hyper, dtype, number + 1, 3 if number % 3 == 1 else 0))
    path = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "optim_vectors.json"
    head = {"made_with": f"PyTorch {torch.__version__} (package 1.13.1)" if torch.__version__.startswith("1.13.0a0")
            else f"PyTorch {torch.__version__}", "steps": STEPS, "count": COUNT}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    print(path, path.stat().st_size, "bytes,", len(cases), "cases")


if __name__ == "__main__":
    main()
