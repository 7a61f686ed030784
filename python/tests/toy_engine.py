"""Toy: a small Engine of its own, in numpy. Its rows are given.py's formula; the token after a past
is told by the sum of all rows that attention sees, so rows that are other ones tell another token.
"""
from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np

from cachesvc.checks import spans
from cachesvc.hit import Hit
from cachesvc.models import Layers, Model, Side
from cachesvc.store import ArrayRows

import given

VOCABULARY = 50


class Past:
    """tokens: of the sequence. rows: of each layer and side, all of them from position 0 on; what
    attention no longer sees is not a number."""

    def __init__(self) -> None:
        self.tokens: List[int] = []
        self.rows: Dict[Tuple[int, Side], given.Array] = {}


class Toy:
    """swapped: K and V change places on their way out. tag: of its weights."""

    def __init__(self, like: Model, tag: bytes = b"1") -> None:
        self.name, self.model, self.swapped, self.computed = "toy", like, False, 0
        self._layers, self._tag = like.layers, tag

    def describe(self) -> List[str]:
        return ["toy"]

    def tensors(self) -> Iterator[Tuple[str, List[bytes]]]:
        yield "weights", [self._tag]

    def empty(self) -> Past:
        return Past()

    def logits(self, tokens: Sequence[int], past: Past) -> given.Array:
        first, self.computed = len(past.tokens), self.computed + len(tokens)
        past.tokens += tokens
        n, seen = len(past.tokens), hashlib.sha256()
        for layer, (part,) in enumerate(self._layers):
            for side in part.sides:
                new = given.values(np.array(past.tokens), layer, side, first, n, part.heads,
                                   part.dim(side))
                before = past.rows.get((layer, side), new[:0])
                past.rows[layer, side] = rows = np.concatenate([before, new]).astype(np.float16)
                for run in spans(part, n):
                    seen.update(np.ascontiguousarray(rows[slice(*run)]).tobytes())
        chance = np.random.default_rng(list(seen.digest()))
        logits: given.Array = chance.normal(size=VOCABULARY) * 10
        return logits

    def layers(self, past: Past) -> Layers:
        return self._layers

    def rows_of(self, past: Past, tokens: int) -> ArrayRows:
        sides = (Side.V, Side.K) if self.swapped else (Side.K, Side.V)
        newest, sinks = {}, {}
        for layer, (part,) in enumerate(self._layers):
            runs = spans(part, tokens)
            newest[layer, 0], kept = ([past.rows[layer, side][slice(*run)].copy() for side in sides]
                                      for run in (runs[-1], runs[0]))
            if len(runs) > 1:
                sinks[layer, 0] = kept
        return ArrayRows(self.model, tokens, newest, sinks=sinks)

    def fill(self, past: Past, hit: Hit) -> None:
        past.tokens = [0] * hit.tokens
        for layer, (part,) in enumerate(self._layers):
            for side in part.sides:
                rows = np.full((hit.tokens, part.heads, part.dim(side)), np.nan, np.float16)
                for run in spans(part, hit.tokens):
                    rows[slice(*run)] = hit.rows(layer, 0, side, *run)
                past.rows[layer, side] = rows


def next_token(engine: Toy, tokens: Sequence[int], past: Any, there: int) -> int:
    return int(engine.logits(list(tokens[there:]), past).argmax())
