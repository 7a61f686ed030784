"""A service that dies, hangs, restarts or is full: a miss within the deadline, then back again."""
from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import time
from typing import List, Tuple

import numpy as np

from cachesvc import AsyncCache, Cache, Code, FetchOptions, Level, Refused, Stored
from cachesvc.frames import Type, encode_header
from cachesvc.messages import Error

from daemon import Daemon, started
from given import Array, Computed, plain
from proxy import Proxy, type_of, with_body, with_type
from test_threads import Slow, beside


def test_no_service_is_a_miss_at_once_and_then_a_rest() -> None:
    cache = Cache("/nowhere/at/all", "n", first_pause=0.2)
    miss = cache.fetch_rows(plain(), [1, 2])
    assert not miss and miss.error is not None and miss.error.code == Code.UNAVAILABLE
    assert "No such file" in miss.why
    assert "resting" in cache.fetch_rows(plain(), [1, 2]).why
    assert "resting" in cache.lookup(plain(), [1, 2]).reason
    time.sleep(0.25)
    assert "No such file" in cache.fetch_rows(plain(), [1, 2]).why
    assert cache.failures == {"unavailable": 4}


def test_a_service_killed_in_a_store_is_a_miss_and_back_after_its_restart(
        own_daemon: Daemon) -> None:
    model, tokens = plain(), np.arange(1500)
    other = tokens + 9000
    cache = Cache(own_daemon.socket, "n", first_pause=0.05)
    assert cache.store_rows(model, tokens, Computed(model, tokens), wait_for=Level.SPILLED)
    results: List[Stored] = []
    store = beside(lambda: results.append(
        cache.store_rows(model, other, Slow(model, other), timeout=20)))
    time.sleep(0.3)
    own_daemon.kill()
    store.join()
    assert not results[0] and results[0].error is not None
    assert results[0].error.code == Code.UNAVAILABLE
    assert cache.fetch_rows(model, tokens).tokens == 0
    own_daemon.start()
    time.sleep(0.3)
    hit = cache.fetch_rows(model, tokens, timeout=10)  # what was spilled is there
    assert hit.tokens == 1499, hit.why
    assert cache.fetch_rows(model, other).tokens == 0


def test_a_restart_between_two_calls_is_not_even_a_miss(own_daemon: Daemon) -> None:
    model, tokens = plain(), np.arange(300)
    cache = Cache(own_daemon.socket, "n")
    assert cache.store_rows(model, tokens, Computed(model, tokens), wait_for=Level.SPILLED)
    own_daemon.kill()
    own_daemon.start()
    assert cache.fetch_rows(model, tokens, timeout=10).tokens == 299
    assert not cache.failures


def test_a_service_that_hangs_costs_the_deadline_and_then_nothing(own_daemon: Daemon) -> None:
    model, tokens = plain(), np.arange(300)
    cache = Cache(own_daemon.socket, "n", first_pause=0.3)
    assert cache.store_rows(model, tokens, Computed(model, tokens))
    own_daemon.signal(signal.SIGSTOP)
    began = time.monotonic()
    miss = cache.fetch_rows(model, tokens, timeout=0.2)
    assert not miss and miss.error is not None and miss.error.code == Code.DEADLINE_EXCEEDED
    assert 0.15 < time.monotonic() - began < 1.5
    began = time.monotonic()
    assert not cache.fetch_rows(model, tokens, timeout=0.2)
    assert time.monotonic() - began < 0.1
    own_daemon.signal(signal.SIGCONT)
    time.sleep(0.35)
    assert cache.fetch_rows(model, tokens, timeout=10).tokens == 299


def test_a_full_budget_evicts_and_an_entry_beyond_it_is_refused() -> None:
    model = plain(layers=8)

    def stored(cache: Cache, tokens: Array) -> Stored:
        return cache.store_rows(model, tokens, Computed(model, tokens), timeout=5)
    with started("16MiB", "0") as daemon, Cache(daemon.socket, "n") as cache:
        for turn in range(40):
            tokens = np.arange(600) + 1000 * turn
            assert stored(cache, tokens), cache.last_error
            assert cache.fetch_rows(model, tokens, timeout=10).tokens == 599
        assert cache.fetch_rows(model, np.arange(600)).tokens == 0
        assert not cache.failures
        large = stored(cache, np.arange(30_000) + 100_000)
        assert not large and large.error is not None
        assert large.error.code in (Code.RESOURCE_EXHAUSTED, Code.BUSY, Code.DEADLINE_EXCEEDED)
        assert isinstance(large.error, Refused)  # so the service does not rest
        assert stored(cache, np.arange(600) + 50_000), cache.last_error


def busy(frame: bytes) -> bytes:
    """An error frame that answers what the frame answers."""
    return with_body(with_type(frame, Type.ERROR), Error(Code.BUSY, "no room").encode())


def test_a_put_that_meets_no_room_is_made_again_within_the_calls_time(daemon: Daemon,
                                                                     namespace: str) -> None:
    model, tokens = plain(), np.arange(600)
    proxy = Proxy(daemon.socket)
    refusals = 0

    def change(number: int, frame: bytes) -> Tuple[bytes, bool]:
        nonlocal refusals
        if type_of(frame) == Type.PUT_OK and refusals > 0:
            refusals -= 1
            return busy(frame), True
        return frame, True
    proxy.begin(change)
    with Cache(proxy.path, namespace) as cache:
        refusals = 5
        assert cache.store_rows(model, tokens, Computed(model, tokens)), cache.last_error
        refusals = 1 << 30
        stored = cache.store_rows(model, tokens + 1, Computed(model, tokens + 1), timeout=0.2)
        assert isinstance(stored.error, Refused) and stored.error.code == Code.BUSY
        refusals = 0
        assert cache.fetch_rows(model, tokens).tokens == 599
        assert cache.stats()["reservations"] == 0  # it was given up by the client
    proxy.close()


def test_what_a_service_says_before_it_hangs_up_is_told() -> None:
    """An error under request id 0, from a service that reads nothing."""
    farewell = Error(Code.BUSY, "at most 3 connections").encode()
    with tempfile.TemporaryDirectory() as folder, \
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path = os.path.join(folder, "s")
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            for _ in range(2):
                client, _ = listener.accept()
                client.sendall(encode_header(Type.ERROR, 0, len(farewell)) + farewell)
                client.close()
        thread = beside(serve)
        said = Cache(path, "n").fetch_rows(plain(), [1, 2]).why

        async def main() -> str:
            async with AsyncCache(path, "n") as cache:
                return (await cache.fetch_rows(plain(), [1, 2])).why
        for why in (said, asyncio.run(main())):
            assert "at most 3 connections (busy)" in why
        thread.join()


def test_a_hit_on_its_way_from_the_ssd_is_pending_for_a_call_that_does_not_wait(
        own_daemon: Daemon) -> None:
    model, tokens = plain(), np.arange(3000)
    with Cache(own_daemon.socket, "n", strict=True) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens), wait_for=Level.SPILLED)
        own_daemon.kill()
        own_daemon.start()
        until = time.monotonic() + 10
        hit = cache.fetch_rows(model, tokens, options=FetchOptions(wait=False))
        while not hit and time.monotonic() < until:
            assert hit.pending == 2999 and not hit.objects
            hit = cache.fetch_rows(model, tokens, options=FetchOptions(wait=False))
        assert hit.tokens == 2999 and hit.pending == 0
