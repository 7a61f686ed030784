"""Threads, forks and limits: who shares a Cache with whom, and for how long a call waits."""
from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, List

import numpy as np
import pytest

from cachesvc import Cache, CacheError, Code, Refused
from cachesvc.deadline import Deadline

from daemon import Daemon
from given import Array, Computed, plain
from test_cache import check_rows


class Slow(Computed):
    """Rows that take long: a store is in the middle for a while."""

    def rows(self, *where: Any) -> Array:
        time.sleep(0.03)
        return super().rows(*where)


def beside(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def exit_code_of_child(work: Callable[[], bool]) -> int:
    """0 if work was done well in a forked child; it has 20 s."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    for _ in range(2000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def test_threads_share_a_cache(daemon: Daemon, namespace: str) -> None:
    model = plain()
    failed: List[str] = []

    def work(cache: Cache, thread: int) -> None:
        for turn in range(5):
            tokens = np.arange(300) + 1000 * (10 * thread + turn)
            if not cache.store_rows(model, tokens, Computed(model, tokens)):
                failed.append(f"store {thread} {turn}: {cache.last_error}")
            hit = cache.fetch_rows(model, tokens, timeout=10)
            if hit.tokens != 299:
                failed.append(f"fetch {thread} {turn}: {hit.why}")
            else:
                check_rows(hit, model, tokens)

    with Cache(daemon.socket, namespace, connections=3) as cache:
        threads = [threading.Thread(target=work, args=(cache, i)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_a_forked_child_has_connections_of_its_own(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(50)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens))
        assert exit_code_of_child(lambda: cache.fetch_rows(model, tokens).tokens == 49) == 0
        assert cache.fetch_rows(model, tokens).tokens == 49


def test_a_fork_in_the_middle_of_other_calls_stops_neither_side(daemon: Daemon,
                                                               namespace: str) -> None:
    model, tokens, long = plain(), np.arange(50), np.arange(1000) + 5000
    with Cache(daemon.socket, namespace, strict=True, connections=1) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens))
        slow = beside(lambda: cache.store_rows(model, long, Slow(model, long)))
        time.sleep(0.1)
        # As if a thread that the child has not were inside: the child may wait for neither lock.
        with cache._pool._changed, cache._guard._lock:
            code = exit_code_of_child(lambda: cache.fetch_rows(model, tokens).tokens == 49)
        slow.join()
        assert code == 0
        assert cache.fetch_rows(model, long).tokens == 999


def test_a_closed_connection_has_ended_for_the_service_though_a_child_has_it_open(
        daemon: Daemon, namespace: str) -> None:
    cache = Cache(daemon.socket, namespace, strict=True)
    before = cache.stats()["sessions"]
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writable)
        os.read(readable, 1)  # until the parent ends it
        os._exit(0)
    cache.close()
    os.close(readable)
    with Cache(daemon.socket, namespace, strict=True) as other:
        until = time.monotonic() + 5
        while other.stats()["sessions"] > before and time.monotonic() < until:
            time.sleep(0.01)
        sessions = other.stats()["sessions"]
    os.close(writable)
    os.waitpid(child, 0)
    assert sessions == before


def test_calls_wait_for_a_connection_within_their_time(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(1500)
    cache = Cache(daemon.socket, namespace, connections=1)
    slow = beside(lambda: cache.store_rows(model, tokens, Slow(model, tokens)))
    time.sleep(0.1)
    miss = cache.fetch_rows(model, tokens, timeout=0.05)
    assert miss.error is not None and "in use" in miss.why and isinstance(miss.error, Refused)
    slow.join()


def test_the_service_is_told_less_time_than_a_call_has() -> None:
    """So it is the service that answers, and the connection goes on."""
    for seconds, least, most in ((10, 9000, 9901), (1, 800, 901), (0.001, 1, 1), (1e30, 1, 2**32)):
        assert least <= Deadline(seconds).milliseconds() <= most


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_without_time_is_a_miss_and_no_rest(daemon: Daemon, namespace: str,
                                                      timeout: float) -> None:
    with Cache(daemon.socket, namespace) as cache:
        miss = cache.fetch_rows(plain(), [1, 2], timeout=timeout)
        assert miss.error is not None and miss.error.code == Code.DEADLINE_EXCEEDED
        assert "timeout" in miss.why
        assert cache.fetch_rows(plain(), [1, 2], timeout=float("inf")).error is None


def test_a_closed_cache_says_so(daemon: Daemon, namespace: str) -> None:
    cache = Cache(daemon.socket, namespace, strict=True)
    cache.stats()
    cache.close()
    with pytest.raises(CacheError):
        cache.stats()
