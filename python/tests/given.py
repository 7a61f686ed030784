"""What tests store: small models, and rows that tell their layer, side, position and token.

A value is ((7 layer + 3 side + 5 position + token + 11 head + 13 channel) mod 251 - 125) / 64,
exact in f32, f16 and bf16.
"""
from __future__ import annotations

import hashlib
import struct
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from cachesvc.models import (Dtype, Model, Profile, Side, TransformCoding, TransformProfile, chunk,
                             full, raw_profile, state, window)

Array = npt.NDArray[Any]
HEADS, DIM = 2, 32
STATE_VALUES = 8


def plain(tag: int = 1, layers: int = 2) -> Model:
    return Model("plain", bytes([tag]) * 32, [[full(HEADS, DIM)] for _ in range(layers)])


def windowed() -> Model:
    return Model("windowed", b"w" * 32, [[window(100, HEADS, DIM)], [full(HEADS, DIM)]])


def sinks() -> Model:
    return Model("sinks", b"k" * 32, [[window(50, HEADS, DIM, keep=4)], [full(HEADS, DIM)]])


def chunked() -> Model:
    return Model("chunked", b"c" * 32, [[chunk(96, HEADS, DIM)], [full(HEADS, DIM)]])


def hybrid() -> Model:
    return Model("hybrid", b"h" * 32, [[state("conv"), state("recurrent")], [full(HEADS, DIM)]])


def values(tokens: Array, layer: int, side: Side, first: int, end: int, heads: int,
           dim: int) -> Array:
    """Rows of positions [first, end) as f32."""
    at = np.arange(first, end)
    head, channel = np.arange(heads), np.arange(dim)
    mixed = ((layer * 7 + int(side) * 3 + at * 5 + tokens[first:end])[:, None, None]
             + (head * 11)[:, None] + channel * 13)
    rows: Array = ((mixed % 251 - 125) / 64).astype(np.float32)
    return rows


def state_bytes(layer: int, part: int, position: int) -> bytes:
    i = np.arange(STATE_VALUES)
    return ((layer * 17 + part * 5 + position * 3 + i) % 251).astype("<f4").tobytes()


class Computed:
    """A RowSource that has every row of the formula, as an engine that computed all of them."""

    def __init__(self, model: Model, tokens: Any, dtype: Dtype = Dtype.F16) -> None:
        self.model, self.tokens, self.dtype = model, np.asarray(tokens, np.int64), dtype

    def rows(self, layer: int, part: int, side: Side, first: int, end: int) -> Array:
        fields = self.model.part(layer, part)
        given = values(self.tokens, layer, side, first, end, fields.heads, fields.dim(side))
        if self.dtype == Dtype.BF16:
            return (given.view("<u4") >> 16).astype("<u2")
        return given.astype(self.dtype.numpy)

    def state(self, layer: int, part: int, position: int) -> bytes:
        return state_bytes(layer, part, position)


def transformed(model: Model, step: float = 1 / 16, low_bits: int = 1,
                halves: Optional[bool] = None) -> TransformProfile:
    """A profile that codes all rows by integers of step: those below 31 << low_bits in some
    6 + low_bits bits. Rows of all parts have one shape. halves: pairs of a rotation to undo."""
    def numbers(form: str, *given: Any) -> bytes:
        return struct.pack(f"<I{len(given)}{form}", len(given), *given)

    heads, dim = model.part(0, 0).heads, model.part(0, 0).k_dim
    width = heads * dim
    basis = [127 if c % dim == j else 0 for c in range(width) for j in range(dim)]
    table = struct.pack("<Ib", 1, -31) + numbers("H", *[60] * 63)
    turned = struct.pack("<I", 0) if halves is None else (
        struct.pack("<IB", 1, halves) + numbers("f", 1.0))
    transform = (struct.pack("<IHI", 1, 65535 if halves is None else 0, dim)
                 + numbers("f", *[0.0] * width) + numbers("f", *[step / 127] * width)
                 + numbers("b", *basis) + numbers("B", *[0] * width)
                 + numbers("B", *[low_bits] * width))
    raw, none = raw_profile(model), np.empty(0, np.float32)
    return TransformProfile(2, raw.block_tokens, raw.prefill, raw.raw_dtype, 0, 1, 4, 16, 16,
                            [[TransformCoding(16, 16, none, none)] for _ in model.layers],
                            table + turned + transform)


def plan_file(profile: Profile, fingerprint: bytes) -> bytes:
    """As `cachectl tune` writes it, for a model."""
    body = profile.encode()
    return b"KCL1" + fingerprint + bytes(32) + hashlib.sha256(body).digest() + body
