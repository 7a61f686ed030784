"""Every frame of the service cut, mutated, withheld or out of place: a miss in time, nothing else.

Bytes of rows have no checksum on the socket (PROTOCOL.md, "Frames"), so a flipped one may come
through; a hit then still has the query's tokens and every row in its shape.
"""
from __future__ import annotations

import asyncio
import dataclasses
import random
import struct
import time
from typing import Callable, Iterator, List, Tuple

import numpy as np
import pytest

from cachesvc import AsyncCache, Cache, Hit, Stored
from cachesvc.frames import HEADER_BYTES, Type
from cachesvc.messages import Need, OpenOk, ReserveOk
from cachesvc.objects import ObjectKind

from daemon import started
from given import Array, Computed, hybrid
from proxy import Proxy, type_of, with_body, with_header, with_type

MODEL, TOKENS, SERVED = hybrid(), np.arange(520), 519
NAMESPACE = "damage"
Damage = Callable[[bytes], bytes]
Talked = Tuple[Hit, Stored, int]


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """Before a daemon that holds a hit for TOKENS, in RAM alone: the sessions leave no files."""
    with started("64MiB", "0") as daemon:
        with Cache(daemon.socket, NAMESPACE, strict=True) as cache:
            cache.store_rows(MODEL, TOKENS[:SERVED], Computed(MODEL, TOKENS))
        between = Proxy(daemon.socket)
        yield between
        between.close()


class Talk:
    """A session of a fetch that is a hit and a store of new tokens, with one frame damaged."""

    stores = 0

    def __init__(self, proxy: Proxy, at: int, damage: Damage, ends: bool = False) -> None:
        Talk.stores += 1
        self._proxy = proxy
        self._new: Array = np.concatenate([TOKENS[:512], [1000 + Talk.stores, 5]])
        self.frames = proxy.begin(lambda number, frame: (damage(frame), not ends) if number == at
                                  else (frame, True))

    def blocking(self, timeout: float) -> Talked:
        with Cache(self._proxy.path, NAMESPACE, first_pause=1e-9) as cache:
            hit = cache.fetch_rows(MODEL, TOKENS, timeout=timeout)
            stored = cache.store_rows(MODEL, self._new, Computed(MODEL, self._new),
                                      timeout=timeout)
            return hit, stored, sum(cache.failures.values())

    def in_asyncio(self, timeout: float) -> Talked:
        async def main() -> Talked:
            async with AsyncCache(self._proxy.path, NAMESPACE, first_pause=1e-9) as cache:
                hit = await cache.fetch_rows(MODEL, TOKENS, timeout=timeout)
                stored = await cache.store_rows(MODEL, self._new, Computed(MODEL, self._new),
                                                timeout=timeout)
                return hit, stored, sum(cache.failures.values())
        return asyncio.run(main())


def damaged(proxy: Proxy, at: int, damage: Damage, *, timeout: float = 5,
            in_asyncio: bool = False, ends: bool = False) -> int:
    """Failures of a session whose frame `at` was damaged; what came back is whole or a miss."""
    talk = Talk(proxy, at, damage, ends)
    began = time.monotonic()
    hit, stored, failures = (talk.in_asyncio if in_asyncio else talk.blocking)(timeout)
    assert time.monotonic() - began < 2 * timeout + 1
    assert failures or len(talk.frames) > at, "the frame to damage never came"
    if hit:
        assert hit.tokens <= SERVED
        for layer, index, part in MODEL.parts():
            for side in part.sides:
                assert hit.rows(layer, index, side).shape == (hit.tokens, 2, 32)
    assert hit or hit.why
    assert stored.error is None or not stored
    return failures


@pytest.fixture(scope="module")
def recorded(proxy: Proxy) -> List[bytes]:
    """The frames of a session that nobody damages; the first one stores what later ones share."""
    for _ in range(2):
        talk = Talk(proxy, 0, lambda frame: frame)
        hit, stored, failures = talk.blocking(5)
        assert hit.tokens == SERVED and stored and not failures
    kinds = [type_of(frame) for frame in talk.frames]
    assert kinds[:3] == [Type.HELLO_OK, Type.OPEN_OK, Type.FETCH_HEADER]
    assert {Type.FETCH_OBJECT, Type.FETCH_DONE, Type.RESERVE_OK, Type.PUT_OK} < set(kinds)
    assert kinds[-1] == Type.COMMIT_OK
    return talk.frames


def test_a_body_that_is_shorter_or_longer_is_an_error(proxy: Proxy, recorded: List[bytes]) -> None:
    chance = random.Random(1)
    for at, frame in enumerate(recorded):
        body = len(frame) - HEADER_BYTES
        lengths = {*range(min(body, 24)), body - 1, *(chance.randrange(body + 1) for _ in range(8))}
        for length in sorted(lengths - {-1, body}):
            def cut(frame: bytes, length: int = length) -> bytes:
                return with_body(frame, frame[HEADER_BYTES:][:length])
            assert damaged(proxy, at, cut), (at, length)
        assert damaged(proxy, at, lambda frame: with_body(frame, frame[HEADER_BYTES:] + b"\0")), at


@pytest.mark.parametrize("in_asyncio", [False, True])
def test_a_stream_that_ends_inside_a_frame_is_an_error_or_a_call_repeated(
        proxy: Proxy, recorded: List[bytes], in_asyncio: bool) -> None:
    # A connection that waited between calls may have ended meanwhile: that call is made again.
    repeated = [type_of(frame) for frame in recorded].index(Type.RESERVE_OK)
    for at, frame in enumerate(recorded):
        for length in sorted({0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(frame) - 1}):
            def cut(frame: bytes, length: int = length) -> bytes:
                return frame[:length]
            failures = damaged(proxy, at, cut, in_asyncio=in_asyncio, ends=True)
            assert (failures == 0) == (at >= repeated), (at, length)


@pytest.mark.parametrize("in_asyncio", [False, True])
def test_a_frame_that_never_comes_costs_the_timeout(proxy: Proxy, recorded: List[bytes],
                                                    in_asyncio: bool) -> None:
    for at, frame in enumerate(recorded):
        assert damaged(proxy, at, lambda frame: frame[:len(frame) // 2], timeout=0.1,
                       in_asyncio=in_asyncio), at


def test_every_bit_of_a_header_flipped_is_an_error(proxy: Proxy, recorded: List[bytes]) -> None:
    chance = random.Random(2)
    for at in range(len(recorded)):
        for bit in chance.sample(range(8 * HEADER_BYTES), 12):
            def flip(frame: bytes, bit: int = bit) -> bytes:
                bad = bytearray(frame)
                bad[bit // 8] ^= 1 << bit % 8
                return bytes(bad)
            assert damaged(proxy, at, flip), (at, bit)


def test_a_type_a_request_or_a_frame_in_the_place_of_another_is_an_error(
        proxy: Proxy, recorded: List[bytes]) -> None:
    for at in range(len(recorded)):
        assert damaged(proxy, at, lambda frame: with_type(frame, Type.ABORT_OK)), at
        assert damaged(proxy, at, lambda frame: with_header(frame, 8, struct.pack("<Q", 99))), at
        last = at == len(recorded) - 1  # nobody reads on behind it
        assert damaged(proxy, at, lambda frame: frame + frame) or last, at


def test_bytes_changed_at_random_are_an_error_or_change_no_shape(proxy: Proxy,
                                                                recorded: List[bytes]) -> None:
    chance = random.Random(3)
    for at in range(len(recorded)):
        for _ in range(60):
            def change(frame: bytes) -> bytes:
                body = bytearray(frame[HEADER_BYTES:])
                place = chance.randrange(min(len(body), 800)) if body else 0
                for i in range(place, min(place + chance.choice([1, 1, 4]), len(body))):
                    body[i] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
                return with_body(frame, bytes(body))
            damaged(proxy, at, change, timeout=0.5)


def first_tokens(frame: bytes) -> bytes:
    """The first three tokens of a block's object; of another frame none."""
    if type_of(frame) == Type.FETCH_OBJECT:
        for first in (0, 256):
            tokens = np.arange(first, first + 3, dtype="<i4").tobytes()
            if tokens in frame:
                return tokens
    return b""


def test_an_object_of_other_tokens_is_no_hit(proxy: Proxy, recorded: List[bytes]) -> None:
    blocks = [at for at, frame in enumerate(recorded) if first_tokens(frame)]
    assert len(blocks) == 2
    for at in blocks:
        def other(frame: bytes) -> bytes:
            tokens = first_tokens(frame)
            return frame.replace(tokens, tokens[:4] + b"\x77" + tokens[5:], 1)
        hit, _, failures = Talk(proxy, at, other).blocking(5)
        assert not hit and "other tokens" in hit.why and failures


def test_an_object_under_another_profile_is_no_hit(proxy: Proxy, recorded: List[bytes]) -> None:
    opened = recorded[[type_of(frame) for frame in recorded].index(Type.OPEN_OK)]
    profile = OpenOk.decode(opened[HEADER_BYTES:]).profile_id
    at = [first_tokens(frame) != b"" for frame in recorded].index(True)

    def other(frame: bytes) -> bytes:
        assert profile in frame
        return frame.replace(profile, b"\x77" * len(profile), 1)
    hit, _, failures = Talk(proxy, at, other).blocking(5)
    assert not hit and "another profile" in hit.why and failures


def test_a_need_beyond_the_sequence_is_an_error_in_time(proxy: Proxy,
                                                       recorded: List[bytes]) -> None:
    at = [type_of(frame) for frame in recorded].index(Type.RESERVE_OK)
    good = ReserveOk.decode(recorded[at][HEADER_BYTES:])
    need = good.needs[0]
    for wrong in (dataclasses.replace(need, block=1 << 30), dataclasses.replace(need, block=3),
                  dataclasses.replace(need, end_row=1 << 30),
                  dataclasses.replace(need, first_row=515),
                  dataclasses.replace(need, kind=ObjectKind.SUPPLEMENT, group=999)):
        def other(frame: bytes, need: Need = wrong) -> bytes:
            return with_body(frame, ReserveOk(good.reservation, [need]).encode())
        assert damaged(proxy, at, other), wrong
