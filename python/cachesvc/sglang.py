"""CachesvcStorage: cachesvc as a storage backend of SGLang's HiCache. README.md, "SGLang".

    python -m sglang.launch_server … --enable-hierarchical-cache --hicache-storage-backend dynamic
      --hicache-storage-backend-extra-config '{"backend_name": "cachesvc", "interface_v1": 1,
        "module_path": "cachesvc.sglang", "class_name": "CachesvcStorage",
        "socket": "/run/user/1000/cachesvc.sock", "namespace": "mine"}'

SGLang names a page by a hash, so pages are values by key, lossless and flat as its host pools give
them, in every layout and for every kind of pool (KV, indexer, Mamba states…). With "allocator":
"shm" the KV pool is a memfd, from which the service reads the pages of stores by itself; other
pages are sent. Pages that are read are copied into the pool here.
"""
from __future__ import annotations

import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

import numpy as np
import sglang
import torch
from sglang.srt.mem_cache.hicache_storage import (HiCacheStorage, PoolHitPolicy, PoolName,
                                                  PoolTransferResult)

from .errors import CacheError, Code
from .keyed import HEAD_ROOM, VALUES, Values
from .objects import Pieces
from .own_memory import OwnMemory
from .report import Report
from .plugin import Settings, Shelf, identity_of
from .weights import weights_of

NOT_OURS = {"backend_name", "module_path", "class_name", "interface_v1", "allocator", "tp_lcm_size",
            "prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token",
            "hicache_storage_pass_prefix_keys"}  # of SGLang's extra configuration
PATTERN_BYTES = 1 << 20
THREADS = 64  # that store at the same time, without sending pages of a memfd
CLEAR_S = 30.0
KV = str(PoolName.KV)


def bytes_in(page: Any) -> Any:
    """A flat page's bytes, where they are."""
    return memoryview(page.detach().contiguous().view(torch.uint8).numpy())


def pieces_in(page: Any) -> Iterator[Any]:
    """A page's bytes in order, in pieces, each where it is."""
    if page.is_contiguous():
        yield bytes_in(page)
    else:
        for part in page:
            yield from pieces_in(part)


def memory_of(pool: Any) -> Optional[OwnMemory]:
    """A host pool that is a memfd, with room behind it for what each value begins with."""
    descriptor = getattr(pool, "fd", None)
    mapped = getattr(getattr(pool, "allocator", None), "mm", None)
    if descriptor is None or mapped is None:
        return None
    try:
        return OwnMemory(THREADS * HEAD_ROOM, (descriptor, np.frombuffer(mapped, np.uint8)))
    except OSError:  # one that can't grow
        return None


class CachesvcStorage(HiCacheStorage):  # type: ignore[misc]
    """A storage backend. Its calls come from SGLang's storage threads. Settings are
    plugin.Settings, among SGLang's own."""

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
        extra = storage_config.extra_config or {}
        settings = Settings.of({name: value for name, value in extra.items()
                                if name not in NOT_OURS})
        self.report = Report("cachesvc.sglang")
        if settings.bits:
            self.report.say("bits", "pages of whatever layout are not coded: lossless")
        self._config, self._settings = storage_config, settings
        self._weights = weights_of(storage_config.model_name or "")
        self._rooms = threading.local()
        self._names: Dict[str, bytes] = {}
        self._in_pieces: Set[str] = set()  # pools whose pages are, piece by piece, their flat ones
        self.registered_pools: Dict[str, Any] = {}
        self._open(None)

    def _open(self, memory: Optional[OwnMemory]) -> None:
        self._cache = self._settings.cache("cachesvc.sglang", memory)
        self._shelf = Shelf(Values(self._cache, memory), identity_of("sglang", sglang.__version__),
                            self._settings, self.report,
                            np.random.default_rng(20).bytes(PATTERN_BYTES))

    # ---- host pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self.register_mem_host_pool_v2(mem_pool_host, KV)
        memory = memory_of(mem_pool_host)
        if memory is not None:
            self._cache.close()
            self._open(memory)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self.registered_pools[str(host_pool_name)] = host_pool
        self._names.pop(str(host_pool_name), None)
        self._in_pieces.discard(str(host_pool_name))

    def on_host_pools_registered(self) -> None:
        """Attaching fails here, by name, if a page does not come back through the pool's layout."""
        for name, pool in self.registered_pools.items():
            page_size = getattr(pool, "logical_page_size", pool.page_size)
            slots = pool.alloc(page_size)
            if slots is None:
                continue  # a full pool's pages are in use
            try:
                self._check(name, pool, int(slots[0]))
            finally:
                pool.free(slots)

    def _check(self, name: str, pool: Any, at: int) -> None:
        page = pool.get_dummy_flat_data_page()
        given = bytes_in(page)
        np.frombuffer(given, np.uint8)[:] = np.frombuffer(
            np.random.default_rng(20).bytes(len(given)), np.uint8)
        pool.set_from_flat_data_page(at, page)
        if bytes_in(pool.get_data_page(at, flat=True)) != given:
            raise CacheError(Code.UNSUPPORTED, f"the self check: a page of pool {name!r}, layout "
                                               f"{pool.layout!r}, came back as another one")
        if np.array_equal(self._pieces(pool, at).joined(), np.frombuffer(given, np.uint8)):
            self._in_pieces.add(name)
        pool.set_from_flat_data_page(at, torch.zeros_like(page))

    def _name(self, pool: str) -> bytes:
        """The beginning of keys of a pool's pages: whatever makes them what they are."""
        if pool not in self._names:
            config, of = self._config, self.registered_pools[pool]
            # SGLang keeps MLA's rows on all tensor-parallel ranks alike, Mamba's states never.
            shared = config.is_mla_model and pool != str(PoolName.MAMBA)
            ranks = ("pp", "attn_cp", "dcp") if shared else ("tp", "pp", "attn_cp", "dcp")
            self._names[pool] = identity_of(
                pool, self._settings.tag, str(config.model_name), self._weights,
                *(f"{rank} {getattr(config, rank + '_rank')} of {getattr(config, rank + '_size')}"
                  for rank in ranks),
                type(of).__name__, str(of.layout), str(of.dtype), str(of.page_size),
                str(getattr(of, "size_per_token", "")), str(getattr(of, "storage_format_tag", "")))
        return self._names[pool]

    def _key(self, pool: str, key: str) -> bytes:
        return self._name(pool) + key.encode()

    # ---- pages of host pools

    def batch_exists(self, keys: List[str], extra_info: Any = None) -> int:
        return leading(self._shelf.exists([self._key(KV, key) for key in keys]))

    def batch_get_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None
                     ) -> List[bool]:
        return self._move(KV, keys, host_indices, self._read)

    def batch_set_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None
                     ) -> List[bool]:
        return self._move(KV, keys, host_indices, self._write)

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None
                     ) -> Dict[str, List[bool]]:
        return {transfer.name: self._move(str(transfer.name), transfer.keys or [],
                                          transfer.host_indices, self._read)
                for transfer in transfers}

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None
                     ) -> Dict[str, List[bool]]:
        return {transfer.name: self._move(str(transfer.name), transfer.keys or [],
                                          transfer.host_indices, self._write)
                for transfer in transfers}

    def _move(self, name: str, keys: List[str], indices: Any, move: Any) -> List[bool]:
        pool = self.registered_pools.get(name)
        rows = getattr(pool, "page_size", 1) or 1
        if pool is None or indices is None or len(indices) != len(keys) * rows:
            self.report.count("failed_pages")
            self.report.say("pages", f"pages of pool {name!r}: it is not registered, or there are "
                                     f"not page_size indices a key")
            return [False] * len(keys)
        return [move(name, pool, key, int(indices[place * rows]))
                for place, key in enumerate(keys)]

    def _write(self, name: str, pool: Any, key: str, at: int) -> bool:
        page = (self._pieces(pool, at) if name in self._in_pieces
                else bytes_in(pool.get_data_page(at, flat=True)))
        return self._shelf.put(self._key(name, key), page)

    def _pieces(self, pool: Any, at: int) -> Pieces:
        return Pieces(pieces_in(pool.get_data_page(at, flat=False)))

    def _read(self, name: str, pool: Any, key: str, at: int) -> bool:
        """By way of a page of this thread's own: the pool's is written only if all of it came."""
        rooms: Dict[str, Any] = self._rooms.__dict__
        if name not in rooms:
            rooms[name] = pool.get_dummy_flat_data_page()
        if not self._shelf.get_into(self._key(name, key), bytes_in(rooms[name])):
            return False
        pool.set_from_flat_data_page(at, rooms[name])
        return True

    def batch_exists_v2(self, keys: List[str], pool_transfers: Optional[Sequence[Any]] = None,
                        extra_info: Any = None) -> PoolTransferResult:
        """The pages of a prefix that may be restored: those that every pool has what it takes for.
        A pool by block groups is no condition, and is told to have none."""
        pools = {KV: None, **{str(each.name): each for each in pool_transfers or ()}}
        there = self._there(list(pools), keys)
        restorable, hits = set(range(1, len(keys) + 1)), {}
        for name, transfer in pools.items():
            if transfer is not None and transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:
                hits[name] = 0
                continue
            ends = ends_of(there[name], transfer)
            restorable &= ends
            hits[name] = max(ends, default=0)
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    def _there(self, names: List[str], keys: List[str]) -> Dict[str, List[bool]]:
        """The pages that each pool has; all in one question."""
        known = [name for name in names if name in self.registered_pools]
        found = self._shelf.exists([self._key(name, key) for name in known for key in keys])
        pages = {name: found[place * len(keys):][:len(keys)] for place, name in enumerate(known)}
        return {name: pages.get(name, [False] * len(keys)) for name in names}

    # ---- single flat pages, of the KV pool

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        if target_location is None or not target_location.is_contiguous():
            return None
        found = self._shelf.get_into(self._key(KV, key), bytes_in(target_location))
        return target_location if found else None

    def batch_get(self, keys: List[str], target_locations: Any = None, target_sizes: Any = None
                  ) -> List[Any]:
        return [self.get(key, room) for key, room in
                zip(keys, target_locations or [None] * len(keys))]

    def set(self, key: str, value: Any = None, target_location: Any = None,
            target_sizes: Any = None) -> bool:
        return value is not None and self._shelf.put(self._key(KV, key), bytes_in(value))

    def batch_set(self, keys: List[str], values: Any = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        return all([self.set(key, value) for key, value in
                    zip(keys, values or [None] * len(keys))])

    # ---- the rest

    def clear(self) -> bool:
        """Removes all values by key of the namespace, other engines' too; false if some may be
        left."""
        try:
            self._cache.erase(VALUES, timeout=CLEAR_S)
        except CacheError as error:
            self.report.say("clear", f"clear: {error}")
            return False
        return True

    def close(self) -> None:
        self._cache.close()


def leading(there: List[bool]) -> int:
    return there.index(False) if False in there else len(there)


def ends_of(there: List[bool], transfer: Any) -> Set[int]:
    """The lengths of a prefix, in pages, that a pool's policy allows. transfer: of an extra pool;
    the KV pool has none."""
    if transfer is None or transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
        return set(range(1, leading(there) + 1))
    last = max(1, len(transfer.keys or ()))
    return {end for end in range(1, len(there) + 1) if all(there[max(0, end - last):end])}
