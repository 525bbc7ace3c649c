#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""State dicts of PyTorch's optimizers, both ways: training goes on as if the optimizer had not been exchanged. Needs PyTorch
and the Python binding that the stage `bindings` has built."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import tap  # noqa: E402

sys.path += map(str, (ROOT / "build" / "bindings-python" / "venv" / "lib").glob("python3*/site-packages"))
try:
    import torch
    import ujoin
except ImportError as missing:
    system = "/usr/bin/python3"  # the one that distribution packages are for, where another comes first in PATH
    if os.path.exists(system) and not os.environ.get("UJOIN_SYSTEM_PYTHON"):
        os.execve(system, [system, *sys.argv], dict(os.environ, UJOIN_SYSTEM_PYTHON="1"))
    tap.skip("peers.torch_state", f"there is no {missing.name}")
    tap.done()

SHAPES = [(7, 5), (13,), (1,), (4, 3, 2)]
CASES = [("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
         ("Adam", {"amsgrad": True, "betas": (0.8, 0.99)}), ("AdamW", {}), ("Adagrad", {}),
         ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adadelta", {}), ("Adamax", {}), ("RAdam", {}),
         ("Rprop", {"etas": (0.4, 1.3)})]
if torch.__version__ >= "2":
    CASES.append(("NAdam", {}))  # an earlier one multiplies one factor twice


def gradients(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def train(peer, tensors, steps):
    for step in steps:
        for tensor, grad in zip(tensors, gradients(step)):
            tensor.grad = grad
        peer.step()


def difference(ours, theirs):
    return max(float((a.detach() - b.detach()).abs().max()) / max(1.0, float(b.detach().abs().max()))
               for a, b in zip(ours, theirs))


def compare(make, settings, group):
    torch.manual_seed(1)
    tensors = [torch.randn(shape, requires_grad=True) for shape in SHAPES]
    peer = make(tensors, **settings)
    train(peer, tensors, range(5))
    values, grads = [t.detach().clone() for t in tensors], [torch.zeros(shape) for shape in SHAPES]
    optimizer = ujoin.ZeroRedundancyOptimizer(values, make.__name__.lower(), grads=grads, group=group)
    optimizer.load_state_dict(peer.state_dict())
    for step in range(5, 10):
        for grad, now in zip(grads, gradients(step)):
            grad.copy_(now)
        optimizer.step()
    train(peer, tensors, range(5, 10))
    off = difference(values, tensors)
    problems = [f"after PyTorch's state was loaded: off by {off:.2g}"] if off > 2e-6 else []
    optimizer.consolidate_state_dict()
    again = [value.clone().requires_grad_() for value in values]
    other = make(again, lr=0.5)
    other.load_state_dict(optimizer.torch_state_dict(like=other.state_dict()))
    train(other, again, range(10, 15))
    train(peer, tensors, range(10, 15))
    if (off := difference(again, tensors)) > 4e-6:
        problems.append(f"after PyTorch loaded it back: off by {off:.2g}")
    return problems


def main():
    torch.set_num_threads(1)
    with ujoin.Group(backend="self", world_size=1) as group:
        for number, (name, settings) in enumerate(CASES):
            try:
                problems = compare(getattr(torch.optim, name), settings, group)
            except (ujoin.Error, KeyError, TypeError, ValueError) as error:
                problems = [repr(error)]
            tap.report(f"peers.torch_state_{name}_{number}", problems)
    tap.done()


if __name__ == "__main__":
    main()
