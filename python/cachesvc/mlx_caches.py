"""mlx-lm's caches: which parts their layers are, their rows, and caches made of rows.

KVCache: a full part. RotatingKVCache: a window with its sinks. Whatever else (ArraysCache, which
recurrent layers have, QuantizedKVCache, ChunkedKVCache, …): a state, all that its class says it
holds, at its exact position. CacheList: several parts of one layer.
"""
from __future__ import annotations

import json
import struct
from typing import Any, Iterator, List, Tuple

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import cache as kinds

from .errors import CacheError, Code, Malformed
from .hit import Hit
from .models import Dtype, Kind, Layers, Model, Part, Side, full, window
from .objects import Array
from .store import ArrayRows

DTYPES = {mx.float32: Dtype.F32, mx.float16: Dtype.F16, mx.bfloat16: Dtype.BF16}
BY_NAME = {str(dtype): dtype for dtype in (
    mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64,
    mx.float16, mx.bfloat16, mx.float32)}
Past = List[Any]  # one cache for each layer


def subs_of(cache: Any) -> Tuple[Any, ...]:
    return tuple(cache.caches) if isinstance(cache, kinds.CacheList) else (cache,)


def filled(cache: Any) -> bool:
    """It holds something. A layer that uses another one's rows never does."""
    return not cache.empty()


def part_of(cache: Any) -> Part:
    if type(cache) not in (kinds.KVCache, kinds.RotatingKVCache):
        return Part(Kind.OPAQUE, label=f"mlx {type(cache).__name__}")
    if cache.keys.dtype not in DTYPES:
        raise CacheError(Code.UNSUPPORTED, f"rows of type {cache.keys.dtype}")
    (_, heads, _, dim), v_dim = cache.keys.shape, cache.values.shape[3]
    if type(cache) is kinds.KVCache:
        return full(heads, dim, v_dim, DTYPES[cache.keys.dtype])
    return window(cache.max_size - cache.keep, heads, dim, v_dim, DTYPES[cache.keys.dtype],
                  cache.keep)


def layers_of(past: Past) -> Layers:
    layers = [[part_of(cache) for cache in subs_of(layer) if filled(cache)] for layer in past]
    if not tokens_in(past):
        raise CacheError(Code.UNSUPPORTED, "caches that don't count their tokens")
    return layers


def tokens_in(past: Past) -> int:
    """The number of tokens that a past holds; 0 if no cache of it counts them."""
    return max((cache.offset for layer in past for cache in subs_of(layer)
                if isinstance(getattr(cache, "offset", None), int)), default=0)


# ---- out of caches

def to_numpy(values: mx.array) -> Array:
    """A copy; of bf16, as uint16."""
    return np.array(values.view(mx.uint16) if values.dtype == mx.bfloat16 else values)


def rows(values: mx.array) -> Array:
    """(rows, heads, dim) of (1, heads, rows, dim)."""
    return to_numpy(values[0].transpose(1, 0, 2))


def rows_of(model: Model, past: Past, like: Past, tokens: int) -> ArrayRows:
    """The contents of a past of so many tokens, copied. like: one of the same kinds."""
    newest, states, sinks = {}, {}, {}
    for layer, index, cache, other in _parts(past, like):
        if type(cache) is not type(other):
            raise CacheError(Code.UNSUPPORTED, f"layer {layer} has a {type(cache).__name__}, not a "
                             f"{type(other).__name__} as it had at the start")
        if model.part(layer, index).is_state:
            states[layer, index, tokens] = packed(cache.state)
        elif type(cache) is kinds.KVCache:
            newest[layer, index] = [rows(side[..., :tokens, :])
                                    for side in (cache.keys, cache.values)]
        else:
            sides = [rows(cache._temporal_order(side)) for side in (cache.keys, cache.values)]
            kept = cache.keep if cache.offset > len(sides[0]) else 0
            newest[layer, index] = [side[kept:] for side in sides]
            sinks[layer, index] = [side[:kept] for side in sides]
    return ArrayRows(model, tokens, newest, states, sinks)


def _parts(past: Past, like: Past) -> Iterator[Tuple[int, int, Any, Any]]:
    """(layer, part, its cache, that of like)"""
    for layer, (given, other) in enumerate(zip(past, like)):
        pairs = [pair for pair in zip(subs_of(given), subs_of(other)) if filled(pair[1])]
        for index, (cache, cache_like) in enumerate(pairs):
            yield layer, index, cache, cache_like


def packed(state: Any) -> bytes:
    """The state of a cache: the length of a list of its leaves in JSON as u32, that list, then the
    bytes of its arrays."""
    leaves, data = [], []
    for path, leaf in tree_flatten(state):
        if isinstance(leaf, mx.array):
            leaves.append([path, str(leaf.dtype), list(leaf.shape)])
            data.append(to_numpy(leaf).tobytes())
        elif leaf is None or isinstance(leaf, (bool, int, float, str)):
            leaves.append([path, "", leaf])
        else:
            raise CacheError(Code.UNSUPPORTED, f"a cache that holds a {type(leaf).__name__}")
    head = json.dumps(leaves).encode()
    return struct.pack("<I", len(head)) + head + b"".join(data)


# ---- into caches

def unpacked(data: Array) -> Any:
    """The values that `packed` was given."""
    try:
        end = 4 + int(data[:4].view("<u4")[0])
        leaves = []
        for path, dtype, value in json.loads(data[4:end].tobytes()):
            if dtype:
                like = mx.zeros((), BY_NAME[dtype])
                count = int(np.prod(value, dtype=np.int64))
                given = np.frombuffer(data, to_numpy(like).dtype, count, end)
                value, end = _to_mx(given.reshape(value), like), end + given.nbytes
            leaves.append((path, value))
    except (ValueError, KeyError, IndexError) as error:
        raise Malformed(f"a stored cache: {error}") from None
    return tree_unflatten(leaves) if leaves and leaves[0][0] else leaves[0][1]


def _to_mx(values: Array, like: mx.array) -> mx.array:
    """A copy, of its dtype."""
    copied = mx.array(values)
    return copied.view(mx.bfloat16) if like.dtype == mx.bfloat16 else copied


def fill(model: Model, past: Past, like: Past, hit: Hit) -> None:
    """Puts caches of a hit's tokens in the place of empty ones."""
    made = {(layer, id(cache)): _made(hit, layer, index, model.part(layer, index), other)
            for layer, index, cache, other in _parts(past, like)}
    for layer, given in enumerate(past):
        subs = [made.get((layer, id(cache)), cache) for cache in subs_of(given)]
        past[layer] = kinds.CacheList(*subs) if isinstance(given, kinds.CacheList) else subs[0]


def _made(hit: Hit, layer: int, index: int, part: Part, like: Any) -> Any:
    n = hit.tokens
    if part.is_state:
        state = hit.state(layer, index)
        if state is None:
            raise Malformed(f"no state of layer {layer}, part {index}")
        return type(like).from_state(unpacked(state))
    if not part.window:
        return kinds.KVCache.from_state((*_sides(hit, layer, index, like, [(0, n)]), n))
    size = like.max_size
    if n < size:
        return kinds.RotatingKVCache.from_state((
            *_sides(hit, layer, index, like, [(0, n)]), n, like.keep, size, n))
    # A full ring in order: its sinks, the oldest row, which goes next and is never seen again (any
    # row does: the one after it), the others.
    first, _ = part.newest_rows(n)
    runs = [(0, like.keep), (first, first + 1), (first, n)]
    return kinds.RotatingKVCache.from_state((
        *_sides(hit, layer, index, like, runs), n, like.keep, size, size))


def _sides(hit: Hit, layer: int, index: int, like: Any,
           runs: List[Tuple[int, int]]) -> List[mx.array]:
    """K and V, (1, heads, rows, dim), of runs of rows one after another."""
    sides = []
    for side, of in ((Side.K, like.keys), (Side.V, like.values)):
        found = np.concatenate([hit.rows(layer, index, side, *run) for run in runs])
        sides.append(_to_mx(np.ascontiguousarray(found.transpose(1, 0, 2))[None], of))
    return sides
