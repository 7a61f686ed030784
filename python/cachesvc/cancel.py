"""Cancel: takes the calls back that run under it. Thread-safe."""
from __future__ import annotations

import contextlib
import threading
from typing import Callable, Iterator, List

from .errors import Code, Refused


class Cancel:
    """`cache.fetch_rows(..., cancel=c)` in one thread, `c.now()` in another: a call that still
    waits ends with the code CANCELLED, one that has its answer gives it, and the connection stays.
    For good: later calls under it end at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: List[Callable[[], None]] = []
        self._asked = False

    def now(self) -> None:
        with self._lock:
            self._asked = True
            for take_back in self._running:
                take_back()

    @contextlib.contextmanager
    def over(self, take_back: Callable[[], None]) -> Iterator[None]:
        """A call that runs: `take_back` is called at most once, by any thread, while it does."""
        with self._lock:
            if self._asked:
                raise Refused(Code.CANCELLED, "cancelled by its caller")
            self._running.append(take_back)
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(take_back)
