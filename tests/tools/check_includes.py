#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes go one way: which folder of src may include which."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from results import ROOT  # noqa: E402

SRC = ROOT / "src"
# Folder -> what it may include beside itself and ujoin.h; an entry with a file name allows that header alone.
ALLOWED = {
    "base": [],
    "os": ["base"],
    "io": ["os", "base"],
    "store": ["io", "os", "base"],
    "comm": ["store", "io/socket.hpp", "os", "base"],
    "backends": ["comm", "store", "io", "os", "base"],
    "optim": ["base"],
    "pctx": ["io", "os", "base"],
    "join": ["comm", "base"],
    "ddp": ["join/joinable.hpp", "comm", "base"],
    "zero": ["ddp/bucket.hpp", "ddp/bucket_step.hpp", "ddp/gradient_source.hpp", "join/joinable.hpp", "os/fd.hpp", "optim", "comm", "base"],
    "api": ["zero", "ddp", "join", "pctx", "optim", "backends", "comm", "store", "io", "os", "base"],
    "cli": [],
}
# The warden is a part of the library that happens to be a program: it shares the layer below pctx.
WARDEN = ["os", "base"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def allowed(folder, target):
    if target == "ujoin.h" or target.startswith(folder + "/"):
        return True
    return any(target == entry or target.startswith(entry + "/") for entry in ALLOWED[folder])


def backend_of(path):
    """backends/<name>/...: the name; "" for files directly in backends."""
    parts = path.split("/")
    return parts[1] if parts[0] == "backends" and len(parts) > 2 else ""


def check_file(path):
    inside = path.relative_to(SRC).as_posix()
    folder = inside.split("/")[0]
    problems = []
    if folder not in ALLOWED:
        return [f"src/{inside}: folder src/{folder} is not in the table of tests/tools/check_includes.py"]
    for quote, target in INCLUDE.findall(path.read_text()):
        if quote == "<":
            if target in ("uv.h",) and folder != "io":
                problems.append(f"src/{inside} includes <uv.h>: only src/io may; use src/io/loop.hpp or add what is missing there")
            if target == "ujoin.h":
                problems.append(f'src/{inside} includes <ujoin.h>; write "ujoin.h"')
            continue
        if inside.startswith("cli/warden/") and target.split("/")[0] in WARDEN:
            continue
        if folder == "cli" and not (SRC / "cli" / target).exists():
            # Its own headers are named from src/cli or from its folder.
            if target != "ujoin.h" and not (path.parent / target).exists() and not target.startswith("cli/"):
                problems.append(f"src/{inside} includes \"{target}\": src/cli sees include/ujoin.h alone")
            continue
        if folder != "cli" and not allowed(folder, target):
            may = ", ".join(ALLOWED[folder]) or "nothing"
            problems.append(f"src/{inside} includes \"{target}\": src/{folder} may include itself and {may}")
        other = backend_of(target)
        if folder == "backends" and other and backend_of(inside) and other != backend_of(inside):
            problems.append(f"src/{inside} includes \"{target}\": one backend may not include another")
    return problems


def main():
    problems = []
    for path in sorted(SRC.rglob("*")):
        if path.suffix in (".cpp", ".hpp", ".c", ".h"):
            problems += check_file(path)
    tap.report("includes.order", problems)
    header = set(INCLUDE.findall((ROOT / "include" / "ujoin.h").read_text())) - {("<", "stddef.h"), ("<", "stdint.h")}
    tap.report("includes.public_header", [f"include/ujoin.h includes {t}; it may include stddef.h and stdint.h alone"
                                          for _, t in sorted(header)])
    tap.done()


if __name__ == "__main__":
    main()
