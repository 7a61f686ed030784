"""Models and profiles: what a model's cache is made of, and how its rows are coded.

FORMAT.md, "Model", "Profile" and "What lies where". A Model is layers of parts; parts equal in
every field are one part group. Geometry from a Hugging Face config: geometry.py.
"""
from __future__ import annotations

import dataclasses
import enum
import hashlib
from typing import Any, ClassVar, Dict, List, Optional, Tuple, Type, TypeVar, cast

import numpy as np
import numpy.typing as npt

from .wire import (Codec, Reader, Record, array, boolean, choice, identity, number, rest, sequence,
                   text, u8, u16, u32, u64)

MAX_LAYERS = 1024
MAX_PARTS = 8


class Kind(enum.IntEnum):
    FULL = 1
    WINDOW = 2
    CHUNK = 3
    LATENT = 4
    POOLED = 5
    STATE = 6
    OPAQUE = 7


class Dtype(enum.IntEnum):
    """Of rows. numpy has no bf16: its values travel as uint16."""

    F32 = 1
    F16 = 2
    BF16 = 3

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype({1: "<f4", 2: "<f2", 3: "<u2"}[int(self)])


def packed(values: npt.NDArray[np.float32], dtype: Dtype) -> npt.NDArray[Any]:
    """Rows of a dtype, from f32; of bf16 the upper halves, not rounded."""
    if dtype == Dtype.BF16:
        return (values.view("<u4") >> 16).astype("<u2")
    return values.astype(dtype.numpy)


def widened(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """bf16 rows as f32, others as they are."""
    return (rows.astype("<u4") << 16).view("<f4") if rows.dtype == np.uint16 else rows


class Snapshot(enum.IntEnum):
    """The places where the states of a state or opaque part are kept."""

    CHECKPOINTS = 0
    BLOCK_ENDS = 1


class Side(enum.IntEnum):
    K = 0
    V = 1
    OTHER = 2


@dataclasses.dataclass(frozen=True)
class Part(Record):
    kind: Kind
    dtype: Dtype = Dtype.F16
    overlap: bool = False
    snapshot: Snapshot = Snapshot.CHECKPOINTS
    heads: int = 0
    k_dim: int = 0
    v_dim: int = 0
    window: int = 0
    keep: int = 0
    chunk: int = 0
    rate: int = 0
    label: str = ""
    CODECS = (choice(Kind), choice(Dtype), boolean, choice(Snapshot), number("I", 1024),
              number("I", 65536), number("I", 65536), u32, u32, u32, u32, text(128))

    @property
    def sides(self) -> Tuple[Side, ...]:
        if self.kind in (Kind.STATE, Kind.OPAQUE):
            return ()
        return (Side.K, Side.V) if self.v_dim else (Side.OTHER,)

    def dim(self, side: Side) -> int:
        return self.v_dim if side == Side.V else self.k_dim

    @property
    def is_state(self) -> bool:
        return self.kind in (Kind.STATE, Kind.OPAQUE)

    @property
    def at_checkpoints(self) -> bool:
        return self.is_state and self.snapshot == Snapshot.CHECKPOINTS

    @property
    def in_block(self) -> bool:
        """Its rows lie in the block's or tail's own object."""
        return self.kind in (Kind.FULL, Kind.LATENT, Kind.POOLED)

    def rows_of(self, first: int, end: int) -> Tuple[int, int]:
        """The part's rows of the positions [first, end)."""
        return (first // self.rate, end // self.rate) if self.kind == Kind.POOLED else (first, end)

    def has_carry(self, n: int) -> bool:
        """At position n it needs a carry beside its rows."""
        return self.kind == Kind.POOLED and (n % self.rate > 0 or (self.overlap and n >= self.rate))

    def newest_rows(self, n: int) -> Tuple[int, int]:
        """The last run of rows that going on at position n takes."""
        if self.is_state:
            return 0, 0
        if self.kind == Kind.WINDOW:
            return max(0, n - self.window + 1), n
        if self.kind == Kind.CHUNK:
            return n // self.chunk * self.chunk, n
        return self.rows_of(0, n)

    def sinks(self, n: int) -> Tuple[int, int]:
        """The first rows that it takes besides: [0, keep) of a window, or none."""
        return 0, min(self.keep, n)


def full(heads: int, dim: int, v_dim: Optional[int] = None, dtype: Dtype = Dtype.F16) -> Part:
    return Part(Kind.FULL, dtype, heads=heads, k_dim=dim, v_dim=dim if v_dim is None else v_dim)


def window(size: int, heads: int, dim: int, v_dim: Optional[int] = None,
           dtype: Dtype = Dtype.F16, keep: int = 0) -> Part:
    """size counts the position that sees the window."""
    return Part(Kind.WINDOW, dtype, heads=heads, k_dim=dim, v_dim=dim if v_dim is None else v_dim,
                window=size, keep=keep)


def chunk(size: int, heads: int, dim: int, v_dim: Optional[int] = None,
          dtype: Dtype = Dtype.F16) -> Part:
    return Part(Kind.CHUNK, dtype, heads=heads, k_dim=dim, v_dim=dim if v_dim is None else v_dim,
                chunk=size)


def latent(dim: int, dtype: Dtype = Dtype.F16) -> Part:
    return Part(Kind.LATENT, dtype, heads=1, k_dim=dim)


def state(label: str = "", dtype: Dtype = Dtype.F32) -> Part:
    return Part(Kind.STATE, dtype, label=label)


Layers = List[List[Part]]


@dataclasses.dataclass
class Model(Record):
    name: str
    fingerprint: bytes
    layers: Layers
    CODECS = (text(256), identity, sequence(sequence(Part.codec(), MAX_PARTS, 36), MAX_LAYERS, 4))

    def part(self, layer: int, part: int) -> Part:
        return self.layers[layer][part]

    def parts(self) -> List[Tuple[int, int, Part]]:
        """(layer, part, its fields), layer by layer."""
        return [(layer, index, part) for layer, parts in enumerate(self.layers)
                for index, part in enumerate(parts)]

    def groups(self) -> List[List[Tuple[int, int]]]:
        """The (layer, part)s of each part group, numbered by first appearance."""
        members: Dict[Part, List[Tuple[int, int]]] = {}
        for layer, index, part in self.parts():
            members.setdefault(part, []).append((layer, index))
        return list(members.values())

    def stored_dtype(self, part: Part, raw: Dtype) -> Dtype:
        """The dtype of a part's exact rows under a profile whose raw dtype is raw."""
        plain = part.kind in (Kind.FULL, Kind.WINDOW, Kind.CHUNK) and part.v_dim > 0
        return raw if plain else part.dtype


Floats = npt.NDArray[np.float32]
_bits = u8


@dataclasses.dataclass
class PartCoding(Record):
    """Bits in force of one part (0: raw), and its keys' mean and gain, (heads, k_dim) or none."""

    k_bits: int
    v_bits: int
    key_mean: Floats
    key_gain: Floats
    CODECS: ClassVar[Tuple[Codec[Any], ...]] = (
        _bits, _bits, array("<f4", 1 << 22), array("<f4", 1 << 22))


@dataclasses.dataclass
class TransformCoding(PartCoding):
    """Of a profile of version 2: where bits are 16, the number of the side's transform."""

    k_transform: int = 0
    v_transform: int = 0
    CODECS = PartCoding.CODECS + (u16, u16)


class Prefill(enum.IntEnum):
    EXACT = 0
    CODED = 1


P = TypeVar("P", bound="Profile")


@dataclasses.dataclass
class Profile(Record):
    codec_version: int
    block_tokens: int
    prefill: Prefill
    raw_dtype: Dtype
    rotation_seed: int
    codebook: int
    exact_tokens: int
    k_bits: int
    v_bits: int
    layers: List[List[PartCoding]]
    CODECS: ClassVar[Tuple[Codec[Any], ...]] = (
        u16, number("I", 4096, 1), choice(Prefill), choice(Dtype), u64, u16, u32, _bits, _bits,
        sequence(sequence(PartCoding.codec(), MAX_PARTS, 10), MAX_LAYERS, 4))

    @classmethod
    def read(cls: Type[P], r: Reader) -> P:
        version = int.from_bytes(r.ahead(2), "little")
        kind: Any = TransformProfile if version == TransformProfile.VERSION else Profile
        return cast(P, super(Profile, kind).read(r))

    def id(self) -> bytes:
        return hashlib.sha256(self.encode()).digest()


@dataclasses.dataclass
class TransformProfile(Profile):
    """A profile of version 2. transforms: its set, encoded, which nothing here looks into."""

    transforms: bytes
    VERSION: ClassVar[int] = 2
    CODECS = Profile.CODECS[:-1] + (
        sequence(sequence(TransformCoding.codec(), MAX_PARTS, 14), MAX_LAYERS, 4), rest)


def raw_profile(model: Model, raw_dtype: Dtype = Dtype.F16, block_tokens: int = 256) -> Profile:
    """A profile that codes nothing: all rows are stored in raw_dtype as they are given."""
    none = np.empty(0, np.float32)
    return Profile(1, block_tokens, Prefill.EXACT, raw_dtype, 0, 1, 4, 0, 0,
                   [[PartCoding(0, 0, none, none) for _ in parts] for parts in model.layers])


def profile_of(model: Model, raw_dtype: Dtype, bits: Optional[Tuple[int, int]] = None) -> Profile:
    """As raw_profile; bits: of K and V (8, 4, 3 or 2), which code rows of both."""
    profile = raw_profile(model, raw_dtype)
    if bits:
        profile.k_bits, profile.v_bits = bits
        for layer, index, part in model.parts():
            if part.v_dim:
                coding = profile.layers[layer][index]
                coding.k_bits, coding.v_bits = bits
    return profile
