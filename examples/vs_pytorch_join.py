#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One training loop on uneven inputs, three times on the same numbers: in one process, with PyTorch's Join, with ujoin's.

    python3 examples/vs_pytorch_join.py

The loop is the one that PyTorch documents: gradient reduction and a sharded optimizer in one join context. Two ranks; rank 0
has one input, rank 1 has three. While rank 0 works for rank 1, PyTorch keeps in it the gradients of its own last round, and
its part of the optimizer steps with these. With ujoin a rank that has joined gets the gradients of those who go on.

Needs PyTorch and ujoin in one Python; starts its ranks itself. Ends with 0 if ujoin's result is that of one process, with 1
if it is not, and with 2 if something is missing.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import tempfile
from typing import Any, TypeAlias

INPUTS = {0: [1.0], 1: [2.0, 3.0, 4.0]}  # by rank
WORLD, ROUNDS, RATE = len(INPUTS), max(len(inputs) for inputs in INPUTS.values()), 0.1
Numbers: TypeAlias = dict[str, float]


def make_model(torch: Any) -> Any:
    """y = weight x + bias, both 1 at the start; y itself is the loss."""
    model = torch.nn.Linear(1, 1)
    for parameter in model.parameters():
        torch.nn.init.ones_(parameter)
    return model


def numbers_of(model: Any) -> Numbers:
    """Parameters and their gradients."""
    values = {name: parameter.item() for name, parameter in model.named_parameters()}
    return {**values, **{f"{name}.grad": parameter.grad.item() for name, parameter in model.named_parameters()}}


def one_process() -> Numbers:
    """In each round the loss is that of all ranks that still have an input, divided by the number of ranks."""
    torch = importlib.import_module("torch")
    model = make_model(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for number in range(ROUNDS):
        optimizer.zero_grad()
        for inputs in INPUTS.values():
            if number < len(inputs):
                (model(torch.tensor([inputs[number]])).sum() / WORLD).backward()
        optimizer.step()
    return numbers_of(model)


def with_pytorch(rank: int, meeting: str) -> Numbers:
    """One rank, as PyTorch's documentation has it."""
    torch, dist = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    join = importlib.import_module("torch.distributed.algorithms.join")
    parallel, optim = importlib.import_module("torch.nn.parallel"), importlib.import_module("torch.distributed.optim")

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    model = parallel.DistributedDataParallel(make_model(torch))
    optimizer = optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=RATE)
    with join.Join([model, optimizer]):
        for x in INPUTS[rank]:
            optimizer.zero_grad()
            model(torch.tensor([x])).sum().backward()
            optimizer.step()
    dist.destroy_process_group()
    return numbers_of(model.module)


def with_ujoin(rank: int, meeting: str) -> Numbers:
    """One rank. The model is PyTorch's here too; ujoin works on its parameters and gradients where they lie."""
    import ujoin

    torch = importlib.import_module("torch")
    group = ujoin.Group(f"file://{meeting}", rank=rank, world_size=WORLD)
    model = make_model(torch)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    params = {name: parameter.detach() for name, parameter in model.named_parameters()}
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    ddp = ujoin.DistributedDataParallel(params, grads, group=group)
    optimizer = ujoin.ZeroRedundancyOptimizer(params, "sgd", group=group, lr=RATE)
    with ujoin.Join([ddp, optimizer]):
        for x in INPUTS[rank]:
            with ddp.iteration():
                model.zero_grad(set_to_none=False)
                model(torch.tensor([x])).sum().backward()
                for name in params:
                    ddp.ready(name)
            optimizer.step()
    group.close()
    return numbers_of(model)


def on_ranks(train: Any) -> list[Numbers]:
    """Runs a function on all ranks, each a process of its own; what each of them has in the end."""
    import ujoin

    with tempfile.TemporaryDirectory() as folder:
        args = {rank: (rank, str(pathlib.Path(folder) / "meeting")) for rank in INPUTS}
        envs = {rank: {"GLOO_SOCKET_IFNAME": "lo"} for rank in INPUTS}
        with ujoin.start_processes(train.__name__, train, args, envs) as workers:
            result = workers.wait()
            assert result is not None  # it is None only where a time limit has passed
            values = result.check().return_values
        return [values[rank] for rank in sorted(INPUTS)]


def differences(ranks: list[Numbers], wanted: Numbers) -> list[str]:
    """What is not as in one process."""
    return [
        f"rank {rank}: {name} is {numbers[name]:.4f}, in one process {wanted[name]:.4f}"
        for rank, numbers in enumerate(ranks)
        for name in wanted
        if abs(numbers[name] - wanted[name]) > 1e-6
    ]


def missing() -> list[str]:
    """What this Python lacks."""
    texts = []
    for name, how in (("torch", "PyTorch; Debian: python3-torch"), ("ujoin", "pip install ./bindings/python")):
        try:
            importlib.import_module(name)
        except ImportError as error:
            texts.append(f"{name} is not installed for {sys.executable} ({how}): {error}")
    return texts


def main() -> int:
    """All three, and a table."""
    if texts := missing():
        print("vs_pytorch_join: nothing is compared", *texts, sep="\n  ", file=sys.stderr)
        return 2
    torch = importlib.import_module("torch")
    wanted = one_process()
    pytorch_name = f"PyTorch {torch.__version__}"
    results = {pytorch_name: on_ranks(with_pytorch), "ujoin": on_ranks(with_ujoin)}

    rows = {"one process": wanted}
    for name, ranks in results.items():
        rows |= {f"{name}, rank {rank}": numbers for rank, numbers in enumerate(ranks)}
    width = max(len(label) for label in rows)
    print(" " * width + "".join(f"{name:>13}" for name in wanted))
    for label, numbers in rows.items():
        print(label.ljust(width) + "".join(f"{numbers[name]:13.4f}" for name in wanted))
    for name, ranks in results.items():
        wrong = differences(ranks, wanted)
        print(f"{name}: " + ("as in one process" if not wrong else "not as in one process"), *wrong, sep="\n  ")
    return 1 if differences(results["ujoin"], wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
