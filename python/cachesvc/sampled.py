"""The fingerprint of a model whose weights an engine holds in memory: README.md, "Fingerprints".

All names, types and shapes and pieces of every tensor, so it takes milliseconds and is the same
from whatever file and by whatever path the weights came.
"""
from __future__ import annotations

from typing import Iterable, List, Sequence, Tuple

from .ids import tagged_hash
from .wire import Buffer

PIECES, PIECE_VALUES = 16, 256


def places(values: int) -> List[Tuple[int, int]]:
    """Ranges of values spread evenly over a tensor of so many, from its first to its last."""
    if values <= PIECES * PIECE_VALUES:
        return [(0, values)]
    last = values - PIECE_VALUES
    return [(at, at + PIECE_VALUES) for at in (i * last // (PIECES - 1) for i in range(PIECES))]


def fingerprint(tensors: Iterable[Tuple[str, Iterable[Buffer]]], others: Sequence[str]) -> bytes:
    """tensors: what each is called, its type and shape, and its bytes at `places`, in an order that
    does not depend on the run. others: what else changes a row, the engine's name first."""
    fields: List[Tuple[bytes, Buffer]] = [(b"v", b"\1"), (b"f", b"tensors sampled")]
    for what, pieces in tensors:
        fields.append((b"t", what.encode()))
        fields.extend((b"d", piece) for piece in pieces)
    fields.extend((b"x", other.encode()) for other in others)
    return tagged_hash(fields)
