# SPDX-License-Identifier: Apache-2.0
"""Memory that the ranks of a host share."""

from __future__ import annotations

from . import _ujoin
from .group import Group, process_group


class SharedMemory:
    """Memory that the ranks of a host share: zeros, reserved when it is made, and gone with its ranks. Each rank has its
    own, of its own size; with `one_per_host` all see the same bytes, and give the same size. Collective.

    `numpy.frombuffer(memory.buffer, numpy.float32, count, offset)` is an array in it. An optimizer whose parameters and
    gradients all lie in such memory, on every rank, needs no copies for fused steps (`GradientSync.TO_OWNER`).
    """

    __slots__ = ("__weakref__", "_handle")

    def __init__(self, size: int, *, one_per_host: bool = False, group: Group | None = None) -> None:
        self._handle = _ujoin.ujoin_memory_create(process_group(group)._handle, size, one_per_host)

    @property
    def buffer(self) -> memoryview:
        """The bytes. The view, and all that is made of it, holds the memory."""
        return _ujoin.ujoin_memory_data(self._handle)

    def __len__(self) -> int:
        return _ujoin.ujoin_memory_size(self._handle)
