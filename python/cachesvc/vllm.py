"""Tier: cachesvc as a secondary tier of vLLM's native KV offload. README.md, "vLLM".

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": N,
        "secondary_tiers": [{"type": "Tier", "module_path": "cachesvc.vllm",
                             "socket": "/run/user/1000/cachesvc.sock", "namespace": "mine"}]}}'

vLLM names a chunk by a hash, so chunks are values by key, lossless, as the primary tier lays them
out: a row of its memory for each. Keys begin with all that makes rows what they are, vLLM's version
too. Every call of vLLM's scheduler returns at once; threads do the work.

Hints (ReqContext.kv_hints, actions of version 1.0) are about the chunks of their request, and done
when it has ended: kv.pin {"ttl_seconds": t} keeps them in the cache,
kv.prefetch {} brings them into the service's RAM, kv.release {"action_id": a} ends what action a
pinned. `Tier.outcomes` says what came of each: accepted, clipped (shorter, or not all), rejected or
missing.
"""
from __future__ import annotations

import collections
import concurrent.futures
import json
import queue
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, OrderedDict

import numpy as np
import vllm
from vllm.v1.kv_offload.base import (LookupResult, Medium, ReqContext, RequestOffloadingContext,
                                     ScheduleEndContext)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .intent import Held
from .keyed import Values
from .report import Report
from .plugin import Settings, Shelf, identity_of
from .weights import weights_of

PATTERN_BYTES = 1 << 20   # of the self check, at most
LONGEST_PIN_S = 600.0     # PROTOCOL.md, "Limits"
KEPT_OUTCOMES = 1024
PIN, PREFETCH, RELEASE = "kv.pin", "kv.prefetch", "kv.release"


class Lookups(AsyncLookupManager):  # type: ignore[misc]
    """vLLM's own thread for questions, which asks the shelf for all keys of a step at once."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        super().__init__(tier_type="cachesvc")

    def batch_lookup(self, keys: List[bytes], req_context: ReqContext) -> Iterable[bool]:
        return self._shelf.exists([bytes(key) for key in keys])


class Wishes:
    """The wishes of one request's hints, as vLLM keeps it with the request."""

    def __init__(self, actions: List[Any]) -> None:
        self.actions = actions


class Hints:
    """Executes hints, on the thread of stores."""

    def __init__(self, shelf: Shelf, report: Report) -> None:
        self._shelf, self._report = shelf, report
        self._pins: OrderedDict[str, List[Held]] = collections.OrderedDict()  # by action
        self._do: Dict[str, Callable[[Any, List[bytes]], str]] = {
            PIN: self._pin, PREFETCH: self._prefetch, RELEASE: self._release}
        self.outcomes: OrderedDict[str, str] = collections.OrderedDict()

    def execute(self, actions: List[Any], keys: List[bytes]) -> None:
        for action in actions:
            known = self._do.get(action.action_type) if action.action_version == "1.0" else None
            outcome = known(action, keys) if known else "rejected"
            self.outcomes[action.action_id] = outcome
            self._report.count(f"hints_{outcome}")
            while len(self.outcomes) > KEPT_OUTCOMES:
                self.outcomes.popitem(last=False)

    def _pin(self, action: Any, keys: List[bytes]) -> str:
        seconds = action.payload.get("ttl_seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
            return "rejected"
        helds = [held for held in (self._shelf.hold(key, min(seconds, LONGEST_PIN_S))
                                   for key in keys) if held]
        self._pins[action.action_id] = helds
        while len(self._pins) > KEPT_OUTCOMES:  # they end by their time
            self._pins.popitem(last=False)
        whole = len(helds) == len(keys) and all(held.seconds >= seconds for held in helds)
        return "missing" if not helds else "accepted" if whole else "clipped"

    def _release(self, action: Any, keys: List[bytes]) -> str:
        helds = self._pins.pop(str(action.payload.get("action_id")), [])
        ended = [self._shelf.release(held) for held in helds]
        return "missing" if not any(ended) else "accepted" if all(ended) else "clipped"

    def _prefetch(self, action: Any, keys: List[bytes]) -> str:
        found = [self._shelf.prefetch(key) for key in keys]
        return "missing" if not any(found) else "accepted" if all(found) else "clipped"


class Tier(SecondaryTierManager):  # type: ignore[misc]
    """A secondary tier. All methods are the scheduler thread's. Settings are plugin.Settings;
    coding is refused, as a row's inner layout is its attention kernel's own."""

    medium = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 backpressure_detector: Any = None, **config: Any) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        settings = Settings.of(config)
        self.report = Report("cachesvc.vllm")
        if settings.bits:
            self.report.say("bits", "rows of a layout that only their attention kernel knows are "
                            "not coded: lossless")
        flat = np.frombuffer(primary_kv_view, np.uint8)
        self._rows: Optional[Any] = flat.reshape(-1, self.block_size_bytes)
        example = np.random.default_rng(20).bytes(min(self.block_size_bytes, PATTERN_BYTES))
        self._cache = settings.cache("cachesvc.vllm")
        self._shelf = Shelf(Values(self._cache), identity(offloading_spec, settings.tag), settings,
                            self.report, example)
        self._lookups = Lookups(self._shelf)
        self._hints = Hints(self._shelf, self.report)
        self._threads = {name: concurrent.futures.ThreadPoolExecutor(1, f"cachesvc_{name}")
                         for name in ("loads", "stores")}
        self._running: Dict[int, "concurrent.futures.Future[None]"] = {}
        self._finished: "queue.SimpleQueue[JobResult]" = queue.SimpleQueue()
        self._loading: Dict[int, List[bytes]] = {}  # keys of loads under way

    @property
    def outcomes(self) -> Dict[str, str]:
        """By action_id, of the newest actions; an action that waits for its request's end has
        none yet."""
        return dict(self._hints.outcomes)

    # ---- questions

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._lookups.flush()

    # ---- transfers

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._submit("stores", job_metadata, self._shelf.put)

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._loading[job_metadata.job_id] = list(job_metadata.keys)
        self._submit("loads", job_metadata, self._shelf.get_into)

    def _submit(self, name: str, job: TransferJob, move: Callable[[bytes, Any], bool]) -> None:
        rows = self._rows
        assert rows is not None, "submitted after shutdown"
        pairs = [(key, rows[int(chunk)].data) for key, chunk in zip(job.keys, job.chunk_ids)]

        def run() -> None:
            start = time.monotonic()
            moved: List[bytes] = []
            try:
                moved = [key for key, row in pairs if move(bytes(key), row)]
            finally:
                self._finished.put(JobResult(
                    job_id=job.job_id, success=len(moved) == len(pairs),
                    successful_keys=moved if job.is_promotion and moved else None,
                    transfer_time=time.monotonic() - start,
                    transfer_bytes=len(moved) * self.block_size_bytes))
        self._running[job.job_id] = self._threads[name].submit(run)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results: List[JobResult] = []
        while not self._finished.empty():
            result = self._finished.get()
            self._running.pop(result.job_id, None)
            keys = self._loading.pop(result.job_id, [])
            if not result.success:  # what failed is not asked for again by the same request
                self._lookups.mark_miss(set(keys) - set(result.successful_keys or ()))
            results.append(result)
        return results

    def drain_jobs(self) -> None:
        concurrent.futures.wait(list(self._running.values()))

    # ---- requests and their hints

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        if req_context.kv_hints is not None and req_context.get_state(Wishes) is None:
            req_context.set_state(Wishes(list(req_context.kv_hints.actions)))
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lookups.cleanup(req_context.req_id)
        wishes = req_context.get_state(Wishes)
        if wishes is not None:
            # Behind the request's own stores: they are what is pinned.
            # vLLM has no public list of a request's chunks; where there is none, all is missing.
            keys = [bytes(key) for key in getattr(req_context, "_offload_key_positions", ())]
            self._threads["stores"].submit(self._hints.execute, wishes.actions, keys)

    # ---- the end

    def shutdown(self) -> None:
        self._lookups.shutdown()
        for threads in self._threads.values():
            threads.shutdown()
        self._rows = None  # the primary tier takes its memory back
        self._cache.close()


def identity(spec: Any, tag: str) -> bytes:
    """Of the rows of one engine: what vLLM's own file tier tells apart, and what that leaves to
    whoever sets its folder: version, layout, and the weights behind the model's name."""
    config = spec.config
    mapper = FileMapper.from_offloading_spec(root_dir="", offloading_spec=spec,
                                             blocks_per_file=spec.blocks_per_chunk,
                                             parallel_agnostic=True)
    return identity_of("vllm", vllm.__version__, tag, weights_of(config.model.name),
                       json.dumps(mapper.get_run_config(), sort_keys=True), str(mapper.rank),
                       str(config.kv_cache_layout), str(config.worker_kv_bytes_per_block))
