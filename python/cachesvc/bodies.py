"""Bodies: memory of long frames, used again once no array of it is left.

A fresh page costs more than the copying into it. At most KEPT_BYTES are kept for a next time; what
is beyond is the caller's alone. One for each connection, by the thread that has it.
"""
from __future__ import annotations

import weakref
from typing import Any, List, Tuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[Any]
SHORT_BYTES = 64 << 10
KEPT_BYTES = 256 << 20
ALIGNMENT = 64  # of a body's start: rows in it then lie well


class Bodies:
    def __init__(self) -> None:
        self._kept: List[Tuple[Bytes, "weakref.ref[Bytes]"]] = []  # memory, and who has it

    def room(self, length: int) -> memoryview:
        """So many bytes, nobody else's for as long as the view or an array made of it lives."""
        for at, (memory, user) in enumerate(self._kept):
            if user() is None and length + ALIGNMENT <= memory.size <= 2 * length:
                lent = _aligned(memory, length)
                self._kept[at] = (memory, weakref.ref(lent))
                return lent.data
        memory = np.empty(length + ALIGNMENT, np.uint8)
        lent = _aligned(memory, length)
        if length >= SHORT_BYTES:
            self._keep(memory, lent)
        return lent.data

    def _keep(self, memory: Bytes, lent: Bytes) -> None:
        """Keeps it, if need be in place of what lies unused."""
        if self._kept_bytes() + memory.size > KEPT_BYTES:
            self._kept = [each for each in self._kept if each[1]() is not None]
        if self._kept_bytes() + memory.size <= KEPT_BYTES:
            self._kept.append((memory, weakref.ref(lent)))

    def _kept_bytes(self) -> int:
        return sum(memory.size for memory, _ in self._kept)


def _aligned(memory: Bytes, length: int) -> Bytes:
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start:start + length]
