#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The names that the header declares, the version map lists and the library exports are the same."""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import header  # noqa: E402
import tap  # noqa: E402
from results import ROOT  # noqa: E402

LIBRARY = ROOT / "build" / "dev" / "lib" / "libujoin.so"


def difference(left, left_name, right, right_name):
    return ([f"{name} is in {left_name} but not in {right_name}" for name in sorted(set(left) - set(right))] +
            [f"{name} is in {right_name} but not in {left_name}" for name in sorted(set(right) - set(left))])


def main():
    declared = header.functions()
    text = (ROOT / "src" / "libujoin.map").read_text()
    exported_part = text.split("global:", 1)[1].split("local:", 1)[0]
    mapped = re.findall(r"^\s*(\S+);", exported_part, re.MULTILINE)
    tap.report("names.map_is_exact", [f"src/libujoin.map: {name} is a pattern; list every name by itself"
                                      for name in mapped if not re.fullmatch(r"\w+", name)] +
               [f"src/libujoin.map lists {name} twice" for name in sorted({n for n in mapped if mapped.count(n) > 1})])
    tap.report("names.header_is_map", difference(declared, "include/ujoin.h", mapped, "src/libujoin.map"))
    tap.report("names.families", [f"{name}: an exported name begins with ujoin_, zero_ or pctx_" for name in declared
                                  if not name.startswith(("ujoin_", "zero_", "pctx_"))])
    done = subprocess.run(["nm", "-D", "--defined-only", str(LIBRARY)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tap.report("names.library_is_map", [f"nm {LIBRARY}: {done.stderr}"])
        tap.done()
    symbols = [line.split() for line in done.stdout.splitlines()]
    exported = [s[-1].split("@")[0] for s in symbols if s[-2] != "A"]  # A: the version node
    tap.report("names.library_is_map", difference(exported, "libujoin.so", mapped, "src/libujoin.map"))
    tap.report("names.no_cpp_exported", [f"{name} is a C++ name, exported by libujoin.so" for name in exported
                                         if name.startswith("_Z")])
    tap.report("names.versioned", [f"{s[-1]} carries no version" for s in symbols if s[-2] != "A" and "@" not in s[-1]])
    tap.done()


if __name__ == "__main__":
    main()
