"""A teacher of a model of mlx-lm, for `cachectl quality` and `tune` (teaching.py). What `tune`
makes of it is for `cachesvc-mlx --plan`.

    cachectl tune MODEL --teacher "python3 -m cachesvc.mlx_teacher" --coding tc --out FILE

MODEL: as mlx_lm.load takes it, and as the server is given it.
"""
from __future__ import annotations

import types
from typing import Any, List, Optional, Sequence

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm import load

from .mlx import STEP, Mlx
from .mlx_caches import to_numpy
from .objects import Array
from .teaching import MOST_PAIRS, MOST_TOKENS, Teacher, arguments, teach

PROGRAM = "cachesvc.mlx_teacher"


class Told(Mlx):
    """The Engine of a model that no server has loaded."""

    def __init__(self, module: Any) -> None:
        super().__init__(types.SimpleNamespace(model=module, cli_args=types.SimpleNamespace(
            kv_bits=None, kv_group_size=64, quantized_kv_start=0)))

    def vocab(self) -> int:
        return len(self.logits([1], self.empty()))

    def predict(self, tokens: Sequence[int], past: Any) -> Array:
        """Teacher's: (tokens, vocabulary)."""
        if not tokens:
            return np.empty((0, self.vocab()), np.float32)
        return np.concatenate([
            to_numpy(self._module(mx.array([tokens[at:at + STEP]]), cache=past)[0].astype(
                mx.float32)) for at in range(0, len(tokens), STEP)])


def turns_of(module: Any) -> List[Array]:
    """Radians a position of each pair, of every RoPE that a module of mlx has."""
    found: List[Array] = []
    for _, each in module.named_modules():
        periods = getattr(each, "_freqs", None)  # those of mlx_lm's rope_utils
        if isinstance(periods, mx.array):
            steps = 1 / to_numpy(periods.astype(mx.float32)).reshape(-1)
        elif isinstance(each, nn.RoPE):
            steps = (each.scale * each.base ** (-np.arange(0, each.dims, 2) / each.dims)).astype(
                np.float32)
        else:
            continue
        if not 0 < len(steps) <= MOST_PAIRS or not steps.max() <= 8:
            continue
        if not any(np.array_equal(steps, other) for other in found):
            found.append(steps)
    return found


def teacher_of(module: Any, encode: Any, tag: str = "") -> Teacher:
    engine = Told(module)
    context = getattr(module.args, "max_position_embeddings", None) or MOST_TOKENS
    return Teacher(engine, encode, engine.vocab(), context, engine.predict, tag, turns_of(module))


def main(words: Optional[Sequence[str]] = None) -> None:
    given = arguments(PROGRAM, __doc__ or "").parse_args(words)

    def make() -> Teacher:
        module, tokenizer = load(given.model)[:2]
        return teacher_of(module, tokenizer.encode, given.tag)
    teach(PROGRAM, make)


if __name__ == "__main__":
    main()
