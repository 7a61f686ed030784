"""Bodies of why and why_ok. PROTOCOL.md, "Why"."""
from __future__ import annotations

import dataclasses
import enum
from typing import List

from .wire import (NAMESPACE_BYTES, SEQUENCE_TOKENS, Record, Tokens, array, boolean, choice,
                   identity, sequence, text, u32, u64)

MAX_RECORDS = 512


class RequestKind(enum.IntEnum):
    FETCH = 1
    LOOKUP = 2
    QUESTION = 3


class Missing(enum.IntEnum):
    """What the first token that was not served lacks."""

    NOTHING = 0
    NEVER_STORED = 1
    EVICTED_RAM = 2
    EVICTED_SSD = 3
    EVICTED_INDEX = 4
    ERASED = 5
    EXPIRED = 6
    DAMAGED = 7
    FILE_GONE = 8
    UNREADABLE = 9
    PART = 10
    OTHER_PROFILE = 11
    OTHER_MODEL = 12
    NO_ROOM = 13
    PENDING = 14
    ASKED_LESS = 15
    NOT_THERE = 16


@dataclasses.dataclass
class RequestRecord(Record):
    """What became of one fetch or lookup."""

    number: int
    at_ms: int
    kind: RequestKind
    ns: str
    model: str
    fingerprint: bytes
    profile: bytes
    block_tokens: int
    asked: int
    ram_tokens: int
    ssd_tokens: int
    remote_tokens: int
    common: int
    end: int
    label: str
    missing: Missing
    missing_from: int
    since_ms: int
    by: str
    other: bytes
    other_tokens: int
    reason: str
    total_us: int
    wait_us: int
    read_us: int
    make_us: int
    saved_ms: int
    missed_ms: int
    CODECS = (u64, u64, choice(RequestKind), text(64), text(256), identity, identity, u32, u32, u32,
              u32, u32, u32, u32, text(128), choice(Missing), u32, u64, text(64), identity, u32,
              text(256), u32, u32, u32, u32, u32, u32)


@dataclasses.dataclass
class Why(Record):
    """tokens: what would be served of them now; none: recent requests."""

    timeout_ms: int
    number: int
    limit: int
    missed: bool
    ns: str
    tokens: Tokens
    CODECS = (u32, u64, u32, boolean, text(NAMESPACE_BYTES), array("<i4", SEQUENCE_TOKENS))


@dataclasses.dataclass
class WhyOk(Record):
    newest: int
    kept: int
    records: List[RequestRecord]
    CODECS = (u64, u64, sequence(RequestRecord.codec(), MAX_RECORDS, 201))
