"""Slot file: what llama-server writes at /slots/N?action=save and reads at restore. Version 4.

parse takes every byte of it or raises, and encode gives the same bytes back. All numbers are
little-endian:

    u32 0x67677371 ("ggsq"), u32 4, u32 count of words, i32 each:
        -1, 1, number of tokens, the tokens, 0 (pieces of media)
    each cache (full attention; a model with windows has a second one, its windowed layers'):
        u32 streams (as many as the server's slots, or 1); each stream: u32 cells, and if any:
            each cell: i32 position, u32 1, i32 sequence
            u32 0 (V by rows), u32 layers, u32 0, u32 0 (no rotation of K, of V)
            K of each layer: i32 ggml type, u64 bytes of a row, a row per cell; then V likewise
    perhaps checkpoints: u32 0x504b4353 ("SCKP"), u32 1, u32 count, each:
        i64 tokens, i32 first and last position, three blobs (u64 length, bytes). The first one:
        u32 0xaf143cd8, u32 0, and a cache: the windowed layers as they were at that many tokens

A cell is a row's place; those of a windowed cache are a ring, in no order of positions. Anything
else (media, several sequences in a cell, V by columns, recurrent states) is refused by name. Pure:
arrays are views of the bytes given. Every length is compared with the bytes that are there.
"""
from __future__ import annotations

import dataclasses
from typing import Any, List, Optional

import numpy as np
import numpy.typing as npt

from .errors import CacheError, Code, Malformed
from .wire import Buffer, Reader, Tokens, Writer, number, u32, u64

MAGIC, VERSION = 0x67677371, 4
CHECKPOINTS_MAGIC, CHECKPOINTS_VERSION = 0x504B4353, 1
STATE_MAGIC = 0xAF143CD8
MAX_CACHES, MAX_STREAMS, MAX_LAYERS, MAX_CHECKPOINTS = 8, 256, 1024, 1024
MAX_ROW_BYTES = 1 << 22
CELL = np.dtype([("position", "<i4"), ("sequences", "<u4"), ("sequence", "<i4")])
CHECKPOINT = np.dtype([("tokens", "<i8"), ("first", "<i4"), ("last", "<i4")])

Bytes = npt.NDArray[np.uint8]
Cells = npt.NDArray[Any]
_i32_bits = u32  # written as it was read, whatever its sign
_row_bytes = number("Q", MAX_ROW_BYTES, 1)
_streams = number("I", MAX_STREAMS, 1)
_layers = number("I", MAX_LAYERS, 1)


@dataclasses.dataclass
class LayerRows:
    """One side of one layer: a ggml type, and as many rows of bytes as the cache has cells. more:
    those after `rows`, of a file to be written, which need not lie in one array."""

    type: int
    rows: Bytes  # (cells, bytes of a row)
    more: List[Bytes] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class SlotCache:
    """The cells of one cache, all in one stream, and the rows of its layers."""

    streams: int
    stream: int
    cells: Cells
    keys: List[LayerRows] = dataclasses.field(default_factory=list)
    values: List[LayerRows] = dataclasses.field(default_factory=list)

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        positions: npt.NDArray[np.int32] = self.cells["position"]
        return positions


@dataclasses.dataclass
class Checkpoint:
    """tokens, first, last: as the server wrote them. cache: the windowed layers then."""

    tokens: int
    first: int
    last: int
    cache: Optional[SlotCache]  # what the first blob says
    blobs: List[List[Buffer]]   # three, each as buffers in order


@dataclasses.dataclass
class SlotFile:
    tokens: Tokens
    caches: List[SlotCache]
    checkpoints: Optional[List[Checkpoint]] = None  # None: a file without that part


def unknown(what: str) -> CacheError:
    return CacheError(Code.UNSUPPORTED, f"slot file: {what}")


def _expect(r: Reader, wanted: int, what: str) -> None:
    given = u32.read(r)
    if given != wanted:
        raise unknown(f"{what} is {given}, known is {wanted}")


# ---- reading


def parse(data: Buffer) -> SlotFile:
    """A file's parts as views of `data`. Malformed: damage; unsupported: content not known here."""
    r = Reader(data)
    tokens = _read_head(r)
    caches: List[SlotCache] = []
    while r.left() and _peek(r) != CHECKPOINTS_MAGIC:
        if len(caches) == MAX_CACHES:
            raise unknown(f"more than {MAX_CACHES} caches")
        caches.append(_read_cache(r))
    if not caches:
        raise unknown("no cache in it")
    checkpoints = _read_checkpoints(r) if r.left() else None
    r.end()
    return SlotFile(tokens, caches, checkpoints)


def parse_tokens(data: Buffer) -> Tokens:
    """The tokens alone, of a file whose other parts may be unknown."""
    return _read_head(Reader(data))


def _peek(r: Reader) -> int:
    at = r.at
    value = u32.read(r)
    r.at = at
    return value


def _read_head(r: Reader) -> Tokens:
    _expect(r, MAGIC, "its magic")
    _expect(r, VERSION, "its version")
    count = u32.read(r)
    words = np.frombuffer(r.raw(4 * count), "<i4")
    if count < 4 or words[0] != -1 or words[1] != 1:
        raise unknown("a list of tokens in another form")
    if words[2] != count - 4 or words[-1] != 0:
        raise unknown("media among its tokens")
    return words[3:-1]


def _read_cache(r: Reader) -> SlotCache:
    streams = _streams.read(r)
    found: Optional[SlotCache] = None
    for stream in range(streams):
        count = u32.read(r)
        if count == 0:
            continue
        if found is not None:
            raise unknown("cells in two streams")
        found = SlotCache(streams, stream, np.frombuffer(r.raw(CELL.itemsize * count), CELL))
        if (found.cells["sequences"] != 1).any():
            raise unknown("a cell of several sequences")
        _read_layers(r, found)
    return found or SlotCache(streams, 0, np.empty(0, CELL))


def _read_layers(r: Reader, cache: SlotCache) -> None:
    _expect(r, 0, "V by columns (flash attention is off)")
    layers = _layers.read(r)
    _expect(r, 0, "a rotation of K")
    _expect(r, 0, "a rotation of V")
    for side in (cache.keys, cache.values):
        for _ in range(layers):
            kind, row_bytes = _i32_bits.read(r), _row_bytes.read(r)
            data = np.frombuffer(r.raw(row_bytes * len(cache.cells)), np.uint8)
            side.append(LayerRows(kind, data.reshape(len(cache.cells), row_bytes)))


def _read_checkpoints(r: Reader) -> List[Checkpoint]:
    _expect(r, CHECKPOINTS_MAGIC, "the checkpoints' magic")
    _expect(r, CHECKPOINTS_VERSION, "the checkpoints' version")
    count = number("I", MAX_CHECKPOINTS).read(r)
    found: List[Checkpoint] = []
    for _ in range(count):
        head = np.frombuffer(r.raw(CHECKPOINT.itemsize), CHECKPOINT)[0]
        blobs = [r.raw(u64.read(r)) for _ in range(3)]
        found.append(Checkpoint(int(head["tokens"]), int(head["first"]), int(head["last"]),
                                _checkpoint_cache(blobs[0]), [[blob] for blob in blobs]))
    return found


def _checkpoint_cache(blob: Buffer) -> Optional[SlotCache]:
    """The windowed layers in a checkpoint; None: it holds something else."""
    r = Reader(blob)
    try:
        if u32.read(r) != STATE_MAGIC or u32.read(r) != 0:
            return None
        cache = _read_cache(r)
        r.end()
        return cache
    except CacheError:
        return None


# ---- writing


def encode(file: SlotFile) -> List[Buffer]:
    """The file's bytes in order, as buffers to be written one after the other."""
    count = len(file.tokens)
    w = Writer()
    for value in (MAGIC, VERSION, count + 4):
        u32.write(w, value)
    words = np.concatenate([np.array([-1, 1, count], "<i4"), file.tokens, np.zeros(1, "<i4")])
    buffers: List[Buffer] = [w, words.astype("<i4", copy=False).tobytes()]
    for cache in file.caches:
        _write_cache(buffers, cache)
    if file.checkpoints is not None:
        _write_checkpoints(buffers, file.checkpoints)
    return buffers


def checkpoint_of(cache: SlotCache, claimed: int) -> Checkpoint:
    """A checkpoint that holds what a windowed cache, in order of its positions, holds now. A server
    writes as the first position that of its ring, which has more rows than the checkpoint: so many
    `claimed` ones."""
    blob: List[Buffer] = [_numbers(STATE_MAGIC, 0)]
    _write_cache(blob, cache)
    first, last = int(cache.positions[0]), int(cache.positions[-1])
    return Checkpoint(last + 1, max(0, first - claimed), last, cache, [blob, [], []])


def _numbers(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


def _write_cache(buffers: List[Buffer], cache: SlotCache) -> None:
    counts = [0] * cache.streams
    counts[cache.stream] = len(cache.cells)
    buffers.append(_numbers(cache.streams, *counts[:cache.stream + 1]))
    if len(cache.cells):
        buffers.append(cache.cells.tobytes())
        buffers.append(_numbers(0, len(cache.keys), 0, 0))
        for layer in cache.keys + cache.values:
            w = Writer()
            _i32_bits.write(w, layer.type)
            _row_bytes.write(w, layer.rows.shape[1])
            buffers.append(w)
            buffers += [np.ascontiguousarray(rows).reshape(-1).data
                        for rows in (layer.rows, *layer.more)]
    buffers.append(_numbers(*counts[cache.stream + 1:]))


def _write_checkpoints(buffers: List[Buffer], checkpoints: List[Checkpoint]) -> None:
    buffers.append(_numbers(CHECKPOINTS_MAGIC, CHECKPOINTS_VERSION, len(checkpoints)))
    for one in checkpoints:
        w = Writer(np.array([(one.tokens, one.first, one.last)], CHECKPOINT).tobytes())
        for blob in one.blobs:
            u64.write(w, sum(len(part) for part in blob))
            buffers += [w, *blob]
            w = Writer()
