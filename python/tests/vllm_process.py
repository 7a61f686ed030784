"""vLLM's own tiering manager with our tier below it, and a worker that plays the GPU: it writes
into the primary tier's memory what a GPU would have, and reads from there. For test_vllm_tier.py.
"""
from __future__ import annotations

import hashlib
import time
from typing import Any, Dict, List, Optional

import numpy as np
from vllm.v1.kv_hints import KvHintAction, KvHintsEnvelope
from vllm.v1.kv_offload.base import (LookupResult, ReqContext, ScheduleEndContext,
                                     make_offload_key)
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig,
                                       OffloadingGroupConfig, OffloadingModelConfig,
                                       OffloadingParallelConfig)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from cachesvc import Cache

from engine_process import serve

ROW_BYTES = 64 << 10
LONG_S = 60.0


def chunk_bytes(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 256, ROW_BYTES, np.uint8)


def chunk_key(number: int) -> bytes:
    return bytes(make_offload_key(hashlib.sha256(b"%d" % number).digest(), 0))


class Engine:
    def __init__(self) -> None:
        self.manager: Any = None
        self.requests = 0

    def open(self, tier: Dict[str, Any], model: str = "model", chunks: int = 64,
             layout: str = "NHD") -> Dict[str, Any]:
        """A new manager, as vLLM makes it from its configuration."""
        self.close()
        self.service = {"socket_path": tier["socket"], "namespace": tier.get("namespace", "")}
        config = OffloadingConfig(
            groups=(OffloadingGroupConfig(16, ("layer.0", "layer.1"), 0),),
            worker_kv_bytes_per_block=ROW_BYTES, enable_kv_cache_events=False,
            extra_config={"cpu_bytes_to_use": chunks * ROW_BYTES, "secondary_tiers": [
                {"type": "Tier", "module_path": "cachesvc.vllm", **tier}]},
            engine_id=hashlib.sha256(str(time.time_ns()).encode()).hexdigest()[:16],
            model=OffloadingModelConfig(model, "float16"),
            cache=OffloadingCacheConfig(16, 1),
            parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
            kv_cache_layout=layout)
        try:
            self.manager = TieringOffloadingSpec(config).get_manager()
        except Exception as error:
            return {"error": str(error)}
        return {}

    def close(self) -> Dict[str, Any]:
        """Whether the primary tier's memory is given back then."""
        if self.manager is not None:
            self.manager.shutdown()
        self.manager = None
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return {"released": "vllm_offload" not in maps.read()}

    # ---- what a scheduler does

    def _begin(self, numbers: List[int], hints: List[Dict[str, Any]]) -> ReqContext:
        self.requests += 1
        envelope = KvHintsEnvelope("1.0", "message", [KvHintAction(**hint) for hint in hints])
        context = ReqContext(f"request {self.requests}", kv_hints=envelope if hints else None)
        for place, number in enumerate(numbers):  # as vLLM's scheduler does
            context.set_offload_key_position(chunk_key(number), 16 * (place + 1))
        self.manager.on_new_request(context)
        return context

    def _step(self) -> None:
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def _end(self, context: ReqContext) -> None:
        self.manager.on_request_finished(context)
        self._step()

    def _settle(self) -> None:
        """Steps until no transfer is under way."""
        end = time.monotonic() + LONG_S
        while self.manager.has_pending_work() and time.monotonic() < end:
            self._step()
            time.sleep(0.002)
        self._step()

    def store(self, numbers: List[int], hints: List[Dict[str, Any]] = [],
              settle: bool = True) -> Dict[str, Any]:
        context = self._begin(numbers, hints)
        prepared = self.manager.prepare_store([chunk_key(n) for n in numbers], context)
        assert prepared is not None, "the primary tier is full"
        by_key = {chunk_key(n): n for n in numbers}
        rows = self._rows()
        for key, chunk in zip(prepared.keys_to_store, prepared.store_spec.chunk_ids):
            rows[int(chunk)] = chunk_bytes(by_key[key])
        del rows
        self.manager.complete_store(prepared.keys_to_store, context)
        if settle:
            self._settle()
        self._end(context)
        return {"prepared": len(prepared.keys_to_store)}

    def _rows(self) -> Any:
        return np.frombuffer(self.manager.primary_tier.get_kv_memoryview(),
                             np.uint8).reshape(-1, ROW_BYTES)

    def load(self, numbers: List[int], hints: List[Dict[str, Any]] = [],
             lose: bool = False) -> Dict[str, Any]:
        """As for a prompt of these chunks: how many from its beginning there were, of how many
        the bytes are those that were stored, and how long the longest call took. lose: all goes
        once it has been found and before it is loaded."""
        context, found, longest = self._begin(numbers, hints), 0, 0.0
        if lose:
            self._lose(numbers, context)
        start = time.monotonic()
        for number in numbers:
            result = None
            while result not in (LookupResult.HIT, LookupResult.MISS):
                assert time.monotonic() < start + LONG_S, f"chunk {number}: still {result}"
                before = time.monotonic()
                result = self.manager.lookup(chunk_key(number), context)
                longest = max(longest, time.monotonic() - before)
                if result not in (LookupResult.HIT, LookupResult.MISS):
                    for other in numbers[numbers.index(number) + 1:]:
                        self.manager.lookup(chunk_key(other), context)  # as vLLM does, in one step
                    self._step()
                    time.sleep(0.002)
            if result is LookupResult.MISS:
                break
            found += 1
        took = time.monotonic() - start
        keys = [chunk_key(n) for n in numbers[:found]]
        equal = 0
        if keys:
            spec, rows = self.manager.prepare_load(keys, context), self._rows()
            equal = sum(np.array_equal(rows[int(chunk)], chunk_bytes(number))
                        for number, chunk in zip(numbers, spec.chunk_ids))
            del rows
            self.manager.complete_load(keys, context)
        self._settle()
        self._end(context)
        return {"found": found, "equal": equal, "seconds": took, "longest": longest}

    def _lose(self, numbers: List[int], context: ReqContext) -> None:
        tier, end = self._tier(), time.monotonic() + LONG_S
        keys = [chunk_key(number) for number in numbers]
        while any(tier.lookup(key, context) is LookupResult.RETRY for key in keys):
            assert time.monotonic() < end, "no answer"
            self._step()
            time.sleep(0.002)
        assert all(tier.lookup(key, context) is LookupResult.HIT for key in keys)
        with Cache(**self.service, strict=True) as cache:
            cache.erase(None)

    def forget(self) -> Dict[str, Any]:
        """The primary tier is empty then, as after vLLM's sleep."""
        self.manager.reset_cache()
        return {}

    # ---- what the tier says

    def _tier(self) -> Any:
        return self.manager.secondary_tiers[0]

    def counts(self) -> Dict[str, int]:
        counts: Dict[str, int] = self._tier().report.counts()
        return counts

    def outcome(self, action: str) -> Optional[str]:
        """Of an action, once it has one."""
        end = time.monotonic() + LONG_S
        while action not in self._tier().outcomes and time.monotonic() < end:
            time.sleep(0.002)
        outcome: Optional[str] = self._tier().outcomes.get(action)
        return outcome


if __name__ == "__main__":
    engine = Engine()
    serve({name: getattr(engine, name) for name in
           ("open", "close", "store", "load", "forget", "counts", "outcome")})
