"""Self check: a known pattern goes through a server's own slot, and must come back bit for bit.

A cache layout that means something else than this package thinks (as happened to others when two
layouts had one shape) would serve wrong rows without an error. So nothing is stored or restored
before this has passed.
"""
from __future__ import annotations

from typing import Callable, Tuple

import numpy as np

from .checks import pattern, same_rows
from .errors import CacheError, Code
from .llama_rows import Layout
from .llama_upstream import Upstream
from .wire import Buffer

TOKENS = np.arange(1, 49, dtype="<i4")
CALL_S = 60.0


def attach(upstream: Upstream, layout_of: Callable[[Buffer], Layout],
           slot: int) -> Tuple[Layout, float]:
    """The layout of a server, learnt and checked on one slot, whose contents are lost; and the
    seconds that it took to compute a token there.

    CacheError: it is refused, by name. UpstreamError: the server did not play its part.
    """
    token_s = upstream.compute(slot, TOKENS.tolist(), CALL_S)
    data = upstream.save(slot, CALL_S)
    layout = layout_of(data)
    if layout.opaque:
        upstream.restore(slot, [data], CALL_S)
        same = upstream.save(slot, CALL_S) == data
    else:
        same = _pattern_returns(upstream, layout, slot)
    if not same:
        raise CacheError(Code.UNSUPPORTED, "the self check: a slot that was restored and saved "
                                           "holds other rows")
    upstream.erase(slot, CALL_S)
    return layout, token_s


def _pattern_returns(upstream: Upstream, layout: Layout, slot: int) -> bool:
    given = pattern(layout.model, len(TOKENS))
    upstream.restore(slot, layout.file_for(TOKENS, given), CALL_S)
    rows = layout.source(upstream.save(slot, CALL_S))
    return rows.tokens.tolist() == TOKENS.tolist() and same_rows(given, rows)
