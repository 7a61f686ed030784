"""The parts that adapters of all engines share: Fetches asks within a budget, Stores stores from
a thread of its own. For engines in this process: in_process.py.

The budget is how long an answer waits, in all, for a daemon that does not move: it neither sends
nor answers. Half of it is the look-up's. Of the other half a fetch waits half for a byte, then asks
another question, whose answer may take as long; a daemon that decodes for longer answers it. What
does move may take the time of its bytes (BYTES_PER_S), and from the SSD half of what computing it
takes (WAIT), as long as something comes: at least a block in the time of its bytes. The report's
`waited_us` is the time that all of it took."""
from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Tuple

from .cache import Cache
from .entry import FetchOptions
from .errors import CacheError, Code
from .hit import Hit
from .report import Report
from .models import Model, Profile

BYTES_PER_S = 100e6  # rows and values may take the time of their bytes besides
WAIT = 0.5           # of the time that computing takes: so long rows may come from the SSD
POLL_S = 0.01
SILENCE = 0.25       # of the budget: without a byte, and again for the answer to a question
MOVES = ("ram_objects", "ram_stored_bytes", "promotions", "remote_bytes_read")  # "Stats"
STORE_S = 10.0
WAITING_STORES = 2   # entries whose rows wait for the cache; more are dropped


class Fetches:
    """Of one model under one profile. cache: a strict one. token_bytes: about, of a token's rows.
    Raises CacheError; thread-safe."""

    def __init__(self, cache: Cache, model: Model, profile: Profile, token_bytes: float,
                 budget_s: float, report: Report) -> None:
        self._cache, self._model, self._profile = cache, model, profile
        self._token_bytes, self._budget_s, self._report = token_bytes, budget_s, report

    def find(self, tokens: Any) -> int:
        """The number of stored tokens; asked within half of the budget."""
        with self._report.timed("waited_us"):
            return self._cache.lookup(self._model, tokens, timeout=self._budget_s / 2,
                                      profile=self._profile).tokens

    def fetch(self, tokens: Any, found: int, token_s: float) -> Hit:
        """The rows that were found. Asks again while rows come from the SSD, no longer than half of
        computing them takes, at token_s each."""
        with self._report.timed("waited_us"):
            return self._as_coded(self._fetched(tokens, found, token_s))

    def _fetched(self, tokens: Any, found: int, token_s: float) -> Hit:
        half = self._budget_s / 2
        timeout = half + found * self._token_bytes / BYTES_PER_S
        still = half + self._profile.block_tokens * self._token_bytes / BYTES_PER_S
        began = moved = time.monotonic()
        before: Tuple[int, ...] = ()
        while True:
            hit = self._cache.fetch_rows(self._model, tokens, timeout=timeout,
                                         profile=self._profile, options=FetchOptions(wait=False),
                                         silence=SILENCE * self._budget_s)
            if hit or not hit.pending:
                return hit
            stats = self._cache.stats(half)
            now, moves = time.monotonic(), tuple(stats.get(name, 0) for name in MOVES)
            before, moved = moves, moved if moves == before else now
            if now - began > max(half, WAIT * token_s * found) or now - moved > still:
                self._report.count("hits_too_slow")
                return hit
            time.sleep(POLL_S)

    def _as_coded(self, hit: Hit) -> Hit:
        """Whoever opened the model first, or replaced its profile, may have had rows coded
        otherwise."""
        found, own = hit.profile, self._profile
        if hit and found and ((found.raw_dtype, found.k_bits, found.v_bits)
                              != (own.raw_dtype, own.k_bits, own.v_bits)):
            raise CacheError(Code.PROFILE_CHANGED, f"rows are stored as {found.raw_dtype.name} of "
                             f"{found.k_bits}:{found.v_bits} bits, must be {own.raw_dtype.name} of "
                             f"{own.k_bits}:{own.v_bits}")
        return hit


class Stores:
    """Stores in order, from a thread of their own: nobody waits for them."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._waiting: "queue.Queue[Callable[[], None]]" = queue.Queue(WAITING_STORES)
        threading.Thread(target=self._run, name="stores", daemon=True).start()

    def later(self, store: Callable[[], None]) -> None:
        try:
            self._waiting.put_nowait(store)
        except queue.Full:
            self._report.count("stores_dropped")

    def _run(self) -> None:
        while True:
            self._do(self._waiting.get())  # and keep nothing of it until the next one comes

    def _do(self, store: Callable[[], None]) -> None:
        try:
            store()
        except Exception as error:  # whatever it was, the next store is another one's
            self._report.failed("store", error)
        finally:
            self._waiting.task_done()

    def settle(self) -> None:
        """Waits until all that was given is done: at the end of a program."""
        self._waiting.join()
