#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models of the join protocol: every run of tests/models/runs.tsv by spin, and random traces of a model on the real board.
UJOIN_TEST_LONG=1: also the long runs (some take minutes and gigabytes).
models.py NAME...: only the runs whose model and flags contain one of them, short and long, and how many states each has."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from results import ROOT  # noqa: E402

MODELS = ROOT / "tests" / "models"
TRACES = 1000
# A short run fits into 4 GB, and two are made at a time; a long one has the machine for itself.
MEGABYTES = {"short": 4000, "long": 12000}
SECONDS = {"short": 300, "long": 3000}


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


def verify(model, flags, expected, length):
    """What is wrong with a run (nothing if it ends as expected), and what it looked at."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODELS / "words.h", folder)
        shutil.copy(MODELS / f"{model}.pml", folder)
        memory = f"-DMEMLIM={MEGABYTES[length]}"
        for command in (["spin", *flags, "-a", f"{model}.pml"],
                        ["gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=4096", memory, "-o", "pan", "pan.c"]):
            code, out = call(command, folder, 300)
            if code:
                return [f"{command[0]}: {out[-2000:]}"], ""
        _, out = call([pathlib.Path(folder) / "pan", "-m2000000"], folder, SECONDS[length])
    states = re.search(r"(\d+) states, stored", out)
    note = f"{states.group(1)} states" if states else ""
    complete = "Search not completed" not in out and "max search depth too small" not in out
    if expected == "ok" and not ("errors: 0" in out and complete):
        return ["an error was found, or the search was not complete:", *out.splitlines()[:12]], note
    if expected == "wrong" and "errors: 1" not in out:
        return ["the error that this rule must have was not found", *out.splitlines()[:12]], note
    return [], note


def run(runs, at_a_time):
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        results = pool.map(lambda one: verify(*one[:4]), runs)
        for (model, flags, expected, _, what), (problems, note) in zip(runs, results):
            tap.report(f"{model} {' '.join(flags)}: {expected}, {what}", problems, note)


def words_of_their_own():
    """The values that models and library have in common come from one list."""
    common = re.findall(r"^#define (\w+)", (MODELS / "words.h").read_text(), re.MULTILINE)
    models = sorted(MODELS.glob("*.pml"))
    problems = []
    for path in models:
        text = path.read_text()
        if '#include "words.h"' not in text:
            problems.append(f"{path.name} does not include words.h")
        problems += [f"{path.name} defines {name}, which is in words.h" for name in common
                     if re.search(rf"^\s*#\s*(define|undef)\s+{name}\b", text, re.MULTILINE)]
    problems += [f"no model uses {name} of words.h" for name in common
                 if not any(re.search(rf"\b{name}\b", path.read_text()) for path in models)]
    return problems


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
    runs = list(read_runs())
    chosen = [a for a in sys.argv[1:] if not a.startswith("-")]
    if chosen:
        run([one for one in runs if any(c in f"{one[0]} {' '.join(one[1])}" for c in chosen)], 1)
        tap.done()
    tap.report("what the models have in common with the library is in words.h", words_of_their_own())
    run([one for one in runs if one[3] == "short"], 2)
    if os.environ.get("UJOIN_TEST_LONG") == "1":
        run([one for one in runs if one[3] == "long"], 1)
    with tempfile.TemporaryDirectory() as folder:
        tap.report(f"the real board does what {TRACES} random runs of the model do", replay(folder))
    tap.done()


if __name__ == "__main__":
    main()
