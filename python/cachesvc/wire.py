"""Fields of frames and files: FORMAT.md's numbers, strings, blobs, arrays and ids as Codecs.

A Codec reads a value from a Reader and writes it to a Writer. Every length is compared with its
limit and with the bytes that are there before anything is made of it. A Record is a dataclass whose
fields stand one after the other, in the order of its CODECS.
"""
from __future__ import annotations

import dataclasses
import enum
import struct
from typing import Any, Callable, ClassVar, Generic, List, Optional, Tuple, Type, TypeVar, Union

import numpy as np
import numpy.typing as npt

from .errors import CacheError, Code, Malformed, invalid

T = TypeVar("T")
R = TypeVar("R", bound="Record")
E = TypeVar("E", bound=enum.IntEnum)
Buffer = Union[bytes, bytearray, memoryview]
Tokens = npt.NDArray[np.int32]

ID_BYTES = 32
NO_ID = bytes(ID_BYTES)


class Reader:
    """Takes fields off bytes, one after the other."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data).cast("B")
        self.at = 0

    def left(self) -> int:
        return len(self._data) - self.at

    def raw(self, count: int) -> memoryview:
        if count > self.left():
            raise Malformed(f"{count} bytes are named where {self.left()} are left")
        self.at += count
        return self._data[self.at - count:self.at]

    def ahead(self, count: int) -> memoryview:
        """The next bytes, which stay; fewer at the end."""
        return self._data[self.at:self.at + count]

    def end(self) -> None:
        if self.left():
            raise Malformed(f"{self.left()} bytes behind the last field")


Writer = bytearray


@dataclasses.dataclass(frozen=True)
class Codec(Generic[T]):
    read: Callable[[Reader], T]
    write: Callable[[Writer, T], None]


def number(form: str, most: Optional[int] = None, least: int = 0) -> Codec[int]:
    packed = struct.Struct("<" + form)
    highest = (1 << 8 * packed.size) - 1 if most is None else most

    def read(r: Reader) -> int:
        value: int = packed.unpack(r.raw(packed.size))[0]
        if not least <= value <= highest:
            raise Malformed(f"{value}, must be {least} to {highest}")
        return value

    def write(w: Writer, value: int) -> None:
        if not least <= value <= highest:
            raise CacheError(Code.INVALID_ARGUMENT, f"{value}, must be {least} to {highest}")
        w += packed.pack(value)
    return Codec(read, write)


u8, u16, u32, u64 = number("B"), number("H"), number("I"), number("Q")


def _read_bool(r: Reader) -> bool:
    return bool(_bit.read(r))


_bit = number("B", 1)
boolean: Codec[bool] = Codec(_read_bool, lambda w, value: _bit.write(w, int(value)))


def choice(kind: Type[E]) -> Codec[E]:
    """A `u8` that is one of an enum's values."""
    def read(r: Reader) -> E:
        value = u8.read(r)
        try:
            return kind(value)
        except ValueError:
            raise Malformed(f"{value} is no {kind.__name__}") from None
    return Codec(read, lambda w, value: u8.write(w, int(value)))


def blob(most: int, least: int = 0) -> Codec[bytes]:
    length = number("I", most, least)

    def write(w: Writer, value: bytes) -> None:
        length.write(w, len(value))
        w += value
    return Codec(lambda r: bytes(r.raw(length.read(r))), write)


# All bytes that are left.
rest: Codec[bytes] = Codec(lambda r: bytes(r.raw(r.left())), lambda w, value: w.extend(value))


def text(most: int, least: int = 0) -> Codec[str]:
    """A string for people or a name: bytes that aren't UTF-8 keep their values."""
    raw = blob(most, least)

    def write(w: Writer, value: str) -> None:
        try:
            raw.write(w, value.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            raise CacheError(Code.INVALID_ARGUMENT, "a text that is no UTF-8") from None
    return Codec(lambda r: raw.read(r).decode("utf-8", "surrogateescape"), write)


def raw_bytes(count: int) -> Codec[bytes]:
    """So many bytes, without a length before them."""
    def write(w: Writer, value: bytes) -> None:
        if len(value) != count:
            raise CacheError(Code.INVALID_ARGUMENT, f"{len(value)} bytes, must be {count}")
        w += value
    return Codec(lambda r: bytes(r.raw(count)), write)


identity = raw_bytes(ID_BYTES)


def sequence(item: Codec[T], most: int, item_bytes: int) -> Codec[List[T]]:
    """A `u32` count and so many items, each of at least item_bytes."""
    count = number("I", most)

    def read(r: Reader) -> List[T]:
        items = count.read(r)
        if items * item_bytes > r.left():
            raise Malformed(f"{items} items are named where {r.left()} bytes are left")
        return [item.read(r) for _ in range(items)]

    def write(w: Writer, value: List[T]) -> None:
        count.write(w, len(value))
        for one in value:
            item.write(w, one)
    return Codec(read, write)


def array(dtype: str, most: int) -> Codec[npt.NDArray[Any]]:
    """A `u32` count and so many numbers."""
    count = number("I", most)
    kind = np.dtype(dtype)

    def read(r: Reader) -> npt.NDArray[Any]:
        return np.frombuffer(r.raw(count.read(r) * kind.itemsize), kind)

    def write(w: Writer, value: npt.NDArray[Any]) -> None:
        count.write(w, len(value))
        w += value.astype(kind, copy=False).tobytes()
    return Codec(read, write)


def blob_of(inner: Codec[T], most: int) -> Codec[T]:
    """A blob that is one encoded value."""
    length = number("I", most)

    def read(r: Reader) -> T:
        own = Reader(r.raw(length.read(r)))
        value = inner.read(own)
        own.end()
        return value

    def write(w: Writer, value: T) -> None:
        encoded = bytearray()
        inner.write(encoded, value)
        length.write(w, len(encoded))
        w += encoded
    return Codec(read, write)


class Record:
    """A dataclass of fields that stand one after the other. An error names the field it is in."""

    CODECS: ClassVar[Tuple[Codec[Any], ...]] = ()

    def write(self, w: Writer) -> None:
        for field, codec in zip(dataclasses.fields(self), self.CODECS):
            try:
                codec.write(w, getattr(self, field.name))
            except CacheError as error:
                error.within(field.name)
                raise

    @classmethod
    def read(cls: Type[R], r: Reader) -> R:
        values: List[Any] = []
        try:
            for codec in cls.CODECS:
                values.append(codec.read(r))
        except CacheError as error:
            error.within(dataclasses.fields(cls)[len(values)].name)
            raise
        return cls(*values)

    @classmethod
    def codec(cls: Type[R]) -> Codec[R]:
        return Codec(cls.read, lambda w, value: value.write(w))

    def encode(self) -> bytes:
        w = bytearray()
        self.write(w)
        return bytes(w)

    @classmethod
    def decode(cls: Type[R], data: Buffer) -> R:
        r = Reader(data)
        value = cls.read(r)
        r.end()
        return value


# Limits of FORMAT.md that more than one message needs.
NAMESPACE_BYTES = 64
SEQUENCE_TOKENS = 4_194_304
OBJECT_TOKENS = 4096
OBJECT_BYTES = 1 << 30
HEADER_BYTES = 16 << 20
namespace_text = text(NAMESPACE_BYTES, 1)


def as_tokens(tokens: Any) -> Tokens:
    """Any sequence of integers as i32, each as it was given."""
    try:
        given = np.asarray(tokens)
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid("tokens", error, "a list of integers") from None
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise invalid("tokens", f"of shape {given.shape} and {given.dtype}", "a list of integers")
    if given.size > SEQUENCE_TOKENS:
        raise CacheError(Code.RESOURCE_EXHAUSTED,
                         f"{given.size} tokens, at most {SEQUENCE_TOKENS} in a sequence")
    if given.size and (given.min() < -(1 << 31) or given.max() >= 1 << 31):
        raise invalid("a token", "beyond 32 bits", "an i32")
    return given.astype("<i4", copy=False)


def _castagnoli() -> List[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _castagnoli()


def crc32c(data: Buffer) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
