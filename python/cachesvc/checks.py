"""Checks that adapters make before they believe in an engine's rows: a known pattern that goes
through its own layout (the self check), and two next tokens compared (the shadow check)."""
from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from .hit import Hit
from .models import Model, Part, Side, packed
from .objects import Array, Form, Rows, pieces_of
from .store import RowSource

BOUND_NATS = 1.0  # rows of 8 and 4 bits differ by hundredths, those of other tokens by many


def spans(part: Part, tokens: int) -> List[Tuple[int, int]]:
    """The runs of rows that going on at so many tokens takes."""
    newest, (_, kept) = part.newest_rows(tokens), part.sinks(tokens)
    return [newest] if min(kept, newest[0]) == 0 else [(0, min(kept, newest[0])), newest]


def hit_of(model: Model, tokens: int, source: RowSource) -> Hit:
    """A hit of the rows and states that a source has."""
    pieces: Dict[Tuple[int, int, Side], List[Rows]] = {}
    states: Dict[Tuple[int, int], Array] = {}
    for layer, index, part in model.parts():
        given = source.state(layer, index, tokens) if part.is_state else None
        if given is not None:
            states[layer, index] = pieces_of(given).joined()
        for side in part.sides:
            found = [(first, end, source.rows(layer, index, side, first, end))
                     for first, end in spans(part, tokens)]
            pieces[layer, index, side] = [Rows(first, end, Form.EXACT, rows)
                                          for first, end, rows in found if rows is not None]
    return Hit(tokens, model=model, _pieces=pieces, _states=states)


def same_rows(hit: Hit, source: RowSource) -> bool:
    """A source has the very rows and states of a hit."""
    assert hit.model is not None
    for layer, index, part in hit.model.parts():
        kept, state = hit.state(layer, index), source.state(layer, index, hit.tokens)
        if kept is not None and kept.tobytes() != state:
            return False
        for side in part.sides:
            for first, end in spans(part, hit.tokens):
                found = source.rows(layer, index, side, first, end)
                if found is None or not np.array_equal(found, hit.rows(layer, index, side, first,
                                                                       end)):
                    return False
    return True


def pattern(model: Model, tokens: int, other: Optional[Hit] = None) -> Hit:
    """A hit of rows that differ in every layer, side, position and channel, and of the states of
    another hit."""
    chance = np.random.default_rng(20)
    pieces: Dict[Tuple[int, int, Side], List[Rows]] = {}
    for layer, index, part in model.parts():
        for side in part.sides:
            for first, end in spans(part, tokens):
                values: Array = chance.uniform(-1, 1, (end - first, part.heads, part.dim(side)))
                pieces.setdefault((layer, index, side), []).append(
                    Rows(first, end, Form.EXACT, packed(values.astype("<f4"), part.dtype)))
    return Hit(tokens, model=model, _pieces=pieces, _states=other._states if other else {})


def divergence(own: Any, other: Any) -> float:
    """Kullback-Leibler divergence in nats of two next tokens, from their logits (vocabulary)."""
    logs = []
    for logits in (own, other):
        shifted = np.asarray(logits, np.float64)
        shifted = shifted - shifted.max()
        logs.append(shifted - np.log(np.exp(shifted).sum()))
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())


class OneIn:
    """True once in so many times, the last of them or, if asked for, the first; of 0: never.
    Thread-safe."""

    def __init__(self, many: int, first: bool = False) -> None:
        self._many, self._times = many, many - 1 if first else 0
        self._lock = threading.Lock()

    def due(self) -> bool:
        if self._many == 0:
            return False
        with self._lock:
            self._times += 1
            return self._times % self._many == 0
