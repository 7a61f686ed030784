"""GGUF files written here by hand: a header of some metadata, and one tensor; and real ones cut in
two."""
from __future__ import annotations

import pathlib
import struct
from typing import Dict, List, Tuple, Union


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(metadata: Dict[str, Union[str, int]], weights: bytes) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(metadata))
    for key, value in metadata.items():
        head += _text(key)
        head += (struct.pack("<I", 8) + _text(value) if isinstance(value, str)
                 else struct.pack("<II", 4, value))
    head += _text("w") + struct.pack("<IQIQ", 1, len(weights) // 4, 0, 0)
    return head + bytes(-len(head) % 32) + weights


def written(folder: pathlib.Path, window: int = 0, heads: int = 2,
            weights: bytes = bytes(64), kind: str = "tiny", full_every: int = 0) -> str:
    path = folder / "model.gguf"
    metadata: Dict[str, Union[str, int]] = {
        "general.architecture": kind, "general.name": "Tiny",
        f"{kind}.attention.head_count_kv": heads}
    if window:
        metadata[f"{kind}.attention.sliding_window"] = window
    if full_every:
        metadata[f"{kind}.attention.sliding_window_pattern"] = full_every
    path.write_bytes(gguf(metadata, weights))
    return str(path)


SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _behind(data: bytes, at: int, kind: int) -> int:
    """Where a metadata value ends."""
    if kind == 8:
        return at + 8 + int(struct.unpack_from("<Q", data, at)[0])
    if kind != 9:
        return at + SIZES[kind]
    element, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if element != 8:
        return at + SIZES[element] * int(count)
    for _ in range(count):
        at = _behind(data, at, 8)
    return at


def split_in_two(source: str, folder: pathlib.Path) -> str:
    """The first of two files, as llama.cpp's gguf-split makes them, of a real one."""
    data = pathlib.Path(source).read_bytes()
    count, entries = struct.unpack_from("<QQ", data, 8)
    at = 24
    for _ in range(entries):
        at = _behind(data, at, 8)
        at = _behind(data, at + 4, struct.unpack_from("<I", data, at)[0])
    metadata, tensors = data[24:at], []
    for _ in range(count):
        begin = at
        at = _behind(data, at, 8)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4
        tensors.append((struct.unpack_from("<Q", data, at)[0], data[begin:at]))
        at += 8
    base = at + -at % 32
    tensors.sort()
    ends = [offset for offset, _ in tensors[1:]] + [len(data) - base]
    pieces = [(info, data[base + offset:base + end])
              for (offset, info), end in zip(tensors, ends)]
    half = len(pieces) // 2
    paths = [folder / f"model-{number:05}-of-00002.gguf" for number in (1, 2)]
    for number, part in enumerate((pieces[:half], pieces[half:])):
        own = _split_entries(number, len(pieces))
        kept, known = (metadata, entries) if number == 0 else (b"", 0)
        paths[number].write_bytes(_file(kept + own, known + 3, part))
    return str(paths[0])


def _split_entries(number: int, tensors: int) -> bytes:
    return (_text("split.no") + struct.pack("<IH", 2, number)
            + _text("split.count") + struct.pack("<IH", 2, 2)
            + _text("split.tensors.count") + struct.pack("<Ii", 5, tensors))


def _file(metadata: bytes, entries: int, tensors: List[Tuple[bytes, bytes]]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), entries) + metadata
    offset = 0
    for info, data in tensors:
        head += info + struct.pack("<Q", offset)
        offset += len(data)
    return head + bytes(-len(head) % 32) + b"".join(data for _, data in tensors)
