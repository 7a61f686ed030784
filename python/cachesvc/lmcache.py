"""CachesvcL2Adapter: cachesvc as an L2 adapter of LMCache, by configuration. README.md, "LMCache".

    lmcache server … --l2-adapter '{"type": "plugin", "module_path": "cachesvc.lmcache",
      "class_name": "CachesvcL2Adapter", "adapter_params": {
        "socket": "/run/user/1000/cachesvc.sock", "namespace": "mine"}}'

LMCache names a chunk by a hash, so chunks are values by key, lossless and as LMCache lays them out.
With "bits": "8:4" and "head_dim": 128 the keys and values of chunks of shape (2, layers, tokens,
heads x head_dim) are coded, each head's row for itself, and with "fused": true those of shape
(layers, tokens, heads x 2 x head_dim). Other shapes (MLA, several groups) stay lossless: what their
last dimension holds is not told. Keys have 8 bits at least: fewer want a mean and gain, for which
an engine computes a text (calibrate.py), and LMCache has no engine.

LMCache's lock is a hold: what a lookup found stays until it is unlocked, or for LOCK_S.
"""
from __future__ import annotations

import collections
import concurrent.futures
import itertools
import threading
import time
from typing import Any, Callable, Dict, List, Optional, OrderedDict, Sequence, Tuple

import lmcache
import numpy as np
import torch
from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.api import KeyEntry, KeyListPage, MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.platform.event_notifier import create_event_notifier

from .intent import Held
from .keyed import RowValues, Shape, Values
from .report import Report
from .models import Dtype, packed
from .plugin import Settings, Shelf, identity_of
from .weights import weights_of

LOCK_S = 60.0
LOCKS = 512             # at a time, of the 1,024 holds of a namespace; more are found, not locked
KEPT_KEYS = 1 << 17     # that list_l2_keys knows of
PATTERN_BYTES = 1 << 20
KEY_BITS = 8            # at least, of coded keys without mean and gain
DTYPES = {torch.float32: Dtype.F32, torch.float16: Dtype.F16, torch.bfloat16: Dtype.BF16}
Layout = Tuple[Tuple[Tuple[int, ...], Any], ...]  # shape and dtype of each group of a chunk


def layout_of(shapes: Sequence[Any], dtypes: Sequence[Any]) -> Layout:
    return tuple((tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes))


def bytes_in(chunk: Any) -> Any:
    """A MemoryObj's bytes, where they are."""
    raw = chunk.raw_data
    if isinstance(raw, torch.Tensor):
        return memoryview(raw.view(torch.uint8).numpy().reshape(-1)[:chunk.get_size()])
    return memoryview(chunk.byte_array)


class Tasks:
    """Tasks of one kind, on a thread of its own, and what LMCache polls for their results."""

    def __init__(self, name: str) -> None:
        self.event = create_event_notifier()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, f"cachesvc_{name}")
        self._lock = threading.Lock()
        self._done: Dict[int, Any] = {}

    def submit(self, number: int, work: Callable[[], Any], failed: Any) -> None:
        """failed: the result if work raises; LMCache waits for one."""
        self._thread.submit(self._run, number, work, failed)

    def _run(self, number: int, work: Callable[[], Any], failed: Any) -> None:
        result = failed
        try:
            result = work()
        finally:
            with self._lock:
                self._done[number] = result
            self.event.notify()

    def then(self, work: Callable[..., None], *given: Any) -> None:
        """Behind what was submitted; nobody waits for it."""
        self._thread.submit(work, *given)

    def take(self, number: int) -> Any:
        with self._lock:
            return self._done.pop(number, None)

    def take_all(self) -> Dict[int, Any]:
        with self._lock:
            done, self._done = self._done, {}
        return done

    def close(self) -> None:
        self._thread.shutdown()
        self.event.close()


class Shelves:
    """The shelves of chunks: one for all lossless ones, one for each model and shape of coded
    ones. Thread-safe."""

    def __init__(self, params: Dict[str, Any], report: Report) -> None:
        given = dict(params)
        self._head_dim, self._fused = given.pop("head_dim", 0), bool(given.pop("fused", False))
        self._settings, self._report = Settings.of(given), report
        self.budget_s = self._settings.budget_ms / 1000
        self._bits = self._settings.coding
        if self._bits and not self._head_dim:
            report.say("bits", "'bits' without 'head_dim': rows can't be told apart, lossless")
        elif self._bits and self._bits[0] < KEY_BITS:
            report.say("keys", f"keys have {KEY_BITS} bits, not {self._bits[0]}: LMCache computes "
                               "no text for their mean and gain")
            self._bits = (KEY_BITS, self._bits[1])
        self.cache = self._settings.cache("cachesvc.lmcache")
        example = np.random.default_rng(20).bytes(PATTERN_BYTES)
        self.lossless = Shelf(Values(self.cache), identity_of("lmcache"), self._settings, report,
                              example)
        self._lock = threading.Lock()
        self._coded: Dict[Tuple[bytes, Shape], Shelf] = {}
        self._models: Dict[str, bytes] = {}

    def place(self, key: Any, layout: Layout) -> Tuple[Shelf, bytes, Optional[Shape]]:
        """A chunk's shelf and its key there; if it is coded, its rows' shape."""
        identity = self._identity(key.model_name)
        name = b"%b@%08x@%x@%b@%b" % (key.model_name.encode(), key.kv_rank, key.object_group_id,
                                      key.chunk_hash.hex().encode(), key.cache_salt.encode())
        shape = self._shape(layout)
        if shape is None:
            return self.lossless, identity + repr(layout).encode() + name, None
        with self._lock:
            shelf = self._coded.get((identity, shape))
            if shelf is None:
                shelf = self._coded[identity, shape] = self._shelf(identity, shape)
        return shelf, name, shape

    def _identity(self, model: str) -> bytes:
        """Of a model's chunks; LMCache does not know its engine: `tag` does."""
        with self._lock:
            if model not in self._models:
                self._models[model] = identity_of("lmcache", lmcache.__version__,
                                                  self._settings.tag, model, weights_of(model))
            return self._models[model]

    def _shape(self, layout: Layout) -> Optional[Shape]:
        if not self._bits or not self._head_dim or len(layout) != 1:
            return None
        sizes, dtype = layout[0]
        before = () if self._fused else (2,)
        values = self._head_dim * (2 if self._fused else 1)
        if (sizes[:-3] != before or len(sizes) < 3 or sizes[-1] % values or dtype not in DTYPES):
            self._report.say("shape", f"chunks of {sizes}, {dtype} are not coded: lossless")
            return None
        layers, tokens, width = sizes[-3:]
        return Shape(layers, tokens, width // values, self._head_dim, DTYPES[dtype])

    def _shelf(self, identity: bytes, shape: Shape) -> Shelf:
        bits = self._bits
        assert bits is not None
        keyed = RowValues(self.cache, shape, identity + b"fused" * self._fused, bits)
        chance = np.random.default_rng(20)
        flat = chance.normal(0, 1, (2, shape.layers, shape.rows, shape.heads * shape.dim))
        chunk = packed(np.ascontiguousarray(flat, "<f4"), shape.dtype)
        return Shelf(keyed, identity, self._settings, self._report,
                     self.rows_in(chunk.reshape(-1).view(np.uint8).data, shape), min(bits),
                     attach_s=self._settings.budget_ms / 2000)

    def rows_in(self, data: Any, shape: Shape) -> List[Tuple[Any, Any]]:
        """The (K, V) of each layer in a chunk's bytes, where they are."""
        values = np.frombuffer(data, shape.dtype.numpy)
        one = (shape.layers, shape.rows, shape.heads)
        keys, others = (np.moveaxis(values.reshape(*one, 2, shape.dim), 3, 0) if self._fused
                        else values.reshape(2, *one, shape.dim))
        return list(zip(keys, others))


class CachesvcL2Adapter(L2AdapterInterface):  # type: ignore[misc]
    """An L2 adapter. Thread-safe, as LMCache's controllers want. Settings are plugin.Settings and
    `head_dim`; the service evicts, so LMCache is told of no capacity. list_l2_keys and usage know
    of what this process stored."""

    def __init__(self, params: Dict[str, Any], l1_memory_desc: Any = None) -> None:
        super().__init__(max_capacity_bytes=0)
        self._report = Report("cachesvc.lmcache")
        self._shelves = Shelves(params, self._report)
        self._tasks = {name: Tasks(name) for name in ("stores", "lookups", "loads")}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._layouts: Dict[Tuple[str, int], Layout] = {}  # last seen, by model and group
        self._held: Dict[Any, List[Tuple[Shelf, Held]]] = {}
        self._kept: OrderedDict[Any, int] = collections.OrderedDict()  # bytes by key

    def get_store_event_fd(self) -> int:
        return int(self._tasks["stores"].event.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        return int(self._tasks["lookups"].event.fileno())

    def get_load_event_fd(self) -> int:
        return int(self._tasks["loads"].event.fileno())

    # ---- store

    def submit_store_task(self, keys: List[ObjectKey], objects: List[Any]) -> int:
        return self._submit("stores", lambda: self._store(keys, objects), L2StoreResult(False, 0))

    def pop_completed_store_tasks(self) -> Dict[int, L2StoreResult]:
        return self._tasks["stores"].take_all()

    def _store(self, keys: List[Any], objects: List[Any]) -> L2StoreResult:
        stored = [(key, chunk.get_size()) for key, chunk in zip(keys, objects)
                  if self._move(key, chunk, Shelf.put)]
        with self._lock:
            new = [(key, size) for key, size in stored if key not in self._kept]
            self._kept.update(new)
            old = [self._kept.popitem(last=False) for _ in range(len(self._kept) - KEPT_KEYS)]
        if new:
            self._notify_keys_stored([key for key, _ in new], [size for _, size in new])
        self._tell_gone(old)
        return L2StoreResult(len(stored) == len(keys), sum(size for _, size in stored))

    # ---- lookup and lock

    def submit_lookup_and_lock_task(self, keys: List[ObjectKey],
                                    group_layout_descs: Dict[int, MemoryLayoutDesc]) -> int:
        return self._submit("lookups", lambda: self._find(keys, group_layout_descs),
                            Bitmap(len(keys)))

    def query_lookup_and_lock_result(self, task_id: int) -> Optional[Bitmap]:
        return self._tasks["lookups"].take(task_id)

    def submit_unlock(self, keys: List[ObjectKey]) -> None:
        self._tasks["lookups"].then(self._unlock, keys)

    def _find(self, keys: List[Any], descs: Dict[int, Any]) -> Bitmap:
        places = []
        for key in keys:
            desc = descs.get(key.object_group_id)
            layout = layout_of(desc.shapes, desc.dtypes) if desc is not None else ()
            with self._lock:
                layout = layout or self._layouts.get((key.model_name, key.object_group_id), ())
            places.append(self._shelves.place(key, layout))
        found, end = Bitmap(len(keys)), time.monotonic() + self._shelves.budget_s
        for shelf in {id(place[0]): place[0] for place in places}.values():
            here = [at for at, place in enumerate(places) if place[0] is shelf]
            for at, there in zip(here, shelf.exists([places[at][1] for at in here])):
                if there and self._lock_one(keys[at], shelf, places[at][1],
                                            time.monotonic() < end):
                    found.set(at)
        return found

    def _lock_one(self, key: Any, shelf: Shelf, name: bytes, in_time: bool) -> bool:
        """True: a chunk that was there still is, held if there is room for a hold, and time."""
        with self._lock:
            room = in_time and sum(len(held) for held in self._held.values()) < LOCKS
        held = shelf.hold(name, LOCK_S) if room else None
        if held:
            with self._lock:
                self._held.setdefault(key, []).append((shelf, held))
        return held is None or bool(held)

    def _unlock(self, keys: List[Any]) -> None:
        for key in keys:
            with self._lock:
                held = self._held.get(key, [])
                one = held.pop() if held else None
                if not held:
                    self._held.pop(key, None)
            if one is not None:
                one[0].release(one[1])

    # ---- load

    def submit_load_task(self, keys: List[ObjectKey], objects: List[Any]) -> int:
        return self._submit("loads", lambda: self._load(keys, objects), Bitmap(len(keys)))

    def query_load_result(self, task_id: int) -> Optional[Bitmap]:
        return self._tasks["loads"].take(task_id)

    def _load(self, keys: List[Any], objects: List[Any]) -> Bitmap:
        found, loaded = Bitmap(len(keys)), []
        for at, (key, chunk) in enumerate(zip(keys, objects)):
            if self._move(key, chunk, Shelf.get_into):
                found.set(at)
                loaded.append(key)
        if loaded:
            self._notify_keys_accessed(loaded)
        return found

    # ---- keys

    def delete(self, keys: List[ObjectKey]) -> None:
        gone: List[Tuple[Any, int]] = []
        for key in keys:
            with self._lock:
                layout = self._layouts.get((key.model_name, key.object_group_id), ())
            shelf, name, _ = self._shelves.place(key, layout)
            if shelf.delete(name):
                with self._lock:
                    gone.append((key, self._kept.pop(key, 0)))
        self._tell_gone(gone)

    def _tell_gone(self, gone: List[Tuple[Any, int]]) -> None:
        """Keys and bytes that are not counted any more, to LMCache; outside the lock."""
        if gone:
            self._notify_keys_deleted([key for key, _ in gone], [size for _, size in gone])

    def list_l2_keys(self, model_name: Optional[str] = None, page_size: int = 500,
                     cursor: Optional[str] = None) -> KeyListPage:
        if page_size < 1 or not (cursor or "0").isdecimal():
            raise ValueError(f"page_size is {page_size}, must be from 1; cursor is {cursor!r}, "
                             f"must be of an earlier page")
        with self._lock:
            known = [(key, size) for key, size in self._kept.items()
                     if model_name in (None, key.model_name)]
        first = int(cursor or "0")
        page = known[first:first + page_size]
        more = str(first + page_size) if first + page_size < len(known) else None
        return KeyListPage(tuple(KeyEntry(key.to_encoded_object_key(), size)
                                 for key, size in page), more)

    # ---- the rest

    def report_status(self) -> Dict[str, Any]:
        error = self._shelves.cache.last_error
        with self._lock:
            locked = len(self._held)
        return {"is_healthy": self._report.counts().get("aside", 0) == 0, "type": "cachesvc",
                "locked_key_count": locked, "last_error": str(error) if error else None,
                **self._report.counts(), **self._shelves.cache.failures}

    def close(self) -> None:
        self._unlock([key for key, held in list(self._held.items()) for _ in held])
        for tasks in self._tasks.values():
            tasks.close()
        self._shelves.cache.close()

    def _submit(self, name: str, work: Callable[[], Any], failed: Any) -> int:
        number = next(self._numbers)
        self._tasks[name].submit(number, work, failed)
        return number

    def _move(self, key: Any, chunk: Any, move: Callable[[Shelf, bytes, Any], bool]) -> bool:
        """Between a MemoryObj and its shelf. What is no chunk of this process's memory is left."""
        try:
            layout = layout_of(chunk.get_shapes(), chunk.get_dtypes())
            data = bytes_in(chunk)
        except Exception as error:  # of LMCache's, about a kind of object that is not known
            self._report.count("failed_layout")
            self._report.say("layout", f"{type(error).__name__}: {error} (said once, counted)")
            return False
        with self._lock:
            self._layouts[key.model_name, key.object_group_id] = layout
        shelf, name, shape = self._shelves.place(key, layout)
        return move(shelf, name, data if shape is None else self._shelves.rows_in(data, shape))
