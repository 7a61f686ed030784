"""Deadline: the moment by which a call must be back, and for how long it waits for a service that
does nothing (Patience)."""
from __future__ import annotations

import dataclasses
import time
from typing import Callable, Optional

from .errors import CacheError, Code, Refused

LONGEST_S = 4e6    # what a u32 of milliseconds has room for
ANSWER_S = 0.1     # a tenth of its time, at most this much, the service has less: to answer in time


@dataclasses.dataclass(frozen=True)
class Patience:
    """So many seconds without a byte from the service, then it is asked something else: `answers`
    says, in as long at most, whether it answers."""

    silence_s: float
    answers: Callable[[], bool]


class Deadline:
    def __init__(self, seconds: float, patience: Optional[Patience] = None) -> None:
        if not seconds > 0:
            raise Refused(Code.DEADLINE_EXCEEDED, f"timeout is {seconds} s, must be above 0")
        self.patience = patience
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

    def turn(self) -> float:
        """Seconds for the next bytes to move, above 0; none left is an error."""
        left = self.left()
        return left if self.patience is None else min(left, self.patience.silence_s)

    def first_answer(self) -> float:
        """Seconds for a service that was not asked yet, as many as a silent one has in all."""
        left = self.left()
        return left if self.patience is None else min(left, 2 * self.patience.silence_s)

    def goes_on(self) -> bool:
        """No bytes moved in their turn: whether the call waits on."""
        return self.patience is not None and not self.over(0) and self.patience.answers()

    def milliseconds(self) -> int:
        """The time that a request tells the service, whose own answer then comes before the end."""
        left = self.left()
        return max(1, int((left - min(left / 10, ANSWER_S)) * 1000))
