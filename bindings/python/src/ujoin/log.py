# SPDX-License-Identifier: Apache-2.0
"""The library's log lines go to Python's logging."""

from __future__ import annotations

import logging
from collections.abc import Callable

from . import _ujoin

logger = logging.getLogger("ujoin")
_LEVELS = {
    _ujoin.UJOIN_LOG_ERROR: logging.ERROR,
    _ujoin.UJOIN_LOG_WARNING: logging.WARNING,
    _ujoin.UJOIN_LOG_INFO: logging.INFO,
    _ujoin.UJOIN_LOG_DEBUG: logging.DEBUG,
}


def set_log_level(level: int) -> None:
    """Sends lines of at least this severity (`logging.INFO`, ...) to the logger "ujoin". At the start: warnings and errors.
    Handlers run on the thread that logs, which may be one of the library's; they must not call ujoin."""
    _ujoin.ujoin_set_log_sink(_library_level(level), _to_logging)


def set_log_sink(sink: Callable[[int, str], None] | None, level: int = logging.WARNING) -> None:
    """Sends lines to `sink(level, text)` instead; None: nowhere. It may run on any thread, and on several at once; it must
    not call ujoin, and what it raises goes to `sys.unraisablehook`."""
    if sink is None:
        _ujoin.ujoin_set_log_sink(0, None)
        return
    send = sink  # narrowed for the function below

    def translated(library_level: int, text: str) -> None:
        send(_LEVELS[library_level], text)

    _ujoin.ujoin_set_log_sink(_library_level(level), translated)


def _to_logging(library_level: int, text: str) -> None:
    logger.log(_LEVELS[library_level], "%s", text)


def _library_level(level: int) -> int:
    """The library's number for the least severe lines that are wanted."""
    wanted = [number for number, ours in _LEVELS.items() if ours >= level]
    return max(wanted, default=int(_ujoin.UJOIN_LOG_ERROR))
