"""Reuse: what happens before and after an answer of one llama.cpp server.

Before: the longest stored prefix is asked for, within milliseconds; where the slot has less, a slot
file of exactly that length is restored into it. After, never before the answer is done: the slot is
saved, and what it holds goes to the cache from a thread of its own.

Whatever fails is a miss, counted in the report. The proof that a restore restored is `cache_n` of
the answer's timings: after three in a row that say less, reuse steps aside for good, and after one
whose next token is another one than the server's own (llama_shadow.py). Rows are stored only of a
slot that was computed in order under the tokens that its file names (Slot.sound).
"""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from .adapter import STORE_S, Fetches, Stores
from .cache import Cache
from .checks import BOUND_NATS
from .errors import CacheError
from .llama_prompt import CALL_S, Prompt
from .llama_rows import Layout, SlotRows
from .llama_shadow import Shadow
from .llama_slots import NOTHING, Slot, Slots, common
from .llama_upstream import Upstream
from .models import Profile
from .report import Report

MISMATCHES = 3  # in a row, before reuse steps aside
MEASURED = 32   # tokens computed at once that say how fast the server is
SLOT_S = 10.0   # for the server to save or restore a slot


class Reuse:
    """profile: to store under. token_s: what the server takes to compute a token of a prompt."""

    def __init__(self, upstream: Upstream, cache: Cache, layout: Layout, profile: Profile,
                 slots: Slots, report: Report, min_tokens: int, budget_s: float, token_s: float,
                 shadow: Shadow, same_server: Callable[[], bool] = lambda: True) -> None:
        self.slots = slots
        self._upstream, self._cache, self._layout = upstream, cache, layout
        self._profile, self._report, self._min_tokens = profile, report, min_tokens
        self._fetches = Fetches(cache, layout.model, profile, layout.token_bytes, budget_s, report)
        self._token_s = token_s
        self._shadow = shadow
        self._same_server = same_server  # as when the layout was learnt
        self._mismatches = 0
        self._stores = Stores(report)

    # ---- before the answer

    def find(self, prompt: Prompt) -> Optional[int]:
        """The number of a prompt's tokens that are stored. None: leave the request alone."""
        if self._mismatches >= MISMATCHES or len(prompt.tokens) < self._min_tokens:
            return None
        try:
            return self._fetches.find(prompt.tokens)
        except CacheError as error:
            self._report.failed("lookup", error)
            return None

    def restore(self, slot: Slot, prompt: Prompt, found: int) -> int:
        """Brings a stored prefix into the slot if that has less; how many tokens were restored."""
        slot.hit = None
        there = common(slot.tokens, prompt.tokens)
        if self._layout.windowed and there < len(slot.tokens):
            there = 0  # a ring does not go back
        if found < self._min_tokens or found <= there:
            self._report.count("hits_in_slot" if there else "misses")
            return 0
        try:
            hit = self._fetches.fetch(prompt.tokens, found, self._token_s)
            if hit.tokens <= there or not self._still_same():
                return 0
            self._upstream.restore(slot.number, self._layout.file_for(prompt.tokens, hit), SLOT_S,
                                   hit.valid)
        except Exception as error:  # whatever it is, a miss
            self._report.failed("restore", error)
            return 0
        self._report.count("hits")
        self._report.count("restored_tokens", hit.tokens)
        slot.tokens, slot.sound = prompt.tokens[:hit.tokens], True
        slot.hit = hit if self._shadow.due() else None
        return hit.tokens

    def stop_at_system(self, slot: Slot, prompt: Prompt, found: int) -> float:
        """A slot that is stored whole has lost by the end of an answer what it held at the end of a
        system message: the server computes up to there first, and the slot is saved as it is then.
        Returns the seconds that it computed, of what it had to compute in any case."""
        if not self._layout.opaque or not prompt.system_end:
            return 0.0
        try:
            end = self._system_tokens(prompt)
            if max(found, self._min_tokens - 1, common(slot.tokens, prompt.tokens)) >= end:
                return 0.0
            reused, computed_s = self._upstream.advance(slot.number, prompt.tokens[:end],
                                            CALL_S + 10 * self._token_s * end)
            rows = self._layout.source(self._upstream.save(slot.number, SLOT_S))
        except Exception as error:  # the server computes the prompt itself
            slot.tokens, slot.sound = NOTHING, False
            self._report.failed("save", error)
            return 0.0
        slot.sound = slot.sound or reused == 0
        slot.tokens = rows.tokens
        if slot.sound and np.array_equal(rows.tokens, prompt.tokens[:end]):
            slot.kept = rows
        return computed_s

    def _system_tokens(self, prompt: Prompt) -> int:
        return common(self._upstream.tokens_of(prompt.system_end, CALL_S), prompt.tokens)

    # ---- after the answer

    def finish(self, slot: Slot, prompt: Prompt, restored: int, timings: Dict[str, Any]) -> None:
        """Once the answer has ended, while the slot is still taken. timings: of the answer; empty
        where it broke off, as when its client left."""
        with self._report.timed("added_to_answers_us"):  # who comes next to this slot waits
            self._finish(slot, prompt, restored, timings)

    def _finish(self, slot: Slot, prompt: Prompt, restored: int, timings: Dict[str, Any]) -> None:
        kept, slot.kept = slot.kept, None
        reused, new = timings.get("cache_n"), timings.get("predicted_n")
        self.slots.close(slot, prompt.tokens)
        if isinstance(reused, int):
            self._report.count("reused_tokens", reused)
            self._prove(restored, reused)
            slot.sound = slot.sound or reused == 0
            self._measure(timings)
        try:
            rows = self._layout.source(self._upstream.save(slot.number, SLOT_S))
            same = self._still_same()
        except Exception as error:
            slot.tokens, slot.sound = NOTHING, False
            self._report.failed("save", error)
            return
        slot.tokens = rows.tokens
        sound = slot.sound = slot.sound and self._in_order(prompt, rows, new)
        if self._diverges(slot, prompt):
            return
        if sound and same:
            self._stores.later(lambda: self._store(prompt, rows, kept))

    def _measure(self, timings: Dict[str, Any]) -> None:
        computed, took = timings.get("prompt_n"), timings.get("prompt_ms")
        if isinstance(computed, int) and isinstance(took, float) and computed >= MEASURED:
            self._token_s = took / 1000 / computed

    def _still_same(self) -> bool:
        if not self._same_server():
            self.step_aside("the server behind the proxy is another one now, start the proxy anew")
        return self._mismatches < MISMATCHES

    def step_aside(self, why: str) -> None:
        """From now on requests are passed through as they are."""
        self._mismatches = MISMATCHES
        self._report.say("aside", f"no more caching: {why}")

    def _prove(self, restored: int, reused: int) -> None:
        if restored == 0:
            return
        if reused >= self._layout.proof(restored):
            self._mismatches = 0
            return
        self._mismatches += 1
        self._report.count("mismatches")
        if self._mismatches == MISMATCHES:
            self.step_aside(f"the server reused {reused} of {restored} restored tokens, for the "
                            f"third time in a row")

    def _diverges(self, slot: Slot, prompt: Prompt) -> bool:
        """Checks the slot's hit, if there is one to check: true if reuse has stepped aside."""
        hit, slot.hit = slot.hit, None
        if hit is None:
            return False
        try:
            nats = self._shadow.divergence(slot.number, prompt.tokens, hit, self._token_s)
        except Exception as error:  # which says nothing about the rows
            slot.tokens, slot.sound = NOTHING, False
            self._report.failed("shadow", error)
            return False
        slot.tokens, slot.sound = prompt.tokens, True
        if math.isnan(nats):
            self._report.count("shadows_unproved")
            return False
        self._report.count("shadows")
        self._report.count("shadow_millinats", round(1000 * nats))
        if nats <= BOUND_NATS:
            return False
        self._report.count("shadows_diverged")
        self.step_aside(f"after a hit the next token was another one than the server computes by "
                        f"itself ({nats:.1f} nats, at most {BOUND_NATS:.1f})")
        return True

    def _in_order(self, prompt: Prompt, rows: SlotRows, new: Any) -> bool:
        """The slot holds the prompt and the answer of `new` tokens, perhaps without the last."""
        if not isinstance(new, int):
            return not self.slots.shifts
        whole = len(prompt.tokens)
        if (common(prompt.tokens, rows.tokens) == whole
                and len(rows.tokens) in (whole + new - 1, whole + new)):
            return True
        self._report.say("order", "a slot held other tokens than its prompt and answer (its "
                         "context was shifted, say): not stored")
        return False

    def _store(self, prompt: Prompt, rows: SlotRows, kept: Optional[SlotRows]) -> None:
        if kept is not None:
            self._store_entry(kept, len(kept.tokens), [])
        end, ends = self._ends(prompt, rows)
        if end >= self._min_tokens:
            self._store_entry(rows, end, ends)

    def _store_entry(self, rows: SlotRows, end: int, ends: List[int]) -> None:
        with self._report.timed("stores_us"):
            stored = self._cache.store_rows(self._layout.model, rows.tokens[:end], rows,
                                            timeout=STORE_S, profile=self._profile, ends=ends,
                                            prefill_ms=1000 * self._token_s * end)
        self._report.count("stores")
        self._report.count("stored_objects", stored.objects)
        self._report.count("stored_ends", sum(each.restorable for each in stored.ends))

    def _ends(self, prompt: Prompt, rows: SlotRows) -> Tuple[int, List[int]]:
        """The length of the entry, and those within it that are to stay restorable: where rows are
        served at few lengths, the prompt without its last token and its system message."""
        last = max(filter(rows.storable, (len(rows.tokens), *rows.checkpoints)), default=0)
        if not self._layout.windowed:
            return last, []
        def most(end: int) -> int:
            """The longest that can be stored, of this end and the server's own before it."""
            kept = [end, *(each for each in rows.checkpoints if each < end)]
            return max(filter(rows.storable, kept), default=0)
        ends = {most(len(prompt.tokens) - 1)}
        if prompt.system_end:
            ends.add(most(self._system_tokens(prompt)))
        return last, sorted(end for end in ends if self._min_tokens <= end < last)

    def settle(self) -> None:
        """Waits until all of given answers is with the cache: at the end of the program."""
        self.slots.settle()
        self._stores.settle()
