# SPDX-License-Identifier: Apache-2.0
"""How the checks report: one line a check, and after a failed one what is wrong and what to do."""
import sys

_failed = 0


def report(name, problems, note="", shown=""):
    """`problems`: texts; none = the check holds. `shown` is for the user also when it holds, `note` only on this output."""
    global _failed
    problems = list(problems)
    print(("not ok - " if problems else "ok - ") + name)
    for problem in problems[:200]:
        for line in str(problem).splitlines() or [""]:
            print("# " + line)
    if len(problems) > 200:
        print(f"# and {len(problems) - 200} more")
    if note:
        for line in note.splitlines():
            print("#   " + line)
    for line in shown.splitlines():
        print("#! " + line)
    sys.stdout.flush()
    _failed += bool(problems)


def skip(name, reason):
    print(f"ok - {name} # SKIP {reason}", flush=True)


def done():
    sys.exit(1 if _failed else 0)
