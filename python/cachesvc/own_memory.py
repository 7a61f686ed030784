"""OwnMemory: memory of this process from which the service reads the rows of stores, and into which
it writes those of fetches, instead of having them sent. An engine that keeps its rows here stores
and fetches them without a copy of its own.

PROTOCOL.md, "A client's own memory". A memfd of fixed size, whose pages are this process's in every
account. The service copies what a store names while the store's call lasts; what is written here
later changes nothing stored. Thread-safe.
"""
from __future__ import annotations

import dataclasses
import mmap
import os
import threading
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from . import messages as m
from .objects import ObjectHeader
from .wire import Record, number, sequence, u32, u64

FEATURE = 2
NUMBER = 1  # of the one memory that a connection offers
MAX_PIECES = 1 << 16
ALIGN = 64
Array = npt.NDArray[Any]


@dataclasses.dataclass
class Offer(Record):
    timeout_ms: int
    memory: int
    CODECS = (u32, number("I", least=1))


@dataclasses.dataclass
class OfferOk(Record):
    bytes: int
    CODECS = (u64,)


@dataclasses.dataclass
class Ended(Record):
    """Not answered: the service closes its descriptor."""

    memory: int
    CODECS = (number("I", least=1),)


@dataclasses.dataclass
class Run(Record):
    """`count` pieces of `bytes` bytes, the first at `offset`, each next one `stride` further."""

    offset: int
    bytes: int
    stride: int
    count: int
    CODECS = (u64, number("Q", least=1), u64, number("I", least=1))


@dataclasses.dataclass
class PutFrom(Record):
    timeout_ms: int
    reservation: int
    copies: List[m.Copy]
    memory: int
    runs: List[Run]
    header: ObjectHeader
    CODECS = (u32, u64, sequence(m.Copy.codec(), 4096, 51), number("I", least=1),
              sequence(Run.codec(), MAX_PIECES, 28), m.header_codec)


class OwnMemory:
    """`size` bytes, in zeros. Raises OSError where the system has none.

    pool: the memfd of an engine and all of it as mapped, from its beginning. What lies there is not
    sent either, and the `size` bytes are behind its end, by which it grows.
    """

    def __init__(self, size: int, pool: Optional[Tuple[int, Array]] = None) -> None:
        self.size = size
        self.fd = (os.memfd_create("cachesvc-client", os.MFD_CLOEXEC) if pool is None
                   else os.dup(pool[0]))
        try:
            begin = -(-os.fstat(self.fd).st_size // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self.fd, begin + size)
            self._map = mmap.mmap(self.fd, size, offset=begin)
        except BaseException:
            os.close(self.fd)
            raise
        self._bytes: Array = np.frombuffer(self._map, np.uint8)
        self._mapped = [(self._bytes, begin)]
        if pool is not None:
            self._mapped.append((pool[1], 0))
        self._lock = threading.Lock()
        self._taken = 0

    def __del__(self) -> None:
        if hasattr(self, "_bytes"):
            os.close(self.fd)

    def array(self, shape: Sequence[int], dtype: Any) -> Array:
        """A new array here, uninitialised after `clear`, as long as this memory lives. Raises
        MemoryError where no room is left."""
        kind = np.dtype(dtype)
        length = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        with self._lock:
            begin = -(-self._taken // ALIGN) * ALIGN
            if begin + length > self.size:
                raise MemoryError(f"{length} bytes, {self.size - begin} of {self.size} are left")
            self._taken = begin + length
        return self._bytes[begin:begin + length].view(kind).reshape(shape)

    def clear(self) -> None:
        """Gives all arrays' room to later ones. No store may be reading them."""
        with self._lock:
            self._taken = 0

    def offset_of(self, values: Array) -> Optional[int]:
        """Place of a contiguous array of bytes that lies here whole; None: it lies elsewhere."""
        for mapped, begin in self._mapped:
            at = _address(values) - _address(mapped)
            if 0 <= at and at + values.nbytes <= mapped.nbytes:
                return begin + at
        return None

    def runs(self, payload: Sequence[Any]) -> Optional[List[Run]]:
        """The places of buffers, those that follow each other as one. None: some lie elsewhere."""
        found: List[Run] = []
        for buffer in payload:
            values: Array = np.frombuffer(buffer, np.uint8)
            if values.nbytes == 0:
                continue
            at = self.offset_of(values)
            if at is None:
                return None
            if found and found[-1].offset + found[-1].bytes == at:
                found[-1].bytes += values.nbytes
            else:
                found.append(Run(at, values.nbytes, 0, 1))
        return found if 0 < len(found) <= MAX_PIECES else None


def touch(values: Array) -> None:
    """Has memory for an array of bytes, which keep their values: the service writes into no pages
    that nobody has touched."""
    values[::mmap.PAGESIZE] |= 0
    values[-1:] |= 0


def _address(values: Array) -> int:
    address: int = values.__array_interface__["data"][0]
    return address
