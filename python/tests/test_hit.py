"""Hit: what a service may not say. Each wrong thing in an otherwise good hit is Malformed."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from cachesvc import messages as m
from cachesvc.errors import Malformed
from cachesvc.hit import Hit, make_hit
from cachesvc.models import Dtype, Model, Side, full, state, window
from cachesvc.objects import (Form, Object, ObjectHeader, ObjectKind, ObjectName, Plane, Run, State,
                              split)
from cachesvc.wire import NO_ID, Reader

MODEL = Model("m", b"f" * 32, [[full(1, 4)], [window(3, 1, 4)], [state()]])
QUERY = m.Query(np.arange(9, dtype="<i4"), [(5, b"an image")])
ROW_BYTES = 8


def plane(layer: int, side: Side, first: int, rows: int) -> Plane:
    return Plane(layer, 0, side, Dtype.F16, 0, 0, 1, 4, first, [Run(Form.EXACT, rows)])


def header(kind: ObjectKind, first: int, end: int, planes: List[Plane],
           states: List[State]) -> ObjectHeader:
    rows = (2, 6, 8) if kind == ObjectKind.SUPPLEMENT else (0, 0, 0)
    return ObjectHeader(ObjectName(kind, NO_ID, *rows), NO_ID, NO_ID, "n", b"f" * 32, first,
                        QUERY.tokens[first:end], [e for e in QUERY.extras if first <= e[0] < end],
                        planes, states)


def both(layer: int, first: int, rows: int) -> List[Plane]:
    return [plane(layer, side, first, rows) for side in (Side.K, Side.V)]


def headers() -> Dict[str, ObjectHeader]:
    """A hit of 8 tokens in two blocks of 4."""
    return {"first": header(ObjectKind.BLOCK, 0, 4, both(0, 0, 4), []),
            "second": header(ObjectKind.BLOCK, 4, 8, both(0, 4, 4), []),
            "window": header(ObjectKind.SUPPLEMENT, 4, 8, both(1, 6, 2), []),
            "snapshot": header(ObjectKind.SNAPSHOT, 8, 8, [], [State(2, 0, 16)])}


def made(given: Dict[str, ObjectHeader], ends: Dict[str, int], tokens: int = 8) -> Hit:
    objects: List[Object] = []
    for name, each in given.items():
        payload = bytes(range(each.payload_bytes()))
        objects.append(split(ends.get(name, each.end_token), each, Reader(payload)))
    said = m.FetchHeader(tokens, 8, False, m.Tier.RAM, m.Newest.CODED, "", len(objects), 0)
    return make_hit(MODEL, "n", QUERY, said, objects)


def test_the_hit_itself_is_good() -> None:
    given = headers()
    given["an earlier one"] = header(ObjectKind.SNAPSHOT, 4, 7, [], [State(2, 0, 4)])
    hit = made(given, {})
    assert hit.tokens == 8 and hit.rows(0).shape == (8, 1, 4) and hit.rows(1).shape == (2, 1, 4)
    kept = hit.state(2)
    assert kept is not None and len(kept) == 16


def test_rows_at_the_end_token_and_above_are_not_in_a_hit() -> None:
    given = headers()
    given["second"].tokens = np.array([4, 5, 6, 99], "<i4")
    del given["snapshot"]
    given["at 7"] = header(ObjectKind.SNAPSHOT, 4, 7, [], [State(2, 0, 16)])
    given["window"].planes[:] = both(1, 5, 2)
    hit = made(given, {"second": 7, "window": 7}, tokens=7)
    assert [rows.end for rows in hit.pieces(0)] == [4, 7]


Change = Callable[[Dict[str, ObjectHeader]], Any]


@pytest.mark.parametrize("change,said", [
    (lambda h: setattr(h["first"], "fingerprint", b"g" * 32), "another model"),
    (lambda h: setattr(h["second"], "namespace", "other"), "another model or namespace"),
    (lambda h: setattr(h["second"], "tokens", np.arange(5, 9, dtype="<i4")), "other tokens"),
    (lambda h: setattr(h["window"], "tokens", np.arange(5, 9, dtype="<i4")), "other tokens"),
    (lambda h: setattr(h["second"], "extras", []), "other extras"),
    (lambda h: setattr(h["second"], "extras", [(5, b"a video")]), "other extras"),
    (lambda h: setattr(h["second"], "first_token", 1 << 20), "counts to"),
    (lambda h: setattr(h["second"].planes[0], "first_row", 3), "before its object"),
    (lambda h: setattr(h["second"].planes[0], "dtype", Dtype.BF16), "several dtypes"),
    (lambda h: setattr(h["second"].planes[0], "layer", 9), "which the model has not"),
    (lambda h: setattr(h["second"].planes[0], "part", 1), "which the model has not"),
    (lambda h: setattr(h["second"].planes[0], "side", Side.OTHER), "another shape"),
    (lambda h: h["first"].planes.__setitem__(0, dataclasses.replace(h["first"].planes[0], heads=2,
                                                                    dim=2)), "another shape"),
    (lambda h: h["second"].planes.pop(), "without all rows of layer 0"),
    (lambda h: h.pop("first"), "without all rows of layer 0"),
    (lambda h: h.pop("window"), "without all rows of layer 1"),
    (lambda h: h.pop("snapshot"), "without the state of layer 2"),
    (lambda h: h["second"].planes.append(h["second"].planes[0]), "two planes"),
])
def test_a_wrong_object_is_no_hit(change: Change, said: str) -> None:
    given = headers()
    change(given)
    with pytest.raises(Malformed) as error:
        made(given, {})
    assert said in str(error.value)


@pytest.mark.parametrize("tokens,ends,said", [
    (9, {}, "9 tokens served of a query of 9"), (0, {}, "behind the header of a miss"),
    (8, {"first": 5}, "counts to 5"), (8, {"second": 7}, "without all rows"),
])
def test_a_wrong_length_is_no_hit(tokens: int, ends: Dict[str, int], said: str) -> None:
    with pytest.raises(Malformed) as error:
        made(headers(), ends, tokens)
    assert said in str(error.value)
