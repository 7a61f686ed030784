"""An engine that runs in this process: what it must be able to do (Engine), and Adapter, which
brings its caches from cachesvc and there, with all checks.

Nothing fails but the making of an Adapter: what goes wrong later is a miss, counted and said once.
"""
from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable, Iterable, List, Optional, Protocol, Sequence, Tuple

from . import calibrate
from .adapter import STORE_S, Fetches, Stores
from .cache import Cache
from .checks import BOUND_NATS, OneIn, divergence, hit_of, pattern, same_rows
from .errors import CacheError, Code
from .hit import Hit
from .models import Dtype, Kind, Layers, Model, Profile, profile_of
from .options import BUDGET_MS, MIN_TOKENS, SHADOW
from .report import Report
from .sampled import fingerprint
from .store import RowSource
from .wire import Buffer

PROBE = list(range(1, 33))  # tokens that are computed at attach
PATTERN_TOKENS = 4096       # of the self check, at most
SAME_NATS = 0.01            # between two computations of one token by one engine
OPEN_S = 1.0                # where nobody waits
PLAN_BITS = (4, 4)          # in the fingerprint of a model whose rows a plan codes
Entry = Tuple[Sequence[int], RowSource]


class Engine(Protocol):
    """One model as the engine runs it. past: a cache of the engine's own kind, of one sequence."""

    name: str
    model: Model  # given to it, once its layers are known

    def describe(self) -> List[str]:
        """Words for all that may change a row and is in no tensor: the engine's name, its
        configuration, …"""

    def tensors(self) -> Iterable[Tuple[str, Iterable[Buffer]]]:
        """Of sampled.fingerprint."""

    def empty(self) -> Any:
        """A past of no tokens."""

    def logits(self, tokens: Sequence[int], past: Any) -> Any:
        """Of the token after these (vocabulary), which go on from past and lie in it then."""

    def layers(self, past: Any) -> Layers:
        """Of a past that holds tokens. CacheError: a kind of cache that is not known, by name."""

    def rows_of(self, past: Any, tokens: int) -> RowSource:
        """The contents of a past of so many tokens; nothing changes them any more."""

    def fill(self, past: Any, hit: Hit) -> None:
        """An empty past holds the hit's tokens then, and no view of its rows."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """bits: of keys and values, 8, 4, 3 or 2, if rows are coded. encode: text to tokens;
    without it coded keys have 8 bits. plan: in place of both, a file of `cachectl tune`. tag:
    what else changes a row, in words. min_tokens: of a prompt worth a look-up. budget_s: how much
    later than without the cache an answer may come. shadow: one hit in so many is computed again
    by the engine; 0: none."""

    bits: Optional[Tuple[int, int]] = None
    plan: str = ""
    tag: str = ""
    min_tokens: int = MIN_TOKENS
    budget_s: float = BUDGET_MS / 1000
    shadow: int = SHADOW
    encode: Optional[Callable[[str], Sequence[int]]] = None


def model_of(engine: Engine, layers: Layers, bits: Optional[Tuple[int, int]], tag: str) -> Model:
    """The engine's model, of which rows are stored in these bits; None: as they are."""
    coding = f"bits {bits[0]}:{bits[1]}" if bits else "lossless"
    return Model(f"{engine.name}, {coding}"[:200],
                 fingerprint(engine.tensors(), [*engine.describe(), coding, tag]), layers)


class Adapter:
    """Of one model. cache: a strict one. For the engine's thread; stores have their own.

    CacheError: the model's caches can't be kept, and why.
    """

    def __init__(self, engine: Engine, cache: Cache, settings: Settings) -> None:
        self.report, self.aside = Report(f"cachesvc, {engine.name}"), False
        self.stores = Stores(self.report)
        self._engine, self._cache, self._settings = engine, cache, settings
        self._due = OneIn(settings.shadow)
        self._to_check: List[Tuple[Sequence[int], int, Any]] = []  # prompt, tokens in a past, it
        past, start = engine.empty(), time.monotonic()
        engine.logits(PROBE[:-1], past)
        self._token_s = (time.monotonic() - start) / len(PROBE[:-1])
        layers = engine.layers(past)
        parts = [part for parts in layers for part in parts]
        dtypes = {part.dtype for part in parts if part.sides}
        if not dtypes and any(part.kind == Kind.OPAQUE for part in parts):
            dtypes = {Dtype.F16}  # of none
        if len(dtypes) != 1:
            raise CacheError(Code.UNSUPPORTED, f"rows of {len(dtypes)} types, must be of one")
        bits = settings.bits
        if settings.plan:
            bits = PLAN_BITS
        elif bits and settings.encode is None:
            bits = (8, bits[1])
        engine.model = self.model = model_of(engine, layers, bits, settings.tag)
        self._check(past)
        self._profile = self._opened(profile_of(self.model, dtypes.pop(), bits))
        token_bytes = sum(part.heads * (part.k_dim + part.v_dim) * part.dtype.numpy.itemsize
                          for _, _, part in self.model.parts())
        self._fetches = Fetches(cache, self.model, self._profile, token_bytes, settings.budget_s,
                                self.report)

    def _opened(self, profile: Profile) -> Profile:
        """The profile to bring: of coded rows with mean and gain of keys, which cost computing a
        text, unless the service has a profile in force already. It is put in force by the thread
        of stores: a daemon that does not move keeps no engine from its start."""
        if self._settings.plan:
            profile = calibrate.plan(self._settings.plan, self.model.fingerprint)
        elif profile.k_bits and self._settings.encode is not None:
            try:
                with self.report.timed("waited_us"):
                    return self._cache.known(self.model, profile,
                                             self._settings.budget_s).profile
            except CacheError:  # there is none, or nobody to ask
                profile = self._calibrated(profile, self._settings.encode)
        self.stores.later(lambda: self._open(profile))
        return profile

    def _open(self, profile: Profile) -> None:
        try:
            self._cache.open(self.model, profile, timeout=OPEN_S)
        except CacheError as error:  # a daemon that is not there yet may come
            self.report.failed("open", error)

    def _calibrated(self, profile: Profile, encode: Callable[[str], Sequence[int]]) -> Profile:
        tokens, past = list(encode(calibrate.text()))[:calibrate.TOKENS], self._engine.empty()
        self._engine.logits(tokens, past)
        return calibrate.calibrated(profile, self.model, len(tokens),
                                    self._engine.rows_of(past, len(tokens)))

    def _check(self, past: Any) -> None:
        """The self check: a pattern comes back from the engine's own layout, and the engine goes on
        from rows as from the past that they were taken from."""
        engine, tokens = self._engine, len(PROBE) - 1
        computed = hit_of(self.model, tokens, engine.rows_of(past, tokens))
        widest = max(part.window for _, _, part in self.model.parts())
        given = pattern(self.model, min(PATTERN_TOKENS, widest + len(PROBE)), computed)
        filled, again = engine.empty(), engine.empty()
        engine.fill(filled, given)
        engine.fill(again, computed)
        own, other = (engine.logits(PROBE[-1:], each) for each in (past, again))
        if (not same_rows(given, engine.rows_of(filled, given.tokens))
                or not divergence(own, other) < SAME_NATS):
            raise CacheError(Code.UNSUPPORTED, f"the self check of {engine.name}: rows came back "
                                               "as other ones")

    # ---- before the answer

    def empty(self) -> Any:
        """A past of no tokens."""
        return self._engine.empty()

    def load(self, tokens: Sequence[int], past: Any, there: int = 0) -> int:
        """Brings the longest stored prefix, at most all tokens but the last, into an empty past;
        how many tokens that is. 0, with whatever past holds then: no more than `there` is stored,
        or it failed."""
        if self.aside or len(tokens) < self._settings.min_tokens:
            return 0
        begin = time.monotonic()
        length = self._loaded(tokens, past, there)
        if length == 0:
            self.report.count("added_to_misses_us", int((time.monotonic() - begin) * 1e6))
        return length

    def _loaded(self, tokens: Sequence[int], past: Any, there: int) -> int:
        least = max(there + 1, self._settings.min_tokens)
        try:
            found = self._fetches.find(tokens)
            hit = self._fetches.fetch(tokens, found, self._token_s) if found >= least else Hit()
            good = hit.tokens >= least and self._filled(tokens, hit, past)
        except Exception as error:  # whatever it is, a miss
            self.report.failed("load", error)
            return 0
        self.report.count("hits" if good else "misses")
        self.report.count("reused_tokens", hit.tokens if good else 0)
        return hit.tokens if good else 0

    def _filled(self, tokens: Sequence[int], hit: Hit, past: Any) -> bool:
        """False: the service took the rows back meanwhile."""
        self._engine.fill(past, hit)
        to_check = []
        if self._due.due():
            again = self._engine.empty()
            self._engine.fill(again, hit)
            to_check = [(tokens, hit.tokens, again)]
        if hit.valid():
            self._to_check = to_check
        return hit.valid()

    def prefill(self, tokens: Sequence[int], past: Any, done: int,
                ends: Sequence[int] = ()) -> List[Entry]:
        """Computes all tokens but the last behind those that are done. What to store of it: at each
        of the ends too, as an engine with windows or states holds no earlier ones later."""
        entries = []
        for end in sorted({*ends, len(tokens) - 1}):
            if done < end < len(tokens):
                self._engine.logits(tokens[done:end], past)
                entries.append(self.entry(tokens[:end], past))
                done = end
        return entries

    # ---- after the answer

    def entry(self, tokens: Sequence[int], past: Any) -> Entry:
        """To store: these tokens, all that past holds."""
        with self.report.timed("copied_us"):
            return list(tokens), self._engine.rows_of(past, len(tokens))

    def store(self, entries: Sequence[Entry]) -> None:
        """Later, by another thread. Hits that are to be checked are checked now."""
        kept = [entry for entry in entries if len(entry[0]) >= self._settings.min_tokens]
        if kept and not self.aside:
            self.stores.later(lambda: self._store(kept))
        self._check_hits()

    def _store(self, entries: Sequence[Entry]) -> None:
        for tokens, rows in entries:
            with self.report.timed("stores_us"):
                stored = self._cache.store_rows(self.model, tokens, rows, timeout=STORE_S,
                                                profile=self._profile,
                                                prefill_ms=1000 * self._token_s * len(tokens))
            self.report.count("stores")
            self.report.count("stored_objects", stored.objects)

    def _check_hits(self) -> None:
        """The shadow check: the engine computes the prompt of a hit anew. Where the next token is
        another one the caching of this model ends."""
        for tokens, there, past in self._to_check:
            try:
                self._judge(divergence(self._engine.logits(tokens, self._engine.empty()),
                                       self._engine.logits(tokens[there:], past)))
            except Exception as error:  # which says nothing about the rows
                self.report.failed("shadow", error)
        self._to_check = []

    def _judge(self, nats: float) -> None:
        self.report.count("shadows")
        self.report.count("shadow_millinats", round(1000 * nats))
        if not nats <= BOUND_NATS:
            self.report.count("shadows_diverged")
            self.aside = True
            self.report.say("aside", f"no more caching: after a hit the next token was another one "
                            f"than the engine computes by itself ({nats:.1f} nats, at most "
                            f"{BOUND_NATS:.1f})")
