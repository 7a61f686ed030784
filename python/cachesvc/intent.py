"""Intent: what a program says of the prefixes that it will want, as scripts over a Session."""
from __future__ import annotations

import dataclasses
import math
from typing import Generator, Optional

from . import intent_messages as im
from . import messages as m
from .errors import invalid
from .frames import Type
from .session import Command, Frame, Opened, Session
from .wire import as_tokens

NO_QUERY = m.Query(as_tokens([]), [])
NOTHING = m.LookupOk(0, 0, m.Tier.NONE, m.Newest.NONE, "")


@dataclasses.dataclass
class Held:
    """A prefix that stays in the cache for `seconds` from the reply on. number: what fetches name
    it by, on any connection of the namespace; 0: nothing is held. found: what is, and where."""

    number: int = 0
    seconds: float = 0.0
    found: m.LookupOk = dataclasses.field(default_factory=lambda: NOTHING)

    def __bool__(self) -> bool:
        return self.number != 0


def hold(session: Session, opened: Opened, query: m.Query, seconds: float
         ) -> Generator[Command, Optional[Frame], Held]:
    body = im.Hold(session.deadline.milliseconds(), opened.handle, opened.profile_id,
                  _milliseconds(seconds), query)
    reply = im.HoldOk.decode((yield from session.call(Type.HOLD, body, Type.HOLD_OK)).body)
    return Held(reply.number, reply.time_ms / 1000, reply.found)


@dataclasses.dataclass
class Retained:
    """A prefix that goes after everything else of its share, for `seconds` from the reply on.
    number: what renew and release name it by, on any connection of the namespace."""

    outcome: im.Outcome
    number: int = 0
    seconds: float = 0.0
    tokens: int = 0
    reason: str = ""

    def __bool__(self) -> bool:
        return self.number != 0


def retain(session: Session, opened: Opened, query: m.Query, seconds: float
           ) -> Generator[Command, Optional[Frame], Retained]:
    body = im.Retain(session.deadline.milliseconds(), opened.handle, opened.profile_id,
                     _milliseconds(seconds), query)
    reply = im.RetainOk.decode((yield from session.call(Type.RETAIN, body, Type.RETAIN_OK)).body)
    return Retained(reply.outcome, reply.number, reply.time_ms / 1000, reply.tokens, reply.reason)


def expire(session: Session, opened: Opened, query: m.Query, whole: bool,
           seconds: Optional[float]) -> Generator[Command, Optional[Frame], im.ExpireOk]:
    given = 0 if seconds is None else math.ceil(_milliseconds(seconds) / 1000)
    body = im.Expire(session.deadline.milliseconds(), opened.handle, opened.profile_id, whole,
                     given, query)
    frame = yield from session.call(Type.EXPIRE, body, Type.EXPIRE_OK)
    return im.ExpireOk.decode(frame.body)


def prefetch(session: Session, opened: Opened, query: m.Query, wait: bool, held: int
             ) -> Generator[Command, Optional[Frame], m.LookupOk]:
    body = im.Prefetch(session.deadline.milliseconds(), opened.handle, opened.profile_id, wait,
                      held, NO_QUERY if held else query)
    frame = yield from session.call(Type.PREFETCH, body, Type.PREFETCH_OK)
    return m.LookupOk.decode(frame.body)


def demote(session: Session, opened: Opened, query: m.Query, held: int
           ) -> Generator[Command, Optional[Frame], im.DemoteOk]:
    body = im.Demote(session.deadline.milliseconds(), opened.handle, opened.profile_id, held,
                    NO_QUERY if held else query)
    frame = yield from session.call(Type.DEMOTE, body, Type.DEMOTE_OK)
    return im.DemoteOk.decode(frame.body)


def renew(session: Session, number: int, seconds: float
          ) -> Generator[Command, Optional[Frame], float]:
    body = im.Renew(session.deadline.milliseconds(), number, _milliseconds(seconds))
    reply = im.RenewOk.decode((yield from session.call(Type.RENEW, body, Type.RENEW_OK)).body)
    return reply.time_ms / 1000


def release(session: Session, number: int) -> Generator[Command, Optional[Frame], bool]:
    body = im.Release(session.deadline.milliseconds(), number)
    m.Empty.decode((yield from session.call(Type.RELEASE, body, Type.RELEASE_OK)).body)
    return True


def _milliseconds(seconds: float) -> int:
    if math.isnan(seconds):
        raise invalid("seconds", seconds, "a number")
    return max(1, int(min(1000 * seconds, (1 << 32) - 1)))
