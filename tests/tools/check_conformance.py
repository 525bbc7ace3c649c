#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/conformance/rows.tsv against this run: a row holds only if a test that carries its id ran and passed.
The ids are read from test names: ZeroRows.Z_01_one_step carries Z-01. Reads what the stages `tests` and `checks` wrote."""
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from results import ROOT, table  # noqa: E402

ROWS = ROOT / "tests" / "conformance" / "rows.tsv"
CASES = "JOIN|ZERO|DDP|COLLECTIVES|LAUNCHER|LOGGING|ERRORS|BINDINGS|PACKAGING|SECURITY"
ID = re.compile(rf"(?<![A-Za-z0-9])([JDZOPER]|{CASES})_(\d\d)(?!\d)")
ID_TEXT = re.compile(rf"^(?:[JDZOPER]|{CASES})-\d\d$")
STATUS = re.compile(r"^(holds|open|superseded by \S.*|language: (python|go|rust)|not applicable: \S.*)$")
MUST_PROGRESS = ("holds", "superseded")


def ids_in(name):
    return {f"{family}-{number}" for family, number in ID.findall(name)}


def read_results(path, build, problems):
    """id -> names of passed tests, id -> names of failed ones."""
    good, bad = {}, {}
    if not path.exists():
        problems.append(f"{path.relative_to(ROOT)} is missing: run tests/run")
        return good, bad
    records = [json.loads(line) for line in path.read_text().splitlines()]
    head = records[0] if records else {}
    if "start" not in head or head.get("pattern"):
        problems.append(f"{path.relative_to(ROOT)} is not of a whole run: run tests/run without --filter")
        return good, bad
    if len({r["run"] for r in records}) != 1:
        problems.append(f"{path.relative_to(ROOT)} mixes several runs: run tests/run")
    for program in sorted((build / "tests" / "bin").glob("*")):
        if program.name.endswith(("_gtest", "_cmocka")) and program.stat().st_mtime > head["start"]:
            problems.append(f"{program.name} is newer than {path.relative_to(ROOT)}: run tests/run")
    library = build / "lib" / "libujoin.so"
    if library.exists() and library.stat().st_mtime > head["start"]:
        problems.append(f"libujoin.so is newer than {path.relative_to(ROOT)}: run tests/run")
    for record in records[1:]:
        for row in ids_in(record.get("name", "")):
            target = good if record["outcome"] == "passed" else bad
            target.setdefault(row, []).append(record["name"])
    return good, bad


def judge(row, status, good, bad):
    problems = []
    if not ID_TEXT.match(row):
        problems.append(f"{row}: not an id")
    if not STATUS.match(status):
        problems.append(f"{row}: unknown status '{status}'")
    if row in bad and row not in good and status.startswith(MUST_PROGRESS):
        problems.append(f"{row} is '{status}', but its tests failed or were skipped: {', '.join(bad[row])}")
    elif row in bad and status.startswith(MUST_PROGRESS):
        problems.append(f"{row}: not all of its tests passed: {', '.join(bad[row])}")
    elif row not in good and status.startswith(MUST_PROGRESS):
        problems.append(f"{row} is '{status}', but no test whose name has {row.replace('-', '_')} ran")
    return problems


def main():
    build = ROOT / "build" / "dev"
    stale, good, bad = [], {}, {}
    for name in ("results.jsonl", "results-checks.jsonl"):
        g, b = read_results(pathlib.Path(os.environ.get("UJOIN_RESULTS_DIR", build)) / name, build, stale)
        for found, total in ((g, good), (b, bad)):
            for row, names in found.items():
                total.setdefault(row, []).extend(names)
    tap.report("conformance.results_are_of_this_run", stale)
    rows = table(ROWS, 4)
    listed = [row[0] for row in rows]
    odd = [f"{row} is listed twice" for row in sorted({r for r in listed if listed.count(r) > 1})]
    odd += [f"{', '.join(names)}: {row} is not in rows.tsv" for row, names in sorted({**good, **bad}.items()) if row not in listed]
    tap.report("conformance.rows_are_known", odd)
    families = {}
    for row, _, status, _ in rows:
        families.setdefault(row.split("-")[0], []).append((row, status))
    for family, members in families.items():
        problems, held, ready = [], 0, []
        for row, status in members:
            problems += judge(row, status, good, bad)
            held += status.startswith(MUST_PROGRESS)
            if status == "open" and row in good and row not in bad:
                ready.append(row)
        note = f"{held} of {len(members)} rows hold or are superseded"
        shown = f"open, but with a test that passes: {', '.join(ready)}" if ready else ""
        tap.report(f"conformance.{family}", problems, note, shown)
    tap.done()


if __name__ == "__main__":
    main()
