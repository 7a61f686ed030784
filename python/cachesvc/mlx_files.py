"""Prompt caches that mlx_lm's save_prompt_cache wrote, for files.py: their model as cachesvc-mlx
describes it, so that it serves what is put, and the other way round."""
from __future__ import annotations

import types

import numpy as np
from mlx_lm import load
from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

from .errors import CacheError, Code
from .hit import Hit
from .in_process import model_of
from .mlx import Mlx
from .mlx_caches import fill, layers_of, rows_of, tokens_in
from .models import Dtype, profile_of
from .store import RowSource
from .wire import Tokens


class PromptCache:
    """A file of mlx-lm, which has no tokens: `tokens` are zeros, as many as it has rows."""

    def __init__(self, path: str, model: str, tag: str) -> None:
        self._past, self._metadata = load_prompt_cache(path, return_metadata=True)
        engine = Mlx(types.SimpleNamespace(
            model=load(model)[0], cli_args=types.SimpleNamespace(kv_bits=None)))
        self.model = model_of(engine, layers_of(self._past), None, tag)
        dtypes = {part.dtype for _, _, part in self.model.parts() if part.sides} or {Dtype.F16}
        if len(dtypes) != 1:
            raise CacheError(Code.UNSUPPORTED, f"rows of {len(dtypes)} types, must be of one")
        self.profile = profile_of(self.model, dtypes.pop(), None)
        self.tokens: Tokens = np.zeros(tokens_in(self._past), "<i4")

    def rows(self) -> RowSource:
        return rows_of(self.model, self._past, self._past, len(self.tokens))

    def write(self, path: str, tokens: Tokens, hit: Hit) -> None:
        past = list(self._past)
        fill(self.model, past, self._past, hit)
        save_prompt_cache(path, past, self._metadata)
