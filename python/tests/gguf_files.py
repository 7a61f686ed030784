"""GGUF files written here by hand: a header of some metadata, and one tensor."""
from __future__ import annotations

import pathlib
import struct
from typing import Dict, Union


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
            weights: bytes = bytes(64)) -> str:
    path = folder / "model.gguf"
    metadata: Dict[str, Union[str, int]] = {
        "general.architecture": "tiny", "general.name": "Tiny",
        "tiny.attention.head_count_kv": heads}
    if window:
        metadata["tiny.attention.sliding_window"] = window
    path.write_bytes(gguf(metadata, weights))
    return str(path)
