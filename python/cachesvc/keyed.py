"""Values by key, for engines whose keys are hashes without tokens.

Values stores any bytes under a key: FORMAT.md, "Values without tokens", as the daemon's RESP port
does. RowValues stores rows of a known shape, so that they may be coded: a key is an entry of as
many tokens as a value has rows, made from the key's hash, with the key itself as an extra.

A key is compared on every hit, never only its hash. The first value under a key stays; `replace`
removes it first. Calls fail open as Cache's do, and are as thread-safe.
"""
from __future__ import annotations

import dataclasses
import hashlib
import struct
import threading
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import messages as m
from .cache import Cache
from .entry import Extras, FetchOptions, Stored, as_query
from .errors import invalid
from .hit import Hit
from .intent import Held
from .models import Dtype, Kind, Model, Part, Profile, Side, full, raw_profile
from .objects import Array, Pieces, pieces_of
from .own_memory import OwnMemory
from .store import ArrayRows, RowSource
from .wire import Buffer, Tokens

KEY_BYTES = 4096
VALUE_ALIGN = 64
VALUE_TOKENS = 8
HEAD_ROOM = 1024      # of what a value begins with
VALUES = Model("values", hashlib.sha256(b"cachesvc values 1").digest(),
               [[Part(Kind.OPAQUE, Dtype.F32)]])
ROW_KEY_BYTES = 1024  # of one extra
EXACT_EVERY = 64      # rows of a value for each that is never coded, up to four
BITS = (1, 2, 3, 4, 8)


class Keyed:
    """The base of Values and RowValues: a key's tokens and extras in one model of a Cache."""

    def __init__(self, cache: Cache, model: Model, length: int, profile: Optional[Profile]) -> None:
        self.cache, self.model = cache, model
        self._length, self._profile = length, profile

    def tokens(self, key: bytes) -> Tokens:
        raise NotImplementedError

    def extras(self, key: bytes) -> Extras:
        raise NotImplementedError

    def put(self, key: bytes, value: Any, *, wait_for: m.Level = m.Level.ACCEPTED,
            timeout: float = 5.0) -> Stored:
        raise NotImplementedError

    def get_into(self, key: bytes, room: Any, *, hold: int = 0, timeout: float = 1.0,
                 silence: float = 0.0) -> bool:
        raise NotImplementedError

    def _asked(self, key: bytes) -> Tokens:
        """One token more: a fetch serves all but the last."""
        return np.append(self.tokens(key), np.int32(0))

    def exists(self, keys: Sequence[bytes], *, timeout: float = 1.0) -> List[bool]:
        """True for each key that has a value, as advice: it may go before it is read."""
        queries = [as_query(self._asked(key), self.extras(key)) for key in keys]
        found = self.cache.lookup_all(self.model, queries, timeout=timeout, profile=self._profile)
        return [each.tokens == self._length for each in found]

    def hold(self, key: bytes, seconds: float, *, timeout: float = 1.0) -> Held:
        """A Held if the key has a value, which then stays so long; else nothing is held."""
        held = self.cache.hold(self.model, self._asked(key), seconds, extras=self.extras(key),
                               timeout=timeout, profile=self._profile)
        if held and held.found.tokens != self._length:
            self.cache.release(held, timeout=timeout)
            return Held(found=held.found)
        return held

    def prefetch(self, key: bytes, *, wait: bool = False, timeout: float = 1.0) -> m.LookupOk:
        """Brings a value that lies on the SSD into RAM."""
        return self.cache.prefetch(self.model, self._asked(key), extras=self.extras(key), wait=wait,
                                   timeout=timeout, profile=self._profile)

    def delete(self, key: bytes, *, timeout: float = 5.0) -> bool:
        """True: there was a value. Raises a CacheError where it may still be there."""
        return self.cache.erase_entry(self.model, self.tokens(key), extras=self.extras(key),
                                      timeout=timeout, profile=self._profile) > 0

    def _store(self, key: bytes, rows: RowSource, wait_for: m.Level, timeout: float) -> Stored:
        return self.cache.store_rows(self.model, self.tokens(key), rows, extras=self.extras(key),
                                     wait_for=wait_for, timeout=timeout, profile=self._profile)

    def _fetch(self, key: bytes, hold: int, timeout: float, silence: float = 0.0) -> Hit:
        return self.cache.fetch_rows(self.model, self._asked(key), extras=self.extras(key),
                                     options=FetchOptions(hold=hold), timeout=timeout,
                                     profile=self._profile, silence=silence)


class Values(Keyed):
    """Bytes by key: 0 to 4,096 bytes of key; a value and its key within the service's max_put_bytes
    and 1 GiB. memory: the cache's. What a value begins with goes there, and so a value that lies
    there whole does not travel."""

    def __init__(self, cache: Cache, memory: Optional[OwnMemory] = None) -> None:
        super().__init__(cache, VALUES, VALUE_TOKENS, None)
        self._memory, self._of_thread = memory, threading.local()

    def tokens(self, key: bytes) -> Tokens:
        if len(key) > KEY_BYTES:
            raise invalid("a key", f"{len(key)} bytes long", f"at most {KEY_BYTES}")
        return np.frombuffer(hashlib.sha256(key).digest(), "<i4")

    def extras(self, key: bytes) -> Extras:
        return ()

    def put(self, key: bytes, value: Union[Buffer, Pieces], *,
            wait_for: m.Level = m.Level.ACCEPTED, timeout: float = 5.0,
            replace: bool = False) -> Stored:
        """Stores a copy of a value."""
        if replace:
            self.delete(key, timeout=timeout)
        state = Pieces([self._placed(_head(key)), *pieces_of(value).arrays])
        return self._store(key, _OneState(state), wait_for, timeout)

    def _placed(self, head: bytes) -> Buffer:
        """The head in this thread's room in the memory, if there is one: a put ends before the
        thread's next one begins."""
        if self._memory is None or len(head) > HEAD_ROOM:
            return head
        room: Optional[Array] = getattr(self._of_thread, "room", None)
        try:
            if room is None:
                room = self._of_thread.room = self._memory.array((HEAD_ROOM,), np.uint8)
        except MemoryError:  # more threads than it was made for
            return head
        room[:len(head)] = np.frombuffer(head, np.uint8)
        return room[:len(head)].data

    def get(self, key: bytes, *, hold: int = 0, timeout: float = 1.0) -> Optional[bytes]:
        """A copy of a value; None: a miss."""
        hit = self._fetch(key, hold, timeout)
        value = _value_of(hit, key)
        copied = None if value is None else value.tobytes()
        return copied if hit.valid() else None

    def get_into(self, key: bytes, room: Buffer, *, hold: int = 0, timeout: float = 1.0,
                 silence: float = 0.0) -> bool:
        """Copies a value into writable memory of exactly its length. False: a miss, or a value of
        another length; what room holds then is undefined. silence: of Cache.fetch_rows."""
        hit = self._fetch(key, hold, timeout, silence)
        value, into = _value_of(hit, key), np.frombuffer(room, np.uint8)
        if value is None or value.size != into.size:
            return False
        np.copyto(into, value)
        return hit.valid()


class _OneState:
    """A RowSource of a value's snapshot."""

    def __init__(self, state: Pieces) -> None:
        self._state = state

    def rows(self, layer: int, part: int, side: Side, first: int, end: int) -> Optional[Array]:
        return None

    def state(self, layer: int, part: int, position: int) -> Optional[Pieces]:
        return self._state


def _head(key: bytes) -> bytes:
    blob = struct.pack("<I", len(key)) + key
    return blob + bytes(-len(blob) % VALUE_ALIGN)


def _value_of(hit: Hit, key: bytes) -> Optional[Array]:
    """The value in a hit's state, if its key is the one that was asked for."""
    state = hit.state(0) if hit.tokens == VALUE_TOKENS else None
    head = _head(key)
    if state is None or state[:len(head)].tobytes() != head:
        return None
    return state[len(head):]


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of a value's rows: (layers, rows, heads, dim), once for K and once for V."""

    layers: int
    rows: int
    heads: int
    dim: int
    dtype: Dtype = Dtype.F16

    def fits(self, rows: Sequence[Sequence[Array]]) -> bool:
        """Arrays are a (K, V) for each layer, each (rows, heads, dim) of the dtype."""
        one = (self.rows, self.heads, self.dim)
        return len(rows) == self.layers and all(
            len(sides) == 2 and all(side.shape == one and side.dtype == self.dtype.numpy
                                    for side in sides) for sides in rows)


class RowValues(Keyed):
    """Rows by key, in `bits` of (K, V), each 1, 2, 3, 4 or 8; none: lossless.

    identity: whatever makes these rows what they are besides their shape: engine, weights, layout.
    bf16 rows are uint16 arrays. A key has at most 1,024 bytes.
    """

    def __init__(self, cache: Cache, shape: Shape, identity: bytes,
                 bits: Optional[Tuple[int, int]] = None) -> None:
        self.shape = shape
        named = hashlib.sha256(b"cachesvc row values 1" + repr((shape, bits)).encode() + identity)
        part = full(shape.heads, shape.dim, dtype=shape.dtype)
        model = Model("row values", named.digest(), [[part] for _ in range(shape.layers)])
        super().__init__(cache, model, shape.rows, _profile(model, shape, bits))

    def tokens(self, key: bytes) -> Tokens:
        if len(key) > ROW_KEY_BYTES:
            raise invalid("a key", f"{len(key)} bytes long", f"at most {ROW_KEY_BYTES}")
        return np.frombuffer(hashlib.shake_256(key).digest(4 * self.shape.rows), "<i4")

    def extras(self, key: bytes) -> Extras:
        return [(0, key)]

    def put(self, key: bytes, value: Sequence[Sequence[Array]], *,
            wait_for: m.Level = m.Level.ACCEPTED, timeout: float = 5.0) -> Stored:
        """Stores what `Shape.fits`. Coding takes no NaN and no infinity: an error of the result."""
        if not self.shape.fits(value):
            raise invalid("rows", "of another shape", f"as {self.shape}")
        given: Any = {(layer, 0): sides for layer, sides in enumerate(value)}
        return self._store(key, ArrayRows(self.model, self.shape.rows, given), wait_for, timeout)

    def get_into(self, key: bytes, room: Sequence[Sequence[Array]], *, hold: int = 0,
                 timeout: float = 1.0, silence: float = 0.0) -> bool:
        """Fills writable arrays that the shape fits. False: a miss, and they hold anything."""
        if not self.shape.fits(room):
            raise invalid("rows", "of another shape", f"as {self.shape}")
        hit = self._fetch(key, hold, timeout, silence)
        if hit.tokens != self.shape.rows:
            return False
        for layer, sides in enumerate(room):
            for into, values in zip(sides, hit.keys_values(layer)):
                np.copyto(into, values)
        return hit.valid()


def _profile(model: Model, shape: Shape, bits: Optional[Tuple[int, int]]) -> Profile:
    """A value is one block if a block may be so long: rows of complete blocks only are coded."""
    block = max(n for n in range(1, min(shape.rows, 4096) + 1) if shape.rows % n == 0)
    profile = raw_profile(model, shape.dtype, block)
    if bits is not None:
        if any(each not in BITS for each in bits):
            raise invalid("bits", bits, f"two of {BITS}")
        profile.exact_tokens = min(profile.exact_tokens, shape.rows // EXACT_EVERY)
        profile.k_bits, profile.v_bits = bits
        for (coding,) in profile.layers:
            coding.k_bits, coding.v_bits = bits
    return profile
