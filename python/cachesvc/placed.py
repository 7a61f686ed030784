"""Fetches into memory of the caller's: written there by the service, where that is an OwnMemory
that it has taken, else copied there. PROTOCOL.md, "A client's own memory".
"""
from __future__ import annotations

import dataclasses
from typing import Any, Generator, List, Tuple

import numpy as np

from . import messages as m
from .errors import Code, Malformed, Refused, invalid
from .frames import LONGEST, Type
from .objects import Array, Object, ObjectHeader, Rows, split
from .own_memory import MAX_PIECES, NUMBER, Run, touch
from .session import SHORT_BYTES, Command, Fetched, Frame, Opened, Session
from .wire import Codec, Reader, Record, Writer, number, sequence, u32


def _read_question(r: Reader) -> m.Fetch:
    codecs: Tuple[Codec[Any], ...] = m.Fetch.CODECS
    return m.Fetch(0, *(codec.read(r) for codec in codecs[1:]))


def _write_question(w: Writer, question: m.Fetch) -> None:
    codecs: Tuple[Codec[Any], ...] = m.Fetch.CODECS
    for field, codec in zip(dataclasses.fields(question)[1:], codecs[1:]):
        codec.write(w, getattr(question, field.name))


@dataclasses.dataclass
class FetchInto(Record):
    timeout_ms: int
    memory: int
    runs: List[Run]
    question: m.Fetch
    CODECS = (u32, number("I", least=1), sequence(Run.codec(), MAX_PIECES, 28),
              Codec(_read_question, _write_question))


@dataclasses.dataclass
class FetchPlaced(Record):
    end_token: int
    header: ObjectHeader
    CODECS = (u32, m.header_codec)


def as_place(into: Any) -> Array:
    """The bytes of a writable array whose rows follow each other."""
    if (not isinstance(into, np.ndarray) or not into.flags.c_contiguous
            or not into.flags.writeable):
        raise invalid("into", type(into).__name__, "a writable, contiguous numpy array")
    return into.reshape(-1).view(np.uint8)


def fetch(session: Session, opened: Opened, question: m.Fetch, into: Array
          ) -> Generator[Command, Any, Fetched]:
    """As Session.fetch, but for where rows and states lie."""
    yield from session.offer_memory()
    memory = session.memory
    at = None if memory is None or into.nbytes == 0 else memory.offset_of(into)
    if memory is None or at is None:
        return _copied((yield from session.fetch(opened, question)), into)
    touch(into)
    runs = [Run(each, min(1 << 30, at + into.nbytes - each), 0, 1)
            for each in range(at, at + into.nbytes, 1 << 30)]
    request_id = yield from session.request(
        Type.FETCH_INTO, FetchInto(question.timeout_ms, NUMBER, runs, question))
    frame = yield from session.reply(request_id, Type.FETCH_HEADER, SHORT_BYTES)
    header = m.FetchHeader.decode(frame.body)
    if header.object_bytes > min(into.nbytes, question.max_reply_bytes):
        raise Malformed(f"{header.object_bytes} bytes of objects, there was room for fewer")
    objects: List[Object] = []
    used = 0
    for _ in range(header.objects):
        frame = yield from session.reply(request_id, Type.FETCH_PLACED, LONGEST[Type.FETCH_PLACED])
        placed = FetchPlaced.decode(frame.body)
        end = used + placed.header.payload_bytes()
        objects.append(split(placed.end_token, placed.header, Reader(into[used:end].data)))
        used = end
        if placed.header.profile != opened.profile_id:
            raise Malformed("an object under another profile than was asked for")
    frame = yield from session.reply(request_id, Type.FETCH_DONE, 64)
    if m.FetchDone.decode(frame.body).objects != header.objects or used != header.object_bytes:
        raise Malformed("a fetch_done that does not fit its fetch_header")
    return Fetched(header, objects)


def _copied(got: Fetched, into: Array) -> Fetched:
    used = 0

    def move(values: Array) -> Array:
        nonlocal used
        place = into[used:used + values.nbytes]
        if place.nbytes < values.nbytes:
            raise Refused(Code.RESOURCE_EXHAUSTED,
                          f"more bytes than the {into.nbytes} that they shall lie in")
        used += values.nbytes
        moved = place.view(values.dtype).reshape(values.shape)
        moved[...] = values
        return moved
    objects = []
    for each in got.objects:
        rows = {at: [Rows(r.first, r.end, r.form, move(r.values)) for r in found]
                for at, found in each.rows.items()}
        states = {at: move(state) for at, state in each.states.items()}
        objects.append(dataclasses.replace(each, rows=rows, states=states))
    if got.lease is not None and not got.lease.valid():
        raise Refused(Code.BUSY, "the service took its memory back: ask again")
    return Fetched(got.header, objects)
