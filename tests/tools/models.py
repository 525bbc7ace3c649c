#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models of the join protocol: every run of tests/models/runs.tsv by spin, and random traces of a model on the real board.
UJOIN_TEST_LONG=1: also the long runs (some take minutes and gigabytes)."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from results import ROOT  # noqa: E402

MODELS = ROOT / "tests" / "models"
TRACES = 1000


def read_runs():
    for line in (MODELS / "runs.tsv").read_text().splitlines():
        if line and not line.startswith("#"):
            model, flags, expected, length, what = line.split("\t")
            yield model, flags.split(), expected, length, what


def call(command, folder, limit):
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} took longer than {limit} s"
    return done.returncode, done.stdout


def verify(model, flags, expected, folder, limit):
    """What is wrong with a run; nothing if it ends as expected."""
    shutil.copy(MODELS / "words.h", folder)
    shutil.copy(MODELS / f"{model}.pml", folder)
    for command in (["spin", *flags, "-a", f"{model}.pml"],
                    ["gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=4096", "-DMEMLIM=15000", "-o", "pan", "pan.c"]):
        code, out = call(command, folder, 300)
        if code:
            return [f"{command[0]}: {out[-2000:]}"]
    _, out = call([pathlib.Path(folder) / "pan", "-m2000000"], folder, limit)
    complete = "Search not completed" not in out and "max search depth too small" not in out
    if expected == "ok" and not ("errors: 0" in out and complete):
        return ["an error was found, or the search was not complete:", *out.splitlines()[:12]]
    if expected == "wrong" and "errors: 1" not in out:
        return ["the error that this rule must have was not found", *out.splitlines()[:12]]
    return []


def traces(count, folder):
    """Random runs of the model of uses, as lines for the program that replays them."""
    shutil.copy(MODELS / "words.h", folder)
    shutil.copy(MODELS / "uses.pml", folder)
    lines = []
    for seed in range(1, count + 1):
        ranks = 2 + seed % 2
        flags = [f"-DW={ranks}", "-DROUNDS=7", "-DR=16", "-DACOLL=0", "-DTRACE"]
        code, out = call(["spin", f"-n{seed}", "-T", "-B", *flags, "uses.pml"], folder, 60)
        steps = [line.strip() for line in out.splitlines() if line.strip().startswith("@")]
        if code or "assertion" in out or not steps:
            return None, out
        lines += [f"begin {ranks} {seed}", *(step[1:] for step in steps), "end"]
    return lines, ""


def replay(folder):
    program = ROOT / "build" / "dev" / "tests" / "bin" / "model_replay"
    if not program.exists():
        return [f"{program.relative_to(ROOT)} is missing: build the tests"]
    lines, problem = traces(TRACES, folder)
    if lines is None:
        return ["spin: " + problem[-2000:]]
    path = pathlib.Path(folder) / "traces"
    path.write_text("\n".join(lines) + "\n")
    code, out = call([program, path], folder, 600)
    return [] if code == 0 and out.strip() == f"{TRACES} traces" else out.splitlines()[-20:]


def main():
    if not shutil.which("spin"):
        tap.report("spin is there", ["the package spin is not installed"])
        tap.done()
    long = os.environ.get("UJOIN_TEST_LONG") == "1"
    for model, flags, expected, length, what in read_runs():
        if length == "long" and not long:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tap.report(f"{model} {' '.join(flags)}: {expected}, {what}",
                       verify(model, flags, expected, folder, 3000 if long else 300))
    with tempfile.TemporaryDirectory() as folder:
        tap.report(f"the real board does what {TRACES} random runs of the model do", replay(folder))
    tap.done()


if __name__ == "__main__":
    main()
