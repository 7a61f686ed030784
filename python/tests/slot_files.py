"""Slot files written here by hand, field by field, as llama.cpp lays them out."""
from __future__ import annotations

import struct
from typing import List, Sequence

F16, BF16, Q8_0 = 1, 30, 8


def cache(positions: Sequence[int], layers: int, row_bytes: int, *, streams: int = 1,
          stream: int = 0, kind: int = F16) -> bytes:
    """A cache whose byte i of row r is (r * 7 + i + 31 times the number of the layer's side)."""
    data = struct.pack("<I", streams) + bytes(4 * stream) + struct.pack("<I", len(positions))
    if positions:
        data += b"".join(struct.pack("<iIi", at, 1, stream) for at in positions)
        data += struct.pack("<4I", 0, layers, 0, 0)
        for side in range(2 * layers):
            data += struct.pack("<iQ", kind, row_bytes)
            data += bytes((r * 7 + i + 31 * side) & 0x3F for r in range(len(positions))
                          for i in range(row_bytes))
    return data + bytes(4 * (streams - stream - 1))


def checkpoint(positions: Sequence[int], blob: bytes) -> bytes:
    head = struct.pack("<qii", positions[-1] + 1, positions[0], positions[-1])
    return head + struct.pack("<Q", len(blob)) + blob + bytes(16)


def checkpoint_blob(ring: bytes) -> bytes:
    return struct.pack("<II", 0xAF143CD8, 0) + ring


def checkpoints(items: Sequence[bytes]) -> bytes:
    return struct.pack("<3I", 0x504B4353, 1, len(items)) + b"".join(items)


def slot_file(tokens: Sequence[int], parts: Sequence[bytes]) -> bytes:
    words: List[int] = [-1, 1, len(tokens), *tokens, 0]
    head = struct.pack("<3I", 0x67677371, 4, len(words))
    return head + struct.pack(f"<{len(words)}i", *words) + b"".join(parts)


def windowed() -> bytes:
    """Two caches of 10 tokens, the second one a ring of 4 cells, and two checkpoints."""
    ring = cache([8, 9, 6, 7], 3, 16)
    early = checkpoint_blob(cache([2, 3, 4, 5], 3, 16))
    return slot_file(range(50, 60), [
        cache(range(10), 2, 16), ring,
        checkpoints([checkpoint([2, 5], early), checkpoint([1, 3], b"of another kind")])])


def plain() -> bytes:
    return slot_file(range(7), [cache(range(7), 2, 8, streams=3, stream=1)])
