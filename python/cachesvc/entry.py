"""Entries: storing and fetching a whole sequence, as scripts over a Session.

All open the model where the connection has not yet, and once anew where its profile was replaced.
"""
from __future__ import annotations

import dataclasses
import math
from typing import (Any, Callable, Generator, Iterator, List, Optional, Sequence, Tuple, TypeVar,
                    Union)

import numpy as np

from . import intent
from . import intent_messages as im
from . import messages as m
from . import placed, puts
from .errors import CacheError, Code, Refused, invalid
from .hit import Hit, make_hit
from .intent import NO_QUERY, Held, Retained
from .models import Model, Prefill, Profile
from .objects import Array, ObjectName
from .selection import Selection
from .session import Command, Frame, Opened, Outgoing, Session
from .store import RowSource, by_layer, objects_for
from .wire import as_tokens

T = TypeVar("T")
Extras = Sequence[Tuple[int, bytes]]
RowsGiven = Union[RowSource, Sequence[Sequence[Array]]]
MAX_REPLY_BYTES = 1 << 40
MOST_TOKENS = 1 << 22
MOST_MS = (1 << 32) - 1


@dataclasses.dataclass
class Stored:
    """level: the durability reached; NONE: nothing was stored, and `error` says why.

    objects: how many were sent. foreign: somebody else's bytes are stored under these names. lost:
    these went meanwhile; they and all after them are not stored. ends: what became of those that
    the store named.
    """

    level: m.Level = m.Level.NONE
    objects: int = 0
    foreign: List[ObjectName] = dataclasses.field(default_factory=list)
    lost: List[ObjectName] = dataclasses.field(default_factory=list)
    error: Optional[CacheError] = None
    ends: List[m.NamedEnd] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return self.level != m.Level.NONE


@dataclasses.dataclass
class FetchOptions:
    """output: as which values rows come; STORED: codes where the profile has them; none: of the
    model's dtype, which is that of its first part with rows. selection: the rows that come. hold:
    the number of a Held of the same tokens, which do not travel then; no more than it has comes.
    into: a writable array, long enough for all rows and states: they lie there, one object's after
    the other's, and stay; in an OwnMemory of the cache's the service writes them itself. What a
    failed fetch leaves there may be anything."""

    output: Optional[m.Output] = None
    wait: bool = True
    round_to_block: bool = False
    max_tokens: int = (1 << 32) - 1
    max_reply_bytes: int = MAX_REPLY_BYTES
    selection: Selection = Selection()
    hold: int = 0
    into: Optional[Array] = None


def as_query(tokens: Any, extras: Extras) -> m.Query:
    try:
        given = sorted((int(at), bytes(memoryview(data))) for at, data in extras)
    except (TypeError, ValueError) as error:
        raise invalid("extras", error, "pairs of a position and bytes") from None
    return m.Query(as_tokens(tokens), given)


def as_ends(ends: Sequence[int]) -> List[int]:
    named = sorted({int(end) for end in ends})
    if len(named) > m.MAX_ENDS:
        raise invalid("ends", len(named), f"at most {m.MAX_ENDS}")
    if named and not 0 < named[0] <= named[-1] <= MOST_TOKENS:
        raise invalid("ends", f"{named[0]} to {named[-1]}", "numbers of tokens")
    return named


def as_cost(prefill_ms: float) -> int:
    if not 0 <= prefill_ms < math.inf:
        raise invalid("prefill_ms", prefill_ms, "milliseconds, at least 0")
    return min(math.ceil(prefill_ms), MOST_MS)


def as_source(model: Model, query: m.Query, rows: RowsGiven) -> RowSource:
    if isinstance(rows, (Sequence, np.ndarray)):
        return by_layer(model, len(query.tokens), rows)
    return rows


def output_for(model: Model) -> m.Output:
    rows = [part.dtype for _, _, part in model.parts() if not part.is_state]
    return m.Output(int(rows[0])) if rows else m.Output.STORED


def fetch(session: Session, model: Model, tokens: Any, extras: Extras,
          options: Optional[FetchOptions] = None, profile: Optional[Profile] = None
          ) -> Generator[Command, Optional[Frame], Hit]:
    query, wanted = as_query(tokens, extras), options or FetchOptions()
    output = output_for(model) if wanted.output is None else wanted.output
    into = None if wanted.into is None else placed.as_place(wanted.into)

    def ask(opened: Opened) -> Generator[Command, Optional[Frame], Hit]:
        asked = NO_QUERY if wanted.hold else query
        question = session.question(opened, asked, output, wanted.wait, wanted.round_to_block,
                                    wanted.max_tokens, wanted.max_reply_bytes, wanted.selection,
                                    wanted.hold)
        got = yield from (session.fetch(opened, question) if into is None else
                          placed.fetch(session, opened, question, into))
        hit = make_hit(model, opened.namespace, query, got.header, got.objects, wanted.selection)
        hit.profile, hit.lease = opened.profile, got.lease
        return hit
    return (yield from _under_profile(session, model, ask, profile))


def store(session: Session, model: Model, tokens: Any, extras: Extras, rows: RowsGiven,
          wait_for: m.Level, profile: Optional[Profile] = None, ends: Sequence[int] = (),
          prefill_ms: float = 0, label: str = "") -> Generator[Command, Optional[Frame], Stored]:
    query = as_query(tokens, extras)
    named, cost = as_ends(ends), as_cost(prefill_ms)
    source = as_source(model, query, rows)
    def reserve(opened: Opened) -> Generator[Command, Optional[Frame], Tuple[Opened, m.ReserveOk]]:
        return opened, (yield from session.reserve(opened, query, named, cost, label))
    opened, reserved = yield from _under_profile(session, model, reserve, profile)
    sent = [0]
    try:
        yield from puts.put(session, reserved.reservation,
                            _counted(opened, query, reserved, source, sent))
    except Refused as refused:
        try:
            yield from session.abort(reserved.reservation)
        except Refused:
            pass  # the reservation was gone
        raise refused
    reply = yield from session.commit(reserved.reservation, wait_for)
    return Stored(reply.level, sent[0], reply.foreign, reply.lost, ends=reply.ends)


def lookup(session: Session, model: Model, query: m.Query, profile: Optional[Profile] = None
           ) -> Generator[Command, Optional[Frame], m.LookupOk]:
    return (yield from _under_profile(session, model,
                                      lambda opened: session.lookup(opened, query), profile))


def prefetch(session: Session, model: Model, query: m.Query, wait: bool, held: int,
             profile: Optional[Profile] = None
             ) -> Generator[Command, Optional[Frame], m.LookupOk]:
    return (yield from _under_profile(
        session, model, lambda opened: intent.prefetch(session, opened, query, wait, held),
        profile))


def demote(session: Session, model: Model, query: m.Query, held: int,
           profile: Optional[Profile] = None) -> Generator[Command, Optional[Frame], im.DemoteOk]:
    return (yield from _under_profile(
        session, model, lambda opened: intent.demote(session, opened, query, held), profile))


def hold(session: Session, model: Model, query: m.Query, seconds: float,
         profile: Optional[Profile] = None) -> Generator[Command, Optional[Frame], Held]:
    return (yield from _under_profile(
        session, model, lambda opened: intent.hold(session, opened, query, seconds), profile))


def retain(session: Session, model: Model, query: m.Query, seconds: float,
           profile: Optional[Profile] = None) -> Generator[Command, Optional[Frame], Retained]:
    return (yield from _under_profile(
        session, model, lambda opened: intent.retain(session, opened, query, seconds), profile))


def expire(session: Session, model: Model, query: m.Query, whole: bool, seconds: Optional[float],
           profile: Optional[Profile] = None) -> Generator[Command, Optional[Frame], im.ExpireOk]:
    return (yield from _under_profile(
        session, model, lambda opened: intent.expire(session, opened, query, whole, seconds),
        profile))


def lookup_all(session: Session, model: Model, queries: Sequence[Any],
               profile: Optional[Profile] = None
               ) -> Generator[Command, Optional[Frame], List[m.LookupOk]]:
    asked = [q if isinstance(q, m.Query) else as_query(q, ()) for q in queries]
    return (yield from _under_profile(
        session, model, lambda opened: session.lookup_all(opened, asked), profile))


def reopen(session: Session, model: Model, profile: Optional[Profile], replace: bool
           ) -> Generator[Command, Optional[Frame], Opened]:
    prefill = profile.prefill if profile is not None else Prefill.EXACT
    return (yield from session.open(model, profile, replace, prefill))


def known(session: Session, model: Model, profile: Profile
          ) -> Generator[Command, Optional[Frame], Opened]:
    """Opens a model only if a profile is in force: the one that it brings is of another mode than
    the request, so it can't be put in force."""
    mode = Prefill(1 - profile.prefill)
    return (yield from session.open(model, dataclasses.replace(profile, prefill=mode), False,
                                    profile.prefill))


def erase(session: Session, model: Optional[Model], query: m.Query
          ) -> Generator[Command, Optional[Frame], int]:
    handle = 0
    if model is not None:
        handle = (yield from session.opened(model)).handle
    return (yield from session.erase(handle, query))


def erase_entry(session: Session, model: Model, query: m.Query,
                profile: Optional[Profile] = None) -> Generator[Command, Optional[Frame], int]:
    return (yield from _under_profile(
        session, model, lambda opened: session.erase_entry(opened, query), profile))


def _under_profile(session: Session, model: Model,
                   ask: Callable[[Opened], Generator[Command, Optional[Frame], T]],
                   profile: Optional[Profile] = None) -> Generator[Command, Optional[Frame], T]:
    """Asks under the profile of the connection's open; once more where it was replaced."""
    opened = yield from session.opened(model, profile)
    try:
        return (yield from ask(opened))
    except Refused as error:
        if error.code != Code.PROFILE_CHANGED:
            raise
    opened = yield from session.open(model, None, prefill=opened.profile.prefill)
    return (yield from ask(opened))


def _counted(opened: Opened, query: m.Query, reserved: m.ReserveOk, source: RowSource,
             sent: List[int]) -> Iterator[Outgoing]:
    for each in objects_for(opened, query, reserved.needs, source):
        sent[0] += 1
        yield each
