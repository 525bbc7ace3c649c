#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that harness and runner catch what they are there to catch: runs tests that do it (tests/selftest)."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runner  # noqa: E402
import tap  # noqa: E402
from results import ROOT, Result, Results  # noqa: E402

# Test -> outcome and a part of its message.
EXPECTED = {
    "good": ("passed", ""),
    "good_threads": ("passed", ""),
    "good_processes": ("passed", ""),
    "good_expected_death": ("passed", ""),
    "skips": ("skipped", "for a reason"),
    "leaves_descriptor": ("failed", "-> /dev/null"),
    "leaves_descriptor_in_rank": ("failed", "in the process of rank 1: descriptors left open"),
    "leaves_process": ("failed", "processes left running"),
    "leaves_process_without_environment": ("passed", ""),  # cannot be told apart: run.orphans has it
    "leaves_file": ("failed", "files left in TMPDIR: left"),
    "leaves_shared_memory": ("either", ""),  # itself, or run.shared_memory when others ran at the same time
    "hangs": ("failed", "ran past its deadline"),
    "hangs_in_thread": ("failed", "of 3 ranks these hang: 1"),
    "hangs_in_process": ("failed", "of 3 ranks these hang: 2"),
    "fails_in_thread": ("failed", "rank 2"),
    "fails_in_process": ("failed", "in the process of rank 2"),
    "throws_in_process": ("failed", "thrown by a rank"),
    "dies_in_process": ("failed", "rank 1 was killed by signal 11"),
    "exits_in_process": ("failed", "rank 1 ended by itself with exit code 0"),
    "exits": ("failed", "ended without its report"),
    "crashes": ("failed", "SIGABRT"),
}
TAP = """#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
echo 1..4
echo "ok 1 - tap_good"
echo "not ok 2 - tap_bad"
echo "# for this reason"
echo "skip: no such device"
echo "not ok 3 # SKIP tap_skipped"
"""


def run_all(build):
    path = build / "results.jsonl"
    with contextlib.redirect_stdout(io.StringIO()):
        results = Results(path, "selftest")
        results.strict = False
        runner.run_build(runner.Options(build, factor=0.05, jobs=4), results)
        results.close()
    return {r.name: r for r in results.items}, path


def wrong(found, name, outcome, part):
    result = found.get(name)
    if result is None:
        return [f"{name} has no result"]
    if outcome != "either" and result.outcome != outcome:
        return [f"{name}: expected {outcome}, got {result.outcome}", result.message]
    if part not in result.message:
        return [f"{name}: its message lacks '{part}':", result.message]
    return []


def check_skips():
    """CI=true: a skip that nobody expects is a failure."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        results = Results(pathlib.Path(place) / "r.jsonl", "selftest")
        results.strict, results.expected_skips = True, [["Known.*", "no such device here"]]
        results.add(Result("Known.one", "x", "skipped"))
        results.add(Result("Unknown.one", "x", "skipped"))
        results.close()
    outcomes = [r.outcome for r in results.items]
    return [] if outcomes == ["skipped", "failed"] else [f"outcomes {outcomes}"]


def main():
    program = ROOT / "build" / "dev" / "tests" / "bin" / "harness_selftest"
    if not program.exists():
        tap.report("selftest.built", [f"{program.relative_to(ROOT)} is not built"])
        tap.done()
    with tempfile.TemporaryDirectory(prefix="ujoin-selftest-") as place:
        build = pathlib.Path(place)
        (build / "tests" / "bin").mkdir(parents=True)
        shutil.copy2(program, build / "tests" / "bin" / "selftest_gtest")
        fake = build / "tests" / "bin" / "fake_cmocka"
        fake.write_text(TAP)
        os.chmod(fake, 0o755)
        found, path = run_all(build)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    for name, (outcome, part) in EXPECTED.items():
        tap.report(f"selftest.{name}", wrong(found, f"Selftest.{name}", outcome, part))
    caught = [n for n in ("Selftest.leaves_shared_memory", "run.shared_memory") if n in found and found[n].outcome == "failed"]
    tap.report("selftest.shared_memory_is_found", [] if caught else ["nobody noticed the segment"])
    tap.report("selftest.orphan_without_marker", wrong(found, "run.orphans", "failed", "sleep 1000"))
    tap.report("selftest.tap", wrong(found, "tap_good", "passed", "") + wrong(found, "tap_bad", "failed", "for this reason") +
               wrong(found, "tap_skipped", "skipped", "no such device") + wrong(found, "fake_cmocka.plan", "failed", "only 3 ran"))
    tap.report("selftest.unexpected_skip", check_skips())
    known = set(found) | {None}
    tap.report("selftest.results_file", [f"{line} is odd" for line in lines if line.get("name") not in known] +
               ([] if len(lines) == len(found) + 1 and "binaries" in lines[0] else [f"{len(lines)} lines, {len(found)} results"]))
    tap.done()


if __name__ == "__main__":
    main()
