# SPDX-License-Identifier: Apache-2.0
"""Operations in flight."""

from __future__ import annotations

from . import _ujoin
from .types import Timeout, patience


class Work:
    """An operation in flight. Its memory is held, wherever this object goes, until the operation has its final status:
    until then do not read what is received, nor write to what is sent."""

    __slots__ = ("_handle",)

    def __init__(self, handle: _ujoin.Handle) -> None:
        self._handle = handle

    def wait(self, timeout: Timeout = None) -> bool:
        """Waits; False if the operation was not complete in time. Raises the operation's error, every time."""
        return _ujoin.ujoin_work_wait(self._handle, -1 if timeout is None else patience(timeout)) == _ujoin.UJOIN_OK

    def is_completed(self) -> bool:
        """Whether it is complete; never waits. Raises the operation's error. From any thread."""
        return _ujoin.ujoin_work_test(self._handle) == _ujoin.UJOIN_OK

    @property
    def contributors(self) -> list[int]:
        """The ranks that contributed, once it is complete: all, unless joined ranks shadowed it. Until then, and if it
        failed, none. From any thread."""
        return _ujoin.ujoin_work_contributors(self._handle)

    def abort(self) -> None:
        """Gives up; its status is `AbortedError` on every rank, and its group is broken. From any thread."""
        _ujoin.ujoin_work_abort(self._handle)
