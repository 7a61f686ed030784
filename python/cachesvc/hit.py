"""Hit: what a fetch brought, checked against its query, and its rows as arrays.

Nothing is copied until rows are asked for: `pieces` gives views of what came, `rows` joins them. An
object counts only as far as its tokens and extras are the query's.
"""
from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Tuple

import numpy as np

from . import messages as m
from .errors import CacheError, Malformed, invalid
from .ids import extras_in
from .models import Model, Part, Profile, Side
from .objects import Array, Form, Object, ObjectKind, Rows
from .pools import Lease
from .selection import Selection

Where = Tuple[int, int]


def _count(part: Part, positions: int) -> int:
    """The number of a part's rows of so many positions."""
    return part.rows_of(0, positions)[1]


def _clipped(rows: Rows, end: int) -> Optional[Rows]:
    """The rows before row `end`."""
    if rows.first >= end:
        return None
    end = min(end, rows.end)
    values = rows.values[:end - rows.first] if rows.form == Form.EXACT else rows.values
    return Rows(rows.first, end, rows.form, values)


@dataclasses.dataclass
class Hit:
    """tokens: how many tokens of the query need no computing; 0: a miss, and `why` says why.

    common: the longest prefix that anything stored shares. pending: so many tokens are on their
    way from the SSD, and the call was asked not to wait. error: what failed, where the cache fails
    open. profile: what the codes of objects mean.
    """

    tokens: int = 0
    common: int = 0
    pending: int = 0
    tier: m.Tier = m.Tier.NONE
    newest: m.Newest = m.Newest.NONE
    why: str = ""
    error: Optional[CacheError] = None
    model: Optional[Model] = None
    profile: Optional[Profile] = None
    objects: List[Object] = dataclasses.field(default_factory=list)
    selection: Selection = Selection()
    lease: Optional[Lease] = None
    _pieces: Dict[Tuple[int, int, Side], List[Rows]] = dataclasses.field(default_factory=dict)
    _states: Dict[Where, Array] = dataclasses.field(default_factory=dict)

    def valid(self) -> bool:
        """Asked after the last read of arrays that lie in the service's RAM: false if it took that
        back meanwhile, and the hit was a miss. Always true of what came by the socket."""
        return self.lease is None or self.lease.valid()

    def __bool__(self) -> bool:
        return self.tokens > 0

    def _part(self, layer: int, part: int) -> Part:
        if self.model is None:
            raise invalid("a miss", "asked for rows", "asked for none")
        return self.model.part(layer, part)

    def pieces(self, layer: int, part: int = 0, side: Side = Side.K) -> List[Rows]:
        """Views of what came, ascending by first row; they may overlap."""
        self._part(layer, part)
        return self._pieces.get((layer, part, side), [])

    def rows(self, layer: int, part: int = 0, side: Side = Side.K, first: Optional[int] = None,
             end: Optional[int] = None) -> Array:
        """Rows [first, end) as (rows, heads, dim); without them the newest that going on takes.

        bf16 comes as uint16. Not copied where one object holds them all.
        """
        fields = self._part(layer, part)
        newest = fields.newest_rows(self.tokens)
        asked = _count(fields, self.selection.from_token)
        first = max(newest[0], asked) if first is None else first
        end = newest[1] if end is None else end
        found = self.row_arrays(layer, part, side, first, end)
        if not found:
            return self._empty(layer, part, side)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def row_arrays(self, layer: int, part: int, side: Side, first: int, end: int) -> List[Array]:
        """Rows [first, end) as arrays in order, each (rows, heads, dim); none is copied."""
        return _cut(self.pieces(layer, part, side), first, end)

    def _empty(self, layer: int, part: int, side: Side) -> Array:
        pieces = self._pieces.get((layer, part, side), [])
        fields = self._part(layer, part)
        dtype = pieces[0].values.dtype if pieces else fields.dtype.numpy
        return np.empty((0, self.selection.heads_of(fields.heads), fields.dim(side)), dtype)

    def keys_values(self, layer: int, part: int = 0) -> Tuple[Array, Array]:
        return self.rows(layer, part, Side.K), self.rows(layer, part, Side.V)

    def state(self, layer: int, part: int = 0) -> Optional[Array]:
        """The bytes of a state, or of a pooled part's carry, at `tokens`; None if it is empty."""
        self._part(layer, part)
        return self._states.get((layer, part))


def _cut(pieces: List[Rows], first: int, end: int) -> List[Array]:
    found: List[Array] = []
    at = first
    for piece in pieces:
        if at >= end:
            break
        if piece.first <= at < piece.end and piece.form == Form.EXACT:
            found.append(piece.values[at - piece.first:end - piece.first])
            at = min(piece.end, end)
    if at < end:
        raise invalid(f"row {at}", "not there, or kept as codes", "one of a hit, fetched decoded")
    return found


def _covers(pieces: List[Rows], first: int, end: int) -> bool:
    at = first
    for piece in pieces:
        if piece.first <= at < piece.end:
            at = piece.end
    return at >= end


def make_hit(model: Model, namespace: str, query: m.Query, header: m.FetchHeader,
             objects: List[Object], selection: Selection = Selection()) -> Hit:
    """A Hit that holds every row and state that going on at its length takes, as far as they were
    selected; else an error."""
    if header.tokens >= max(1, len(query.tokens)):
        raise Malformed(f"{header.tokens} tokens served of a query of {len(query.tokens)}")
    served = 0 if header.pending else header.tokens
    hit = Hit(served, header.common, header.tokens - served, header.tier, header.newest,
              header.reason, model=model, objects=objects, selection=selection)
    if served == 0 and objects:
        raise Malformed("objects behind the header of a miss")
    if served == 0:
        return hit
    for each in objects:
        _check(model, namespace, query, each)
        _collect(hit, model, each)
    for pieces in hit._pieces.values():
        pieces.sort(key=lambda rows: rows.first)
    _check_complete(hit, model)
    return hit


def _check(model: Model, namespace: str, query: m.Query, given: Object) -> None:
    """The object's tokens and extras are the query's as far as it counts."""
    header = given.header
    if given.end_token > header.end_token:
        raise Malformed(f"an object of tokens to {header.end_token} that counts to "
                        f"{given.end_token}")
    first, end = header.first_token, given.end_token
    if header.fingerprint != model.fingerprint or header.namespace != namespace:
        raise Malformed("an object of another model or namespace")
    if end > len(query.tokens):
        raise Malformed(f"an object that counts to {end} of {len(query.tokens)} tokens")
    if not np.array_equal(header.tokens[:max(0, end - first)], query.tokens[first:max(first, end)]):
        raise Malformed("an object of other tokens")
    if extras_in(header.extras, first, end) != extras_in(query.extras, first, end):
        raise Malformed("an object of other extras")


def _collect(hit: Hit, model: Model, given: Object) -> None:
    for (layer, part, side), runs in given.rows.items():
        if layer >= len(model.layers) or part >= len(model.layers[layer]):
            raise Malformed(f"a plane of layer {layer}, part {part}, which the model has not")
        fields = model.part(layer, part)
        if not hit.selection.has(layer, part):
            raise Malformed(f"a plane of layer {layer}, part {part}, which was not asked for")
        shape = (hit.selection.heads_of(fields.heads), fields.dim(side))
        if side not in fields.sides or any(
                rows.form == Form.EXACT and rows.values.shape[1:] != shape for rows in runs):
            raise Malformed(f"a plane of layer {layer}, part {part} in another shape")
        pieces = hit._pieces.setdefault((layer, part, side), [])
        for rows in runs:
            if rows.first < _count(fields, given.header.first_token):
                raise Malformed(f"row {rows.first} of layer {layer}, part {part} before its object")
            clipped = _clipped(rows, _count(fields, given.end_token))
            if clipped is not None:
                pieces.append(clipped)
        if len({rows.values.dtype for rows in pieces if rows.form == Form.EXACT}) > 1:
            raise Malformed(f"rows of layer {layer}, part {part} in several dtypes")
    name = given.header.name
    position = name.end_row if name.kind == ObjectKind.SUPPLEMENT else given.header.end_token
    if position == hit.tokens:
        hit._states.update(given.states)


def _check_complete(hit: Hit, model: Model) -> None:
    n = hit.tokens
    for layer, index, part in model.parts():
        if not hit.selection.has(layer, index):
            continue
        asked = _count(part, hit.selection.from_token)
        for side in part.sides:
            pieces = hit._pieces.get((layer, index, side), [])
            spans = [part.newest_rows(n), part.sinks(n)]
            if not all(_covers(pieces, max(first, asked), end) for first, end in spans
                       if max(first, asked) < end):
                raise Malformed(f"a hit of {n} tokens without all rows of layer {layer}, "
                                f"part {index}")
        if (part.is_state or part.has_carry(n)) and (layer, index) not in hit._states:
            raise Malformed(f"a hit of {n} tokens without the state of layer {layer}, part {index}")
