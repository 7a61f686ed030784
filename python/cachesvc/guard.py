"""Guard: what fail-open means. It counts failures, keeps the last one, and lets a cache that does
not answer rest: after a failure of the service, not of a request, calls are misses at once for a
pause, 1 s at first, doubled up to a minute.

Thread-safe.
"""
from __future__ import annotations

import collections
import threading
import time
from typing import Callable, Counter, Optional

from .errors import CacheError, Code, Refused


class Guard:
    def __init__(self, first_pause: float = 1.0, longest_pause: float = 60.0,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._first, self._longest, self._clock = first_pause, longest_pause, clock
        self._lock = threading.Lock()
        self._pause = 0.0
        self._until = 0.0
        self._last: Optional[CacheError] = None
        self._counts: Counter[str] = collections.Counter()

    @property
    def failures(self) -> Counter[str]:
        """Counts of failures that were a miss, by their code's name."""
        with self._lock:
            return self._counts.copy()

    @property
    def last_error(self) -> Optional[CacheError]:
        with self._lock:
            return self._last

    def check(self) -> None:
        """An error while the service rests."""
        with self._lock:
            left = self._until - self._clock()
            if left > 0:
                raise CacheError(Code.UNAVAILABLE, f"resting for {left:.1f} s after: {self._last}")

    def good(self) -> None:
        with self._lock:
            self._pause = self._until = 0.0

    def failed(self, error: CacheError, rested: bool) -> None:
        """Counts a failure; one of the service begins a rest. rested: `check` made it."""
        with self._lock:
            self._counts[error.code.name.lower()] += 1
            if rested:
                return
            self._last = error
            # Calls that were under way when a rest began fail of what began it.
            if (not isinstance(error, Refused) and error.code != Code.INVALID_ARGUMENT
                    and self._clock() >= self._until):
                self._pause = min(max(self._pause * 2, self._first), self._longest)
                self._until = self._clock() + self._pause
