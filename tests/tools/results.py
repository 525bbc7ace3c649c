# SPDX-License-Identifier: Apache-2.0
"""Results of tests: one record a test, kept as JSON lines, counted and judged here."""
import dataclasses
import fnmatch
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cached_in(tree):
    """The environment in which a compiler cache knows a file of one copy of the tree for that of another: also where warnings
    are no errors there, as in mutants."""
    return {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1", "CCACHE_IGNOREOPTIONS": "-Werror",
            "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}


@dataclasses.dataclass
class Result:
    name: str
    binary: str
    outcome: str  # passed, failed, skipped
    seconds: float = 0.0
    message: str = ""
    start: float = 0.0


def table(path, columns):
    """Rows of a file with tab-separated columns; empty lines and lines that begin with # are left out."""
    rows = []
    if not path.exists():
        return rows
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) < columns:
            raise SystemExit(f"{path}:{number}: expected {columns} columns separated by tabs, found {len(cells)}")
        rows.append([cell.strip() for cell in cells])
    return rows


def matches(name, pattern):
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


class Results:
    """Collects results, writes them as JSON lines, prints what a person must see."""

    def __init__(self, path, run_id, verbose=False):
        self.run_id = run_id
        self.verbose = verbose
        self.items = []
        self.expected_skips = table(ROOT / "tests" / "expected_skips", 2)
        self.strict = os.environ.get("CI", "").lower() == "true"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w")

    def header(self, **facts):
        self.file.write(json.dumps({"run": self.run_id, "start": time.time(), **facts}) + "\n")
        self.file.flush()

    def add(self, result):
        if result.outcome == "skipped" and self.strict:
            if not any(matches(result.name, row[0]) for row in self.expected_skips):
                result.outcome = "failed"
                result.message = ("skipped, which tests/expected_skips does not allow: " + result.message)
        self.items.append(result)
        record = {"run": self.run_id, **dataclasses.asdict(result)}
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        if result.outcome == "failed":
            print(f"FAILED {result.name} ({result.binary}, {result.seconds:.1f} s)")
            print("    " + result.message.rstrip().replace("\n", "\n    "))
        elif result.outcome == "skipped":
            print(f"skipped {result.name}: {result.message.strip() or 'no reason given'}")
        elif result.message:
            print(f"note {result.name}: " + result.message.replace("\n", "\n    "))
        elif self.verbose:
            print(f"passed {result.name} ({result.seconds:.1f} s)")
        sys.stdout.flush()

    def counts(self):
        return tuple(sum(1 for r in self.items if r.outcome == o) for o in ("passed", "failed", "skipped"))

    def close(self):
        self.file.close()


def summary(counts):
    return "{} passed, {} failed, {} skipped".format(*counts)
