"""cachesvc-files: an engine's own cache files into a running cachesvc, and out of it.

    cachesvc-files put FILE --model MODEL --socket S --namespace N [--tokens TOKENS.json]
    cachesvc-files get NEW --like FILE --model MODEL --socket S --namespace N [--tokens …]

FILE is a slot file of llama.cpp (MODEL its GGUF file; the options of its server behind `--`, if
cachesvc-llama is to serve it) or what mlx_lm's save_prompt_cache wrote, *.safetensors (MODEL as
mlx_lm.load takes it; --tokens names the prompt, a JSON list, as that file has none). Rows are
stored lossless. `get` writes a new file of what is stored of those tokens, all of them or nothing.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from typing import List, Optional, Protocol, Sequence, Tuple

import numpy as np

from .cache import Cache
from .entry import FetchOptions
from .errors import CacheError, Code, invalid
from .hit import Hit
from .llama import what_changes_rows
from .llama_gguf import Gguf
from .llama_rows import Layout
from .messages import Level
from .models import Model, Profile
from .options import read_secret
from .store import RowSource
from .wire import Tokens

PROGRAM = "cachesvc-files"
SECONDS = 600.0  # of a call: a file may have gigabytes


class EngineFile(Protocol):
    """A file of an engine, which says how its model's rows are laid out."""

    model: Model
    profile: Profile
    tokens: Tokens

    def rows(self) -> RowSource:
        """Of all tokens."""

    def write(self, path: str, tokens: Tokens, hit: Hit) -> None:
        """A new file like this one, of a hit of all these tokens."""


class SlotFile:
    """Of llama.cpp. others: what cachesvc-llama would put into the fingerprint."""

    def __init__(self, path: str, gguf: str, others: Sequence[str]) -> None:
        with open(path, "rb") as file:
            self._data = file.read()
        self._layout = Layout(self._data, Gguf(gguf), others)
        self._rows = self._layout.source(self._data)
        self.model, self.profile = self._layout.model, self._layout.profile
        self.tokens = self._rows.tokens

    def rows(self) -> RowSource:
        if not self._rows.storable(len(self.tokens)):
            raise CacheError(Code.INVALID_ARGUMENT, "the file lacks rows that its tokens need")
        return self._rows

    def write(self, path: str, tokens: Tokens, hit: Hit) -> None:
        with open(path, "xb") as file:
            for part in self._layout.file_for(tokens, hit):
                file.write(part)


def engine_file(options: argparse.Namespace, path: str, command: List[str]) -> EngineFile:
    if path.endswith(".safetensors"):
        if options.tokens is None:
            raise invalid("--tokens", "missing", "given for a prompt cache of mlx-lm")
        from .mlx_files import PromptCache
        return PromptCache(path, options.model, options.tag)
    return SlotFile(path, options.model,
                    ["llama.cpp", options.tag, *what_changes_rows(command), "[]"])


def tokens_of(path: str) -> Tokens:
    with open(path, encoding="ascii") as file:
        given = json.load(file)
    if not isinstance(given, list) or not all(isinstance(each, int) for each in given):
        raise invalid("--tokens", "of another form", "a JSON list of token ids")
    return np.asarray(given, "<i4")


def put(cache: Cache, file: EngineFile, tokens: Tokens, label: str) -> str:
    stored = cache.store_rows(file.model, tokens, file.rows(), profile=file.profile, label=label,
                              ends=[len(tokens)], wait_for=Level.SPILLED, timeout=SECONDS)
    return f"{len(tokens)} tokens of {file.model.name}, {stored.objects} objects stored"


def get(cache: Cache, file: EngineFile, tokens: Tokens, path: str) -> str:
    one_more = np.append(tokens, tokens[-1:])  # the last token of a query is never served
    hit = cache.fetch_rows(file.model, one_more, profile=file.profile, timeout=SECONDS,
                           options=FetchOptions(wait=True))
    if hit.tokens != len(tokens):
        raise CacheError(Code.NOT_FOUND, f"{hit.tokens} of {len(tokens)} tokens are stored: "
                         f"{hit.why}")
    file.write(path, tokens, hit)
    return f"{path}: {len(tokens)} tokens of {file.model.name}"


def arguments(given: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    at = list(given).index("--") if "--" in given else len(given)
    p = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("verb", choices=("put", "get"))
    p.add_argument("file", help="put: what is read; get: what is written, which must not exist")
    p.add_argument("--like", help="get: a file of the same server, for its layout")
    p.add_argument("--model", required=True, help="the GGUF file, or mlx-lm's model")
    p.add_argument("--tokens", help="a JSON list of token ids; default: those of the slot file")
    p.add_argument("--socket", required=True, help="of the cachesvc daemon")
    p.add_argument("--namespace", required=True)
    p.add_argument("--token-file", help="of the namespace's token, where it has one")
    p.add_argument("--tag", default="", help="what else makes this engine's rows its own")
    p.add_argument("--label", default="", help="put: a word for people, which cachectl shows")
    options = p.parse_args(list(given[:at]))
    if options.verb == "get" and not options.like:
        p.error("get wants --like FILE")
    return options, list(given[at + 1:])


def run(given: Sequence[str]) -> str:
    options, command = arguments(given)
    file = engine_file(options, options.like if options.verb == "get" else options.file, command)
    tokens = tokens_of(options.tokens) if options.tokens else file.tokens
    if options.verb == "put" and len(tokens) != len(file.tokens):
        raise invalid("--tokens", f"{len(tokens)} tokens", f"the file's {len(file.tokens)}")
    with Cache(options.socket, options.namespace, strict=True, program=PROGRAM,
               token=read_secret(options.token_file)) as cache:
        if options.verb == "put":
            return put(cache, file, tokens, options.label)
        if os.path.exists(options.file):
            raise invalid("file", "there already", "a new one")
        return get(cache, file, tokens, options.file)


def main(given: Optional[Sequence[str]] = None) -> int:
    try:
        print(run(sys.argv[1:] if given is None else given))
        return 0
    except (CacheError, ImportError, OSError, ValueError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
