#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The text trainer of ../train_text.md in Python: N processes train a character-level language model together, on shards of
unequal length. One join context over gradient reduction and a sharded optimizer.

    ujoin-run --standalone --nproc-per-node 2 examples/python/train_text.py --out DIR
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import ujoin

LICENCES = pathlib.Path("/usr/share/common-licenses")
BLOCK, HELD_OUT_EVERY, CONTEXT, EMBED, HIDDEN = 2000, 10, 16, 32, 400
NAMES = ("embedding", "weight1", "bias1", "weight2", "bias2")
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def read_text(path: str | None) -> tuple[Array, int]:
    """The text as numbers in the table of the characters that occur, and how many there are."""
    files = [pathlib.Path(path)] if path else [file for file in LICENCES.iterdir() if not file.is_symlink()]
    files = sorted((file for file in files if file.is_file()), key=lambda file: os.fsencode(file.name))
    data = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8)
    if len(data) < BLOCK * HELD_OUT_EVERY:
        raise SystemExit(f"train_text: the text has {len(data)} characters, {BLOCK * HELD_OUT_EVERY} are needed")
    table, numbers = np.unique(data, return_inverse=True)
    return numbers.astype(np.uint8), len(table)


def split(text: Array) -> tuple[Array, Array]:
    """The training text, and every tenth block: the text that nobody trains on."""
    held_out = np.arange(len(text)) // BLOCK % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    return text[~held_out], text[held_out]


def order1_entropy(text: Array, characters: int) -> float:
    """Bits per character of the best guess that knows only the character before."""
    pairs = np.bincount(text[:-1].astype(np.int64) * characters + text[1:], minlength=characters**2)
    share = pairs.reshape(characters, -1) / np.maximum(pairs.reshape(characters, -1).sum(1, keepdims=True), 1)
    return float(-(pairs * np.log2(np.where(share > 0, share, 1)).reshape(-1)).sum() / (len(text) - 1))


def shard_begin(length: int, rank: int, size: int) -> int:
    """Shares are in proportion to 2 size + rank."""
    return length * (2 * size * rank + rank * (rank - 1) // 2) // (size * (5 * size - 1) // 2)


def cut(text: Array, rounds: int, epochs: int, batch: int, size: int) -> Array:
    """So much of the text that the last rank has so many rounds, over all epochs."""
    longest = CONTEXT + max(rounds // epochs, 1) * batch - batch // 2
    return text[: -(-longest * (size * (5 * size - 1) // 2) // (3 * size - 1))]


def random_numbers(seed: int, stream: int, count: int) -> Array:
    """splitmix64: its state only counts, so all numbers are made at once."""

    def mix(state: Array) -> Any:
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    step = np.uint64(0x9E3779B97F4A7C15)
    start = mix(np.array([seed], np.uint64) + step) ^ np.uint64(stream)
    return np.asarray(mix(start + step * np.arange(1, count + 1, dtype=np.uint64)))


def shuffled(first: int, count: int, seed: int, epoch: int, rank: int) -> Array:
    """The positions of a shard's samples, in the order of this epoch."""
    items = list(range(first, first + count))
    sizes = np.arange(count, 1, -1, dtype=np.uint64)
    chosen = random_numbers(seed, 1 + epoch * 65536 + rank, len(sizes)) % sizes
    for i, j in zip(sizes.tolist(), chosen.tolist(), strict=True):
        items[i - 1], items[j] = items[j], items[i - 1]
    return np.array(items, np.int64)


class Model:
    """16 characters -> their embeddings side by side -> 400 squared ReLUs -> softmax over the next character."""

    def __init__(self, characters: int, seed: int) -> None:
        shapes = [(characters, EMBED), (CONTEXT * EMBED, HIDDEN), (HIDDEN,), (HIDDEN, characters), (characters,)]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        self.flat = np.zeros(ends[-1], np.float32)
        self.params, self.grads = (
            {name: part.reshape(shape) for name, part, shape in zip(NAMES, np.split(flat, ends[:-1]), shapes, strict=True)}
            for flat in (self.flat, np.zeros_like(self.flat))
        )
        units = (random_numbers(seed, 0, ends[-1]) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
        for name, bound in {"embedding": 0.5, "weight1": 0.125, "weight2": 0.0625}.items():
            values = self.params[name].reshape(-1)
            values[:], units = (2 * units[: len(values)] - 1) * np.float32(bound), units[len(values) :]

    def forward(self, text: Array, positions: Array) -> float:
        """The sum of -ln p(right character) over a batch."""
        p = self.params
        self.contexts = text[positions[:, None] + np.arange(-CONTEXT, 0)]
        self.targets = text[positions]
        self.x = p["embedding"][self.contexts].reshape(len(positions), -1)
        self.positive = np.maximum(self.x @ p["weight1"] + p["bias1"], 0)
        self.h = self.positive * self.positive
        logits = self.h @ p["weight2"] + p["bias2"]
        logits -= logits.max(axis=1, keepdims=True)
        right = logits[np.arange(len(positions)), self.targets].astype(np.float64)
        self.probability = np.exp(logits, out=logits)
        total = logits.sum(axis=1, keepdims=True)
        logits /= total
        return float((np.log(total[:, 0].astype(np.float64)) - right).sum())

    def backward(self, ready: Callable[[str], None]) -> None:
        """Gradients of the batch's mean loss; tells of each when it is complete."""
        p, g, n = self.params, self.grads, len(self.targets)
        error = self.probability
        error[np.arange(n), self.targets] -= 1
        error /= np.float32(n)
        error.sum(axis=0, out=g["bias2"])
        ready("bias2")
        np.matmul(self.h.T, error, out=g["weight2"])
        ready("weight2")
        error = (error @ p["weight2"].T) * (2 * self.positive)
        error.sum(axis=0, out=g["bias1"])
        ready("bias1")
        np.matmul(self.x.T, error, out=g["weight1"])
        ready("weight1")
        g["embedding"][:] = 0
        np.add.at(g["embedding"], self.contexts.reshape(-1), (error @ p["weight1"].T).reshape(-1, EMBED))
        ready("embedding")


def batches(positions: Array, size: int) -> list[Array]:
    """The last one has what is left."""
    return [positions[first : first + size] for first in range(0, len(positions), size)]


def evaluate(group: ujoin.Group, model: Model, text: Array, batch: int) -> float:
    """Bits per character on text that nobody trains on; every rank takes each size-th batch."""
    all_batches = batches(np.arange(CONTEXT, len(text)), batch)
    loss = np.array([sum(model.forward(text, positions) for positions in all_batches[group.rank :: group.size])])
    group.all_reduce(loss)
    return float(loss[0]) / (len(text) - CONTEXT) / math.log(2)


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description="Trains a character-level language model.")
    parser.add_argument("--text", help="train on this file (default: the licences)")
    parser.add_argument("--out", default="ujoin-example", help="where the model goes")
    for name, default in (("--epochs", 3), ("--seed", 42), ("--batch", 128)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--rounds", type=int, help="cut the text to so many rounds over all epochs")
    o = parser.parse_args()
    pathlib.Path(o.out).mkdir(parents=True, exist_ok=True)
    group = ujoin.init_process_group() if "RANK" in os.environ else ujoin.init_process_group("self", world_size=1)
    rank, size, (text, characters) = group.rank, group.size, read_text(o.text)
    train, held_out = split(text)
    train = cut(train, o.rounds, o.epochs, o.batch, size) if o.rounds else train
    first, end = shard_begin(len(train), rank, size) + CONTEXT, shard_begin(len(train), rank + 1, size)

    model = Model(characters, o.seed)
    ddp = ujoin.DistributedDataParallel(model.params, model.grads, division="samples")
    opt = ujoin.ZeroRedundancyOptimizer(model.params, "adamw", lr=0.004, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01)
    join = ujoin.Join([ddp, opt])
    reports = rank == size - 1  # it has most to do, so it is the last to join
    before = evaluate(group, model, held_out, o.batch)
    if reports:
        print(f"held-out text before training: {before:.3f} bits per character", flush=True)
    for epoch in range(o.epochs):
        opt.set_hyper("lr", 0.004 * (o.epochs - epoch) / o.epochs)
        losses = []
        with join:
            for x in batches(shuffled(first, max(end - first, 0), o.seed, epoch, rank), o.batch):
                with ddp.iteration(samples=len(x)):
                    losses.append(model.forward(train, x) / len(x))
                    model.backward(ready=ddp.ready)
                opt.step()
        for number, loss in enumerate(losses[:5] if epoch == 0 else [], 1):
            print(f" round {number}: loss {loss:.6f}")
        if reports:
            print(f"epoch {epoch + 1}/{o.epochs}: loss {np.mean(losses):.3f}; joined after {join.rounds} rounds", flush=True)
    print(f" parameters sha256 {hashlib.sha256(model.flat.tobytes()).hexdigest()}")
    opt.save(pathlib.Path(o.out) / "model.safetensors", parts=ujoin.SavePart.PARAMETERS)
    after = evaluate(group, model, held_out, o.batch)
    if reports:
        order1 = order1_entropy(text, characters)
        print(f"held-out text after training: {after:.3f} bits per character; order-1 entropy {order1:.3f}")
        if not o.rounds and after >= order1:
            raise SystemExit("train_text: the model has not learned more than pairs of characters")


if __name__ == "__main__":
    main()
