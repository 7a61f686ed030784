"""Bodies: memory is used again, but never under an array that somebody still has."""
from __future__ import annotations

import numpy as np

from cachesvc import Cache
from cachesvc.bodies import KEPT_BYTES, Bodies

from daemon import Daemon
from given import Computed, plain
from test_cache import check_rows

MIB = 1 << 20


def address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


def test_memory_is_used_again_once_its_last_array_is_gone() -> None:
    bodies = Bodies()
    view = bodies.room(MIB)
    first = address(view)
    assert first % 64 == 0 and len(view) == MIB
    array = np.frombuffer(view[1000:2000], np.uint8)[10:20].reshape(2, 5)
    del view
    other = bodies.room(MIB)
    assert address(other) != first
    del array
    again = bodies.room(MIB - 100)
    assert address(again) == first and len(again) == MIB - 100
    assert address(bodies.room(MIB // 4)) not in (first, address(other))  # not for so little


def test_no_more_is_kept_than_the_limit_and_what_lies_unused_goes_first() -> None:
    bodies = Bodies()
    held = [bodies.room(KEPT_BYTES // 4) for _ in range(6)]
    assert 0 < bodies._kept_bytes() <= KEPT_BYTES
    del held
    large = bodies.room(KEPT_BYTES // 2)
    first = address(large)
    del large
    assert bodies._kept_bytes() <= KEPT_BYTES
    assert address(bodies.room(KEPT_BYTES // 2)) == first
    bodies.room(2 * KEPT_BYTES)
    assert bodies._kept_bytes() <= KEPT_BYTES


def test_a_hit_stays_as_it_was_while_others_are_fetched(daemon: Daemon, namespace: str) -> None:
    model = plain(layers=8)
    prompts = [np.arange(600) + 1000 * turn for turn in range(4)]
    with Cache(daemon.socket, namespace, strict=True, connections=1) as cache:
        for tokens in prompts:
            cache.store_rows(model, tokens, Computed(model, tokens))
        hits = [cache.fetch_rows(model, tokens) for tokens in prompts]
        for turn in range(8):  # every second one is given up, its memory used again
            hits[1] = hits[3] = cache.fetch_rows(model, prompts[turn % 4])
            check_rows(hits[0], model, prompts[0])
            check_rows(hits[2], model, prompts[2])
            check_rows(hits[3], model, prompts[turn % 4])
