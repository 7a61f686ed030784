"""GGUF files of a model: what the adapter must know of it, and its fingerprint, in under a second.

The fingerprint is engine/MODELS.md's "sampled" recipe: the whole header (metadata and tensor
table), the file's size, bytes of every tensor and of places spread evenly over the data, of each
file if there are several, and in `x` fields what else changes a row. That of this project's own
engine, whose profiles `cachectl tune` makes, is the other recipe there, which reads all weights.
Lengths in a file are compared with its end.

Nothing remembers a fingerprint by a file's inode, size and time: it is made once a process, by the
thread that attaches while requests pass, in 30 ms for SmolLM2-135M (93 MiB) and 75 ms for
Gemma-3-270M (241 MiB), 170 ms where the file has to come from the SSD. It reads the header, 4 KiB a
tensor and 4 MiB besides, however large the file is.
"""
from __future__ import annotations

import hashlib
import math
import mmap
import re
import struct
from typing import (Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple)

from .errors import CacheError, Code, Malformed

MAGIC, VERSION = b"GGUF", 3
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
           11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
MAX_DIMENSIONS = 8
KEPT_VALUES = 4096  # of an array; longer ones (vocabularies) are stepped over
PLACES, PLACE_BYTES, TENSOR_BYTES = 256, 16 << 10, 4 << 10
BLOCKS = {0: (1, 4), 1: (1, 2), 3: (32, 20), 6: (32, 22), 8: (32, 34), 12: (256, 144),
          14: (256, 210)}  # values and bytes of each type that this project's engine reads
PART = re.compile(r"-00001-of-(\d{5})\.gguf$")  # the first of several files


class Gguf:
    """metadata: key to a number, a text, or a list of numbers; of several files the first one's.
    Read when it is made."""

    def __init__(self, path: str) -> None:
        first = GgufFile(path)
        self.metadata = first.metadata
        self._files = [first, *_other_parts(first)]

    # ---- its facts

    def get(self, key: str, default: int) -> int:
        return self._files[0].get(key, default)

    def of_kind(self, key: str) -> Optional[int]:
        """A number of the architecture's, such as attention.sliding_window; none: None."""
        return self.get(f"{self.metadata.get('general.architecture')}.{key}", 0) or None

    @property
    def name(self) -> str:
        return str(self.metadata.get("general.name") or self.metadata.get("general.architecture"))

    def fingerprint(self, others: Sequence[str] = ()) -> bytes:
        """others: whatever else changes a row, in words; the engine's kind is among them."""
        digest = hashlib.sha256()

        def field(tag: str, data: bytes) -> None:
            digest.update(tag.encode() + struct.pack("<Q", len(data)) + data)
        field("v", b"\1")
        field("f", b"gguf sampled")
        for file in self._files:
            file.sample(field)
        for other in others:
            field("x", other.encode())
        return digest.digest()


    def engine_fingerprint(self) -> bytes:
        """Of the model in this project's own engine. CacheError: it does not read such a file."""
        if len(self._files) != 1:
            raise CacheError(Code.UNSUPPORTED, "a model in several files, which `cachectl tune` "
                                               "does not read")
        digest = hashlib.sha256()
        for tag, data in [("v", b"\1"), ("f", b"gguf"), *self._files[0].whole_fields()]:
            digest.update(tag.encode() + struct.pack("<Q", len(data)) + data)
        return digest.digest()


def _other_parts(first: "GgufFile") -> Iterator["GgufFile"]:
    """The files behind the first one of a model that is split, named as llama.cpp names them."""
    count = first.get("split.count", 1)
    if count == 1:
        return
    named = PART.search(first.path)
    if first.get("split.no", 0) != 0 or not named or int(named[1]) != count:
        raise CacheError(Code.UNSUPPORTED,
                         f"{first.path} is not the first of its model's {count} files, or has "
                         f"another name than NAME-00001-of-{count:05}.gguf")
    for number in range(2, count + 1):
        path = f"{first.path[:named.start()]}-{number:05}-of-{count:05}.gguf"
        part = GgufFile(path)
        if part.get("split.no", 0) != number - 1 or part.get("split.count", 1) != count:
            raise CacheError(Code.UNSUPPORTED, f"{path} says that it is another part")
        yield part


class GgufFile:
    """One file; read when it is made."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.metadata: Dict[str, Any] = {}
        self._entries: Dict[bytes, Tuple[int, int]] = {}  # key to where it lies, value and all
        self._infos: List[_Tensor] = []
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._at = 4
            if self._data[:4] != MAGIC or self._number("<I") != VERSION:
                raise CacheError(Code.UNSUPPORTED, f"{path} is no GGUF file of version {VERSION}")
            tensors, entries = self._number("<Q"), self._number("<Q")
            for _ in range(entries):
                begin, key = self._at, self._text()
                self.metadata[key] = self._value(self._number("<I"))
                self._entries[key.encode()] = begin, self._at
            self._infos = [self._tensor() for _ in range(tensors)]
        except (struct.error, UnicodeDecodeError) as error:
            raise Malformed(f"{path}: {error}") from None
        alignment = self.get("general.alignment", 32)
        self.first_data = -(-self._at // alignment) * alignment
        self._tensors = [self.first_data + info.offset for info in self._infos]

    def get(self, key: str, default: int) -> int:
        value = self.metadata.get(key, default)
        return value if isinstance(value, int) and value > 0 else default

    def sample(self, field: Callable[[str, bytes], None]) -> None:
        """Gives the fields of a fingerprint that are of this file."""
        field("h", self._data[:self.first_data])
        field("s", struct.pack("<Q", len(self._data)))
        for at in self._tensors:
            field("d", self._data[at:at + TENSOR_BYTES])
        step = max(1, (len(self._data) - self.first_data) // PLACES)
        for at in range(self.first_data, len(self._data), step):
            field("d", self._data[at:at + PLACE_BYTES])

    def whole_fields(self) -> Iterator[Tuple[str, bytes]]:
        """Those of this project's engine, behind its first two."""
        kind = b"general.architecture"
        prefix = str(self.metadata.get(kind.decode(), "")).encode() + b"."
        for key, (begin, end) in sorted(self._entries.items()):
            if key == kind or key.startswith(prefix):
                yield "k", self._data[begin:end]
        for info in sorted(self._infos, key=lambda each: each.name):
            if info.type not in BLOCKS:
                raise CacheError(Code.UNSUPPORTED, f"{self.path}: a tensor of type {info.type}, "
                                                   "which `cachectl tune` does not read")
            values, size = BLOCKS[info.type]
            begin = self.first_data + info.offset
            yield "t", info.bytes
            with memoryview(self._data) as data:
                yield "d", hashlib.sha256(
                    data[begin:begin + info.values // values * size]).digest()

    # ---- reading

    def _number(self, form: str) -> Any:
        value = struct.unpack_from(form, self._data, self._at)[0]
        self._at += struct.calcsize(form)
        return value

    def _bytes(self) -> bytes:
        length = self._number("<Q")
        if length > len(self._data) - self._at:
            raise Malformed(f"{self.path}: a text of {length} bytes")
        self._at += length
        return self._data[self._at - length:self._at]

    def _text(self) -> str:
        return self._bytes().decode()

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._bytes().decode("utf-8", "replace")
        if kind == ARRAY:
            return self._array(self._number("<I"), self._number("<Q"))
        if kind not in NUMBERS:
            raise CacheError(Code.UNSUPPORTED, f"{self.path}: a value of type {kind}")
        return self._number(NUMBERS[kind])

    def _array(self, kind: int, count: int) -> Optional[List[Any]]:
        if kind == STRING:
            self._skip_texts(count)
            return None
        if kind not in NUMBERS:
            raise CacheError(Code.UNSUPPORTED, f"{self.path}: an array of type {kind}")
        if count > KEPT_VALUES:
            self._at += count * struct.calcsize(NUMBERS[kind])
            return None
        return [self._number(NUMBERS[kind]) for _ in range(count)]

    def _skip_texts(self, count: int) -> None:
        """Hundreds of thousands of them: a vocabulary."""
        at, data, length = self._at, self._data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length(data, at)[0]
        self._at = at

    def _tensor(self) -> "_Tensor":
        begin, name = self._at, self._text()
        dimensions = self._number("<I")
        if dimensions > MAX_DIMENSIONS:
            raise Malformed(f"{self.path}: a tensor of {dimensions} dimensions")
        shape = [self._number("<Q") for _ in range(dimensions)]
        kind = self._number("<I")
        return _Tensor(name.encode(), math.prod(shape), kind, self._data[begin:self._at],
                       self._number("<Q"))


class _Tensor(NamedTuple):
    name: bytes
    values: int
    type: int
    bytes: bytes  # name, dimensions and type as they lie in the file
    offset: int
