"""Rows in memory of the client's own: the daemon reads them there, and they stay the client's."""
from __future__ import annotations

import asyncio
import pathlib
from typing import Any, List, Tuple

import numpy as np
import numpy.typing as npt
import pytest

from cachesvc import AsyncCache, Cache, CacheError, Code, FetchOptions, OwnMemory
from cachesvc.models import Dtype, Model

from daemon import Daemon
from given import Computed, plain

Array = npt.NDArray[Any]
TOKENS = np.arange(600)


def rows_in(memory: OwnMemory, model: Model) -> List[Tuple[Array, Array]]:
    """K and V of each layer, in `memory`."""
    source = Computed(model, TOKENS, Dtype.F16)
    rows: List[Tuple[Array, Array]] = []
    for layer, index, part in model.parts():
        sides = []
        for side in part.sides:
            given = source.rows(layer, index, side, 0, len(TOKENS))
            sides.append(memory.array(given.shape, given.dtype))
            sides[-1][:] = given
        rows.append((sides[0], sides[1]))
    return rows


def check(hit: Any, model: Model) -> None:
    source = Computed(model, TOKENS, Dtype.F16)
    assert hit.tokens == len(TOKENS) - 1
    for layer, index, part in model.parts():
        for side, values in zip(part.sides, hit.keys_values(layer)):
            assert np.array_equal(values, source.rows(layer, index, side, 0, hit.tokens))


def test_rows_do_not_travel_and_may_change_afterwards(daemon: Daemon, namespace: str) -> None:
    model, memory = plain(), OwnMemory(1 << 20)
    rows = rows_in(memory, model)
    with Cache(daemon.socket, namespace, strict=True, memory=memory) as cache:
        before = daemon.bytes_read()
        assert cache.store_rows(model, TOKENS, rows).objects == 3
        assert daemon.bytes_read() - before >= sum(side.nbytes for sides in rows for side in sides)
        for sides in rows:
            for side in sides:
                side[:] = 0
        check(cache.fetch_rows(model, TOKENS), model)


def test_rows_elsewhere_are_sent(daemon: Daemon, namespace: str) -> None:
    model, memory = plain(), OwnMemory(1 << 20)
    rows = rows_in(memory, model)
    rows[0] = (rows[0][0].copy(), rows[0][1])
    with Cache(daemon.socket, namespace, strict=True, memory=memory) as cache:
        before = daemon.bytes_read()
        assert cache.store_rows(model, TOKENS, rows).objects == 3
        assert daemon.bytes_read() - before < rows[0][0].nbytes
        check(cache.fetch_rows(model, TOKENS), model)


def test_asyncio_hands_it_over_too(daemon: Daemon, namespace: str) -> None:
    model, memory = plain(), OwnMemory(1 << 20)
    rows = rows_in(memory, model)

    async def store() -> Any:
        async with AsyncCache(daemon.socket, namespace, strict=True, memory=memory) as cache:
            before = daemon.bytes_read()
            assert (await cache.store_rows(model, TOKENS, rows)).objects == 3
            assert daemon.bytes_read() - before >= rows[0][0].nbytes
            return await cache.fetch_rows(model, TOKENS)
    check(asyncio.run(store()), model)


def test_arrays_follow_each_other_until_there_is_no_room() -> None:
    memory = OwnMemory(4096)
    first, second = memory.array((3,), np.uint8), memory.array((2, 5), "<f4")
    assert memory.offset_of(first) == 0 and memory.offset_of(second.view(np.uint8)) == 64
    with pytest.raises(MemoryError, match="of 4096 are left"):
        memory.array((4096,), np.uint8)
    memory.clear()
    assert memory.array((4096,), np.uint8).nbytes == 4096
    assert memory.offset_of(np.zeros(3, np.uint8)) is None


def bytes_written(daemon: Daemon) -> int:
    lines = pathlib.Path(f"/proc/{daemon.pid}/io").read_text().splitlines()
    return int(lines[1].split()[1])


def test_a_hit_is_written_where_it_belongs(daemon: Daemon, namespace: str) -> None:
    model, memory = plain(), OwnMemory(1 << 20)
    with Cache(daemon.socket, namespace, strict=True, memory=memory) as cache:
        cache.store_rows(model, TOKENS, Computed(model, TOKENS, Dtype.F16))
        into = memory.array((1 << 19,), np.uint8)
        before = bytes_written(daemon)
        hit = cache.fetch_rows(model, TOKENS, options=FetchOptions(into=into))
        rows = sum(each.header.payload_bytes() for each in hit.objects)
        assert bytes_written(daemon) - before >= rows
        check(hit, model)
        assert np.shares_memory(hit.pieces(0)[0].values, into)
        elsewhere = np.full((1 << 18,), 7, np.uint16)
        hit = cache.fetch_rows(model, TOKENS, options=FetchOptions(into=elsewhere))
        check(hit, model)
        assert hit.valid() and np.shares_memory(hit.pieces(0)[0].values, elsewhere)
        for wrong in (into[::2], b"no array"):
            with pytest.raises(CacheError, match="writable, contiguous"):
                cache.fetch_rows(model, TOKENS, options=FetchOptions(into=wrong))  # type: ignore
        for short in (into[:rows - 1], elsewhere[:8]):
            with pytest.raises(CacheError) as refused:
                cache.fetch_rows(model, TOKENS, options=FetchOptions(into=short))
            assert refused.value.code == Code.RESOURCE_EXHAUSTED
        assert cache.fetch_rows(model, TOKENS, options=FetchOptions(into=into[:rows])).tokens


def test_asyncio_has_it_written_too(daemon: Daemon, namespace: str) -> None:
    model, memory = plain(), OwnMemory(1 << 20)

    async def fetch() -> Any:
        async with AsyncCache(daemon.socket, namespace, strict=True, memory=memory) as cache:
            await cache.store_rows(model, TOKENS, Computed(model, TOKENS, Dtype.F16))
            into = memory.array((1 << 19,), np.uint8)
            return await cache.fetch_rows(model, TOKENS, options=FetchOptions(into=into))
    check(asyncio.run(fetch()), model)
