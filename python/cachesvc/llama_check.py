"""Self check: a known pattern goes through a server's own slot, and must come back bit for bit;
and mean and gain of a model's keys, from a text that the server computes.

A cache layout that means something else than this package thinks (as happened to others when two
layouts had one shape) would serve wrong rows without an error. So nothing is stored or restored
before this has passed.
"""
from __future__ import annotations

import contextlib
from typing import Callable, ContextManager, Optional, Tuple

import numpy as np

from . import calibrate
from .cache import Cache
from .checks import pattern, same_rows
from .errors import CacheError, Code
from .llama_rows import Layout
from .llama_upstream import Upstream, UpstreamError
from .models import Profile
from .report import Report
from .wire import Buffer

TOKENS = np.arange(1, 49, dtype="<i4")
CALL_S = 60.0
OPEN_S = 1.0
TEXT_TRIES = 3  # requests may come between its computing and its saving


def attach(upstream: Upstream, layout_of: Callable[[Buffer], Layout], slot: int,
           alone: Callable[[], ContextManager[object]] = contextlib.nullcontext
           ) -> Tuple[Layout, float]:
    """The layout of a server, learnt and checked on one slot, whose contents are lost; and the
    seconds that it took to compute a token there. alone: within it no request is with the server,
    as one would go on from the pattern, or put rows in its place.

    CacheError: it is refused, by name. UpstreamError: the server did not play its part.
    """
    token_s = upstream.compute(slot, TOKENS.tolist(), CALL_S)
    data = upstream.save(slot, CALL_S)
    layout = layout_of(data)
    with alone():
        try:
            if layout.opaque:
                upstream.restore(slot, [data], CALL_S)
                same = upstream.save(slot, CALL_S) == data
            else:
                same = _pattern_returns(upstream, layout, slot)
        finally:
            _empty(upstream, slot)
    if not same:
        raise CacheError(Code.UNSUPPORTED, "the self check: a slot that was restored and saved "
                                           "holds other rows")
    return layout, token_s


def _empty(upstream: Upstream, slot: int) -> None:
    """No request is to go on from a pattern, whatever else failed."""
    try:
        upstream.erase(slot, CALL_S)
    except UpstreamError:
        upstream.compute(slot, TOKENS.tolist(), CALL_S)


def _pattern_returns(upstream: Upstream, layout: Layout, slot: int) -> bool:
    given = pattern(layout.model, len(TOKENS))
    upstream.restore(slot, layout.file_for(TOKENS, given), CALL_S)
    rows = layout.source(upstream.save(slot, CALL_S))
    return rows.tokens.tolist() == TOKENS.tolist() and same_rows(given, rows)


def profile_of_keys(upstream: Upstream, cache: Cache, layout: Layout, slot: int, token_s: float,
                    report: Report) -> Optional[Profile]:
    """The profile to store under: the one in force, else the layout's with mean and gain of keys
    that the server computes of a text, in one slot, whose contents are lost. None: it could not."""
    if not layout.profile.k_bits:
        return layout.profile
    try:
        return cache.known(layout.model, layout.profile, OPEN_S).profile
    except CacheError:  # there is none, or nobody to ask
        pass
    try:
        tokens = upstream.tokens_of(calibrate.text(), CALL_S)[:calibrate.TOKENS]
        for _ in range(TEXT_TRIES):
            upstream.compute(slot, tokens.tolist(), CALL_S + 10 * token_s * len(tokens))
            rows = layout.source(upstream.save(slot, CALL_S))
            if np.array_equal(rows.tokens[:len(tokens)], tokens):
                break
        else:
            return None  # other requests', each time
        upstream.erase(slot, CALL_S)
    except UpstreamError:  # a slot has no room for so many, say
        return None
    report.count("calibrated")
    return calibrate.calibrated(layout.profile, layout.model, len(tokens), rows)
