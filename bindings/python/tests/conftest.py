# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import faulthandler
import itertools
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ujoin

DEADLINE = 240.0
_names = itertools.count()


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """A test that hangs ends the run, with the stacks of all threads."""
    faulthandler.dump_traceback_later(2 * DEADLINE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def alone() -> Iterator[ujoin.Group]:
    """A group of one."""
    with ujoin.Group(backend="self", world_size=1) as group:
        yield group


def unique(kind: str) -> str:
    return f"{kind}-{os.getpid()}-{next(_names)}"


def local_group(name: str, rank: int, size: int, **options: Any) -> ujoin.Group:
    return ujoin.Group(
        f"local://{name}", backend="local", rank=rank, world_size=size, rendezvous_timeout=DEADLINE, **options
    )


def on_ranks(size: int, body: Callable[[ujoin.Group], Any], **options: Any) -> list[Any]:
    """Runs `body(group)` on ranks that are threads; their results, or the first exception."""
    name = unique("ranks")
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = body(local_group(name, rank, size, **options))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    until(lambda: bool(errors) or not any(thread.is_alive() for thread in threads), "the ranks have ended")
    if errors:
        raise errors[0]
    return results


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that will happen."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.002)


def run_python(program: str, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, **(env or {})},
        check=False,
        stdin=subprocess.DEVNULL,
    )


def ujoin_run() -> str:
    """The command as pip installs it, or the program of the package."""
    installed = pathlib.Path(sys.executable).with_name("ujoin-run")
    return str(installed)
