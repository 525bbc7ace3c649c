# SPDX-License-Identifier: Apache-2.0
"""Keys and values shared by the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import _ujoin
from .types import Timeout, limit, patience

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Store:
    """Keys and values shared by the ranks of a job.

    `url`: "memory://name" (this process: equal names share it), "file:///path", or "tcp://host:port", which one process
    opens with `listen` (port 0 = any free port, see `url`). `secret`: shared secret of a tcp store, by default the variable
    UJOIN_SECRET. `timeout`: to reach the server or the file, by default 5 minutes.

    Values are bytes, at most 16 MiB; keys are text, at most 1 KiB. One call at a time; another thread uses a store of its
    own (`prefix("")` makes one).
    """

    __slots__ = ("_handle",)

    def __init__(self, url: str, *, secret: str | None = None, timeout: Timeout = None, listen: bool = False) -> None:
        self._handle = _ujoin.ujoin_store_create(url, secret, limit(timeout), listen)

    @property
    def url(self) -> str:
        """The address by which other processes reach this store, with the real port; "" for memory."""
        return _ujoin.ujoin_store_url(self._handle)

    def prefix(self, prefix: str) -> Store:
        """A view in which every key carries a prefix."""
        view = Store.__new__(Store)
        view._handle = _ujoin.ujoin_store_prefix(self._handle, prefix)
        return view

    def set(self, key: str, value: str | Buffer) -> None:
        """Sets a key, over what was there."""
        _ujoin.ujoin_store_set(self._handle, key, value.encode() if isinstance(value, str) else value)

    def get(self, key: str, timeout: Timeout = None) -> bytes | None:
        """Waits until a key exists and returns its value; None if it was not there in time."""
        return _ujoin.ujoin_store_get(self._handle, key, patience(timeout))

    def add(self, key: str, amount: int = 1) -> int:
        """Adds to a counter (absent = 0) and returns its new value; atomic over all clients. 0 reads it."""
        return _ujoin.ujoin_store_add(self._handle, key, amount)

    def wait(self, keys: Sequence[str], timeout: Timeout = None) -> bool:
        """Waits until all keys exist; False if they were not all there in time."""
        return _ujoin.ujoin_store_wait(self._handle, keys, patience(timeout)) == _ujoin.UJOIN_OK

    def abort(self) -> None:
        """Ends every wait on this store object with `AbortedError`, now and later. From any thread."""
        _ujoin.ujoin_store_abort(self._handle)
