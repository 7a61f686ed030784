"""AsyncCache against the real daemon."""
from __future__ import annotations

import asyncio
import gc
import os
import signal

import numpy as np
import pytest

from cachesvc import AsyncCache, CacheError, Code, FetchOptions, Level, Output, Refused
from cachesvc.aio import AsyncConnection

from daemon import Daemon
from given import Computed, plain
from test_cache import check_rows
from test_pools import is_mapped, mapped_ranges, open_files


def test_tasks_store_and_fetch_side_by_side(daemon: Daemon, namespace: str) -> None:
    model = plain()

    async def one(cache: AsyncCache, number: int) -> None:
        tokens = np.arange(400) + 1000 * number
        stored = await cache.store_rows(model, tokens, Computed(model, tokens))
        assert stored.level >= Level.ACCEPTED
        hit = await cache.fetch_rows(model, tokens)
        assert hit.tokens == 399
        check_rows(hit, model, tokens)
        assert (await cache.lookup(model, tokens)).tokens == 399
        assert (await cache.prefetch(model, tokens)).tokens == 399

    async def main() -> None:
        async with AsyncCache(daemon.socket, namespace, strict=True, connections=3) as cache:
            await asyncio.gather(*[one(cache, number) for number in range(8)])
            assert (await cache.open(model)).profile.block_tokens == 256
            assert (await cache.stats())["commits"] > 0
            assert await cache.erase(model) > 0
            assert not cache.failures
    asyncio.run(main())


def test_large_rows_go_both_ways(daemon: Daemon, namespace: str) -> None:
    model = plain(layers=16)
    tokens = np.arange(1100)

    async def main() -> None:
        async with AsyncCache(daemon.socket, namespace, strict=True) as cache:
            await cache.store_rows(model, tokens, Computed(model, tokens))
            check_rows(await cache.fetch_rows(model, tokens, timeout=10), model, tokens)
    asyncio.run(main())


def test_a_hit_is_read_where_it_lies_and_its_lease_ends(own_daemon: Daemon) -> None:
    model, tokens = plain(), np.arange(800)
    options = FetchOptions(Output.STORED)

    async def main() -> None:
        streaming = AsyncCache(own_daemon.socket, "n", strict=True, map_segments=False)
        async with AsyncCache(own_daemon.socket, "n", strict=True,
                              connections=1) as cache, streaming:
            await cache.store_rows(model, tokens, Computed(model, tokens))
            check_rows(await cache.fetch_rows(model, tokens), model, tokens)
            check_rows(await streaming.fetch_rows(model, tokens), model, tokens)
            hit = await cache.fetch_rows(model, tokens, options=options)
            other = await streaming.fetch_rows(model, tokens, options=options)
            mine, theirs = hit.pieces(0)[0].values, other.pieces(0)[0].values
            assert is_mapped(mine) and not is_mapped(theirs) and np.array_equal(mine, theirs)
            assert hit.valid() and (await cache.stats())["pins"] > 0
            del hit, mine
            gc.collect()
            while (await cache.stats())["pins"] > 0:  # it is told before this, and lets go soon
                await asyncio.sleep(0.001)
    before = open_files()
    asyncio.run(main())
    assert open_files() == before and not mapped_ranges()


def test_a_closed_connection_keeps_no_descriptor() -> None:
    before = open_files()
    connection = AsyncConnection("n")
    connection._pools.descriptors.append(os.dup(0))  # its frame did not come
    connection.close()
    assert open_files() == before


def test_a_hang_and_a_death_are_misses(own_daemon: Daemon) -> None:
    model, tokens = plain(), np.arange(300)

    async def main() -> None:
        async with AsyncCache(own_daemon.socket, "n", first_pause=0.01) as cache:
            assert await cache.store_rows(model, tokens, Computed(model, tokens),
                                          wait_for=Level.SPILLED)
            own_daemon.signal(signal.SIGSTOP)
            miss = await cache.fetch_rows(model, tokens, timeout=0.1)
            assert miss.error is not None and miss.error.code == Code.DEADLINE_EXCEEDED
            own_daemon.signal(signal.SIGCONT)
            await asyncio.sleep(0.1)
            assert await cache.fetch_rows(model, tokens, timeout=10)
            own_daemon.kill()
            own_daemon.start()
            assert (await cache.fetch_rows(model, tokens, timeout=10)).tokens == 299
            own_daemon.kill()
            assert not await cache.fetch_rows(model, tokens)
            with pytest.raises(CacheError):
                await cache.erase(model)
    asyncio.run(main())


def test_a_cancelled_call_leaves_the_cache_usable(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(300)

    async def main() -> None:
        async with AsyncCache(daemon.socket, namespace, strict=True, connections=1) as cache:
            for delay in (0.0, 0.001, 0.002, 0.004):
                task = asyncio.ensure_future(
                    cache.store_rows(model, tokens, Computed(model, tokens)))
                await asyncio.sleep(delay)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                    raise asyncio.CancelledError  # it was done already
            assert await cache.store_rows(model, tokens, Computed(model, tokens))
            assert (await cache.fetch_rows(model, tokens)).tokens == 299
    asyncio.run(main())


def test_calls_wait_for_a_connection_within_their_time_and_none_is_lost(daemon: Daemon,
                                                                       namespace: str) -> None:
    model, tokens = plain(), np.arange(300)

    async def main() -> None:
        async with AsyncCache(daemon.socket, namespace, connections=1) as cache:
            async with cache._free:  # all connections, taken by nobody
                miss = await cache.fetch_rows(model, tokens, timeout=0.05)
                assert isinstance(miss.error, Refused) and "in use" in miss.why
                waiting = asyncio.ensure_future(cache.fetch_rows(model, tokens, timeout=5))
                await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert (await cache.fetch_rows(model, tokens)).error is None
    asyncio.run(main())


def test_a_closed_cache_says_so_and_keeps_no_connection(daemon: Daemon, namespace: str) -> None:
    async def main() -> None:
        cache = AsyncCache(daemon.socket, namespace, strict=True)
        call = asyncio.ensure_future(cache.stats())
        await asyncio.sleep(0)
        await cache.close()
        await call
        assert not cache._idle
        with pytest.raises(CacheError):
            await cache.stats()
    asyncio.run(main())
