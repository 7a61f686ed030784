"""Puts of one reservation, as a session's scripts: several on their way at a time, busy ones again.

Rows travel behind their frame, or, where all of an object's lie in the caller's OwnMemory and the
service takes such, the frame names their place.
"""
from __future__ import annotations

from typing import Dict, Generator, Iterable, List, Optional, Tuple

from . import messages as m
from . import own_memory
from .errors import CacheError, Code, Refused
from .frames import Type
from .session import Command, Frame, Outgoing, Pause, Session

PUTS_AT_ONCE = 8
BUSY_PAUSE_S = 0.01


def put(session: Session, reservation: int, objects: Iterable[Outgoing]
        ) -> Generator[Command, Optional[Frame], None]:
    """Puts objects; those that the service is too busy for again, until the deadline."""
    yield from session.offer_memory()
    busy = yield from _put_once(session, reservation, objects)
    while busy:
        if session.deadline.over(2 * BUSY_PAUSE_S):
            raise Refused(Code.BUSY, f"no room for {len(busy)} objects within the call's time")
        yield Pause(BUSY_PAUSE_S)
        busy = yield from _put_once(session, reservation, busy)


def _put_once(session: Session, reservation: int, objects: Iterable[Outgoing]
              ) -> Generator[Command, Optional[Frame], List[Outgoing]]:
    """Puts each object once; those that the service was too busy for."""
    at_once = min(PUTS_AT_ONCE, session.in_flight())
    waiting: Dict[int, Outgoing] = {}
    busy: List[Outgoing] = []
    refused: Optional[CacheError] = None
    coming = iter(objects)
    while True:
        item: Optional[Outgoing] = None
        try:
            item = next(coming, None) if refused is None else None
        except CacheError as error:  # of the rows that the caller gave
            refused = error
        if item is None and not waiting:
            break
        if item is None or len(waiting) >= at_once:
            refused = (yield from _reply(session, waiting, busy)) or refused
        if item is not None and refused is None:
            try:
                waiting[(yield from _send(session, reservation, item))] = item
            except Refused as too_long:
                refused = too_long
    if refused is not None:
        raise Refused(refused.code, refused.message)
    return busy


def _send(session: Session, reservation: int, item: Outgoing
          ) -> Generator[Command, Optional[Frame], int]:
    timeout = session.deadline.milliseconds()
    memory = session.memory
    runs = memory.runs(item.payload) if memory is not None else None
    if runs is not None and _length(item) <= session.longest(Type.PUT):
        return (yield from session.request(Type.PUT_FROM, own_memory.PutFrom(
            timeout, reservation, [], own_memory.NUMBER, runs, item.header)))
    body = m.Put(timeout, reservation, [], item.header)
    return (yield from session.request(Type.PUT, body, item.payload))


def _length(item: Outgoing) -> int:
    return sum(len(each) for each in item.payload)


def _reply(session: Session, waiting: Dict[int, Outgoing], busy: List[Outgoing]
           ) -> Generator[Command, Optional[Frame], Optional[Refused]]:
    """One reply to any of the puts that are on their way."""
    answer: Tuple[Frame, Outgoing] = yield from session.any_reply(waiting)
    frame, item = answer
    if frame.type in (Type.PUT_OK, Type.PUT_FROM_OK):
        m.Empty.decode(frame.body)
        return None
    refused = session.refused(frame)
    if refused.code == Code.BUSY:
        busy.append(item)
        return None
    return refused
