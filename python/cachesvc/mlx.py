"""cachesvc-mlx: mlx-lm's server with prompts that survive restarts. README.md, "mlx-lm".

    cachesvc-mlx --socket S --namespace N -- --model MODEL --port 8080

Behind `--` stand the options of mlx_lm.server, which runs as it is but for its LRUPromptCache: a
PromptCache asks cachesvc where its own RAM has less, and stores what the server puts into it once
the answer is given. All calls but that of main come from the server's generation thread.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from typing import Any, Counter, Dict, Iterator, List, Optional, Sequence, Tuple

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm import server
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import (LRUPromptCache, can_trim_prompt_cache, make_prompt_cache,
                                 trim_prompt_cache)

from .adapter import Stores
from .cache import Cache
from .errors import CacheError, Code
from .hit import Hit
from .in_process import Adapter, Entry, Settings
from .report import Report
from .mlx_caches import Past, fill, layers_of, rows_of, to_numpy, tokens_in
from .models import Kind, Layers, Model
from .objects import Array
from .options import add_options, bits_of, check_options, read_secret
from .sampled import places
from .store import ArrayRows

PROGRAM = "cachesvc-mlx"
STEP = 512     # tokens that are computed at once in a check
WAITING = 16   # caches that wait for the end of an answer, and prompts that wait for theirs


class Mlx:
    """The Engine of the model that a server's ModelProvider has loaded."""

    model: Model

    def __init__(self, provider: Any) -> None:
        self._module, self._args = provider.model, provider.cli_args
        self.name = f"{getattr(self._module, 'model_type', 'model')} in mlx-lm"
        self._like: Past = []

    def describe(self) -> List[str]:
        return ["mlx-lm", repr(getattr(self._module, "args", "")), repr(
            (self._args.kv_bits, self._args.kv_group_size, self._args.quantized_kv_start)
            if self._args.kv_bits else None)]

    def tensors(self) -> Iterator[Tuple[str, List[bytes]]]:
        for name, of in sorted(tree_flatten(self._module.parameters())):
            flat = of.reshape(-1)
            yield f"{name} {of.dtype} {of.shape}", [
                to_numpy(flat[at:end]).tobytes() for at, end in places(of.size)]

    def empty(self) -> Past:
        past: Past = make_prompt_cache(self._module)
        return past

    def logits(self, tokens: Sequence[int], past: Past) -> Array:
        for at in range(0, len(tokens), STEP):
            last = self._module(mx.array([tokens[at:at + STEP]]), cache=past)[0, -1]
            maybe_quantize_kv_cache(past, self._args.quantized_kv_start,
                                    self._args.kv_group_size, self._args.kv_bits)
        return to_numpy(last.astype(mx.float32))

    def layers(self, past: Past) -> Layers:
        self._like = list(past)
        return layers_of(past)

    def rows_of(self, past: Past, tokens: int) -> ArrayRows:
        return rows_of(self.model, past, self._like, tokens)

    def fill(self, past: Past, hit: Hit) -> None:
        fill(self.model, past, self._like, hit)


class Reuse:
    """The adapter of the model that the server has loaded, and what waits for the end of answers.
    Until there is a model, and where one can't be kept, everything is a miss."""

    def __init__(self, cache: Cache, settings: Settings) -> None:
        self._cache, self._settings, self._report = cache, settings, Report(PROGRAM)
        self._adapter: Optional[Adapter] = None
        self._stores: List[Stores] = []  # one for each model that was loaded
        self._reports: List[Report] = []
        self._key: Any = None
        self._prompts: List[List[int]] = []  # whose answers are not done
        self._early: List[Tuple[List[int], Past]] = []  # caches that came before theirs

    def attach(self, provider: Any) -> None:
        """Once the server has loaded a model: learns and checks it."""
        self._key = provider.model_key
        try:
            if provider.draft_model is not None or provider.is_distributed:
                raise CacheError(Code.UNSUPPORTED, "a draft model, or a model on several machines")
            self._adapter = Adapter(Mlx(provider), self._cache, dataclasses.replace(
                self._settings, encode=provider.tokenizer.encode))
            self._stores.append(self._adapter.stores)
            self._reports.append(self._adapter.report)
        except Exception as error:  # whatever it is, the server goes on without
            self._report.say(f"attach {self._key}", f"no caching of {self._key[0]}: {error}")

    def detach(self) -> None:
        """Before the server lets go of its model: arrays must end in the thread that made them."""
        self._adapter, self._early, self._prompts = None, [], []

    def load(self, key: Any, tokens: Sequence[int], there: int) -> Tuple[Optional[Past], int]:
        """A cache of the longest stored prefix and its length, if it is more than is there."""
        if self._adapter is None or key != self._key:
            return None, 0
        self._prompts = [*self._prompts, list(tokens)][-WAITING:]
        past: Past = self._adapter.empty()
        return past, self._adapter.load(tokens, past, there)

    def store(self, key: Any, tokens: Sequence[int], past: Past) -> None:
        """The caches that the server keeps. Before the first token of an answer nothing is copied:
        what comes inside a prompt waits for what comes behind its answer."""
        if self._adapter is None or key != self._key:
            return
        given = (list(tokens), list(past))
        if any(prompt[:len(tokens)] == given[0] for prompt in self._prompts):
            self._early = [*self._early, given][-WAITING:]
            return
        self._prompts = [p for p in self._prompts if p != given[0][:len(p)]]
        early, self._early = [*self._early, given], []
        try:
            self._adapter.store([self._adapter.entry(kept, of) for kept, of in self._worth(early)])
        except Exception as error:
            self._report.failed("store", error)

    def _worth(self, given: List[Tuple[List[int], Past]]) -> Iterator[Tuple[List[int], Past]]:
        """Those to store, cut to what they hold. Where all rows stay, as those of full parts do,
        an entry gives its prefixes too."""
        assert self._adapter is not None
        full = all(part.kind == Kind.FULL for _, _, part in self._adapter.model.parts())
        for number, (tokens, past) in enumerate(given):
            held = tokens_in(past)
            longer = any(other[:len(tokens)] == tokens for other, _ in given[number + 1:])
            if (full or held <= len(tokens)) and not (full and longer):
                yield tokens[:held], past

    def counts(self) -> Dict[str, int]:
        """Of all models that were loaded."""
        return dict(sum((Counter(report.counts()) for report in self._reports), Counter()))

    def settle(self) -> None:
        """At the end of the program: all that was to be stored is."""
        for stores in self._stores:
            stores.settle()


class PromptCache(LRUPromptCache):
    """The server's own, in RAM as it is, with cachesvc behind it."""

    def __init__(self, reuse: Reuse, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self._reuse = reuse

    def fetch_nearest_cache(self, model: Any, tokens: List[int]
                            ) -> Tuple[Optional[Past], List[int]]:
        past, rest = super().fetch_nearest_cache(model, tokens)
        if past is not None and not rest:  # the server can't go on from all of a prompt
            trimmed = can_trim_prompt_cache(past) and trim_prompt_cache(past, 1)
            past, rest = (past, tokens[-1:]) if trimmed else (None, tokens)
        stored, length = self._reuse.load(model, tokens, len(tokens) - len(rest))
        return (stored, tokens[length:]) if length else (past, rest)

    def insert_cache(self, model: Any, tokens: List[int], prompt_cache: Past, **options: Any
                     ) -> None:
        super().insert_cache(model, tokens, prompt_cache, **options)
        self._reuse.store(model, tokens, prompt_cache)


def arguments(given: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    """This program's options, and those of the server behind `--`."""
    at = list(given).index("--") if "--" in given else len(given)
    p = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.split("\n\n", maxsplit=1)[0],
                                usage=f"{PROGRAM} --socket S --namespace N [options] -- "
                                      "OPTIONS OF mlx_lm.server")
    add_options(p)
    options = p.parse_args(list(given[:at]))
    check_options(p, options)
    return options, list(given[at + 1:])


def main(given: Optional[Sequence[str]] = None) -> None:
    options, others = arguments(sys.argv[1:] if given is None else given)
    cache = Cache(options.socket, options.namespace, strict=True, program=PROGRAM,
                  token=read_secret(options.token_file))
    reuse = Reuse(cache, Settings(bits=bits_of(options), plan=options.plan, tag=options.tag,
                                  min_tokens=options.min_tokens,
                                  budget_s=options.budget_ms / 1000, shadow=options.shadow))

    class Provider(server.ModelProvider):
        def _load(self, *key: Any, **more: Any) -> None:
            reuse.detach()
            super()._load(*key, **more)
            reuse.attach(self)

        def reset(self) -> None:
            reuse.detach()
            super().reset()

    server.ModelProvider = Provider
    server.LRUPromptCache = lambda *sizes, **more: PromptCache(reuse, *sizes, **more)
    sys.argv = ["mlx_lm.server", *others]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server ends on it in order
    server.main()
    reuse.settle()
    print(f"{PROGRAM}: {json.dumps(reuse.counts())}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(0)  # the interpreter's own end often aborts: its threads meet mlx's, also without us


if __name__ == "__main__":
    main()
