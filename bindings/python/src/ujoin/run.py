# SPDX-License-Identifier: Apache-2.0
"""`python -m ujoin.run` and the command `ujoin-run`: starts the workers of a job and ends them together."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from typing import NoReturn


def program() -> pathlib.Path:
    """Where this package's ujoin-run lies."""
    return pathlib.Path(__file__).resolve().parent / "bin" / "ujoin-run"


def main() -> NoReturn:
    """Becomes ujoin-run: the same process, hence its signals and its exit status. Scripts run with this Python."""
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by the interpreter; ignored signals would be inherited
        signal.signal(ignored, signal.SIG_DFL)
    path = os.fspath(program())
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
