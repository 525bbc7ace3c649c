#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stages of tests/run: what each does, its budget, and the order. The last line has the sum over all of them."""
import argparse
import os
import pathlib
import subprocess
import sys
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from results import ROOT, Result, Results, cached_in, summary  # noqa: E402
from runner import Options, TapProgram, run_build, run_units  # noqa: E402

TOOLS = ROOT / "tests" / "tools"
# The order matters only for `conformance`, which reads the results of `tests` and `checks`.
CHECKS = ["check_selftest.py", "check_includes.py", "check_names.py", "check_abi.py", "check_header.py", "check_text.py",
          "check_consumers.py"]


def build(preset, results, *targets):
    """Configures and builds; quiet unless it fails. One result."""
    start = time.time()
    log = ""
    commands = [["cmake", "--preset", preset],
                ["cmake", "--build", "--preset", preset, "--parallel", str(jobs())] + (["--target", *targets] if targets else [])]
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
        log += done.stdout
        if done.returncode != 0:
            lines = [line for line in log.splitlines() if not line.startswith(("-- ", "["))]
            results.add(Result(f"build.{preset}", "cmake", "failed", time.time() - start, "\n".join(lines[-200:]), start))
            return False
    results.add(Result(f"build.{preset}", "cmake", "passed", time.time() - start, "", start))
    return True


def jobs():
    return max(1, len(os.sched_getaffinity(0)))


class Stage:
    """A name, a budget in minutes, and what to do."""

    def __init__(self, name, budget, what, needs=(), also_short=False):
        self.name, self.budget, self.what, self.needs, self.also_short = name, budget, what, needs, also_short


def build_and_test(preset, factor):
    def work(results, options):
        if build(preset, results):
            run_build(Options(ROOT / "build" / preset, factor=factor), results, options.filter)
    return work


def programs(*names, live=False, budget=None):
    def work(results, options):
        results.header(build="dev", pattern=None, binaries=list(names))
        for name in names:
            path = ROOT / name if "/" in name else TOOLS / name
            if not path.exists():
                results.add(Result(name, name, "failed", 0.0, f"{path.relative_to(ROOT)} does not exist"))
                continue
            extra = ["--all"] if options.all else []
            unit = TapProgram([path, *extra], path.stem, deadline=budget, live=live)
            run_units([unit], Options(ROOT / "build" / "dev", deadline=300, jobs=1), results)
    return work


def clang(results, options):
    """All of the library; of the tests those that need no compiler twice: what it computes, and what C programs see."""
    names = ["unit_gtest"] + [f"{path.stem}_cmocka" for path in sorted((ROOT / "tests" / "api").glob("*.c"))]
    if build("clang", results, *names):
        run_build(Options(ROOT / "build" / "clang"), results, options.filter)


def dev_build(results, options):
    build("dev", results)


def folder(name, before=None):
    """Every program in tests/<name>, one after the other; `before` is run first."""
    def work(results, options):
        found = sorted(p for p in (ROOT / "tests" / name).glob("*") if p.is_file() and os.access(p, os.X_OK))
        results.header(build="dev", pattern=None, binaries=[p.name for p in found])
        if before and not run_quietly(before, results):
            return
        units = [TapProgram([p], p.name, deadline=900) for p in found]
        run_units(units, Options(ROOT / "build" / "dev", jobs=1), results)
    return work


def run_quietly(program, results):
    """One result."""
    start = time.time()
    done = subprocess.run([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    outcome = "failed" if done.returncode else "passed"
    results.add(Result(program.stem, program.name, outcome, time.time() - start, done.stdout, start))
    return outcome == "passed"


STAGES = [
    Stage("build", 4, dev_build, also_short=True),
    Stage("tests", 6, lambda results, options: run_build(Options(ROOT / "build" / "dev"), results, options.filter),
          needs=("build",), also_short=True),
    Stage("checks", 1, programs(*CHECKS), needs=("build",), also_short=True),
    Stage("conformance", 1, programs("check_conformance.py"), also_short=True),
    Stage("clang", 4, clang),
    Stage("asan", 16, build_and_test("asan", 3.0)),
    Stage("tsan", 12, build_and_test("tsan", 5.0)),
    Stage("format", 1, programs("check_format.sh")),
    Stage("tidy", 6, programs("check_tidy.py", budget=1200), needs=("build",)),
    Stage("mutants", 15, programs("mutants", live=True, budget=3600), needs=("build",)),
    Stage("models", 12, programs("models.py", live=True, budget=7200), needs=("build",)),
    Stage("bindings", 12, folder("bindings", before=TOOLS / "prefix"), needs=("build",)),
    Stage("peers", 6, folder("peers"), needs=("build",)),
]


def run_stage(stage, options):
    print(f"== {stage.name} (budget {stage.budget} min)", flush=True)
    start = time.time()
    # `tests` of the dev build has the file that the runner writes too: the conformance check reads it.
    place = ROOT / "build" / (stage.name if stage.name in ("clang", "asan", "tsan") else "dev")
    name = "results.jsonl" if stage.name in ("tests", "clang", "asan", "tsan") else f"results-{stage.name}.jsonl"
    if options.filter:
        name = "results-filtered.jsonl"
    results = Results(place / name, options.run_id, options.verbose)
    try:
        stage.what(results, options)
    finally:
        results.close()
    minutes = (time.time() - start) / 60
    over = "" if minutes <= stage.budget else f", OVER its budget of {stage.budget} min"
    print(f"== {stage.name}: {summary(results.counts())}, {minutes:.1f} min{over}", flush=True)
    return results


def finish(all_results, start):
    totals = [sum(counts) for counts in zip(*(r.counts() for r in all_results))] or [0, 0, 0]
    failed = [r.name for results in all_results for r in results.items if r.outcome == "failed"]
    if failed:
        print("failed: " + ", ".join(failed))
    print(f"total {(time.time() - start) / 60:.1f} min")
    print(summary(totals), flush=True)
    return 1 if totals[1] else 0


def main():
    parser = argparse.ArgumentParser(prog="tests/run", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all stages")
    parser.add_argument("--list", action="store_true", help="name the stages and their budgets")
    parser.add_argument("--stage", action="append", default=[], metavar="NAME", help="only this one, with what it needs")
    parser.add_argument("--filter", metavar="PATTERN", help="only tests whose whole name matches, e.g. 'ZeroRows.*'")
    parser.add_argument("--long", action="store_true", help="the long versions of tests")
    parser.add_argument("--verbose", action="store_true", help="also print the tests that pass")
    options = parser.parse_args()
    options.run_id = str(uuid.uuid4())
    os.environ.update(cached_in(ROOT))
    by_name = {stage.name: stage for stage in STAGES}
    if options.list:
        for stage in STAGES:
            print(f"{stage.name}\t{stage.budget} min\t{'always' if stage.also_short else '--all'}")
        return 0
    unknown = [name for name in options.stage if name not in by_name]
    if unknown:
        parser.error(f"no stage {', '.join(unknown)}; there are {', '.join(by_name)}")
    wanted = set(options.stage)
    for name in options.stage:
        wanted.update(by_name[name].needs)
    if options.long:
        os.environ["UJOIN_TEST_LONG"] = "1"
    start = time.time()
    chosen = [s for s in STAGES if (s.name in wanted if wanted else options.all or s.also_short)]
    done = []
    for stage in chosen:
        done.append(run_stage(stage, options))
        if stage.name == "build" and done[-1].counts()[1]:
            print("the build failed: the other stages did not run")
            break
    return finish(done, start)


if __name__ == "__main__":
    sys.exit(main())
