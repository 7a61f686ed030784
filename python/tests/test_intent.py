"""What a program says it wants, by both caches: ends that stay, what stays longer, what goes."""
from __future__ import annotations

import asyncio
from typing import Optional

import numpy as np
import pytest

from cachesvc import AsyncCache, Cache, CacheError, Code, Missing, Model, Outcome, Side

from daemon import Daemon
from given import Array, Computed, plain, windowed


class Newest:
    """A RowSource that has no row of layer 0 before position 600 any more."""

    def __init__(self, model: Model, tokens: Array) -> None:
        self._all = Computed(model, tokens)

    def rows(self, layer: int, part: int, side: Side, first: int, end: int) -> Optional[Array]:
        gone = layer == 0 and first < 600
        return None if gone else self._all.rows(layer, part, side, first, end)

    def state(self, layer: int, part: int, position: int) -> bytes:
        return self._all.state(layer, part, position)


def test_named_ends_say_what_is_restorable(daemon: Daemon, namespace: str) -> None:
    """A windowed model: at 300 an entry of 900 lacks rows that its caller no longer has."""
    model, tokens = windowed(), np.arange(900)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        stored = cache.store_rows(model, tokens, Newest(model, tokens), ends=[300, 750, 900])
        assert [end.restorable for end in stored.ends] == [False, True, True]
        assert stored.ends[0].reason and not stored.ends[1].reason
        hit = cache.fetch_rows(model, np.append(tokens[:750], -1))
        assert hit.tokens == 750
        with pytest.raises(CacheError) as error:
            cache.store_rows(model, tokens, Computed(model, tokens), ends=range(1, 66))
        assert error.value.code == Code.INVALID_ARGUMENT


def test_what_is_retained_and_what_expires(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(700)

    async def main() -> None:
        async with AsyncCache(daemon.socket, namespace, strict=True) as cache:
            assert (await cache.retain(model, tokens, 5.0)).outcome == Outcome.MISSING
            await cache.store_rows(model, tokens, Computed(model, tokens), label="one",
                                   prefill_ms=12.5)
            kept = await cache.retain(model, tokens, 5.0)
            assert (kept.outcome, kept.tokens, kept.seconds) == (Outcome.ACCEPTED, 699, 5.0)
            assert await cache.renew(kept, 60.0) == 60.0 and await cache.release(kept)
            assert (await cache.expire(model, tokens, 3600)).objects == 3
            assert (await cache.expire(model, tokens, None)).outcome == Outcome.ACCEPTED
            assert (await cache.stats())["prefill_ms_told"] >= 13
    asyncio.run(main())
    with Cache("/nowhere", namespace) as down:
        assert not down.retain(model, tokens, 5.0)
        assert down.expire(model, tokens, 5.0).outcome == Outcome.REJECTED


def test_why_says_what_became_of_requests(daemon: Daemon, namespace: str) -> None:
    """Hits, misses and a question about tokens, by both caches."""
    model, tokens = plain(), np.arange(300)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens))
        cache.fetch_rows(model, tokens)
        cache.fetch_rows(model, tokens + 1000)
        missed, whole = cache.why(namespace=namespace)
        assert (whole.missing, whole.ram_tokens, whole.asked) == (Missing.NOTHING, 299, 300)
        assert missed.missing == Missing.NEVER_STORED and missed.number == whole.number + 1
        assert [r.number for r in cache.why(whole.number)] == [whole.number]
        assert len(cache.why(namespace=namespace, missed=True)) == 1
        told = cache.why(tokens=np.append(tokens, [7, 7]), namespace=namespace)
        assert [(r.missing_from, r.missing) for r in told] == [(300, Missing.NEVER_STORED)]
        with pytest.raises(CacheError) as error:
            cache.why(10**9)
        assert error.value.code == Code.NOT_FOUND

    async def same() -> None:
        async with AsyncCache(daemon.socket, namespace, strict=True) as cache:
            assert [r.number for r in await cache.why(namespace=namespace)] == [
                missed.number, whole.number]
    asyncio.run(same())
