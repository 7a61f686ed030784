"""Script of an EngineProcess: caches of every kind that mlx-lm has, filled by its own
calls, through mlx_caches.py and back."""
from __future__ import annotations

from typing import Any, Callable, Dict, List

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm import load
from mlx_lm.models import cache as kinds

from cachesvc import files
from cachesvc.checks import hit_of
from cachesvc.mlx_caches import fill, layers_of, packed, rows_of, to_numpy, tokens_in
from cachesvc.models import Model
from engine_process import serve

HEADS, DIM, SIZE = 2, 32, 40
MAKE: Dict[str, Callable[[], Any]] = {
    "KVCache": kinds.KVCache,
    "RotatingKVCache": lambda: kinds.RotatingKVCache(SIZE),
    "RotatingKVCache, keep": lambda: kinds.RotatingKVCache(SIZE, keep=4),
    "QuantizedKVCache": lambda: kinds.QuantizedKVCache(group_size=32, bits=4),
    "ChunkedKVCache": lambda: kinds.ChunkedKVCache(64),
    "ArraysCache": lambda: kinds.ArraysCache(2),
    "CacheList": lambda: kinds.CacheList(kinds.KVCache(), kinds.RotatingKVCache(SIZE),
                                         kinds.ArraysCache(2)),
}


def update(cache: Any, first: int, tokens: int, dtype: Any) -> List[Any]:
    """Rows of so many tokens from `first` on, by the engine's own call; what it returns."""
    if isinstance(cache, kinds.CacheList):
        return [found for sub in cache.caches for found in update(sub, first, tokens, dtype)]
    mx.random.seed(first)
    keys, values = (mx.random.normal((1, HEADS, tokens, DIM)).astype(dtype) for _ in range(2))
    if isinstance(cache, kinds.ArraysCache):
        cache[0], cache[1] = keys[..., -1:, :], values[0].astype(mx.float32)[:, -1]
        return [cache[0], cache[1]]
    if isinstance(cache, kinds.ChunkedKVCache):
        cache.maybe_trim_front()
    found = cache.update_and_fetch(keys, values)
    if isinstance(cache, kinds.RotatingKVCache):  # in order, wherever its ring begins
        return [cache._temporal_order(side) for side in (cache.keys, cache.values)]
    return list(found) if isinstance(found[0], mx.array) else [*found[0], *found[1]]


def round_trip(kind: str, steps: List[int], dtype: str) -> bool:
    """A cache that is filled in these steps, and one that is made of its rows, give the engine the
    same, now and after one more token and five more at once."""
    of, given = getattr(mx, dtype), MAKE[kind]()
    update(given, 0, steps[0], of)
    model = Model("m", bytes(32), [])
    like = [MAKE[kind](), kinds.KVCache()]
    for each in like:
        update(each, 0, 3, of)
    model.layers = layers_of(like)
    beside, tokens = kinds.KVCache(), steps[0]  # so that a past counts its tokens
    for step in steps[1:]:
        update(given, tokens, step, of)
        tokens += step
    update(beside, 0, tokens, of)
    past = [given, beside]
    assert tokens_in(past) == tokens
    made = [MAKE[kind](), kinds.KVCache()]
    fill(model, made, like, hit_of(model, tokens, rows_of(model, past, like, tokens)))
    same = True
    for more in (1, 1, 5):
        pairs = zip(update(given, tokens, more, of), update(made[0], tokens, more, of))
        same = same and all(np.array_equal(to_numpy(a), to_numpy(b)) for a, b in pairs)
        tokens += more
    return same and type(made[0]) is type(given)


def odd() -> str:
    """What a state may not hold."""
    try:
        packed([mx.zeros(3), object()])
    except Exception as error:
        return str(error)
    return ""


def prompt_cache(model: str, path: str, tokens: List[int]) -> None:
    """The file that mlx-lm's own call writes of a prompt."""
    module = load(model)[0]
    past = kinds.make_prompt_cache(module)
    module(mx.array([tokens]), cache=past)
    kinds.save_prompt_cache(path, past, {"model": model})


def same_files(one: str, other: str) -> bool:
    """All that mlx-lm reads of two prompt caches."""
    found = [kinds.load_prompt_cache(path, return_metadata=True) for path in (one, other)]
    leaves = [[(name, to_numpy(leaf) if isinstance(leaf, mx.array) else leaf)
               for name, leaf in tree_flatten([cache.state for cache in past])]
              for past, _ in found]
    return len(leaves[0]) > 0 and found[0][1] == found[1][1] and all(
        name == name2 and np.array_equal(leaf, leaf2)
        for (name, leaf), (name2, leaf2) in zip(*leaves)) and (
            [type(cache) for cache in found[0][0]] == [type(cache) for cache in found[1][0]])


def same_answers(model: str, one: str, other: str) -> bool:
    """What the model computes after each of two prompt caches, bit for bit."""
    module = load(model)[0]
    said = [to_numpy(module(mx.array([[5, 6, 7]]), cache=kinds.load_prompt_cache(path)).astype(
        mx.float32)) for path in (one, other)]
    return bool(np.array_equal(said[0], said[1]))


if __name__ == "__main__":
    serve({"names": lambda: list(MAKE), "round_trip": round_trip, "odd": odd,
           "prompt_cache": prompt_cache, "same_files": same_files,
           "same_answers": same_answers, "files": files.run})
