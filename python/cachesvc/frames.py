"""Frames: the version of the wire, the table of its frames, their headers and limits, and hello.

All that another version of PROTOCOL.md changes first stands here.
"""
from __future__ import annotations

import dataclasses
import enum
import struct

from .errors import CacheError, Code, Malformed
from .wire import Buffer, Record, blob, crc32c, namespace_text, raw_bytes, text, u16, u32, u64

VERSION = 2
MAGIC = b"KVC1"
HEADER_BYTES = 32
MIB = 1 << 20


class Type(enum.IntEnum):
    HELLO = 0x0001
    OPEN = 0x0002
    LOOKUP = 0x0003
    RESERVE = 0x0004
    PUT = 0x0005
    COMMIT = 0x0006
    ABORT = 0x0007
    FETCH = 0x0008
    PREFETCH = 0x0009
    ERASE = 0x000A
    STATS = 0x000B
    ERASE_ENTRY = 0x000C
    WHY = 0x000D
    HOLD = 0x0010
    RENEW = 0x0011
    RELEASE = 0x0012
    CANCEL = 0x0013
    DEMOTE = 0x0014
    RETAIN = 0x0015
    EXPIRE = 0x0016
    LEASES_ENDED = 0x0040
    SEGMENT_UNMAPPED = 0x0041
    FETCH_MAPPED = 0x0042
    MEMORY = 0x0045
    MEMORY_ENDED = 0x0046
    PUT_FROM = 0x0047
    FETCH_INTO = 0x0048
    HELLO_OK = 0x8001
    OPEN_OK = 0x8002
    LOOKUP_OK = 0x8003
    RESERVE_OK = 0x8004
    PUT_OK = 0x8005
    COMMIT_OK = 0x8006
    ABORT_OK = 0x8007
    FETCH_HEADER = 0x8008
    PREFETCH_OK = 0x8009
    ERASE_OK = 0x800A
    STATS_OK = 0x800B
    ERASE_ENTRY_OK = 0x800C
    WHY_OK = 0x800D
    HOLD_OK = 0x8010
    RENEW_OK = 0x8011
    RELEASE_OK = 0x8012
    DEMOTE_OK = 0x8014
    RETAIN_OK = 0x8015
    EXPIRE_OK = 0x8016
    FETCH_OBJECT = 0x8020
    FETCH_DONE = 0x8021
    FETCH_PLACED = 0x8022
    FETCH_MAPPED_OK = 0x8042
    SEGMENT = 0x8043
    SEGMENT_REVOKED = 0x8044
    MEMORY_OK = 0x8045
    PUT_FROM_OK = 0x8047
    ERROR = 0x80FF


# Longest bodies; put's is in hello_ok. Types that are not here: OTHER_BYTES.
HANDSHAKE_BYTES = 8 << 10
OTHER_BYTES = 64 << 10
LONGEST = {
    Type.LOOKUP: 24 * MIB, Type.PREFETCH: 24 * MIB, Type.HOLD: 24 * MIB, Type.DEMOTE: 24 * MIB,
    Type.RETAIN: 24 * MIB, Type.EXPIRE: 24 * MIB, Type.WHY: 24 * MIB, Type.WHY_OK: 24 * MIB,
    Type.ERASE: 24 * MIB, Type.ERASE_ENTRY: 24 * MIB, Type.RESERVE: 24 * MIB,
    Type.PUT_FROM: 24 * MIB, Type.FETCH_INTO: 24 * MIB, Type.FETCH_PLACED: 24 * MIB,
    Type.FETCH: 24 * MIB, Type.FETCH_MAPPED: 24 * MIB, Type.FETCH_MAPPED_OK: 24 * MIB,
    Type.RESERVE_OK: 24 * MIB, Type.COMMIT_OK: 24 * MIB, Type.STATS_OK: 24 * MIB,
    Type.OPEN: 20 * MIB, Type.OPEN_OK: 20 * MIB,
    Type.FETCH_OBJECT: 1024 * MIB + 17 * MIB,
}


@dataclasses.dataclass
class Hello(Record):
    min_version: int
    max_version: int
    features: int
    namespace: str
    program: str
    token: bytes = dataclasses.field(default=b"", repr=False)  # a secret
    CODECS = (u16, u16, u32, namespace_text, text(128), blob(256))


@dataclasses.dataclass
class HelloOk(Record):
    """boot: of this start of the service; after another one all but stored entries is gone."""

    version: int
    features: int
    boot: bytes
    max_in_flight: int
    max_put_bytes: int
    namespace: str
    program: str
    CODECS = (u16, u32, raw_bytes(16), u32, u64, namespace_text, text(128))


@dataclasses.dataclass(frozen=True)
class Header:
    type: Type
    request_id: int
    length: int


_FIELDS = struct.Struct("<4sHHQQI")


def encode_header(kind: Type, request_id: int, length: int) -> bytes:
    fields = _FIELDS.pack(MAGIC, VERSION, kind, request_id, length, 0)
    return fields + struct.pack("<I", crc32c(fields))


def decode_header(data: Buffer, welcomed: bool) -> Header:
    """A header whose body is no longer than its type's. welcomed: it comes after hello_ok."""
    magic, version, kind, request_id, length, flags = _FIELDS.unpack_from(data)
    if magic != MAGIC:
        raise Malformed("a frame without the magic of KVC1")
    if struct.unpack_from("<I", data, _FIELDS.size)[0] != crc32c(bytes(data)[:_FIELDS.size]):
        raise Malformed("a frame's header whose checksum is wrong")
    if version != VERSION or flags:
        raise CacheError(Code.UNSUPPORTED, f"a frame of version {version} and flags {flags}")
    try:
        known = Type(kind)
    except ValueError:
        raise Malformed(f"a frame of type {kind:#06x}") from None
    most = LONGEST.get(known, OTHER_BYTES) if welcomed else HANDSHAKE_BYTES
    if length > most:
        raise Malformed(f"a {known.name.lower()} of {length} bytes, at most {most}")
    return Header(known, request_id, length)
