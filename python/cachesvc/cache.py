"""Cache: store and fetch whole sequences, blocking. What engines and adapters use.

open, erase, erase_entry and stats raise a failure of the cache. The other calls fail open: it is a
miss with `error`, counted in `failures`; strict=True raises it. What the caller's own RowSource
raises goes through. Every call has a timeout in seconds; fetch_rows, store_rows and prefetch end
sooner by a Cancel. Thread-safe: each call has a connection of its own, at most `connections` at a
time, the others wait within their timeout. A forked child begins anew, its failures too.
"""
from __future__ import annotations

import os
from typing import Any, Callable, Counter, Dict, List, Optional, Sequence, TypeVar, Union

from . import entry, intent
from . import intent_messages as im
from . import messages as m
from .cancel import Cancel
from .connection import Connection, Script
from .deadline import Deadline, Patience
from .entry import Extras, FetchOptions, RowsGiven, Stored, as_query
from .errors import CacheError, Code, Refused
from .guard import Guard
from .hit import Hit
from .intent import Held, Retained
from .models import Model, Profile
from .own_memory import OwnMemory
from .pool import Pool
from .session import Opened, Session
from .why_messages import RequestRecord
from .wire import as_tokens

T = TypeVar("T")
PROGRAM = "cachesvc python 0.1.0"


def missed(error: CacheError) -> m.LookupOk:
    return m.LookupOk(0, 0, m.Tier.NONE, m.Newest.NONE, str(error))


def not_demoted(error: CacheError) -> im.DemoteOk:
    return im.DemoteOk(im.Outcome.REJECTED, 0, str(error))


def not_retained(error: CacheError) -> Retained:
    return Retained(im.Outcome.REJECTED, reason=str(error))


def not_expired(error: CacheError) -> im.ExpireOk:
    return im.ExpireOk(im.Outcome.REJECTED, 0, str(error))


def fetch_missed(error: CacheError) -> Hit:
    return Hit(why=str(error), error=error)


class Cache:
    def __init__(self, socket_path: str, namespace: str, *, strict: bool = False,
                 connections: int = 4, program: str = PROGRAM, first_pause: float = 1.0,
                 token: bytes = b"", map_segments: bool = True,
                 memory: Optional[OwnMemory] = None) -> None:
        self._path, self._namespace, self._program = socket_path, namespace, program
        self._token, self._map_segments, self._memory = token, map_segments, memory
        self._strict, self._connections, self._first_pause = strict, connections, first_pause
        self._start()

    def _start(self) -> None:
        """The state of one process: after a fork the parent's locks may stay held for ever."""
        self._process = os.getpid()
        self._guard = Guard(self._first_pause)
        self._pool = Pool(self._connect, self._connections)

    def _connect(self, timeout: float) -> Connection:
        return Connection(self._path, self._namespace, self._program, timeout, self._token,
                          self._map_segments, self._memory)

    def close(self) -> None:
        if self._process == os.getpid():
            self._pool.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def failures(self) -> Counter[str]:
        """Counts of failures that were a miss, by their code's name."""
        return self._guard.failures

    @property
    def last_error(self) -> Optional[CacheError]:
        return self._guard.last_error

    # ---- calls that fail open

    def fetch_rows(self, model: Model, tokens: Any, *, extras: Extras = (),
                   options: Optional[FetchOptions] = None, timeout: float = 1.0,
                   profile: Optional[Profile] = None, cancel: Optional[Cancel] = None,
                   silence: float = 0.0) -> Hit:
        """The longest prefix of tokens that is stored, at most all but the last one. silence: the
        call ends where nothing came for so many seconds and another question was not answered in
        as many; 0: only by its timeout."""
        return self._failing_open(
            "fetch_rows", lambda s: entry.fetch(s, model, tokens, extras, options, profile),
            timeout, fetch_missed, cancel, silence)

    def store_rows(self, model: Model, tokens: Any, rows: RowsGiven, *, extras: Extras = (),
                   wait_for: m.Level = m.Level.ACCEPTED, timeout: float = 5.0,
                   profile: Optional[Profile] = None, cancel: Optional[Cancel] = None,
                   ends: Sequence[int] = (),
                   prefill_ms: float = 0, label: str = "") -> Stored:
        """Stores what is not there yet. rows: a RowSource, or (K, V) of each layer. ends: numbers
        of tokens that are to stay restorable, as of the system prompt and of each turn.
        prefill_ms, label: what computing the rows cost, and a word for people, both kept with
        the entry and shown by cachectl; the label has nothing of a prompt."""
        return self._failing_open(
            "store_rows",
            lambda s: entry.store(s, model, tokens, extras, rows, wait_for, profile, ends,
                                  prefill_ms, label),
            timeout, lambda error: Stored(error=error), cancel)

    def lookup(self, model: Model, tokens: Any, *, extras: Extras = (), timeout: float = 1.0,
               profile: Optional[Profile] = None) -> m.LookupOk:
        """The answer that a fetch would give now, as advice."""
        return self._failing_open(
            "lookup", lambda s: entry.lookup(s, model, as_query(tokens, extras), profile), timeout,
            missed)

    def prefetch(self, model: Model, tokens: Any = (), *, extras: Extras = (),
                 wait: bool = False, hold: int = 0, timeout: float = 1.0,
                 profile: Optional[Profile] = None,
                 cancel: Optional[Cancel] = None) -> m.LookupOk:
        """Lookup that also begins to bring what lies on the SSD; wait: that answers when it has
        come. hold: the number of a Held, in place of tokens."""
        return self._failing_open(
            "prefetch",
            lambda s: entry.prefetch(s, model, as_query(tokens, extras), wait, hold, profile),
            timeout, missed, cancel)

    def demote(self, model: Model, tokens: Any = (), *, extras: Extras = (), hold: int = 0,
               timeout: float = 1.0, profile: Optional[Profile] = None) -> im.DemoteOk:
        """The rows that a fetch would use leave RAM and stay on the SSD, but for what others
        need. hold: as of prefetch."""
        return self._failing_open(
            "demote", lambda s: entry.demote(s, model, as_query(tokens, extras), hold, profile),
            timeout, not_demoted)

    def hold(self, model: Model, tokens: Any, seconds: float, *, extras: Extras = (),
             timeout: float = 1.0, profile: Optional[Profile] = None) -> Held:
        """Lookup whose find stays for so long: no tier evicts it. FetchOptions(hold=its number)."""
        return self._failing_open(
            "hold",
            lambda s: entry.hold(s, model, as_query(tokens, extras), seconds, profile), timeout,
            lambda error: Held(found=missed(error)))

    def retain(self, model: Model, tokens: Any, seconds: float, *, extras: Extras = (),
               timeout: float = 1.0, profile: Optional[Profile] = None) -> Retained:
        """Lookup whose find goes after all else of the namespace's share, for so long; nothing is
        pinned. renew and release take it as they do a Held."""
        return self._failing_open(
            "retain",
            lambda s: entry.retain(s, model, as_query(tokens, extras), seconds, profile), timeout,
            not_retained)

    def expire(self, model: Model, tokens: Any, seconds: Optional[float], *,
               extras: Extras = (), whole: bool = False, timeout: float = 1.0,
               profile: Optional[Profile] = None) -> im.ExpireOk:
        """What erase_entry (whole: erase) would remove now goes by itself so many seconds from
        now, None: no longer; a restart keeps that. Storing an entry that has some of it does
        away with it."""
        return self._failing_open(
            "expire",
            lambda s: entry.expire(s, model, as_query(tokens, extras), whole, seconds, profile),
            timeout, not_expired)

    def renew(self, held: Union[Held, Retained], seconds: float, *,
              timeout: float = 1.0) -> float:
        """It stays at least so long from now on; how long it does, 0.0 if it does not."""
        if not held:
            return 0.0
        return self._failing_open(
            "renew", lambda s: intent.renew(s, held.number, seconds), timeout, lambda _: 0.0)

    def release(self, held: Union[Held, Retained], *, timeout: float = 1.0) -> bool:
        """Ends a hold before its time; False if there was none."""
        if not held:
            return False
        return self._failing_open(
            "release", lambda s: intent.release(s, held.number), timeout, lambda _: False)

    def lookup_all(self, model: Model, queries: Sequence[Any], *, timeout: float = 1.0,
                   profile: Optional[Profile] = None) -> List[m.LookupOk]:
        """A lookup of each: its tokens, or a Query with extras. One round trip for many; after a
        failure all are misses."""
        return self._failing_open(
            "lookup_all", lambda s: entry.lookup_all(s, model, queries, profile), timeout,
            lambda error: [missed(error)] * len(queries))

    # ---- calls that raise

    def open(self, model: Model, profile: Optional[Profile] = None, replace: bool = False,
             timeout: float = 5.0) -> Opened:
        """The profile in force for the model; replace puts the given one in force, or without one
        that of the fleet with which the service shares a tier."""
        return self._guarded("open", lambda s: entry.reopen(s, model, profile, replace), timeout)

    def known(self, model: Model, profile: Profile, timeout: float = 5.0) -> Opened:
        """The profile in force; where there is none, none is put in force: `unsupported`.
        profile: any of the model's, in the mode that is meant."""
        return self._guarded("known", lambda s: entry.known(s, model, profile), timeout)

    def erase(self, model: Optional[Model], tokens: Any = (), *, extras: Extras = (),
              timeout: float = 30.0) -> int:
        """Removes all that begins with tokens, none: all of the model, no model: the namespace."""
        return self._guarded("erase", lambda s: entry.erase(s, model, as_query(tokens, extras)),
                             timeout)

    def erase_entry(self, model: Model, tokens: Any, *, extras: Extras = (),
                    timeout: float = 30.0, profile: Optional[Profile] = None) -> int:
        """Removes one entry, the one that ends with tokens, and all that no other is made of."""
        return self._guarded(
            "erase_entry",
            lambda s: entry.erase_entry(s, model, as_query(tokens, extras), profile), timeout)

    def stats(self, timeout: float = 1.0) -> Dict[str, int]:
        """PROTOCOL.md, "Stats"."""
        return self._guarded("stats", lambda s: s.stats(), timeout)[0]

    def why(self, number: int = 0, *, limit: int = 32, missed: bool = False, namespace: str = "",
            tokens: Any = (), timeout: float = 1.0) -> List[RequestRecord]:
        """Recent requests, the newest first: what was served of each and why no more. `number`:
        that one alone. `tokens`: what each model would serve of them now instead."""
        return self._guarded(
            "why", lambda s: s.why(number, limit, missed, namespace, as_tokens(tokens)),
            timeout).records

    # ---- how

    def _failing_open(self, call: str, make: Callable[[Session], Script[T]], timeout: float,
                      miss: Callable[[CacheError], T], cancel: Optional[Cancel] = None,
                      silence: float = 0.0) -> T:
        try:
            return self._guarded(call, make, timeout, cancel, silence)
        except CacheError as error:
            if self._strict:
                raise
            error.forget()
            return miss(error)

    def _guarded(self, call: str, make: Callable[[Session], Script[T]], timeout: float,
                 cancel: Optional[Cancel] = None, silence: float = 0.0) -> T:
        if self._process != os.getpid():
            self._start()
        resting = True
        patience = Patience(silence, lambda: self._answers(silence)) if silence > 0 else None
        try:
            self._guard.check()
            resting = False
            value = self._lent(make, Deadline(timeout, patience), cancel)
        except CacheError as error:
            error.call = call
            self._guard.failed(error, resting)
            raise
        self._guard.good()
        return value

    def _answers(self, seconds: float) -> bool:
        """The service answers a question beside a call that waits. True also where there is no
        connection to ask by."""
        try:
            self._lent(lambda s: s.stats(), Deadline(seconds), None)
        except Refused:
            return True
        except CacheError:
            return False
        return True

    def _lent(self, make: Callable[[Session], Script[T]], deadline: Deadline,
              cancel: Optional[Cancel]) -> T:
        """Runs a script on a connection; once more on a new one if a waiting one had ended."""
        connection, new = self._pool.take(deadline)
        try:
            return connection.run(make, deadline.left(), cancel, deadline.patience)
        except CacheError as error:
            if new or isinstance(error, Refused) or error.code != Code.UNAVAILABLE:
                raise
        finally:
            self._pool.give_back(connection)
        self._pool.drop_idle()
        return self._lent(make, deadline, cancel)
