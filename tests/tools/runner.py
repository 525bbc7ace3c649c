#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds and runs the tests of a build: every GoogleTest test in a process of its own, every cmocka program and every program
that speaks TAP as one unit. What each is held to stands in watched.py and tests/README.md."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import watched  # noqa: E402
from results import ROOT, Result, Results, matches, summary, table  # noqa: E402

SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
    "LSAN_OPTIONS": "print_suppressions=0",
}
TAP_LINE = re.compile(r"^(not )?ok\b(?: +(\d+))?(?: +(?:- )?(.*))?$")


def deadline_for(name, default, factor):
    seconds = default
    for pattern, value, *_ in table(ROOT / "tests" / "deadlines", 2):
        if matches(name, pattern):
            seconds = float(value)
    if os.environ.get("UJOIN_TEST_LONG"):
        seconds *= 10
    return seconds * factor


# ------------------------------------------------------------------------------------------------------- GoogleTest

class GoogleTest:
    """One test of a GoogleTest program."""

    def __init__(self, binary, name):
        self.binary, self.name = binary, name
        self.label = binary.name

    def run(self, options):
        if ".DISABLED_" in self.name or self.name.startswith("DISABLED_"):
            return [Result(self.name, self.label, "skipped", 0.0, "disabled in its source", time.time())]
        start = time.time()
        with tempfile.TemporaryDirectory(prefix="ujoin-report-") as place:
            report = pathlib.Path(place) / "report.xml"
            command = [str(self.binary), f"--gtest_filter={self.name}", f"--gtest_output=xml:{report}", "--gtest_color=no",
                       "--gtest_brief=0", f"--gtest_repeat={options.repeat}"]
            outcome = watched.run(command, deadline_for(self.name, options.deadline, options.factor) * options.repeat,
                                  options.environment, options.factor, cwd=options.build)
            kind, message = self.judge(outcome, report)
        result = Result(self.name, self.label, kind, outcome.seconds, message, start)
        result.marker = outcome.marker
        return [result]

    @staticmethod
    def judge(outcome, report):
        if outcome.late or outcome.faults or outcome.code != 0:
            faults = list(outcome.faults)
            if outcome.code < 0 and not outcome.late:
                faults.append(f"killed by signal {-outcome.code} ({signal.Signals(-outcome.code).name})")
            elif outcome.code > 0:
                faults.append(f"exit code {outcome.code}")
            noise = ("[----------]", "[==========]", "Note: ", "[  PASSED  ] 0", "[ RUN      ]")
            lines = [line for line in outcome.output.splitlines() if line.strip() and not line.startswith(noise)]
            return "failed", "\n".join(faults + lines)
        try:
            cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
            cases = [case for case in cases if case.get("status") == "run"]
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            return "failed", f"the program ended without its report ({error})\n" + outcome.output
        if not cases:
            return "failed", "no test of this name ran\n" + outcome.output
        skipped = cases[0].find("skipped")
        if cases[0].get("result") == "skipped" or skipped is not None:
            text = (skipped.text or skipped.get("message") or "") if skipped is not None else ""
            lines = [line for line in text.splitlines() if line.strip() and not re.match(r"^\S+:\d+$", line)]
            return "skipped", " ".join(lines)
        return "passed", ""


def list_google_tests(binary, env):
    done = subprocess.run([str(binary), "--gtest_list_tests"], capture_output=True, text=True, timeout=60, env=env, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{binary.name} --gtest_list_tests: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    suite, names = "", []
    for line in done.stdout.splitlines():
        text = line.split("#")[0].rstrip()
        if not text:
            continue
        if text.startswith("  "):
            names.append(suite + text.strip())
        elif text.endswith("."):
            suite = text
    return names


# -------------------------------------------------------------------------------------------------- programs with TAP

class TapProgram:
    """A program that reports its tests as TAP lines on its output: cmocka programs, scripts, checks."""

    def __init__(self, command, label, deadline=None, live=False):
        self.command, self.label, self.name = [str(c) for c in command], label, label
        self.deadline, self.live = deadline, live

    def run(self, options):
        start = time.time()
        env = dict(options.environment, CMOCKA_MESSAGE_OUTPUT="TAP")
        each = (lambda line: print("  " + line.rstrip(), flush=True)) if self.live else None
        seconds = (self.deadline * options.factor if self.deadline
                   else deadline_for(self.label, options.deadline, options.factor))
        outcome = watched.run(self.command, seconds, env, options.factor, each, cwd=options.build)
        results = parse_tap(outcome.output, self.label, start)
        failed = any(r.outcome == "failed" for r in results)
        text = list(outcome.faults)
        if outcome.code < 0 and not outcome.late:
            text.append(f"killed by signal {-outcome.code} ({signal.Signals(-outcome.code).name})")
        if outcome.code > 0 and not failed:
            text.append(f"exit code {outcome.code}")
        if text or not results:
            kind = "failed" if text else "passed"  # a program without TAP lines is one test, judged by its end
            message = "\n".join(text) + "\n" + outcome.output if text else ""
            results.append(Result(self.label, self.label, kind, outcome.seconds, message, start))
        for result in results:
            result.marker = outcome.marker
            if result.seconds == 0.0:
                result.seconds = outcome.seconds / len(results)
        return results


def parse_tap(output, label, start):
    """TAP as cmocka writes it (a skip is 'not ok N # SKIP name') and as the checks do ('ok - name', then lines with #)."""
    results, before, planned, numbered = [], [], 0, 0
    for line in output.splitlines():
        plan = re.match(r"^1\.\.(\d+)$", line)
        found = TAP_LINE.match(line)
        if plan:
            planned += int(plan.group(1))
        elif found:
            numbered += 1
            rest = (found.group(3) or "").strip()
            skip = re.match(r"^(.*?)#\s*SKIP\b\s*(.*)$", rest, re.IGNORECASE)
            if skip:
                name, reason = skip.group(1).strip(), skip.group(2).strip()
                said = [t[5:].strip() for t in before if t.startswith("skip:")]
                if not name:  # cmocka has the name there, and no reason
                    name, reason = reason, said[-1] if said else "no reason given"
                results.append(Result(name, label, "skipped", 0.0, reason, start))
            elif found.group(1):
                results.append(Result(rest or label, label, "failed", 0.0, "\n".join(before), start))
            else:
                results.append(Result(rest or label, label, "passed", 0.0, "", start))
            before = []
        elif line.startswith("#") and results and not before and results[-1].outcome != "failed":
            if line.startswith("#!"):  # a remark for the user on a test that passed; others are for whoever runs it by hand
                results[-1].message += ("\n" if results[-1].message else "") + line[2:].strip()
        elif line.startswith("#") and results and not before:
            results[-1].message += ("\n" if results[-1].message else "") + line[1:].strip("\n").removeprefix(" ")
        else:
            before.append(line)
    if planned > numbered:
        results.append(Result(f"{label}.plan", label, "failed", 0.0,
                              f"planned {planned} tests, but only {numbered} ran\n" + "\n".join(before), start))
    return results


# ----------------------------------------------------------------------------------------------------------- running

def discover(build, env):
    """All units of a build: its programs, and for the build that the user has also the scripts of tests/scripts."""
    units, binaries = [], []
    for binary in sorted((build / "tests" / "bin").glob("*_gtest")):
        units += [GoogleTest(binary, name) for name in list_google_tests(binary, env)]
        binaries.append(binary)
    for binary in sorted((build / "tests" / "bin").glob("*_cmocka")):
        units.append(TapProgram([binary], binary.name))
        binaries.append(binary)
    for script in sorted((ROOT / "tests" / "scripts").glob("*")) if build.name == "dev" else ():
        if script.is_file() and os.access(script, os.X_OK):
            units.append(TapProgram([script], script.name))
    return units, binaries


def run_units(units, options, results):
    watched.prepare()
    markers = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for batch in concurrent.futures.as_completed([pool.submit(unit.run, options) for unit in units]):
            for result in batch.result():
                markers[getattr(result, "marker", "")] = result.name
                results.add(result)
    orphans = watched.unmarked_orphans()
    if orphans:
        text = "; ".join(watched._command_of(pid) for pid in orphans)
        results.add(Result("run.orphans", "runner", "failed", 0.0, "processes left without the marker (killed now): " + text))
        watched._kill(orphans)
    for name, makers in watched.shm_left_at_the_end().items():
        suspects = ", ".join(sorted(markers.get(m, m) for m in makers))
        results.add(Result("run.shared_memory", "runner", "failed", 0.0, f"/dev/shm/{name} was left by one of: {suspects}"))
        watched.remove_shm(name)


class Options:
    """How units run."""

    def __init__(self, build, deadline=70.0, factor=1.0, jobs=2, repeat=1):
        self.build, self.deadline, self.factor, self.jobs, self.repeat = build, deadline, factor, jobs, repeat
        self.environment = dict(SANITIZERS, UJOIN_TEST_BUILD=str(build), UJOIN_TEST_SOURCE=str(ROOT))


def run_build(options, results, pattern=None):
    """Runs the tests of a build whose name matches `pattern`, and returns their number."""
    env = dict(watched.clean_environment(), **options.environment)
    try:
        units, binaries = discover(options.build, env)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        results.add(Result("run.discover", "runner", "failed", 0.0, str(error)))
        return 0
    if pattern:
        units = [unit for unit in units if matches(unit.name, pattern)]
    results.header(build=options.build.name, pattern=pattern, binaries=[b.name for b in binaries])
    if not units:
        results.add(Result("run.discover", "runner", "failed", 0.0, f"no tests in {options.build}/tests/bin" +
                           (f" match {pattern}" if pattern else "")))
    run_units(units, options, results)
    return len(units)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset", nargs="?", default="dev", help="the build in build/<preset> (default dev)")
    parser.add_argument("--filter", help="only tests whose whole name matches, e.g. 'ZeroRows.*'")
    parser.add_argument("--factor", type=float, default=1.0, help="for slow builds: deadlines and UJOIN_TEST_SLACK times this")
    parser.add_argument("--deadline", type=float, default=70.0,
                        help="seconds for a test (default 70: the harness gives up after 60 and names the ranks that hang)")
    parser.add_argument("--jobs", type=int, default=2, help="tests at the same time (default 2)")
    parser.add_argument("--repeat", type=int, default=1, help="run each GoogleTest test so many times")
    parser.add_argument("--verbose", action="store_true", help="also print the tests that pass")
    args = parser.parse_args()
    options = Options(ROOT / "build" / args.preset, args.deadline, args.factor, args.jobs, args.repeat)
    whole = args.filter is None
    path = options.build / ("results.jsonl" if whole else "results-filtered.jsonl")
    results = Results(path, str(uuid.uuid4()), args.verbose)
    run_build(options, results, args.filter)
    results.close()
    print(summary(results.counts()))
    return 1 if results.counts()[1] else 0


if __name__ == "__main__":
    sys.exit(main())
