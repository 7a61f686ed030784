"""SGLang's own backend factory and host pools with our backend, called as its cache controller
calls them. For test_sglang.py."""
from __future__ import annotations

import hashlib
import time
from typing import Any, Dict, List

import numpy as np
import torch
from sglang.srt.mem_cache.device_pool_info import KVBufferLayout, KVBuffers, MHABufferInfo
from sglang.srt.mem_cache.hicache_storage import (HiCacheStorageConfig, PoolHitPolicy, PoolName,
                                                  PoolTransfer)
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

from engine_process import serve

LAYERS, HEADS, DIM, PAGE, TOKENS = 2, 2, 64, 16, 1024


def host_pool(layout: str, dtype: torch.dtype, allocator: str) -> MHATokenToKVPoolHost:
    """As for a GPU pool that is not there."""
    device = tuple(torch.zeros((TOKENS, HEADS, DIM), dtype=dtype) for _ in range(LAYERS))
    pointers = torch.tensor([each.data_ptr() for each in device], dtype=torch.uint64)
    info = MHABufferInfo(
        buffers=KVBuffers(k=device, v=device, k_data_ptrs=pointers, v_data_ptrs=pointers,
                          layout=KVBufferLayout.NHD),
        page_size=PAGE, head_num=HEADS, head_dim=DIM, v_head_dim=DIM, dtype=dtype,
        device=torch.device("cpu"))
    return MHATokenToKVPoolHost(
        info, host_to_device_ratio=2.0, host_size=0, page_size=PAGE, layout=layout,
        pin_memory=False, allocator_type=allocator, device_capacity_tokens=TOKENS, start_layer=0,
        end_layer=LAYERS)


class Engine:
    def __init__(self) -> None:
        self.backend: Any = None

    def open(self, extra: Dict[str, Any], model: str = "model", layout: str = "page_first",
             dtype: str = "float16", allocator: str = "default", broken: bool = False,
             **config: Any) -> Dict[str, Any]:
        """Attaches, as HiCacheController does. broken: a pool that is not what it says."""
        self.close()
        given: Dict[str, Any] = {
            "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
            "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False,
            "is_page_first_layout": layout == "page_first", "model_name": model, **config}
        given["extra_config"] = {"backend_name": "cachesvc", "module_path": "cachesvc.sglang",
                                 "class_name": "CachesvcStorage", "interface_v1": 1,
                                 "allocator": allocator, **extra}
        self.pool = host_pool(layout, getattr(torch, dtype), allocator)
        if broken:
            write = self.pool.set_from_flat_data_page
            self.pool.set_from_flat_data_page = lambda at, page: write(at, page.roll(1))
        self.extra = host_pool(layout, getattr(torch, dtype), allocator)
        try:
            self.backend = StorageBackendFactory.create_backend(
                "dynamic", HiCacheStorageConfig(**given), self.pool)
            self.backend.register_mem_pool_host(self.pool)
            self.backend.register_mem_host_pool_v2(self.extra, PoolName.SWA)
            self.backend.on_host_pools_registered()
        except Exception as error:
            return {"error": str(error)}
        return {"memfd": getattr(self.pool, "fd", None) is not None}

    def close(self) -> Dict[str, Any]:
        if self.backend is not None:
            self.backend.close()
            self.backend = None
        return {}

    def _keys(self, numbers: List[int]) -> List[str]:
        return [hashlib.sha256(b"%d" % number).hexdigest() for number in numbers]

    def _page(self, number: int) -> torch.Tensor:
        like = self.pool.get_dummy_flat_data_page()
        chance = np.random.default_rng(number)
        return torch.from_numpy(chance.normal(0, 1, like.numel()).astype("<f4")).to(like.dtype)

    def _slots(self, pool: Any, numbers: List[int]) -> torch.Tensor:
        """Slots of new pages, all zeros."""
        slots = pool.alloc(len(numbers) * PAGE)
        assert slots is not None
        for place in range(len(numbers)):
            pool.set_from_flat_data_page(int(slots[place * PAGE]),
                                         torch.zeros_like(self._page(0)))
        return slots

    def _fill(self, pool: Any, numbers: List[int]) -> torch.Tensor:
        slots = self._slots(pool, numbers)
        for place, number in enumerate(numbers):
            pool.set_from_flat_data_page(int(slots[place * PAGE]), self._page(number))
        return slots

    def _equal(self, pool: Any, slots: torch.Tensor, numbers: List[int]) -> int:
        return sum(torch.equal(pool.get_data_page(int(slots[place * PAGE]), flat=True),
                               self._page(number)) for place, number in enumerate(numbers))

    def store(self, numbers: List[int], generic: bool = False) -> Dict[str, Any]:
        slots, keys = self._fill(self.pool, numbers), self._keys(numbers)
        if generic:  # interface_v1: 0
            pages = [self.pool.get_data_page(slots[place * PAGE])
                     for place in range(len(numbers))]
            stored = len(numbers) * bool(self.backend.batch_set(keys, pages))
        else:
            stored = sum(self.backend.batch_set_v1(keys, slots))
        self.pool.free(slots)
        return {"stored": stored}

    def load(self, numbers: List[int], generic: bool = False) -> Dict[str, Any]:
        """How many pages of a prefix are said to be there, came, and are those that were stored."""
        slots, keys = self._slots(self.pool, numbers), self._keys(numbers)
        start = time.monotonic()
        found = self.backend.batch_exists(keys)
        if generic:
            rooms = [self.pool.get_dummy_flat_data_page() for _ in keys[:found]]
            pages = self.backend.batch_get(keys[:found], rooms)
            came = [page is not None for page in pages]
            for place, page in enumerate(pages):
                if page is not None:
                    self.pool.set_from_flat_data_page(slots[place * PAGE], page)
        else:
            came = self.backend.batch_get_v1(keys[:found], slots[:found * PAGE])
        took = time.monotonic() - start
        got = [number for number, here in zip(numbers, came) if here]
        at = [slots[place * PAGE:(place + 1) * PAGE] for place, here in enumerate(came) if here]
        equal = self._equal(self.pool, torch.cat(at) if at else slots, got)
        self.pool.free(slots)
        return {"found": found, "came": sum(came), "equal": equal, "seconds": took}

    def store_extra(self, numbers: List[int]) -> Dict[str, Any]:
        slots = self._fill(self.extra, numbers)
        done = self.backend.batch_set_v2([PoolTransfer(PoolName.SWA, slots,
                                                       keys=self._keys(numbers))])
        self.extra.free(slots)
        return {"stored": sum(done[PoolName.SWA])}

    def load_extra(self, numbers: List[int]) -> Dict[str, Any]:
        slots = self._slots(self.extra, numbers)
        done = self.backend.batch_get_v2([PoolTransfer(PoolName.SWA, slots,
                                                       keys=self._keys(numbers))])
        equal = self._equal(self.extra, slots, numbers)
        self.extra.free(slots)
        return {"came": sum(done[PoolName.SWA]), "equal": equal}

    def restorable(self, numbers: List[int], policy: str, trailing: int = 0) -> Dict[str, Any]:
        keys = self._keys(numbers)
        transfer = PoolTransfer(PoolName.SWA, hit_policy=PoolHitPolicy(policy),
                                keys=keys[-trailing:] if trailing else None)
        result = self.backend.batch_exists_v2(keys, [transfer])
        return {"pages": result.kv_hit_pages, "restorable": result.restorable_prefix_pages,
                "extra": {str(name): n for name, n in result.extra_pool_hit_pages.items()}}

    def odd_calls(self) -> Dict[str, Any]:
        """Calls that are not as they should be: none raises, each is a miss."""
        keys = self._keys([1, 2])
        slots = torch.arange(PAGE)
        unknown = PoolTransfer(PoolName.MAMBA, slots, keys=keys)
        return {"v1": self.backend.batch_get_v1(keys, slots),
                "v2": self.backend.batch_get_v2([unknown])[PoolName.MAMBA],
                "get": self.backend.get(keys[0]) is None, "set": self.backend.set(keys[0]),
                "batch_set": self.backend.batch_set(keys)}

    def clear(self) -> Dict[str, Any]:
        return {"cleared": self.backend.clear()}

    def counts(self) -> Dict[str, int]:
        counts: Dict[str, int] = self.backend.report.counts()
        return counts


if __name__ == "__main__":
    engine = Engine()
    serve({name: getattr(engine, name) for name in
           ("open", "close", "store", "load", "store_extra", "load_extra", "restorable",
            "odd_calls", "clear", "counts")})
