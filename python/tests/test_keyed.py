"""Values and RowValues against the real daemon: what was stored under a key comes back, byte for
byte or as close as its bits, and nothing else does."""
from __future__ import annotations

import mmap
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator, List, Tuple

import numpy as np
import numpy.typing as npt
import pytest

from cachesvc import (Cache, CacheError, Code, Dtype, FetchOptions, Level, Output, OwnMemory,
                      raw_profile)
from cachesvc.keyed import HEAD_ROOM, VALUES, RowValues, Shape, Values
from cachesvc.objects import Form, Pieces
from cachesvc.store import ArrayRows

from daemon import Daemon, started

Array = npt.NDArray[Any]
SHAPE = Shape(layers=2, rows=256, heads=2, dim=64)
IDENTITY = b"engine, weights, layout"


@pytest.fixture(scope="module")
def coding_daemon() -> Iterator[Daemon]:
    """One that codes what nobody brings a profile for."""
    with started("256MiB", "256MiB", "tq4") as running:
        yield running


def rows_of(shape: Shape, seed: int) -> List[Tuple[Array, Array]]:
    chance = np.random.default_rng(seed)
    def one() -> Array:
        values: Array = chance.normal(0, 1, (shape.rows, shape.heads, shape.dim)).astype("<f4")
        return ((values.view("<u4") >> 16).astype("<u2") if shape.dtype == Dtype.BF16
                else values.astype(shape.dtype.numpy))
    return [(one(), one()) for _ in range(shape.layers)]


def room_for(shape: Shape) -> List[Tuple[Array, Array]]:
    return [(np.zeros_like(keys), np.zeros_like(values)) for keys, values in rows_of(shape, 0)]


def test_a_value_lies_as_the_format_says(daemon: Daemon, namespace: str) -> None:
    with Cache(daemon.socket, namespace, strict=True) as cache:
        values = Values(cache)
        assert VALUES.fingerprint.hex() == (
            "4517f2fc147e1951bf669287f2a22e72cdf8efe48053e97eb425683a7af5fc60")
        tokens = values.tokens(b"key").tolist()
        assert tokens == [736194604, -112851334, 670333218, 1938731975, 954587188, 2048327580,
                          1930347293, -2085214472]
        assert values.put(b"key", b"value")
        state = cache.fetch_rows(VALUES, tokens + [0]).state(0)
        assert state is not None
        assert state.tobytes() == b"\x03\0\0\0key" + bytes(57) + b"value"


@pytest.mark.parametrize("key", [b"", b"k" * 59, b"k" * 60, b"k" * 61, b"k" * 4096], ids=len)
@pytest.mark.parametrize("size", [0, 1, 4097, 3 << 20])
def test_any_bytes_come_back(daemon: Daemon, namespace: str, key: bytes, size: int) -> None:
    value = os.urandom(size)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        values = Values(cache)
        assert values.get(key) is None and values.exists([key]) == [False]
        assert values.put(key, value).objects == 2
        assert values.get(key) == value
        room = bytearray(size)
        assert values.get_into(key, room) and bytes(room) == value
        assert not values.get_into(key, bytearray(size + 1))


def test_a_value_in_an_engines_own_memory_does_not_travel(daemon: Daemon, namespace: str) -> None:
    pool = os.memfd_create("an engine's")
    os.ftruncate(pool, 1 << 20)
    mapped: Array = np.frombuffer(mmap.mmap(pool, 1 << 20), np.uint8)
    mapped[:] = np.frombuffer(os.urandom(1 << 20), np.uint8)
    memory = OwnMemory(HEAD_ROOM, (pool, mapped))  # for one thread
    pieces = [mapped[at:at + 50_000].data for at in (500_000, 0, 200_001)]
    value = b"".join(pieces)
    with Cache(daemon.socket, namespace, strict=True, memory=memory) as cache:
        values = Values(cache, memory)
        before = daemon.bytes_read()
        assert values.put(b"first", Pieces(pieces)).objects == 2
        assert daemon.bytes_read() - before >= len(value)
        mapped[:] = 0
        assert values.get(b"first") == value and values.get(b"second") is None
        for key, given in ((b"elsewhere", value), (b"k" * 4096, b""), (b"empty", b"")):
            assert values.put(key, given) and values.get(key) == given
        with ThreadPoolExecutor() as another:  # for which there is no room
            assert another.submit(values.put, b"sent", Pieces([value, value])).result()
        assert values.get(b"sent") == 2 * value
    os.close(pool)


def test_a_key_is_compared_not_its_hash(daemon: Daemon, namespace: str) -> None:
    with Cache(daemon.socket, namespace, strict=True) as cache:
        values = Values(cache)
        state = b"\x05\0\0\0other" + bytes(55) + b"value"
        rows = ArrayRows(VALUES, 8, {}, {(0, 0, 8): state})
        cache.store_rows(VALUES, values.tokens(b"key"), rows)
        assert values.exists([b"key"]) == [True]
        assert values.get(b"key") is None
        assert not values.get_into(b"key", bytearray(5))


def test_the_first_value_stays_until_it_is_replaced_or_deleted(daemon: Daemon,
                                                               namespace: str) -> None:
    with Cache(daemon.socket, namespace, strict=True) as cache:
        values = Values(cache)
        values.put(b"key", b"first")
        assert values.put(b"key", b"second").objects == 0
        assert values.get(b"key") == b"first"
        assert values.put(b"key", b"third", replace=True)
        assert values.get(b"key") == b"third"
        values.put(b"other", b"there")
        assert values.delete(b"key") and not values.delete(b"key")
        assert values.exists([b"key", b"other"]) == [False, True]


def test_a_held_value_is_read_by_its_hold(daemon: Daemon, namespace: str) -> None:
    with Cache(daemon.socket, namespace, strict=True) as cache:
        values = Values(cache)
        assert not values.hold(b"key", 10.0)
        values.put(b"key", b"value")
        held = values.hold(b"key", 10.0)
        assert held and held.seconds == 10.0
        assert values.get(b"key", hold=held.number) == b"value"
        assert cache.stats()["namespace_holds"] == 1
        assert cache.release(held)
        with pytest.raises(CacheError) as error:
            values.get(b"key", hold=held.number)
        assert error.value.code == Code.NOT_FOUND


def test_rows_of_which_some_went_are_neither_held_nor_read(daemon: Daemon, namespace: str) -> None:
    shape = Shape(1, 8192, 1, 8)  # two blocks
    given = rows_of(shape, 1)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        keyed = RowValues(cache, shape, IDENTITY)
        tokens = keyed.tokens(b"key")
        assert tokens[:2].tolist() == [1033501207, 918416478]
        halves = [(keys[:4096], values[:4096]) for keys, values in given]
        cache.store_rows(keyed.model, tokens[:4096], halves, extras=[(0, b"key")],
                         profile=raw_profile(keyed.model, shape.dtype, 4096))
        held = keyed.hold(b"key", 10.0)
        assert not held and held.found.tokens == 4096
        assert cache.stats()["namespace_holds"] == 0
        assert keyed.exists([b"key"]) == [False] and not keyed.get_into(b"key", room_for(shape))
        assert keyed.put(b"key", given).objects == 1
        assert keyed.hold(b"key", 10.0) and keyed.get_into(b"key", room_for(shape))


@pytest.mark.parametrize("dtype", list(Dtype))
def test_lossless_rows_come_back_bit_for_bit(daemon: Daemon, namespace: str, dtype: Dtype) -> None:
    for rows in (1, 7, 256, 700, 8192):
        shape = Shape(2, rows, 2, 64, dtype)
        given, room = rows_of(shape, rows), room_for(shape)
        with Cache(daemon.socket, namespace, strict=True) as cache:
            keyed = RowValues(cache, shape, IDENTITY)
            assert not keyed.get_into(b"key", room)
            assert keyed.put(b"key", given)
            assert keyed.exists([b"key", b"another"]) == [True, False]
            assert keyed.get_into(b"key", room)
            assert all(np.array_equal(a, b) for sides, back in zip(given, room)
                       for a, b in zip(sides, back))
            assert not keyed.get_into(b"another", room)


def test_coded_rows_are_close_and_small(daemon: Daemon, namespace: str) -> None:
    given, room = rows_of(SHAPE, 1), room_for(SHAPE)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        keyed = RowValues(cache, SHAPE, IDENTITY, bits=(8, 4))
        assert keyed.put(b"key", given) and keyed.get_into(b"key", room)
        for (keys, values), (keys_back, values_back) in zip(given, room):
            for one, back, most in ((keys, keys_back, 0.02), (values, values_back, 0.2)):
                assert 0 < np.sqrt(np.square(one - back, dtype=np.float32).mean()) < most
        hit = cache.fetch_rows(keyed.model, keyed._asked(b"key"), extras=[(0, b"key")],
                               options=FetchOptions(Output.STORED))
        assert [(run.form, run.end) for run in hit.pieces(0)] == [(Form.EXACT, 4),
                                                                  (Form.CODES, 256)]


@pytest.mark.parametrize("ask", [
    lambda keyed: keyed.exists([b"key"]), lambda keyed: keyed.hold(b"key", 1.0),
    lambda keyed: keyed.prefetch(b"key"), lambda keyed: keyed.delete(b"key"),
    lambda keyed: keyed.get_into(b"key", room_for(SHAPE))],
    ids=["exists", "hold", "prefetch", "delete", "get_into"])
def test_whoever_asks_first_sets_the_coding(coding_daemon: Daemon, namespace: str,
                                            ask: Any) -> None:
    given, room = rows_of(SHAPE, 1), room_for(SHAPE)
    with Cache(coding_daemon.socket, namespace, strict=True) as cache:
        keyed = RowValues(cache, SHAPE, IDENTITY)
        ask(keyed)
        assert keyed.put(b"key", given) and keyed.get_into(b"key", room)
        assert np.array_equal(given, room)


@pytest.mark.parametrize("other", [
    lambda cache: RowValues(cache, SHAPE, b"other weights"),
    lambda cache: RowValues(cache, SHAPE, IDENTITY, bits=(8, 8)),
    lambda cache: RowValues(cache, Shape(1, 256, 2, 64), IDENTITY)],
    ids=["identity", "bits", "shape"])
def test_rows_of_another_kind_are_a_miss(daemon: Daemon, namespace: str, other: Any) -> None:
    with Cache(daemon.socket, namespace, strict=True) as cache:
        assert RowValues(cache, SHAPE, IDENTITY).put(b"key", rows_of(SHAPE, 1))
        keyed = other(cache)
        assert keyed.exists([b"key"]) == [False]
        assert not keyed.get_into(b"key", room_for(keyed.shape))


def test_bad_rows_and_keys_are_refused_and_nothing_is_stored(daemon: Daemon,
                                                            namespace: str) -> None:
    given = rows_of(SHAPE, 1)
    with Cache(daemon.socket, namespace) as cache:
        keyed = RowValues(cache, SHAPE, IDENTITY, bits=(4, 4))
        given[1][0][9, 0, 3] = np.nan
        stored = keyed.put(b"key", given)
        assert not stored and stored.error is not None
        assert stored.error.code == Code.INVALID_ARGUMENT
        assert keyed.exists([b"key"]) == [False]
        odd = RowValues(cache, Shape(1, 64, 1, 60000), IDENTITY, bits=(4, 4))
        refused = odd.put(b"key", rows_of(odd.shape, 1))
        assert refused.error is not None and "60000" in str(refused.error)
        for bad in (given[:1], [(keys[:9], values) for keys, values in given]):
            with pytest.raises(CacheError):
                keyed.put(b"key", bad)
        with pytest.raises(CacheError):
            RowValues(cache, SHAPE, IDENTITY, bits=(5, 4))
        with pytest.raises(CacheError):
            Values(cache).put(b"k" * 4097, b"")


def test_values_outlive_kill_9_and_a_daemon_that_is_gone_is_a_miss(own_daemon: Daemon,
                                                                   namespace: str) -> None:
    given, room = rows_of(SHAPE, 1), room_for(SHAPE)
    with Cache(own_daemon.socket, namespace, first_pause=0.01) as cache:
        values, keyed = Values(cache), RowValues(cache, SHAPE, IDENTITY, bits=(8, 8))
        assert values.put(b"key", b"value", wait_for=Level.SPILLED).level >= Level.SPILLED
        assert keyed.put(b"key", given, wait_for=Level.SPILLED).level >= Level.SPILLED
        own_daemon.kill()
        assert values.get(b"key") is None and values.exists([b"key"]) == [False]
        assert not values.hold(b"key", 1.0) and not values.put(b"new", b"value")
        assert not keyed.get_into(b"key", room)
        own_daemon.start()
        with Cache(own_daemon.socket, namespace, strict=True) as again:
            assert Values(again).get(b"key") == b"value"
            assert RowValues(again, SHAPE, IDENTITY, bits=(8, 8)).get_into(b"key", room)
        own_daemon.signal(signal.SIGSTOP)
        assert values.get(b"key", timeout=0.1) is None
        assert values.get(b"key", timeout=0.1) is None
        assert cache.failures["deadline_exceeded"] + cache.failures["unavailable"] >= 6
