"""LMCache's own StorageManager (its RAM, its controllers and threads) with our adapter as its L2,
and a worker that plays the engine. For test_lmcache.py."""
from __future__ import annotations

import hashlib
import json
import time
from typing import Any, Callable, Dict, List

import numpy as np
import torch
from lmcache.v1.distributed.api import (GroupedObjectKeys, MemoryLayoutDesc, ObjectKey,
                                        PrefetchTaskSpec)
from lmcache.v1.distributed.config import parse_args
from lmcache.v1.distributed.storage_manager import StorageManager

from cachesvc import Cache, lmcache as plugin

from engine_process import serve

LONG_S = 60.0
LAYERS, TOKENS, HEADS, DIM = 2, 256, 2, 64


class Engine:
    def __init__(self) -> None:
        self.manager: Any = None

    def open(self, params: Dict[str, Any], model: str = "model", dtype: str = "float16",
             fused: bool = False, kept: int = plugin.KEPT_KEYS) -> Dict[str, Any]:
        """A new manager, as `lmcache server` makes it from its command line. kept: how many keys
        the adapter knows of."""
        self.close()
        plugin.KEPT_KEYS = kept
        self.service = {"socket_path": params["socket"], "namespace": params["namespace"]}
        adapter = {"type": "plugin", "module_path": "cachesvc.lmcache",
                   "class_name": "CachesvcL2Adapter", "adapter_params": params}
        self.model, self.dtype = model, getattr(torch, dtype)
        hidden = HEADS * DIM
        self.shape = ((LAYERS, TOKENS, 2 * hidden) if fused else (2, LAYERS, TOKENS, hidden))
        self.layout = MemoryLayoutDesc([torch.Size(self.shape)], [self.dtype])
        try:
            config = parse_args(["--l1-size-gb", "0.25", "--no-l1-use-lazy",
                                  "--eviction-policy", "LRU",
                                 "--l2-adapter", json.dumps(adapter)])
            self.manager = StorageManager(config)
        except Exception as error:
            return {"error": str(error)}
        return {}

    def close(self) -> Dict[str, Any]:
        if self.manager is not None:
            self.manager.close()
            self.manager = None
        return {}

    def _adapter(self) -> Any:
        return self.manager.l2_adapters()[0][1]

    def _key(self, number: int, salt: str) -> ObjectKey:
        return ObjectKey(hashlib.sha256(b"%d" % number).digest(), self.model, 0, 0, salt)

    def _chunk(self, number: int) -> torch.Tensor:
        chance = np.random.default_rng(number)
        return torch.from_numpy(chance.normal(0, 1, self.shape).astype("<f4")).to(self.dtype)

    def store(self, numbers: List[int], salt: str = "", bad: bool = False,
              settle: bool = True) -> Dict[str, Any]:
        keys = {self._key(number, salt): number for number in numbers}
        chunks = self.manager.reserve_write(list(keys), self.layout)
        for key, chunk in chunks.items():
            chunk.tensor.copy_(self._chunk(keys[key]))
            if bad:
                chunk.tensor[-1, -1, -1, -1] = float("nan")
        before = self.counts()
        self.manager.finish_write(list(chunks))
        end = time.monotonic() + LONG_S
        def done(counts: Dict[str, Any]) -> int:
            return sum(counts.get(name, 0) - before.get(name, 0)
                       for name in ("stores", "failed_store"))
        while settle and done(self.counts()) < len(chunks) and time.monotonic() < end:
            time.sleep(0.01)
        return {"reserved": len(chunks)}

    def load(self, numbers: List[int], salt: str = "") -> Dict[str, Any]:
        """As for a prompt of these chunks: how many from its beginning came, of how many the bytes
        are those that were stored, the largest difference, and how long it took."""
        keys = [self._key(number, salt) for number in numbers]
        start = time.monotonic()
        handle = self.manager.submit_prefetch_task(PrefetchTaskSpec([GroupedObjectKeys(
            keys=keys, layout_desc=self.layout, object_group_id=0)]))
        assert self.manager.wait_prefetch_status(handle, LONG_S), "no answer"
        took = time.monotonic() - start
        result = self.manager.query_prefetch_status(handle)
        hits, l2 = result.hit_cells[0].popcount(), result.l2_hit_cells[0].popcount()
        equal, apart = 0, 0.0
        if hits:
            with self.manager.read_prefetched_results(keys[:hits]) as chunks:
                for number, chunk in zip(numbers, chunks):
                    given, found = self._chunk(number), chunk.tensor
                    equal += torch.equal(given, found)
                    apart = max(apart, float((given.float() - found.float()).norm()
                                             / given.float().norm()))
            self.manager.finish_read_prefetched(keys[:hits])
        return {"found": hits, "from_l2": l2, "equal": equal, "apart": apart, "seconds": took}

    def lose(self, numbers: List[int]) -> Dict[str, Any]:
        """The adapter's own calls: how many chunks a lookup finds, and a load brings once all went
        that had been found."""
        adapter, keys = self._adapter(), [self._key(number, "") for number in numbers]
        found = self._wait(adapter.query_lookup_and_lock_result,
                           adapter.submit_lookup_and_lock_task(keys, {0: self.layout}))
        with Cache(**self.service, strict=True) as cache:
            cache.erase(None)
        chunks = self.manager.reserve_write(keys, self.layout)
        loaded = self._wait(adapter.query_load_result,
                            adapter.submit_load_task(keys, [chunks[key] for key in keys]))
        adapter.submit_unlock(keys)
        return {"found": found.popcount(), "loaded": loaded.popcount()}

    def _wait(self, query: Callable[[int], Any], task: int) -> Any:
        end, result = time.monotonic() + LONG_S, None
        while result is None and time.monotonic() < end:
            result = query(task)
            time.sleep(0.001)
        return result

    def forget(self) -> Dict[str, Any]:
        self.manager.clear(force=True)
        return {}

    def delete(self, numbers: List[int]) -> Dict[str, Any]:
        self._adapter().delete([self._key(number, "") for number in numbers])
        return {}

    def keys(self, page: int, cursor: Any = None) -> Dict[str, Any]:
        found = self._adapter().list_l2_keys(self.model, page, cursor)
        usage = self._adapter().get_usage()
        return {"keys": [entry.key.chunk_hash_hex for entry in found.entries],
                "sizes": sorted({entry.size_bytes for entry in found.entries}),
                "next": found.next_page_token, "bytes": usage.total_bytes_used,
                "fraction": usage.usage_fraction}

    def counts(self) -> Dict[str, Any]:
        status: Dict[str, Any] = self._adapter().report_status()
        return status


if __name__ == "__main__":
    engine = Engine()
    serve({name: getattr(engine, name) for name in
           ("open", "close", "store", "load", "lose", "forget", "delete", "keys", "counts")})
