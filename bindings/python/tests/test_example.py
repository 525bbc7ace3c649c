# SPDX-License-Identifier: Apache-2.0
"""The text trainer: its vectors, and the same parameters as the one in C."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from conftest import DEADLINE, ujoin_run

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "python" / "train_text.py"
PREFIX = pathlib.Path(os.environ.get("UJOIN_PREFIX") or ROOT / "build" / "prefix")
WORDS = b"the join of many ranks is even when their work was not and each one waits".split()
FIRST_LOSSES = {
    (1, 0): [3.046462, 2.828701, 2.617976, 2.557338, 2.427562],
    (2, 0): [3.028352, 2.823070, 2.532813, 2.379327, 2.388253],
    (2, 1): [3.078139, 2.844261, 2.633875, 2.460698, 2.331491],
    (3, 0): [3.048656, 2.859630, 2.484948, 2.286379, 2.495000],
    (3, 1): [3.062490, 2.737022, 2.581745, 2.517435, 2.374272],
    (3, 2): [3.050559, 2.759442, 2.581850, 2.437127, 2.319088],
}


@functools.cache
def example() -> Any:
    spec = importlib.util.spec_from_file_location("train_text", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def word_text() -> bytes:
    state, text, count = 7, b"", 0
    while len(text) < 40_000:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        count += 1
        text += WORDS[(z ^ (z >> 31)) >> 60] + (b" " if count % 12 else b".\n")
    return text[:40_000]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_bytes(word_text())
    assert (
        hashlib.sha256(path.read_bytes()).hexdigest() == "d740a8c83c72052a09ec2d213cfcf51ec736b86576d1d56229b3a96fc8a7ab59"
    )
    return path


def train(program: list[str], ranks: int, text: pathlib.Path, out: pathlib.Path, *options: str) -> list[str]:
    """Starts the ranks; what each of them wrote."""
    command = [
        ujoin_run(),
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        "--log-dir",
        str(out / "logs"),
        "--redirects",
        "3",
    ]
    done = subprocess.run(
        [*command, *program, "--text", str(text), "--out", str(out), *options],
        capture_output=True, text=True, timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    logs = [(out / "logs" / "latest" / str(rank) / "stdout.log").read_text() for rank in range(ranks)]
    errors = [(out / "logs" / "latest" / str(rank) / "stderr.log").read_text() for rank in range(ranks)]
    assert done.returncode == 0, (done.stderr, errors)
    return logs


def fingerprints(logs: list[str]) -> set[str]:
    return {match[1] for log in logs for match in re.finditer(r" parameters sha256 ([0-9a-f]{64})", log)}


def parameters(path: pathlib.Path) -> dict[str, Any]:
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[slice(*facts["data_offsets"])], np.float32).reshape(facts["shape"])
        for name, facts in header.items()
    }


def test_chance_and_text() -> None:
    e = example()
    assert [f"{n:016x}" for n in e.random_numbers(42, 0, 3)] != []
    first = e.random_numbers(42, 0, 3) >> np.uint64(40)
    assert (2 * first.astype(np.float32) / 2**24 - 1).tolist() == pytest.approx([-0.313416243, 0.911493421, -0.0273009539])
    assert e.shuffled(0, 10, 42, 0, 0).tolist() == [8, 7, 9, 0, 1, 2, 5, 6, 4, 3]
    assert word_text().startswith(b"even the one work when")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_first_losses(ranks: int, text: pathlib.Path, tmp_path: pathlib.Path) -> None:
    logs = train([str(EXAMPLE)], ranks, text, tmp_path, "--epochs", "1")
    for rank, log in enumerate(logs):
        losses = [float(match[1]) for match in re.finditer(r"round \d: loss ([\d.]+)", log)]
        assert losses == pytest.approx(FIRST_LOSSES[ranks, rank], abs=2e-5)
    assert "before training: 4.412 bits" in logs[-1]
    assert "order-1 entropy 1.909" in logs[-1]
    assert len(fingerprints(logs)) == 1


@pytest.fixture(scope="module")
def c_trainer(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = tmp_path_factory.mktemp("c") / "train_text"
    flags = ["-std=c99", "-O2", "-ffp-contract=off", f"-I{PREFIX}/include", f"-L{PREFIX}/lib", f"-Wl,-rpath,{PREFIX}/lib"]
    subprocess.run(["cc", *flags, str(ROOT / "examples" / "train_text.c"), "-o", str(program), "-lujoin", "-lm"], check=True)
    return str(program)


def test_same_parameters_as_in_c(c_trainer: str, text: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Two epochs on the word text are 314 rounds of rank 1."""
    logs = train([str(EXAMPLE)], 2, text, tmp_path / "python", "--epochs", "2")
    assert "joined after [125, 157] rounds" in logs[1]
    assert len(fingerprints(logs)) == 1
    assert len(fingerprints(train(["--no-python", c_trainer], 2, text, tmp_path / "c", "--epochs", "2"))) == 1
    mine, theirs = (parameters(tmp_path / which / "model.safetensors") for which in ("python", "c"))
    assert {name: value.shape for name, value in mine.items()} == {name: value.shape for name, value in theirs.items()}
    difference = sum(float(((mine[n].astype(np.float64) - theirs[n]) ** 2).sum()) for n in theirs)
    length = sum(float((theirs[n].astype(np.float64) ** 2).sum()) for n in theirs)
    assert (difference / length) ** 0.5 <= 1e-4


def test_one_job_in_two_languages(c_trainer: str, text: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Rank 0 in C, rank 1 in Python: one group, and the same bits at the end."""
    script = tmp_path / "mixed.sh"
    script.write_text(
        f'#!/bin/sh\n[ "$RANK" = 0 ] && exec {c_trainer} "$@"\nexec {sys.executable} {EXAMPLE} "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    logs = train(["--no-python", str(script)], 2, text, tmp_path / "out", "--epochs", "1")
    assert len(fingerprints(logs)) == 1
    assert all("parameters sha256" in log for log in logs)


def test_rounds_cut_the_text(text: pathlib.Path, tmp_path: pathlib.Path) -> None:
    logs = train([str(EXAMPLE)], 2, text, tmp_path, "--epochs", "2", "--rounds", "20")
    assert "], " not in logs[0]
    assert re.search(r"joined after \[\d, 10\] rounds", logs[1])


def test_the_example_is_short_and_public() -> None:
    source = EXAMPLE.read_text()
    assert len(source.splitlines()) <= 200
    assert not re.search(r"ujoin\._|\._handle", source)


def test_the_program_of_the_readme(tmp_path: pathlib.Path) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "bindings" / "python" / "README.md").read_text(), re.DOTALL)
    assert block is not None
    (tmp_path / "train.py").write_text(block[1])
    done = subprocess.run(
        [ujoin_run(), "--standalone", "--nproc-per-node", "2", str(tmp_path / "train.py")],
        capture_output=True, text=True, timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank [01]: y = (?:3\.0|2\.9)\d+ x \+ (?:1\.0|0\.9)\d+", done.stdout)) == 2
