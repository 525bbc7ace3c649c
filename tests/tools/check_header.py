#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""include/ujoin.h compiles alone as C and as C++, without a warning and without holes in its structs."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from results import ROOT  # noqa: E402

SOURCE = "#include <ujoin.h>\n#include <ujoin.h>\nint main(void) { return UJOIN_OK; }\n"


def compile_alone(compiler, standard, language, flags=()):
    with tempfile.TemporaryDirectory() as place:
        source = pathlib.Path(place) / f"alone.{language}"
        source.write_text(SOURCE)
        command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", *flags, f"-I{ROOT}/include",
                   "-fsyntax-only", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [] if done.returncode == 0 else [" ".join(command), done.stderr]


def main():
    pairs = [("gcc", "g++"), ("clang", "clang++")]
    for c_compiler, cpp_compiler in pairs:
        for compiler, standard, language in ((c_compiler, "c99", "c"), (c_compiler, "c17", "c"), (cpp_compiler, "c++11", "cpp"),
                                             (cpp_compiler, "c++20", "cpp")):
            if shutil.which(compiler):
                tap.report(f"header.{compiler}_{standard}", compile_alone(compiler, standard, language))
            elif compiler.startswith("gcc") or "--all" in sys.argv:
                tap.report(f"header.{compiler}_{standard}", [f"{compiler} is not installed"])
    if shutil.which("gcc"):
        tap.report("header.no_padding", compile_alone("gcc", "c99", "c", ["-Wpadded"]))
    tap.done()


if __name__ == "__main__":
    main()
