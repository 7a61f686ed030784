"""Hits that lie in the service's RAM: what is mapped, how leases end, and services that lie."""
from __future__ import annotations

import fcntl
import gc
import os
import socket
import time
from typing import Any, Callable, Dict, List, Set, Tuple

import numpy as np
import pytest

from cachesvc import Cache, CacheError, FetchOptions, Output, Selection
from cachesvc.connection import Connection, hang_up
from cachesvc.frames import Type, encode_header
from cachesvc.messages import Newest, Tier
from cachesvc.objects import Object
from cachesvc.pools import (KNOWN, FetchMappedOk, Lease, Place, Pools, Segment, SegmentUnmapped,
                            Where)

from daemon import ROOT, Daemon
from given import Array, Computed, plain
from test_cache import check_rows

MODEL, TOKENS = plain(), np.arange(800)
BYTES = 64 << 10


def mapped_ranges() -> List[Tuple[int, int, str]]:
    with open("/proc/self/maps", encoding="ascii") as lines:
        found = [line.split() for line in lines if "/memfd:cachesvc-segment" in line]
    ranges = [(each[0].split("-"), each[1]) for each in found]
    return [(int(begin, 16), int(end, 16), mode) for (begin, end), mode in ranges]


def is_mapped(values: Array) -> bool:
    at = values.__array_interface__["data"][0]
    return any(begin <= at < end for begin, end, _ in mapped_ranges())


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def stored(daemon: Daemon, namespace: str, **options: Any) -> Cache:
    cache = Cache(daemon.socket, namespace, strict=True, connections=1, **options)
    cache.store_rows(MODEL, TOKENS, Computed(MODEL, TOKENS))
    return cache


def test_a_hit_is_read_where_it_lies(own_daemon: Daemon) -> None:
    with stored(own_daemon, "test") as cache, stored(own_daemon, "test",
                                                     map_segments=False) as other:
        for output in (Output.STORED, Output.F16, Output.F32):
            for selection in (Selection(), Selection(layers=(1, 2)), Selection(heads=(1, 2)),
                              Selection(from_token=300)):
                options = FetchOptions(output, selection=selection)
                hit, streamed = (c.fetch_rows(MODEL, TOKENS, options=options)
                                 for c in (cache, other))
                assert hit.tokens == streamed.tokens == 799 and hit.valid() and streamed.valid()
                assert set(hit._pieces) == set(streamed._pieces)
                for where, pieces in hit._pieces.items():
                    for mine, theirs in zip(pieces, streamed._pieces[where]):
                        assert np.array_equal(mine.values, theirs.values)
                        assert is_mapped(mine.values) and not is_mapped(theirs.values)
                        assert not mine.values.flags.writeable
        assert all(mode == "r--s" for _, _, mode in mapped_ranges())
        check_rows(cache.fetch_rows(MODEL, TOKENS), MODEL, TOKENS)


def test_a_lease_ends_with_its_last_array(own_daemon: Daemon) -> None:
    with stored(own_daemon, "test") as cache:
        stored_form = FetchOptions(Output.STORED)
        keys = cache.fetch_rows(MODEL, TOKENS, options=stored_form).pieces(0)[0].values[3:5]
        gc.collect()
        assert cache.stats()["pins"] > 0
        assert is_mapped(keys)
        del keys
        gc.collect()
        cache.stats()  # it is told before this one
        assert cache.stats()["pins"] == 0


def shared_files() -> Set[str]:
    """Without folders: other tests have theirs there."""
    return {entry.name for entry in os.scandir("/dev/shm") if not entry.is_dir()}


def test_a_killed_service_leaves_nothing(own_daemon: Daemon) -> None:
    before = open_files(), shared_files()
    with stored(own_daemon, "test") as cache:
        hit = cache.fetch_rows(MODEL, TOKENS)
        own_daemon.kill()
        check_rows(hit, MODEL, TOKENS)
        assert hit.valid()
        with pytest.raises(CacheError):
            cache.fetch_rows(MODEL, TOKENS)
    del hit
    assert not mapped_ranges()
    assert (open_files(), shared_files()) == before
    own_daemon.start()


def test_a_connection_that_is_closed_keeps_its_arrays(daemon: Daemon, namespace: str) -> None:
    with stored(daemon, namespace) as cache:
        hit = cache.fetch_rows(MODEL, TOKENS)
    check_rows(hit, MODEL, TOKENS)
    with Connection(daemon.socket, namespace) as connection:
        assert connection.session.pools is not None


@pytest.mark.parametrize("amid_frame", [False, True])
def test_segments_that_nobody_shows_are_let_go_with_a_word(amid_frame: bool) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        hang_up(ours, os.getpid(), announced(3, memory()), amid_frame)
        said = theirs.recv(1 << 10)
    body = SegmentUnmapped(3).encode()
    told = encode_header(Type.SEGMENT_UNMAPPED, 0, len(body)) + body
    assert said == (b"" if amid_frame else told)


def test_a_service_that_does_not_read_is_left_all_the_same() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                ours.send(bytes(1 << 16))
        ours.settimeout(60)
        forked = ours.dup()  # as a child has it
        begin = time.monotonic()
        hang_up(ours, os.getpid(), announced(3, memory()), False)
        assert time.monotonic() - begin < 30
        while theirs.recv(1 << 20):
            pass  # and then its end, though the child has not closed
        forked.close()


# ---- services that lie


def memory(size: int = BYTES, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    descriptor = os.memfd_create("a segment", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.truncate(descriptor, size)
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def announced(number: int, descriptor: int, size: int = BYTES) -> Pools:
    pools = Pools()
    pools.descriptors.append(descriptor)
    pools.add(Segment(number, size, 4096))
    return pools


LIES: Dict[str, Callable[[], object]] = {
    "no descriptor": lambda: Pools().add(Segment(1, BYTES, 4096)),
    "longer than said": lambda: announced(1, memory(2 * BYTES)),
    "shorter than said": lambda: announced(1, memory(), 2 * BYTES),
    "it may shrink": lambda: announced(1, memory(seals=fcntl.F_SEAL_GROW)),
    "a pipe": lambda: announced(1, os.dup(0), 0),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_segment_that_cannot_be_is_an_error(lie: Callable[[], object]) -> None:
    before = open_files()
    with pytest.raises(CacheError):
        lie()
    assert open_files() == before


def golden() -> FetchMappedOk:
    frame = (ROOT / "tests/golden/proto/fetch_mapped_ok.bin").read_bytes()
    return FetchMappedOk.decode(frame[32:])


def placed(offset: int, number: int = 1, segment: int = 3) -> Place:
    header = golden().places[0].header
    return Place(Where.MAPPED, 2, number, segment, offset, 1, header)


def find(pools: Pools, place: Place) -> Tuple[Object, Lease]:
    lease = pools.lease(5)
    assert lease is not None
    return pools.find(place, lease, Selection()), lease


def first_byte(given: Object) -> int:
    rows = next(iter(given.rows.values()))
    return rows[0].values.tobytes()[0]


def test_a_place_is_read_and_its_generation_checked() -> None:
    descriptor = memory()
    pools = announced(3, os.dup(descriptor))
    os.pwrite(descriptor, (1).to_bytes(8, "little"), 8 * 2)
    os.pwrite(descriptor, b"x", 8192)
    found, lease = find(pools, placed(8192))
    assert first_byte(found) == ord("x") and lease.valid()
    os.pwrite(descriptor, (2).to_bytes(8, "little"), 8 * 2)
    assert not lease.valid()
    find(pools, Place(Where.KNOWN, 2, 1))
    os.close(descriptor)


@pytest.mark.parametrize("place", [
    placed(8192 + 64), placed(BYTES), placed((1 << 64) - 4096), placed(0),
    placed(8192, segment=4), Place(Where.KNOWN, 2, 7)])
def test_a_place_that_cannot_be_is_an_error(place: Place) -> None:
    pools = announced(3, memory())
    with pytest.raises(CacheError):
        find(pools, place)
    with pytest.raises(CacheError):
        pools.find(placed(8192), None, Selection())


def test_old_numbers_and_revoked_segments_are_forgotten() -> None:
    pools = announced(3, memory())
    for number in range(1, KNOWN + 2):
        find(pools, placed(8192, number))
    with pytest.raises(CacheError):
        find(pools, Place(Where.KNOWN, 2, 1))
    found, lease = find(pools, Place(Where.KNOWN, 2, 2))
    pools.revoke(3)
    assert not pools.unmapped() and lease.valid() is False
    with pytest.raises(CacheError):
        find(pools, Place(Where.KNOWN, 2, 2))
    del lease, found
    gc.collect()
    assert [each.segment for each in pools.unmapped()] == [3]
    assert not pools.unmapped()
    assert sum(len(each.leases) for each in pools.ended()) > KNOWN
    assert golden().tier == Tier.RAM and golden().newest == Newest.CODED
