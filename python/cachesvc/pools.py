"""Pools: segments of the service that this connection has mapped, and hits that lie in them.

PROTOCOL.md, "Pools". Arrays of a mapped hit are read-only views of the service's RAM; they hold its
lease, which ends with the last of them and is told with the connection's next call. `Lease.valid`
says whether what they showed was still the hit's. For the thread that has the connection; leases
end on any.
"""
from __future__ import annotations

import collections
import dataclasses
import enum
import fcntl
import mmap
import os
import weakref
from typing import Any, Deque, Dict, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from .errors import CacheError, Code, Malformed
from .frames import Type, encode_header
from .objects import Object, ObjectHeader, split
from .selection import Selection
from .wire import Buffer, Reader, Record, Writer, boolean, choice, number, sequence, u32, u64
from . import messages as m

FEATURE = 1
UNASKED = (Type.SEGMENT, Type.SEGMENT_REVOKED)
DESCRIPTORS = 8  # that wait for their frame
KNOWN = 1024
ENDED_AT_ONCE = 1024
PAGE = 4096
F_SEAL_SHRINK = 2
Array = npt.NDArray[Any]


class Where(enum.IntEnum):
    STREAMED = 0
    MAPPED = 1
    KNOWN = 2


@dataclasses.dataclass
class Segment(Record):
    segment: int
    bytes: int
    page_bytes: int
    CODECS = (number("I", least=1), number("Q", least=PAGE), number("Q", least=1))


@dataclasses.dataclass
class SegmentRevoked(Record):
    segment: int
    CODECS = (number("I", least=1),)


@dataclasses.dataclass
class SegmentUnmapped(Record):
    segment: int
    CODECS = (number("I", least=1),)


@dataclasses.dataclass
class LeasesEnded(Record):
    leases: List[int]
    CODECS = (sequence(u64, ENDED_AT_ONCE, 8),)


_nonzero = number("Q", least=1)
_segment = number("I", least=1)


@dataclasses.dataclass
class Place(Record):
    """The place of an object of a mapped fetch; fields that its place has not are 0."""

    where: Where
    end_token: int
    number: int = 0
    segment: int = 0
    offset: int = 0
    generation: int = 0
    header: Optional[ObjectHeader] = None

    def write(self, w: Writer) -> None:
        choice(Where).write(w, self.where)
        u32.write(w, self.end_token)
        if self.where != Where.STREAMED:
            _nonzero.write(w, self.number)
        if self.where == Where.MAPPED:
            assert self.header is not None
            _segment.write(w, self.segment)
            u64.write(w, self.offset)
            u64.write(w, self.generation)
            m.header_codec.write(w, self.header)

    @classmethod
    def read(cls, r: Reader) -> Place:
        where, end_token = choice(Where).read(r), u32.read(r)
        if where == Where.STREAMED:
            return cls(where, end_token)
        given = _nonzero.read(r)
        if where == Where.KNOWN:
            return cls(where, end_token, given)
        return cls(where, end_token, given, _segment.read(r), u64.read(r), u64.read(r),
                   m.header_codec.read(r))


@dataclasses.dataclass
class FetchMappedOk(Record):
    tokens: int
    common: int
    pending: bool
    tier: m.Tier
    newest: m.Newest
    reason: str
    lease: int
    lease_ms: int
    streamed_bytes: int
    places: List[Place]
    CODECS = (u32, u32, boolean, choice(m.Tier), choice(m.Newest), m.WORDS, u64, u32, u64,
              sequence(Place.codec(), 1 << 20, 5))

    def header(self) -> m.FetchHeader:
        """The same of a fetch that is streamed."""
        return m.FetchHeader(self.tokens, self.common, self.pending, self.tier, self.newest,
                             self.reason, len(self.places), self.streamed_bytes)


class Mapping:
    """A segment in this process, read-only, for as long as an array of it lives."""

    def __init__(self, told: Segment, descriptor: int) -> None:
        what = f"segment {told.segment}"
        if os.fstat(descriptor).st_size != told.bytes:
            raise Malformed(f"{what} in a file of another size than {told.bytes}")
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError:
            seals = 0
        if not seals & F_SEAL_SHRINK:
            raise Malformed(f"{what} in a file that may shrink")
        try:
            memory = mmap.mmap(descriptor, told.bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            raise CacheError(Code.UNAVAILABLE, f"{what}: {error.strerror or error}") from error
        self.bytes: Array = np.frombuffer(memory, np.uint8)
        self.generations: Array = np.frombuffer(memory, "<u8")


class Lease:
    """A hit's right to lie where it does. Ends with its last holder."""

    def __init__(self, given: int, ended: Deque[int]) -> None:
        self._places: List[Tuple[Mapping, int, int]] = []
        weakref.finalize(self, ended.append, given).atexit = False

    def add(self, mapping: Mapping, page: int, generation: int) -> None:
        self._places.append((mapping, page, generation))

    def valid(self) -> bool:
        """Asked after the last read: false if something was written there meanwhile."""
        return all(int(mapping.generations[page]) == generation
                   for mapping, page, generation in self._places)


class _Leased(np.ndarray):  # type: ignore[type-arg]
    """Bytes of an object that hold its lease: so does every array made of them."""

    lease: Lease


@dataclasses.dataclass
class _Known:
    """An object in a segment."""

    number: int
    segment: int
    mapping: Mapping
    offset: int
    generation: int
    header: ObjectHeader

    def payload(self, lease: Lease) -> memoryview:
        lease.add(self.mapping, self.offset // PAGE, self.generation)
        end = self.offset + self.header.payload_bytes()
        bytes_ = self.mapping.bytes[self.offset:end].view(_Leased)
        bytes_.lease = lease
        return bytes_.data


class Pools:
    """The pools of one connection."""

    def __init__(self) -> None:
        self.descriptors: Deque[int] = collections.deque()
        self._mapped: Dict[int, Mapping] = {}
        self._revoked: List[Tuple[int, "weakref.ref[Mapping]"]] = []
        self._known: Dict[int, _Known] = {}
        self._ended: Deque[int] = collections.deque()

    def close(self) -> bytes:
        """Only what arrays still show stays mapped. The frames that say so, for the service."""
        while self.descriptors:
            os.close(self.descriptors.popleft())
        for segment in list(self._mapped):
            self.revoke(segment)
        return b"".join(self.owed())

    def take(self, kind: Type, body: Buffer) -> None:
        """One of UNASKED."""
        if kind == Type.SEGMENT:
            self.add(Segment.decode(body))
        else:
            self.revoke(SegmentRevoked.decode(body).segment)

    def owed(self) -> List[bytes]:
        """Frames that the service has to have before the next request."""
        found: List[Tuple[Type, Record]] = [(Type.LEASES_ENDED, each) for each in self.ended()]
        found += [(Type.SEGMENT_UNMAPPED, each) for each in self.unmapped()]
        bodies = [(kind, body.encode()) for kind, body in found]
        return [encode_header(kind, 0, len(body)) + body for kind, body in bodies]

    def add(self, told: Segment) -> None:
        if not self.descriptors:
            raise Malformed("a segment without its descriptor")
        descriptor = self.descriptors.popleft()
        try:
            if told.segment in self._mapped:
                raise Malformed(f"segment {told.segment} twice")
            self._mapped[told.segment] = Mapping(told, descriptor)
        finally:
            os.close(descriptor)

    def revoke(self, segment: int) -> None:
        mapping = self._mapped.pop(segment, None)
        if mapping is None:
            return
        self._revoked.append((segment, weakref.ref(mapping)))
        self._known = {at: k for at, k in self._known.items() if k.segment != segment}

    def ended(self) -> List[LeasesEnded]:
        """Leases of which the service has to be told."""
        found: List[LeasesEnded] = []
        while self._ended:
            count = min(len(self._ended), ENDED_AT_ONCE)
            found.append(LeasesEnded([self._ended.popleft() for _ in range(count)]))
        return found

    def unmapped(self) -> List[SegmentUnmapped]:
        """Revoked segments that nobody reads any more, once."""
        gone = [segment for segment, mapping in self._revoked if mapping() is None]
        self._revoked = [each for each in self._revoked if each[0] not in gone]
        return [SegmentUnmapped(segment) for segment in gone]

    def lease(self, given: int) -> Optional[Lease]:
        return Lease(given, self._ended) if given else None

    def find(self, place: Place, lease: Optional[Lease], selection: Selection) -> Object:
        """An object that is mapped or known, without what the selection leaves out."""
        if lease is None:
            raise Malformed("a mapped object without a lease")
        if place.where == Where.MAPPED:
            self._known[place.number % KNOWN] = self._learn(place)
        known = self._known.get(place.number % KNOWN)
        if known is None or known.number != place.number:
            raise Malformed(f"object {place.number}, which is not known")
        whole = split(place.end_token, known.header, Reader(known.payload(lease)))
        rows = {at: rows for at, rows in whole.rows.items() if selection.has(at[0], at[1])}
        states = {at: state for at, state in whole.states.items() if selection.has(*at)}
        return dataclasses.replace(whole, rows=rows, states=states)

    def _learn(self, place: Place) -> _Known:
        mapping = self._mapped.get(place.segment)
        if mapping is None:
            raise Malformed(f"segment {place.segment}, which nobody announced")
        assert place.header is not None
        page, rest = divmod(place.offset, PAGE)
        if (rest or 8 * (page + 1) > place.offset
                or place.offset + place.header.payload_bytes() > mapping.bytes.size):
            raise Malformed("an object outside of its segment")
        return _Known(place.number, place.segment, mapping, place.offset, place.generation,
                      place.header)
