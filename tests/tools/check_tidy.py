#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over src/**/*.cpp with the flags of a build. What was clean and has not changed since is not looked at again."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from results import ROOT  # noqa: E402

CACHE = ROOT / "build" / "tidy"


def build_with_commands():
    build = ROOT / "build" / "dev"
    return build if (build / "compile_commands.json").exists() else None


def sources(build):
    commands = json.loads((build / "compile_commands.json").read_text())
    inside = str(ROOT / "src") + os.sep
    return sorted({entry["file"] for entry in commands if entry["file"].startswith(inside)})


def key_of(source, shared):
    return hashlib.sha256(shared + pathlib.Path(source).read_bytes() + source.encode()).hexdigest()


def look_at(tidy, build, source):
    done = subprocess.run([tidy, "-p", str(build), "--quiet", source], capture_output=True, text=True, check=False)
    if done.returncode == 0 and "warning:" not in done.stdout and "error:" not in done.stdout:
        return []
    text = done.stdout.replace(str(ROOT) + "/", "")
    return [text if text.strip() else done.stderr]


def main():
    tidy = shutil.which("clang-tidy")
    build = build_with_commands()
    if not tidy or not build:
        tap.report("tidy", ["clang-tidy is not installed" if not tidy else "no build with compile_commands.json: run cmake --preset dev"])
        tap.done()
    version = subprocess.run([tidy, "--version"], capture_output=True, text=True, check=True).stdout
    headers = sorted(list((ROOT / "src").rglob("*.hpp")) + [ROOT / "include" / "ujoin.h", ROOT / ".clang-tidy"])
    shared = version.encode() + b"".join(path.read_bytes() for path in headers)
    CACHE.mkdir(parents=True, exist_ok=True)
    only = [a for a in sys.argv[1:] if not a.startswith("--")]
    chosen = [s for s in sources(build) if not only or any(o in s for o in only)]
    with concurrent.futures.ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        work = {}
        for source in chosen:
            mark = CACHE / key_of(source, shared)
            work[source] = (mark, None if mark.exists() else pool.submit(look_at, tidy, build, source))
        for source, (mark, future) in work.items():
            problems = future.result() if future else []
            name = re.sub(r"^.*?/src/", "src/", source.replace(str(ROOT), ""))
            tap.report(f"tidy.{name}", problems)
            if not problems:
                mark.touch()
    tap.done()


if __name__ == "__main__":
    main()
