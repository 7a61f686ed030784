"""Layout: how one llama.cpp server lays out a slot: a Model, rows to store, slot files to restore.

It is learnt from a slot file of that server. Layers are numbered as they lie in the file: first
those of full attention, then the windowed ones. Rows are stored as they are, f32, f16 or bf16, in
the order of channels that llama.cpp's rope has. Where a file holds anything else (quantised rows,
recurrent states) the layout is opaque: the whole file is one state, restored at its exact length.
"""
from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from .errors import CacheError, Code
from .hit import Hit
from .llama_gguf import Gguf
from .llama_plan import in_slot_order
from .llama_slot import (CELL, LayerRows, SlotCache, SlotFile, checkpoint_of, encode, parse,
                         parse_tokens, unknown)
from .models import Dtype, Kind, Model, Part, Profile, Side, full, profile_of, window
from .objects import Array
from .wire import Buffer, Tokens

DTYPES = {0: Dtype.F32, 1: Dtype.F16, 30: Dtype.BF16}  # ggml's types
ROWS_MORE = 1  # than going on takes: a server goes on from a checkpoint one token earlier
CLAIMED = 2    # rows before a window's first: a server goes on from checkpoints that name them


class Layout:
    """model: under its fingerprint. profile: lossless, or as the bits or the plan say.

    bits: (K, V) of 8, 4, 3 or 2, or none. plan: of llama_plan.plan_for, in place of bits. opaque:
    in words, why rows are not told apart. token_bytes: of a slot file, for each token.
    CacheError: the plan does not fit.
    """

    def __init__(self, data: Buffer, gguf: Gguf, others: Sequence[str],
                 bits: Optional[Tuple[int, int]] = None, plan: Optional[Profile] = None) -> None:
        self.opaque = ""
        self.token_bytes = len(data) / max(1, len(parse_tokens(data)))
        self._caches: List[SlotCache] = []
        try:
            self._caches = parse(data).caches
            layers = self._layers(gguf)
        except CacheError as error:
            if error.code != Code.UNSUPPORTED:
                raise
            self.opaque = error.message
            layers = [[Part(Kind.OPAQUE, Dtype.F32, label="llama.cpp slot file")]]
        self.windowed = any(parts[0].kind == Kind.WINDOW for parts in layers)
        dtype = layers[0][0].dtype
        coding = f"bits {bits[0]}:{bits[1]}" if bits and not self.opaque else "as given"
        if plan is not None:
            if self.opaque:
                raise CacheError(Code.UNSUPPORTED, f"a plan for rows that are not told apart: "
                                                   f"{self.opaque}")
            coding = f"plan {plan.id().hex()[:16]}"
        self.model = Model(f"{gguf.name} in llama.cpp, {coding}"[:200],
                           gguf.fingerprint([*others, coding, self.opaque or dtype.name,
                                             *["windows 2"] * self.windowed]), layers)
        self.profile = profile_of(self.model, dtype, None if self.opaque else bits)
        if plan is not None:
            windowed = sum(parts[0].kind == Kind.WINDOW for parts in layers)
            self.profile = in_slot_order(plan, gguf, len(layers) - windowed, windowed, dtype)

    def _layers(self, gguf: Gguf) -> List[List[Part]]:
        size = gguf.of_kind("attention.sliding_window")
        if len(self._caches) > 2 or (len(self._caches) == 2 and not size):
            raise unknown(f"{len(self._caches)} caches of a model without windows")
        layers: List[List[Part]] = []
        for number, cache in enumerate(self._caches):
            for keys, values in zip(cache.keys, cache.values):
                part = _part(keys, values, gguf)
                layers.append([window(size + ROWS_MORE, part.heads, part.k_dim, part.v_dim,
                                      part.dtype) if number == 1 and size else part])
        if not layers or len({parts[0].dtype for parts in layers}) != 1:
            raise unknown("rows of several types, or none")
        return layers

    def source(self, data: Buffer) -> "SlotRows":
        """The contents to store of a slot file that the server wrote. It must be of this layout."""
        if self.opaque:
            return SlotRows(self.model, parse_tokens(data), [], [], data)
        file = parse(data)
        if [_shape(cache) for cache in file.caches] != [_shape(cache) for cache in self._caches]:
            raise unknown("a layout that is not the one of this server")
        ends = [checkpoint.tokens for checkpoint in file.checkpoints or []]
        return SlotRows(self.model, file.tokens, _sources(file), ends, b"")

    def file_for(self, tokens: Tokens, hit: Hit) -> List[Buffer]:
        """A slot file that holds the hit's tokens and nothing else, as buffers in order: views of
        the hit, which must be valid() when they have been read."""
        if self.opaque:
            state = hit.state(0)
            if state is None or parse_tokens(state.data).tolist() != tokens[:hit.tokens].tolist():
                raise unknown("a stored file of other tokens")
            return [state.data]
        layer, caches = 0, []
        for like in self._caches:
            first, end = self.model.part(layer, 0).newest_rows(hit.tokens)
            cells = np.ones(end - first, CELL)
            cells["position"], cells["sequence"] = np.arange(first, end), 0
            cache = SlotCache(like.streams, 0, cells)
            for keys, values in zip(like.keys, like.values):
                for side, given, rows in ((Side.K, keys, cache.keys),
                                          (Side.V, values, cache.values)):
                    found = [np.ascontiguousarray(each).reshape(len(each), -1).view(np.uint8)
                             for each in hit.row_arrays(layer, 0, side, first, end)]
                    rows.append(LayerRows(given.type, found[0], found[1:]))
                layer += 1
            caches.append(cache)
        checkpoints = [checkpoint_of(cache, CLAIMED) for cache in caches[1:]]
        return encode(SlotFile(tokens[:hit.tokens], caches, checkpoints or None))

    def proof(self, tokens: int) -> int:
        """`cache_n` of an answer after a restore of so many tokens, at least. With windows a server
        goes on from a checkpoint, and one token earlier."""
        return tokens - 1 if self.windowed else tokens


def _part(keys: LayerRows, values: LayerRows, gguf: Gguf) -> Part:
    if keys.type != values.type or keys.type not in DTYPES:
        raise unknown(f"K of ggml type {keys.type} and V of {values.type}")
    dtype = DTYPES[keys.type]
    widths = [side.rows.shape[1] // dtype.numpy.itemsize for side in (keys, values)]
    heads = gguf.of_kind("attention.head_count_kv") or 1
    if widths[0] % heads or widths[1] % heads:
        heads = 1
    return full(heads, widths[0] // heads, widths[1] // heads, dtype)


def _shape(cache: SlotCache) -> Tuple[object, ...]:
    return (cache.streams, [(layer.type, layer.rows.shape[1])
                            for layer in cache.keys + cache.values])


def _sources(file: SlotFile) -> List[List[SlotCache]]:
    """For each cache, those that hold rows of it: itself, then, newest first, its checkpoints."""
    found = [[cache] for cache in file.caches]
    for checkpoint in reversed(file.checkpoints or []):
        if checkpoint.cache is not None and _shape(checkpoint.cache)[1:] == _shape(
                file.caches[-1])[1:]:
            found[-1].append(checkpoint.cache)
    return found


class SlotRows:
    """A RowSource over a slot file, and which lengths of its tokens can be stored.

    checkpoints: lengths at which the server kept the windowed layers.
    """

    def __init__(self, model: Model, tokens: Tokens, sources: List[List[SlotCache]],
                 checkpoints: List[int], whole: Buffer) -> None:
        self.tokens, self.checkpoints = tokens, checkpoints
        self._model, self._whole = model, whole
        self._of_layer: List[Tuple[List[SlotCache], int]] = []
        for caches in sources:
            self._of_layer += [(caches, at) for at in range(len(caches[0].keys))]
        self._places: Dict[int, npt.NDArray[np.int64]] = {}

    def storable(self, end: int) -> bool:
        """Every row that an entry of so many tokens must have is there."""
        if not self._of_layer:
            return end == len(self.tokens)
        at = 0
        while at < len(self._of_layer):
            caches, _ = self._of_layer[at]
            first, _ = self._model.part(at, 0).newest_rows(end)
            if (self._place(caches)[first:end] < 0).any():
                return False
            at += len(caches[0].keys)
        return end <= len(self.tokens)

    def rows(self, layer: int, part: int, side: Side, first: int, end: int) -> Optional[Array]:
        caches, at = self._of_layer[layer]
        places = self._place(caches)[first:end]
        if len(places) < end - first or (places < 0).any():
            return None
        fields, found, base = self._model.part(layer, part), [], 0
        starts = np.flatnonzero(np.diff(_owners(caches, places), prepend=-1))
        for begin, stop in zip(starts, [*starts[1:], len(places)]):
            owner = int(_owners(caches, places[begin:begin + 1])[0])
            base = sum(len(cache.cells) for cache in caches[:owner])
            layer_rows = (caches[owner].keys, caches[owner].values)[int(side)][at].rows
            found.append(_picked(layer_rows, places[begin:stop] - base))
        rows = np.concatenate(found) if len(found) != 1 else found[0]
        return rows.view(fields.dtype.numpy).reshape(end - first, fields.heads, fields.dim(side))

    def state(self, layer: int, part: int, position: int) -> Optional[Buffer]:
        return self._whole if self._whole and position == len(self.tokens) else None

    def _place(self, caches: List[SlotCache]) -> npt.NDArray[np.int64]:
        """Of each position, the number of its row over all caches in order; -1: there is none."""
        known = self._places.get(id(caches))
        if known is None:
            known = np.full(len(self.tokens), -1, np.int64)
            base = sum(len(cache.cells) for cache in caches)
            for cache in reversed(caches):
                base -= len(cache.cells)
                inside = np.flatnonzero((cache.positions >= 0)
                                        & (cache.positions < len(known)))
                known[cache.positions[inside]] = base + inside
            self._places[id(caches)] = known
        return known


def _owners(caches: List[SlotCache], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The cache that holds each place."""
    ends = np.cumsum([len(cache.cells) for cache in caches])
    owners: npt.NDArray[np.int64] = np.searchsorted(ends, places, side="right")
    return owners


def _picked(rows: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Rows by number, without a copy where they lie in order."""
    if len(at) and (np.diff(at) == 1).all():
        return rows[at[0]:at[-1] + 1]
    picked: npt.NDArray[np.uint8] = rows[at]
    return picked
