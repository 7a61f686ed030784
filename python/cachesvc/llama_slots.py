"""Slots: which request has which slot of the server, and what each slot holds.

A request that is pinned to a slot has it alone until it gives it back: nobody else's request may
land between a restore and the answer. Who finds none free waits, as he would in the server's own
queue. Thread-safe.
"""
from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Iterator, List, Optional, Sequence

import numpy as np

from .hit import Hit
from .llama_rows import SlotRows
from .wire import Tokens

NOTHING = np.empty(0, "<i4")


@dataclasses.dataclass(eq=False)
class Slot:
    """tokens: what it held when it was saved last. sound: whatever it holds was computed in order,
    under the tokens that it names, so that its rows may be stored. hit: what was restored for the
    answer that it computes, if that is to be checked. kept: what it held at the end of a system
    message on the way there. It belongs to who has taken it.
    """

    number: int
    tokens: Tokens = dataclasses.field(default_factory=lambda: NOTHING)
    sound: bool = False
    hit: Optional[Hit] = None
    kept: Optional[SlotRows] = None
    used: int = 0


def common(a: Tokens, b: Tokens) -> int:
    """The number of tokens that both begin with."""
    count = min(len(a), len(b))
    differ = np.flatnonzero(a[:count] != b[:count])
    return int(differ[0]) if len(differ) else count


class Slots:
    """shifts: the server may move what a slot holds to other positions, or may have done so."""

    def __init__(self, numbers: Sequence[int], shifts: bool) -> None:
        self.shifts = shifts
        self._all = [Slot(number, sound=not shifts) for number in numbers]
        self._free: List[Slot] = list(self._all)
        self._closing: List[Slot] = []  # their answers are given, what they hold is being saved
        self._changed = threading.Condition()
        self._uses = 0

    def doubt(self) -> None:
        """Any slot may come to hold rows of another kind than its tokens say."""
        with self._changed:
            for slot in self._all:
                slot.sound = False

    @contextlib.contextmanager
    def taken(self, tokens: Tokens) -> Iterator[Slot]:
        """The slot that holds most of these tokens, of those that are free or soon will be; of
        equal ones the one that was used longest ago."""
        with self._changed:
            slot = self._best(tokens)
            while slot is None or slot not in self._free:
                self._changed.wait()
                slot = self._best(tokens)
            self._free.remove(slot)
            self._uses += 1
            slot.used = self._uses
        try:
            yield slot
        finally:
            with self._changed:
                if slot in self._closing:
                    self._closing.remove(slot)
                self._free.append(slot)
                self._changed.notify_all()

    def _best(self, tokens: Tokens) -> Optional[Slot]:
        soon = self._free + self._closing
        return max(soon, key=lambda s: (common(s.tokens, tokens), -s.used)) if soon else None

    def close(self, slot: Slot, tokens: Tokens) -> None:
        """The answer of a taken slot is given, or its last bytes are about to be; it holds these
        tokens, and some more."""
        with self._changed:
            slot.tokens = tokens
            if slot not in self._closing:
                self._closing.append(slot)
            self._changed.notify_all()

    def settle(self) -> None:
        """Waits until what the slots of given answers hold has been saved."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closing)
