"""Bodies of the frames that say what a program wants. PROTOCOL.md, "Messages"."""
from __future__ import annotations

import dataclasses
import enum

from .messages import WORDS, LookupOk, Query
from .wire import Record, boolean, choice, identity, u32, u64


class Outcome(enum.IntEnum):
    """The outcome of a wish. CLIPPED: done in part, now or later; DEFERRED: as soon as it can
    be."""

    ACCEPTED = 1
    CLIPPED = 2
    DEFERRED = 3
    REJECTED = 4
    MISSING = 5


@dataclasses.dataclass
class Prefetch(Record):
    """hold: of a hold, whose query it is then; 0: none."""

    timeout_ms: int
    handle: int
    profile_id: bytes
    wait: bool
    hold: int
    query: Query
    CODECS = (u32, u32, identity, boolean, u64, Query.codec())


@dataclasses.dataclass
class Demote(Record):
    """hold: as of Prefetch."""

    timeout_ms: int
    handle: int
    profile_id: bytes
    hold: int
    query: Query
    CODECS = (u32, u32, identity, u64, Query.codec())


@dataclasses.dataclass
class DemoteOk(Record):
    """tokens: how many a fetch would have served."""

    outcome: Outcome
    tokens: int
    reason: str
    CODECS = (choice(Outcome), u32, WORDS)


@dataclasses.dataclass
class Hold(Record):
    timeout_ms: int
    handle: int
    profile_id: bytes
    time_ms: int
    query: Query
    CODECS = (u32, u32, identity, u32, Query.codec())


@dataclasses.dataclass
class HoldOk(Record):
    number: int
    time_ms: int
    found: LookupOk
    CODECS = (u64, u32, LookupOk.codec())


@dataclasses.dataclass
class Retain(Hold):
    """Fields as a hold's."""


@dataclasses.dataclass
class RetainOk(Record):
    """number: as a hold's; 0: nothing is retained. tokens: how many are."""

    outcome: Outcome
    number: int
    time_ms: int
    tokens: int
    reason: str
    CODECS = (choice(Outcome), u64, u32, u32, WORDS)


@dataclasses.dataclass
class Expire(Record):
    """whole: all that begins with the query. seconds: from now; 0: no time any more."""

    timeout_ms: int
    handle: int
    profile_id: bytes
    whole: bool
    seconds: int
    query: Query
    CODECS = (u32, u32, identity, boolean, u32, Query.codec())


@dataclasses.dataclass
class ExpireOk(Record):
    """objects: how many have the time now."""

    outcome: Outcome
    objects: int
    reason: str
    CODECS = (choice(Outcome), u64, WORDS)


@dataclasses.dataclass
class Renew(Record):
    timeout_ms: int
    hold: int
    time_ms: int
    CODECS = (u32, u64, u32)


@dataclasses.dataclass
class RenewOk(Record):
    time_ms: int
    CODECS = (u32,)


@dataclasses.dataclass
class Release(Record):
    timeout_ms: int
    hold: int
    CODECS = (u32, u64)


@dataclasses.dataclass
class Cancel(Record):
    """Not answered itself; the request is then, if it was not."""

    request: int
    CODECS = (u64,)
