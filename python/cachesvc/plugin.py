"""Shelf: the values of one engine, for plug-ins that run inside it.

No call raises: whatever fails is a miss or a value that is not stored, counted and said once.
Questions and loads keep to the budget (Settings.budget_ms). A put may take STORE_S and the time of
its bytes, and CHECK_S and that time again where it is read again; a delete STORE_S.

Before anything else a pattern goes through the cache and must come back; later one new value in N
is read again and compared (Settings.verify). Where either is other than what was given, the shelf
steps aside for good. While a daemon does not answer, and until the pattern has come back from it,
all is a miss.

Thread-safe. Keys begin with the hash of what makes an engine's values its own.
"""
from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from .adapter import BYTES_PER_S, SILENCE
from .cache import Cache
from .checks import OneIn
from .errors import CacheError, invalid
from .intent import Held
from .keyed import Keyed
from .models import widened
from .objects import Pieces
from .options import parse_bits, read_secret
from .own_memory import OwnMemory
from .report import Report

STORE_S = 2.0      # and CHECK_S: beside the time of a value's bytes
CHECK_S = 1.0
LONGEST_KEY = 900  # with an identity within keyed.ROW_KEY_BYTES; longer ones go by their hash
LARGEST_ERROR = {0: 0.0, 8: 0.05, 4: 0.3, 3: 0.6, 2: 0.9}  # by bits, of a value's own size


@dataclasses.dataclass
class Settings:
    """The words of a plug-in's configuration.

    tag: what else makes this engine's values its own: weights that changed under their name, say.
    bits: of K and V, such as "8:4", where a plug-in can code; else lossless. budget_ms: of a
    question, and of a load besides the time of its bytes. verify: one new value in so many is read
    again; 0: none.
    """

    socket: str
    namespace: str
    token_file: str = ""
    tag: str = ""
    bits: str = ""
    budget_ms: int = 100
    verify: int = 1000
    connections: int = 4

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """From a configuration; CacheError names what is unknown or missing."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise invalid(f"setting {name!r}", "unknown", f"one of {', '.join(known)}")
            wanted = int if str(known[name].type) == "int" else str
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise invalid(f"setting {name!r}", repr(value), f"of type {wanted.__name__}")
        for name in ("socket", "namespace"):
            if not given.get(name):
                raise invalid(f"setting {name!r}", "missing", "given")
        return cls(**given)

    def cache(self, program: str, memory: Optional[OwnMemory] = None) -> Cache:
        return Cache(self.socket, self.namespace, program=program, memory=memory,
                     token=read_secret(self.token_file), connections=self.connections)

    @property
    def coding(self) -> Optional[Tuple[int, int]]:
        return parse_bits("setting 'bits'", self.bits)


def identity_of(*fields: str) -> bytes:
    """A hash of an engine's name, version and whatever else makes its values its own."""
    return hashlib.sha256(json.dumps(["cachesvc plugin 1", *fields]).encode()).digest()


class Shelf:
    """keyed: Values, or RowValues. example: the pattern, laid out as the engine's values are.
    fewest_bits: of a coded value's rows; 0: lossless. attach_s: how long making one waits for the
    pattern; none: for the budget. Until it has come back all is a miss."""

    def __init__(self, keyed: Keyed, identity: bytes, settings: Settings, report: Report,
                 example: Any, fewest_bits: int = 0, attach_s: Optional[float] = None) -> None:
        self._keyed, self._identity, self._report = keyed, identity, report
        self._budget_s, self._due = settings.budget_ms / 1000, OneIn(settings.verify, first=True)
        self._example, self._error = example, LARGEST_ERROR[fewest_bits]
        self._lock = threading.Lock()
        self._good = self._aside = False
        self._trying = True
        self._start().join(self._budget_s if attach_s is None else attach_s)

    def exists(self, keys: Sequence[bytes]) -> List[bool]:
        if not self._attached():
            return [False] * len(keys)
        with self._report.timed("lookups_us"):
            return self._keyed.exists([self._named(key) for key in keys],
                                      timeout=self._budget_s / 2)

    def hold(self, key: bytes, seconds: float) -> Held:
        """A Held of a value that is there: it stays so long."""
        if not self._attached():
            return Held()
        return self._keyed.hold(self._named(key), seconds, timeout=self._budget_s / 2)

    def release(self, held: Held) -> bool:
        return self._keyed.cache.release(held, timeout=self._budget_s)

    def prefetch(self, key: bytes) -> bool:
        """True: a value is there, and in RAM or on its way to it."""
        return self._attached() and self._keyed.prefetch(
            self._named(key), timeout=self._budget_s / 2).tokens > 0

    def get_into(self, key: bytes, room: Any, hold: int = 0) -> bool:
        """False: a miss; what room holds then is undefined."""
        if not self._attached():
            return False
        with self._report.timed("waited_us"):
            found = self._keyed.get_into(self._named(key), room, hold=hold,
                                         timeout=with_bytes(self._budget_s / 2, room),
                                         silence=SILENCE * self._budget_s)
        self._report.count("loads" if found else "load_misses")
        return found

    def put(self, key: bytes, value: Any) -> bool:
        """True: the value is stored, now or before."""
        if not self._attached():
            return False
        with self._report.timed("stores_us"):
            stored = self._keyed.put(self._named(key), value, timeout=with_bytes(STORE_S, value))
        if stored.error is not None:
            self._report.failed("store", stored.error)
        elif stored.objects and not stored.foreign:
            self._report.count("stores")
            self._verify_one(key, value)
        return bool(stored)

    def delete(self, key: bytes) -> bool:
        """True: there was a value, and is none any more."""
        try:
            return self._attached() and self._keyed.delete(self._named(key), timeout=STORE_S)
        except CacheError as error:
            self._report.failed("delete", error)
            return False

    # ---- how

    def _named(self, key: bytes) -> bytes:
        return self._identity + (key if len(key) <= LONGEST_KEY else hashlib.sha256(key).digest())

    def _attached(self) -> bool:
        """The pattern came back before. If it has not, a thread tries; nobody waits for it."""
        with self._lock:
            if self._good or self._aside or self._trying:
                return self._good and not self._aside
            self._trying = True
        self._start()
        return False

    def _start(self) -> threading.Thread:
        attaching = threading.Thread(target=self._attach, name="attach", daemon=True)
        attaching.start()
        return attaching

    def _attach(self) -> None:
        try:
            self._good = self._pattern_returns()
        except CacheError as error:
            self._report.failed("attach", error)
        finally:
            self._trying = False

    def _pattern_returns(self) -> bool:
        key, room = self._identity + b"pattern" + os.urandom(16), room_like(self._example)
        timeout = with_bytes(CHECK_S, self._example)
        stored = self._keyed.put(key, self._example, timeout=timeout)
        if not stored or not self._keyed.get_into(key, room, timeout=timeout):
            if stored.error is not None:
                self._report.failed("attach", stored.error)
            return False
        self._compare("the self check", self._example, room)
        self._keyed.delete(key, timeout=CHECK_S)
        return True

    def _verify_one(self, key: bytes, value: Any) -> None:
        room = room_like(value) if self._due.due() else None
        if room is not None and self._keyed.get_into(self._named(key), room,
                                                     timeout=with_bytes(CHECK_S, value)):
            self._report.count("verified")
            self._compare("a value read again", value, room)

    def _compare(self, what: str, given: Any, found: Any) -> None:
        error = distance(given, found)
        if not error <= self._error:
            self._aside = True
            self._report.count("aside")
            self._report.say("aside", f"no more caching: {what} differs from what was stored (by "
                             f"{error:.2f} of its size, at most {self._error:.2f})")


def arrays_of(value: Any) -> List[Any]:
    """Of bytes one array, of rows those of each layer and side."""
    if isinstance(value, Pieces):
        return [value.joined()]
    if isinstance(value, (list, tuple)):
        return [side for sides in value for side in sides]
    return [np.frombuffer(value, np.uint8)]


def bytes_of(value: Any) -> int:
    return value.nbytes if isinstance(value, Pieces) else sum(
        each.nbytes for each in arrays_of(value))


def with_bytes(least_s: float, value: Any) -> float:
    """A timeout: so long and the time of a value's bytes."""
    return least_s + bytes_of(value) / BYTES_PER_S


def room_like(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [[np.empty_like(side) for side in sides] for sides in value]
    return bytearray(bytes_of(value))


def distance(value: Any, other: Any) -> float:
    """Of rows the size of the difference by that of the value; of bytes 0, or infinite."""
    if not isinstance(value, (list, tuple)):
        return 0.0 if np.array_equal(*(arrays_of(each)[0] for each in (value, other))) else np.inf
    apart = size = 0.0
    for sides in zip(arrays_of(value), arrays_of(other)):
        one, two = (widened(side).astype(np.float64) for side in sides)
        apart += float(np.square(one - two).sum())
        size += float(np.square(one).sum())
    return float(np.sqrt(apart / size)) if size else float(apart > 0)
