"""Shadow check: one hit in N is computed again by the server itself, and the two next tokens are
compared, so that rows which are wrong in a way that nothing else sees end the caching.

It runs in the hit's own slot, after its answer, and takes the time of computing the prompt.
"""
from __future__ import annotations

import math
from typing import Dict

from .checks import OneIn
from .hit import Hit
from .llama_rows import Layout
from .llama_upstream import Upstream
from .wire import Tokens

COMPARED = 20     # of the most probable next tokens
CALL_S = 60.0     # and ten times what computing took before


class Shadow:
    """every: one hit in so many is checked; 0: none. due() is thread-safe."""

    def __init__(self, upstream: Upstream, layout: Layout, every: int) -> None:
        self._upstream, self._layout, self._every = upstream, layout, OneIn(every)

    def due(self) -> bool:
        """True: the hit that comes now is one to check."""
        return self._every.due()

    def divergence(self, slot: int, tokens: Tokens, hit: Hit, token_s: float) -> float:
        """Nats by which the token after a prompt differs between the hit's rows and the server's
        own; not a number where the server did not take the hit. The slot holds the prompt then,
        computed. May raise what Upstream and a hit raise."""
        timeout = CALL_S + 10 * token_s * len(tokens)
        self._upstream.restore(slot, self._layout.file_for(tokens, hit), timeout, hit.valid)
        restored, reused = self._upstream.next_token(slot, tokens, True, COMPARED, timeout)
        own, _ = self._upstream.next_token(slot, tokens, False, COMPARED, timeout)
        return kl(own, restored) if reused >= self._layout.proof(hit.tokens) else math.nan


def kl(own: Dict[int, float], other: Dict[int, float]) -> float:
    """Kullback-Leibler divergence in nats, at least, from log probabilities of the most probable
    tokens: one that `other` does not name is there no more probable than the last that it names."""
    last = min(other.values())
    return max(0.0, sum(math.exp(p) * (p - other.get(token, last)) for token, p in own.items()))
