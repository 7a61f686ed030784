"""Objects: blocks, tails, supplements and snapshots, their headers, planes and states.

FORMAT.md, "Object header" and "Plane payload". An object received is views of one buffer: its rows
are arrays over the bytes that came, nothing is copied.
"""
from __future__ import annotations

import dataclasses
import enum
from typing import Any, Dict, Iterable, List, Tuple, Type, Union

import numpy as np
import numpy.typing as npt

from .errors import Malformed
from .models import Dtype, Side
from .wire import (OBJECT_BYTES, OBJECT_TOKENS, Buffer, Codec, Reader, Record, Tokens, Writer,
                   array, blob, choice, identity, namespace_text, number, sequence, u16, u32, u64,
                   u8)

Array = npt.NDArray[Any]


class Pieces:
    """Bytes that lie in several buffers, in order."""

    def __init__(self, buffers: Iterable[Union[Buffer, Array]]) -> None:
        self.arrays: List[Array] = [np.frombuffer(each, np.uint8) for each in buffers
                                    if len(each)]
        self.nbytes = sum(each.nbytes for each in self.arrays)

    def joined(self) -> Array:
        """A copy in one."""
        return np.concatenate([np.empty(0, np.uint8), *self.arrays])


def pieces_of(given: Union[Buffer, Pieces]) -> Pieces:
    return given if isinstance(given, Pieces) else Pieces([given])


class ObjectKind(enum.IntEnum):
    BLOCK = 1
    TAIL = 2
    SUPPLEMENT = 3
    SNAPSHOT = 4


class Form(enum.IntEnum):
    EXACT = 0
    CODES = 1
    STREAM = 2


@dataclasses.dataclass(frozen=True)
class ObjectName(Record):
    """Part group, first and end row are 0 but for supplements."""

    kind: ObjectKind
    id: bytes
    group: int = 0
    first_row: int = 0
    end_row: int = 0
    CODECS = (choice(ObjectKind), identity, u16, u32, u32)


@dataclasses.dataclass
class Run(Record):
    """bytes, skip, of: a stream's length, its rows before the run's, and all its rows."""

    form: Form
    rows: int
    bytes: int = 0
    skip: int = 0
    of: int = 0
    CODECS = (choice(Form), number("I", least=1))
    STREAM = (number("I", OBJECT_BYTES, 1), number("I", 4096), number("I", 4096, 1))

    @classmethod
    def read(cls: Type["Run"], r: Reader) -> "Run":
        run = super().read(r)
        if run.form == Form.STREAM:
            run.bytes, run.skip, run.of = (codec.read(r) for codec in cls.STREAM)
        return run

    def write(self, w: Writer) -> None:
        super().write(w)
        if self.form == Form.STREAM:
            for codec, value in zip(self.STREAM, (self.bytes, self.skip, self.of)):
                codec.write(w, value)


@dataclasses.dataclass
class Plane(Record):
    layer: int
    part: int
    side: Side
    dtype: Dtype
    bits: int
    zero: int
    heads: int
    dim: int
    first_row: int
    runs: List[Run]
    CODECS = (u16, u16, choice(Side), choice(Dtype), u8, number("B", 0), number("I", 1024, 1),
              number("I", 65536, 1), u32, sequence(Run.codec(), 64, 5))

    def run_bytes(self, run: Run) -> int:
        if run.form == Form.STREAM:
            return run.bytes
        if run.form == Form.EXACT:
            return run.rows * self.heads * self.dim * self.dtype.numpy.itemsize
        return run.rows * self.heads * ((self.dim * self.bits + 7) // 8 + 2)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)


@dataclasses.dataclass
class State(Record):
    layer: int
    part: int
    bytes: int
    CODECS = (u16, u16, number("Q", OBJECT_BYTES))


def _read_extra(r: Reader) -> Tuple[int, bytes]:
    return u32.read(r), _extra_data.read(r)


def _write_extra(w: Writer, value: Tuple[int, bytes]) -> None:
    u32.write(w, value[0])
    _extra_data.write(w, value[1])


_extra_data = blob(1024)
_extra: Codec[Tuple[int, bytes]] = Codec(_read_extra, _write_extra)


def extras_codec(most: int) -> Codec[List[Tuple[int, bytes]]]:
    return sequence(_extra, most, 8)


@dataclasses.dataclass
class ObjectHeader(Record):
    name: ObjectName
    parent: bytes
    profile: bytes
    namespace: str
    fingerprint: bytes
    first_token: int
    tokens: Tokens
    extras: List[Tuple[int, bytes]]
    planes: List[Plane]
    states: List[State]
    CODECS = (ObjectName.codec(), identity, identity, namespace_text, identity, u32,
              array("<i4", OBJECT_TOKENS), extras_codec(4096),
              sequence(Plane.codec(), 16384, 28), sequence(State.codec(), 16384, 12))

    @property
    def end_token(self) -> int:
        return self.first_token + len(self.tokens)

    def payload_bytes(self) -> int:
        total = sum(plane.run_bytes(run) for plane in self.planes for run in plane.runs)
        return total + sum(state.bytes for state in self.states)


@dataclasses.dataclass
class Rows:
    """Rows [first, end) of one plane, all of one form.

    Exact values are (rows, heads, dim) of the plane's dtype; of others, the whole run's bytes as
    FORMAT.md lays them, also where the run goes on beyond end.
    """

    first: int
    end: int
    form: Form
    values: Array


Place = Tuple[int, int, Side]


@dataclasses.dataclass
class Object:
    """An object as it came; rows at positions of end_token and more are another sequence's."""

    end_token: int
    header: ObjectHeader
    rows: Dict[Place, List[Rows]]
    states: Dict[Tuple[int, int], Array]


def _take(payload: Reader, count: int, dtype: str = "u1") -> Array:
    return np.frombuffer(payload.raw(count), dtype)


def _rows_of(plane: Plane, payload: Reader) -> List[Rows]:
    found, at = [], plane.first_row
    for run in plane.runs:
        if run.form == Form.EXACT:
            flat = _take(payload, plane.run_bytes(run), plane.dtype.numpy.str)
            values = flat.reshape(run.rows, plane.heads, plane.dim)
        else:
            values = _take(payload, plane.run_bytes(run))
        found.append(Rows(at, at + run.rows, run.form, values))
        at += run.rows
    return found


def split(end_token: int, header: ObjectHeader, payload: Reader) -> Object:
    """An object whose planes and states are views of its payload."""
    if header.payload_bytes() != payload.left():
        raise Malformed(f"a payload of {payload.left()} bytes whose header says "
                        f"{header.payload_bytes()}")
    rows: Dict[Place, List[Rows]] = {}
    for plane in header.planes:
        place = (plane.layer, plane.part, plane.side)
        if place in rows:
            raise Malformed(f"two planes of layer {plane.layer}, part {plane.part}")
        rows[place] = _rows_of(plane, payload)
    states = {(s.layer, s.part): _take(payload, s.bytes) for s in header.states}
    return Object(end_token, header, rows, states)
