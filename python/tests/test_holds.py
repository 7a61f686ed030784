"""Holds and demotes through both caches: what was promised comes by its number, a lost hold is a
miss, and what leaves RAM says so."""
from __future__ import annotations

import asyncio

import numpy as np
import pytest

from cachesvc import (AsyncCache, Cache, CacheError, Code, FetchOptions, Held, Level, Outcome,
                      Tier)

from daemon import Daemon
from given import Computed, plain
from test_cache import check_rows


def test_one_plans_and_another_loads(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(900)
    with Cache(daemon.socket, namespace, strict=True) as scheduler, \
            Cache(daemon.socket, namespace, strict=True) as worker:
        assert not scheduler.hold(model, tokens, 30.0)
        scheduler.store_rows(model, tokens[:600], Computed(model, tokens))
        held = scheduler.hold(model, tokens, 30.0)
        assert held and held.seconds == 30.0
        assert (held.found.tokens, held.found.tier) == (600, Tier.RAM)
        scheduler.store_rows(model, tokens, Computed(model, tokens))
        hit = worker.fetch_rows(model, tokens, options=FetchOptions(hold=held.number))
        assert hit.tokens == 600
        check_rows(hit, model, tokens)
        with Cache(daemon.socket, namespace) as mistaken:  # the number's tokens are others
            options = FetchOptions(hold=held.number)
            assert not mistaken.fetch_rows(model, tokens + 1, options=options)
        assert worker.renew(held, 60.0) == 60.0
        assert worker.release(held)
        with pytest.raises(CacheError) as error:
            scheduler.release(held)
        assert error.value.code == Code.NOT_FOUND


def test_a_lost_hold_is_a_miss(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(300)
    with Cache(daemon.socket, namespace) as cache:
        hit = cache.fetch_rows(model, tokens, options=FetchOptions(hold=5))
        assert not hit and hit.error is not None and hit.error.code == Code.NOT_FOUND
        assert cache.prefetch(model, hold=5).tokens == 0
        assert cache.renew(Held(5), 1.0) == 0.0
        assert not cache.release(Held(5))
        assert cache.failures == {"not_found": 4}


def test_tasks_hold_wait_and_fetch(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(700)

    async def main() -> None:
        async with AsyncCache(daemon.socket, namespace, strict=True) as cache:
            await cache.store_rows(model, tokens, Computed(model, tokens), wait_for=Level.SPILLED)
            held = await cache.hold(model, tokens, 30.0)
            assert held.found.tokens == 699
            come = await cache.prefetch(model, hold=held.number, wait=True)
            assert (come.tokens, come.tier) == (699, Tier.RAM)
            hit = await cache.fetch_rows(model, tokens, options=FetchOptions(hold=held.number))
            assert hit.tokens == 699
            assert await cache.renew(held, 40.0) == 40.0
            assert await cache.release(held)
            assert not cache.failures
    asyncio.run(main())


def test_what_leaves_ram_is_on_the_ssd(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(700)

    async def main() -> None:
        async with AsyncCache(daemon.socket, namespace, strict=True) as cache:
            assert (await cache.demote(model, tokens)).outcome == Outcome.MISSING
            await cache.store_rows(model, tokens, Computed(model, tokens), wait_for=Level.SPILLED)
            assert (await cache.demote(model, tokens)).outcome == Outcome.ACCEPTED
            assert (await cache.lookup(model, tokens)).tier == Tier.SSD
            assert (await cache.fetch_rows(model, tokens)).tokens == 699
    asyncio.run(main())
    with Cache(daemon.socket, namespace) as other:
        assert other.demote(model, hold=5).outcome == Outcome.REJECTED  # a failure, said
        assert other.failures == {"not_found": 1}
