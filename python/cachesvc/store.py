"""The objects of a store: those that a reservation asks for, cut out of the caller's rows.

A RowSource gives rows on demand, ArrayRows from arrays of the whole sequence. Rows go out as they
lie in memory where they are contiguous and of the stored dtype or f32, else they are copied once.
"""
from __future__ import annotations

from typing import (Any, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple,
                    Union)

import numpy as np

from . import messages as m
from .errors import Malformed, invalid
from .ids import Path, extras_in
from .models import Dtype, Model, Part, Side, widened
from .objects import (Array, Form, ObjectHeader, ObjectKind, ObjectName, Pieces, Plane, Run,
                      State, pieces_of)
from .session import Opened, Outgoing
from .wire import NO_ID, Buffer


class RowSource(Protocol):
    """The caller's rows. None: not there, which only a welcome need may meet."""

    def rows(self, layer: int, part: int, side: Side, first: int, end: int) -> Optional[Array]:
        """Rows [first, end) as (rows, heads, dim), f32, f16 or bf16 (as uint16)."""

    def state(self, layer: int, part: int, position: int) -> Union[None, Buffer, Pieces]:
        """The bytes of a state part, or of a pooled part's carry, at a position."""


class ArrayRows:
    """A RowSource over arrays of one sequence of `end` positions.

    rows: (layer, part) -> (K, V) or (other,), each (rows, heads, dim), whose last row is the last
    one of the sequence. states: (layer, part, position) -> bytes. sinks: as rows, but from the
    first one of the sequence on.
    """

    def __init__(self, model: Model, end: int, rows: Mapping[Tuple[int, int], Sequence[Array]],
                 states: Optional[Mapping[Tuple[int, int, int], Buffer]] = None,
                 sinks: Optional[Mapping[Tuple[int, int], Sequence[Array]]] = None) -> None:
        self._end, self._model = end, model
        self._states = dict(states or {})
        self._arrays, self._sinks = self._by_side(rows), self._by_side(sinks or {})

    def _by_side(self, rows: Mapping[Tuple[int, int], Sequence[Array]]
                 ) -> Dict[Tuple[int, int, Side], Array]:
        found: Dict[Tuple[int, int, Side], Array] = {}
        for (layer, part), arrays in rows.items():
            sides = self._model.part(layer, part).sides
            if len(arrays) != len(sides):
                raise invalid(f"layer {layer}, part {part}", f"{len(arrays)} arrays", len(sides))
            found.update(((layer, part, side), values) for side, values in zip(sides, arrays))
        return found

    def rows(self, layer: int, part: int, side: Side, first: int, end: int) -> Optional[Array]:
        values, sinks = (of.get((layer, part, side)) for of in (self._arrays, self._sinks))
        if sinks is not None and end <= len(sinks):
            return sinks[first:end]
        if values is None:
            return None
        start = self._model.part(layer, part).rows_of(0, self._end)[1] - len(values)
        return values[first - start:end - start] if first >= start else None

    def state(self, layer: int, part: int, position: int) -> Optional[Buffer]:
        return self._states.get((layer, part, position))


def by_layer(model: Model, end: int, rows: Sequence[Sequence[Array]]) -> ArrayRows:
    """ArrayRows from one (K, V) for each layer, each layer of one part."""
    if len(rows) != len(model.layers):
        raise invalid("rows", f"of {len(rows)} layers", f"of {len(model.layers)}")
    return ArrayRows(model, end, {(layer, 0): sides for layer, sides in enumerate(rows)})


class _Missing(Exception):
    """The caller has not got what a need asks for."""


def objects_for(opened: Opened, query: m.Query, needs: Sequence[m.Need],
                source: RowSource) -> Iterator[Outgoing]:
    """An object for each need, in order of its block; welcome ones only if the source has them."""
    path = Path(opened.namespace, opened.model.fingerprint, opened.profile_id,
                opened.profile.block_tokens, query.tokens, query.extras)
    maker = _Maker(opened, path, source)
    for need in needs:
        _check_need(need, path)
    for need in sorted(needs, key=lambda need: need.block):
        try:
            yield maker.make(need)
        except _Missing as missing:
            if need.required:
                raise invalid(str(missing), "not given", "given: the entry needs it") from None


def _check_need(need: m.Need, path: Path) -> None:
    """A need lies in the sequence: no number of it is believed."""
    at, end = path.block_tokens, len(path.tokens)
    good = need.block * at <= end if need.kind == ObjectKind.SNAPSHOT else need.block * at < end
    if not good or not need.first_row <= need.end_row <= end:
        raise Malformed(f"a need of block {need.block}, rows {need.first_row} to {need.end_row} "
                        f"of a sequence of {end} tokens")


class _Maker:
    def __init__(self, opened: Opened, path: Path, source: RowSource) -> None:
        self._model, self._profile = opened.model, opened.profile
        self._path, self._source = path, source
        self._groups = opened.model.groups()

    def make(self, need: m.Need) -> Outgoing:
        if need.kind == ObjectKind.SNAPSHOT:
            return self._snapshot(need.end_row)
        at = self._path.block_tokens
        first, end = need.block * at, min((need.block + 1) * at, len(self._path.tokens))
        name = ObjectName(need.kind, NO_ID)
        planes: List[Tuple[int, int, Part, int, int]] = []
        states: List[Tuple[int, int, int]] = []
        if need.kind == ObjectKind.SUPPLEMENT:
            name = ObjectName(need.kind, NO_ID, need.group, need.first_row, need.end_row)
            for layer, index in self._members(need.group):
                if need.first_row == need.end_row:
                    states.append((layer, index, need.end_row))
                else:
                    planes.append((layer, index, self._model.part(layer, index), need.first_row,
                                   need.end_row))
        else:
            planes = [(layer, index, part, *part.rows_of(first, end))
                      for layer, index, part in self._model.parts() if part.in_block]
        return self._object(name, self._path.block(need.block - 1), first, end, planes, states)

    def _members(self, group: int) -> List[Tuple[int, int]]:
        if group >= len(self._groups):
            raise Malformed(f"a need of part group {group} of {len(self._groups)}")
        return self._groups[group]

    def _snapshot(self, position: int) -> Outgoing:
        states = [(layer, index, position) for layer, index, part in self._model.parts()
                  if part.at_checkpoints]
        parent = position // self._path.block_tokens
        return self._object(ObjectName(ObjectKind.SNAPSHOT, NO_ID), self._path.block(parent - 1),
                            parent * self._path.block_tokens, position, [], states)

    def _object(self, name: ObjectName, parent: bytes, first: int, end: int,
                planes: List[Tuple[int, int, Part, int, int]],
                states: List[Tuple[int, int, int]]) -> Outgoing:
        path = self._path
        header = ObjectHeader(name, parent, path.profile, path.namespace, path.fingerprint, first,
                              path.tokens[first:end], extras_in(path.extras, first, end), [], [])
        payload: List[Buffer] = []
        for layer, index, part, first_row, end_row in planes:
            for side in part.sides if first_row < end_row else ():
                plane, values = self._plane(layer, index, part, side, first_row, end_row)
                header.planes.append(plane)
                payload.append(values.reshape(-1).view(np.uint8).data)
        for layer, index, position in states:
            data = self._source.state(layer, index, position)
            if data is None:
                raise _Missing(f"state of layer {layer}, part {index} at {position}")
            pieces = pieces_of(data)
            header.states.append(State(layer, index, pieces.nbytes))
            payload += [each.data for each in pieces.arrays]
        return Outgoing(header, payload)

    def _plane(self, layer: int, index: int, part: Part, side: Side, first: int,
               end: int) -> Tuple[Plane, Array]:
        given = self._source.rows(layer, index, side, first, end)
        if given is None:
            raise _Missing(f"{side.name} rows {first} to {end - 1} of layer {layer}, part {index}")
        shape = (end - first, part.heads, part.dim(side))
        if given.shape != shape:
            raise invalid(f"{side.name} rows of layer {layer}, part {index}",
                          f"of shape {given.shape}", f"of {shape}")
        dtype, values = sent(given, self._model.stored_dtype(part, self._profile.raw_dtype))
        return Plane(layer, index, side, dtype, 0, 0, part.heads, part.dim(side), first,
                     [Run(Form.EXACT, end - first)]), values


def sent(given: Array, stored: Dtype) -> Tuple[Dtype, Array]:
    """Rows as they travel: of the stored dtype as they are, others as f32."""
    values: Array = given
    kind: Any = given.dtype
    if kind.name == "bfloat16":
        values, kind = given.view(np.uint16), np.dtype(np.uint16)
    if kind == np.uint16:
        if stored == Dtype.BF16:
            return stored, np.ascontiguousarray(values)
        return Dtype.F32, widened(values)
    if kind.kind != "f":
        raise invalid("rows", f"of dtype {kind}", "floats, or bf16 as uint16")
    dtype = stored if kind == stored.numpy else Dtype.F32
    return dtype, np.ascontiguousarray(values, dtype.numpy)
