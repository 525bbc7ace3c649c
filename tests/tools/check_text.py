#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source names its licence; no file names a place that only one machine has; long files and functions are reported."""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tap  # noqa: E402
from results import ROOT  # noqa: E402

SOURCES = (".c", ".cpp", ".h", ".hpp", ".py", ".sh", ".cmake")
# In pieces, so that this file does not find itself.
PLACES = ["/" + place + "/" for place in ("work", "root", "home")]
HOSTS = [".".join(h) for h in (("pypi", "org"), ("pythonhosted", "org"), ("crates", "io"), ("proxy.golang", "org"),
                               ("npmjs", "org"), ("deb.debian", "org"), ("archive.ubuntu", "com"), ("jfrog", "io"))]
CODE_LIMIT, CODE_WISH, FUNCTION_LIMIT, FUNCTION_WISH = 600, 300, 80, 40


def files():
    """Those that git has, or would take."""
    done = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    names = done.stdout.splitlines()
    if done.returncode != 0:  # an unpacked archive
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if "build" not in p.parts and ".git" not in p.parts]
    return [ROOT / name for name in sorted(names) if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def text_of(path):
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def licence(path, text):
    head = "\n".join(text.splitlines()[:3])
    source = path.suffix in SOURCES or path.name == "CMakeLists.txt" or text.startswith("#!")
    if source and "SPDX-License-Identifier: Apache-2.0" not in head:
        return [f"{path.relative_to(ROOT)}: one of the first three lines must be 'SPDX-License-Identifier: Apache-2.0'"]
    return []


def places(path, text):
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in PLACES:
            if re.search(r"(?<![\w.}])" + re.escape(word), line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {word} is a place on one machine")
        for host in HOSTS:
            if host in line:
                found.append(f"{path.relative_to(ROOT)}:{number}: {host} is a registry; name packages, not places")
    return found


def functions(text):
    """(first line, length) of the functions that begin at the left margin or one step inside a class."""
    lines, start, indent = text.splitlines(), None, ""
    for number, line in enumerate(lines, 1):
        if start is None:
            opens = re.match(r"^( {0,4})(?!namespace|struct|class|enum|extern|union|typedef|using|#|if|for|while|switch|else|return)"
                             r"\S.*\).*\{$", line) or re.match(r"^( {0,4})\S.*\)( const)?( noexcept)?( override)? \{$", line)
            if opens and not re.match(r"^ *(if|for|while|switch|else|\}|return|do)\b", line):
                # The body of a constructor whose initializers are on a line of their own ends at the margin.
                start, indent = number, "" if line.strip().startswith(":") else opens.group(1)
        elif re.match(rf"^{indent}\}}", line):
            yield start, number - start + 1
            start = None


def long_ones(path, text):
    notes, name = [], path.relative_to(ROOT)
    count = len(text.splitlines())
    if count > CODE_WISH:
        notes.append(f"{name}: {count} lines" + (f", more than {CODE_LIMIT}" if count > CODE_LIMIT else ""))
    for line, length in functions(text):
        if length > FUNCTION_WISH:
            notes.append(f"{name}:{line}: function of {length} lines" +
                         (f", more than {FUNCTION_LIMIT}" if length > FUNCTION_LIMIT else ""))
    return notes


def main():
    licences, local, notes = [], [], []
    for path in files():
        text = text_of(path)
        if path.name == "LICENSE":
            continue
        licences += licence(path, text)
        local += places(path, text)
        if path.suffix in (".c", ".cpp", ".hpp") or path.name == "CMakeLists.txt":
            notes += long_ones(path, text)
    tap.report("text.licence", licences)
    tap.report("text.no_machine_places", local)
    # Wishes, not walls: reported only.
    walls = [note for note in notes if "more than" in note]
    shown = [f"{len(notes)} files or functions are longer than wished (tests/tools/check_text.py lists them)"] if notes else []
    tap.report("text.lengths", [], "\n".join(n for n in notes if n not in walls), "\n".join(shown + walls))
    tap.done()


if __name__ == "__main__":
    main()
