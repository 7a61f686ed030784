"""Deadline: the moment by which a call must be back."""
from __future__ import annotations

import time

from .errors import CacheError, Code, Refused

LONGEST_S = 4e6    # what a u32 of milliseconds has room for
ANSWER_S = 0.1     # a tenth of its time, at most this much, the service has less: to answer in time


class Deadline:
    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise Refused(Code.DEADLINE_EXCEEDED, f"timeout is {seconds} s, must be above 0")
        self._at = time.monotonic() + min(LONGEST_S, seconds)

    def over(self, ahead: float) -> bool:
        """So many seconds from now nothing is left."""
        return time.monotonic() + ahead >= self._at

    def left(self) -> float:
        """Seconds, above 0; none left is an error."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise CacheError(Code.DEADLINE_EXCEEDED, "the call's time is over")
        return left

    def milliseconds(self) -> int:
        """The time that a request tells the service, whose own answer then comes before the end."""
        left = self.left()
        return max(1, int((left - min(left / 10, ANSWER_S)) * 1000))
