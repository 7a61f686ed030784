"""Report: what an adapter counted, and what it has to say, each thing once. Thread-safe."""
from __future__ import annotations

import collections
import contextlib
import sys
import threading
import time
from typing import Counter, Dict, Iterator, Set


class Report:
    def __init__(self, program: str) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._counts: Counter[str] = collections.Counter()
        self._said: Set[str] = set()

    def count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counts[name] += by

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Counts the microseconds that its body takes."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.count(name, int((time.monotonic() - begin) * 1e6))

    def counts(self) -> Dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def say(self, what: str, text: str) -> None:
        """On standard error, the first time for each `what`. Never a prompt's content."""
        with self._lock:
            if what in self._said:
                return
            self._said.add(what)
        print(f"{self._program}: {text}", file=sys.stderr, flush=True)

    def failed(self, what: str, error: Exception) -> None:
        """A failure that is a miss: counted, and said the first time."""
        self.count(f"failed_{what}")
        self.say(what, f"{what}: {type(error).__name__}: {error} (said once, counted)")
