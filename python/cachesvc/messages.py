"""Messages: the bodies of all frames but hello's. PROTOCOL.md, "Messages".

Put and FetchObject are only the fields before an object's payload; `before_payload` adds the zeros
between.
"""
from __future__ import annotations

import dataclasses
import enum
from typing import List, Optional, Tuple

from .errors import Malformed
from .models import Dtype, Kind, Model, Prefill, Profile
from .objects import Object, ObjectHeader, ObjectKind, ObjectName, extras_codec, split
from .selection import Selection
from .wire import (HEADER_BYTES, SEQUENCE_TOKENS, Buffer, Reader, Record, Tokens, Writer, array,
                   blob_of, boolean, choice, identity, namespace_text, number, sequence, text, u8,
                   u16, u32, u64)

WORDS = text(4096)
MAX_NEEDS = 1 << 20
MAX_NAMES = 262_144
MAX_ENDS = 64
MAX_LABEL_BYTES = 128
RECORD_BYTES = 16 << 20
PAYLOAD_ALIGNMENT = 64


class Tier(enum.IntEnum):
    NONE = 0
    RAM = 1
    SSD = 2
    MIXED = 3
    REMOTE = 4


class Newest(enum.IntEnum):
    """Form of a hit's newest rows: a tail's, as they were given, or a block's."""

    NONE = 0
    EXACT_TAIL = 1
    CODED = 2


class Level(enum.IntEnum):
    """Durability of what was committed."""

    NONE = 0
    ACCEPTED = 1
    SPILLED = 2
    DURABLE = 3


class Output(enum.IntEnum):
    """As which values a fetch sends rows."""

    STORED = 0
    F32 = 1
    F16 = 2
    BF16 = 3

    @property
    def dtype(self) -> Dtype:
        return Dtype(int(self))


@dataclasses.dataclass
class Query(Record):
    """A sequence: tokens, and what changes the computation at a position beside them."""

    tokens: Tokens
    extras: List[Tuple[int, bytes]]
    CODECS = (array("<i4", SEQUENCE_TOKENS), extras_codec(SEQUENCE_TOKENS))


@dataclasses.dataclass
class Report(Record):
    layer: int
    part: int
    kind: Kind
    requested_k: int
    requested_v: int
    active_k: int
    active_v: int
    why: str
    CODECS = (u16, u16, choice(Kind), u8, u8, u8, u8, WORDS)


reports_codec = sequence(Report.codec(), 8192, 13)
names_codec = sequence(ObjectName.codec(), MAX_NAMES, 43)


@dataclasses.dataclass
class Error(Record):
    code: int
    message: str
    CODECS = (u8, WORDS)


model_codec = blob_of(Model.codec(), RECORD_BYTES)
profile_codec = blob_of(Profile.codec(), RECORD_BYTES)


@dataclasses.dataclass
class Open(Record):
    timeout_ms: int
    replace: bool
    prefill: Prefill
    model: Model
    profile: Optional[Profile]

    def write(self, w: Writer) -> None:
        u32.write(w, self.timeout_ms)
        boolean.write(w, self.replace)
        choice(Prefill).write(w, self.prefill)
        boolean.write(w, self.profile is not None)
        model_codec.write(w, self.model)
        if self.profile is not None:
            profile_codec.write(w, self.profile)

    @classmethod
    def read(cls, r: Reader) -> Open:
        timeout_ms, replace, prefill = u32.read(r), boolean.read(r), choice(Prefill).read(r)
        has_profile = boolean.read(r)
        return cls(timeout_ms, replace, prefill, model_codec.read(r),
                   profile_codec.read(r) if has_profile else None)


@dataclasses.dataclass
class OpenOk(Record):
    handle: int
    namespace: str
    fingerprint: bytes
    profile_id: bytes
    profile: Profile
    reports: List[Report]
    CODECS = (u32, namespace_text, identity, identity, profile_codec, reports_codec)


@dataclasses.dataclass
class Question(Record):
    """lookup and erase_entry. profile_id: in force, or it is refused."""

    timeout_ms: int
    handle: int
    profile_id: bytes
    query: Query
    CODECS = (u32, u32, identity, Query.codec())


@dataclasses.dataclass
class Erase(Record):
    timeout_ms: int
    handle: int
    query: Query
    CODECS = (u32, u32, Query.codec())


@dataclasses.dataclass
class LookupOk(Record):
    tokens: int
    common: int
    tier: Tier
    newest: Newest
    reason: str
    CODECS = (u32, u32, choice(Tier), choice(Newest), WORDS)


@dataclasses.dataclass
class Reserve(Record):
    """ends: numbers of tokens, ascending, that are to stay restorable. prefill_ms, label: kept with
    the entry for people; 0 and empty: nothing is said."""

    timeout_ms: int
    handle: int
    profile_id: bytes
    ends: List[int]
    prefill_ms: int
    label: str
    query: Query
    CODECS = (u32, u32, identity, sequence(u32, MAX_ENDS, 4), u32, text(MAX_LABEL_BYTES),
              Query.codec())


@dataclasses.dataclass
class Need(Record):
    kind: ObjectKind
    required: bool
    group: int
    block: int
    first_row: int
    end_row: int
    CODECS = (choice(ObjectKind), boolean, u16, u32, u32, u32)


@dataclasses.dataclass
class ReserveOk(Record):
    reservation: int
    needs: List[Need]
    CODECS = (u64, sequence(Need.codec(), MAX_NEEDS, 16))


@dataclasses.dataclass
class Copy(Record):
    """Rows that don't travel because the service has them."""

    source: ObjectName
    first_row: int
    end_row: int
    CODECS = (ObjectName.codec(), u32, u32)


header_codec = blob_of(ObjectHeader.codec(), HEADER_BYTES)


@dataclasses.dataclass
class Put(Record):
    timeout_ms: int
    reservation: int
    copies: List[Copy]
    header: ObjectHeader
    CODECS = (u32, u64, sequence(Copy.codec(), 4096, 51), header_codec)


@dataclasses.dataclass
class FetchObject(Record):
    end_token: int
    header: ObjectHeader
    CODECS = (u32, header_codec)


def before_payload(message: Record) -> bytearray:
    """The body of a Put or FetchObject up to its payload."""
    w = bytearray()
    message.write(w)
    w += bytes(-len(w) % PAYLOAD_ALIGNMENT)
    return w


def skip_to_payload(r: Reader) -> None:
    if any(r.raw(-r.at % PAYLOAD_ALIGNMENT)):
        raise Malformed("other bytes than zeros before a payload")


def fetched_object(body: Buffer) -> Object:
    """Of a fetch_object's body."""
    r = Reader(body)
    message = FetchObject.read(r)
    skip_to_payload(r)
    return split(message.end_token, message.header, r)


@dataclasses.dataclass
class Commit(Record):
    timeout_ms: int
    reservation: int
    wait_for: Level
    CODECS = (u32, u64, choice(Level))


@dataclasses.dataclass
class NamedEnd(Record):
    """What became of an end that a store named; reason: why it is not restorable."""

    tokens: int
    restorable: bool
    reason: str
    CODECS = (u32, boolean, WORDS)


@dataclasses.dataclass
class CommitOk(Record):
    level: Level
    foreign: List[ObjectName]
    lost: List[ObjectName]
    ends: List[NamedEnd]
    CODECS = (choice(Level), names_codec, names_codec, sequence(NamedEnd.codec(), MAX_ENDS, 9))


@dataclasses.dataclass
class Abort(Record):
    timeout_ms: int
    reservation: int
    CODECS = (u32, u64)


@dataclasses.dataclass
class Empty(Record):
    CODECS = ()


@dataclasses.dataclass
class Fetch(Record):
    timeout_ms: int
    handle: int
    profile_id: bytes
    output: Output
    wait: bool
    round_to_block: bool
    max_tokens: int
    max_reply_bytes: int
    selection: Selection
    hold: int
    query: Query
    CODECS = (u32, u32, identity, choice(Output), boolean, boolean, u32, u64, Selection.codec(),
              u64, Query.codec())


@dataclasses.dataclass
class FetchHeader(Record):
    tokens: int
    common: int
    pending: bool
    tier: Tier
    newest: Newest
    reason: str
    objects: int
    object_bytes: int
    CODECS = (u32, u32, boolean, choice(Tier), choice(Newest), WORDS, number("I", 1 << 20), u64)


@dataclasses.dataclass
class FetchDone(Record):
    objects: int
    CODECS = (number("I", 1 << 20),)


@dataclasses.dataclass
class EraseOk(Record):
    objects: int
    CODECS = (u64,)


@dataclasses.dataclass
class Stats(Record):
    timeout_ms: int
    CODECS = (u32,)


@dataclasses.dataclass
class Value(Record):
    name: str
    value: int
    CODECS = (text(256), u64)


@dataclasses.dataclass
class ModelReports(Record):
    name: str
    reports: List[Report]
    CODECS = (text(256), reports_codec)


@dataclasses.dataclass
class StatsOk(Record):
    values: List[Value]
    models: List[ModelReports]
    CODECS = (sequence(Value.codec(), 4096, 12), sequence(ModelReports.codec(), 4096, 8))
