# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each is an `Error` with the library's text, and of the builtin class that a Python program expects."""

from __future__ import annotations

import builtins
from typing import Any

from . import _ujoin


class Error(RuntimeError):
    """A call of ujoin failed.

    `status` is the library's code, `errno` the system's error behind it (0 if none), `ranks` the ranks that it is about
    (missing, late, lost, aborted or exhausted).
    """

    def __init__(self, text: str = "", status: int = 0, errno: int = 0, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.errno: int | None = errno
        self.ranks = ranks

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status, self.errno, self.ranks)

    @property
    def status_name(self) -> str:
        """The name of the status, such as "UJOIN_E_TIMEOUT"."""
        return _ujoin.ujoin_status_name(self.status)


class InvalidError(Error, ValueError):
    """An argument is wrong: correct the call."""


class StateError(Error):
    """Not now: called in the wrong order, on a closed or broken object, or on a parent's object after a fork."""


class UnsupportedError(Error, NotImplementedError):
    """Not in this build, backend or machine; the text says what is missing."""


class NoMemoryError(Error, MemoryError):
    """Memory cannot be had; nothing was changed."""


class TimeoutError(Error, builtins.TimeoutError):
    """The operation's deadline passed and it is dead; `ranks` are those that are missing."""


class AbortedError(Error):
    """This rank or a peer gave up; the text says who."""


class PeerLostError(Error, ConnectionError):
    """A rank died or left; `ranks` says which."""


class MismatchError(Error):
    """Ranks called different things, or a file holds something else; the text has both descriptions."""


class ExhaustedError(Error):
    """Throw mode of a join context: a rank has no more inputs. Raised at the same use on every rank."""


class SystemError(Error, OSError):
    """The system refused; `errno` says why."""


class BackendError(Error):
    """A library under a backend reported an error."""


class CallbackError(Error):
    """A callback of the program raised; its exception is the `__cause__`."""


class ChildFailedError(Error):
    """A worker failed."""


class InternalError(Error):
    """A defect of the library; please report the text."""


BY_STATUS: dict[int, type[Error]] = {
    _ujoin.UJOIN_E_INVALID: InvalidError,
    _ujoin.UJOIN_E_STATE: StateError,
    _ujoin.UJOIN_E_UNSUPPORTED: UnsupportedError,
    _ujoin.UJOIN_E_NO_MEMORY: NoMemoryError,
    _ujoin.UJOIN_E_TIMEOUT: TimeoutError,
    _ujoin.UJOIN_E_ABORTED: AbortedError,
    _ujoin.UJOIN_E_PEER_LOST: PeerLostError,
    _ujoin.UJOIN_E_MISMATCH: MismatchError,
    _ujoin.UJOIN_E_EXHAUSTED: ExhaustedError,
    _ujoin.UJOIN_E_SYSTEM: SystemError,
    _ujoin.UJOIN_E_BACKEND: BackendError,
    _ujoin.UJOIN_E_CALLBACK: CallbackError,
    _ujoin.UJOIN_E_CHILD_FAILED: ChildFailedError,
    _ujoin.UJOIN_E_INTERNAL: InternalError,
}


def error(status: int, text: str) -> Error:
    """An error that the binding itself finds."""
    return BY_STATUS[status](text, status)


def invalid(text: str) -> Error:
    """The error of a wrong argument."""
    return error(_ujoin.UJOIN_E_INVALID, text)
