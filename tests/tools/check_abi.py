#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout of every public struct and the value of every constant stay what tests/abi/layout.txt says, and
tests/abi/zero_defaults.tsv tells for every field that a program fills what zero means.
With --update the layout file is written anew: do that only together with a change of UJOIN_ABI_VERSION or before a
release that nobody has used."""
import difflib
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import header  # noqa: E402
import tap  # noqa: E402
from results import ROOT, table  # noqa: E402

LAYOUT = ROOT / "tests" / "abi" / "layout.txt"
DEFAULTS = ROOT / "tests" / "abi" / "zero_defaults.tsv"
INPUTS = ("ujoin_hooks", "ujoin_worker", "ujoin_param", "ujoin_buffer", "ujoin_const_buffer", "ujoin_item", "ujoin_hyper",
          "ujoin_op", "ujoin_worker_fd")


def generator():
    lines = ["#include <ujoin.h>", "#include <stdio.h>", "int main(void) {"]
    for name, fields in header.structs().items():
        lines.append(f'    printf("struct {name} size %zu\\n", sizeof({name}));')
        for field in fields:
            lines.append(f'    printf("field {name}.{field} offset %zu size %zu\\n", offsetof({name}, {field}), '
                         f"sizeof((({name} *)0)->{field}));")
    for name, constants in header.enums().items():
        lines += [f'    printf("constant {name}.{c} = %d\\n", (int){c});' for c in constants]
    lines.append('    printf("macro UJOIN_ABI_VERSION = %d\\n", UJOIN_ABI_VERSION);')
    return "\n".join(lines + ["    return 0;", "}", ""])


def layout():
    with tempfile.TemporaryDirectory() as place:
        source, program = pathlib.Path(place) / "layout.c", pathlib.Path(place) / "layout"
        source.write_text(generator())
        done = subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", f"-I{ROOT}/include", str(source), "-o", str(program)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tap.report("abi.layout", ["the layout program does not compile:\n" + done.stderr])
            tap.done()
        return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()


def check_layout(now):
    was = LAYOUT.read_text().splitlines() if LAYOUT.exists() else []
    changes = [line for line in difflib.unified_diff(was, now, "tests/abi/layout.txt", "include/ujoin.h", lineterm="", n=0)
               if not line.startswith("@@")]
    hint = ["A program compiled with the old header would go wrong. If that is meant, raise UJOIN_ABI_VERSION and run",
            "tests/tools/check_abi.py --update"] if changes else []
    tap.report("abi.layout", changes + hint)


def check_defaults():
    known = {}
    for struct, field, meaning in table(DEFAULTS, 3):
        known[(struct, field)] = meaning
    wanted = {(name, field) for name, fields in header.structs().items() for field in fields
              if field != "size" and (name in INPUTS or name.endswith(("_options", "_spec")))}
    problems = [f"{s}.{f} has no line in tests/abi/zero_defaults.tsv: say what zero means" for s, f in sorted(wanted - set(known))]
    problems += [f"tests/abi/zero_defaults.tsv names {s}.{f}, which the header does not have" for s, f in
                 sorted(set(known) - wanted)]
    problems += [f"tests/abi/zero_defaults.tsv: {s}.{f} has no meaning" for (s, f), text in sorted(known.items()) if not text]
    tap.report("abi.zero_is_default", problems)


def check_sizes_first():
    problems = []
    for name, fields in header.structs().items():
        fixed = name in ("ujoin_buffer", "ujoin_const_buffer", "ujoin_hyper", "ujoin_param", "ujoin_worker_fd")
        if fixed == (fields[0] == "size"):
            problems.append(f"{name} {'keeps its size for ever and has no field `size`' if fixed else 'must begin with size_t size'}")
    tap.report("abi.size_comes_first", problems)


def main():
    now = layout()
    if "--update" in sys.argv:
        LAYOUT.write_text("\n".join(now) + "\n")
        return
    check_layout(now)
    check_defaults()
    check_sizes_first()
    tap.done()


if __name__ == "__main__":
    main()
