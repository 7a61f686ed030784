"""Ids: the SHA-256 of tagged fields that names what is stored. FORMAT.md, "Ids"."""
from __future__ import annotations

import hashlib
import struct
from typing import List, Sequence, Tuple

from .wire import NO_ID, Buffer, Tokens

Extras = Sequence[Tuple[int, bytes]]


def tagged_hash(fields: Sequence[Tuple[bytes, Buffer]]) -> bytes:
    """Of each field its tag, its length as u64 and its bytes."""
    digest = hashlib.sha256()
    for tag, data in fields:
        digest.update(tag + struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.digest()


def _packed(extras: Extras) -> bytes:
    return b"".join(struct.pack("<II", at, len(data)) + data for at, data in extras)


def object_id(namespace: str, fingerprint: bytes, profile: bytes, parent: bytes, extras: Extras,
              kind: str, tokens: Tokens) -> bytes:
    """The id of a block, tail or snapshot; a supplement has that of its block or tail."""
    return tagged_hash([(b"v", b"\1"), (b"n", namespace.encode("utf-8", "surrogateescape")),
                  (b"m", fingerprint), (b"p", profile), (b"b", parent), (b"x", _packed(extras)),
                  (b"k", kind.encode()), (b"t", tokens.astype("<i4", copy=False).tobytes())])


def extras_in(extras: Extras, first: int, end: int) -> List[Tuple[int, bytes]]:
    return [(at, data) for at, data in extras if first <= at < end]


class Path:
    """The objects of one sequence under one profile: which tokens each has, and its id."""

    def __init__(self, namespace: str, fingerprint: bytes, profile: bytes, block_tokens: int,
                 tokens: Tokens, extras: Extras) -> None:
        self.namespace, self.fingerprint, self.profile = namespace, fingerprint, profile
        self.block_tokens, self.tokens, self.extras = block_tokens, tokens, extras
        self.complete = len(tokens) // block_tokens
        self._blocks: List[bytes] = []

    def _id(self, kind: str, parent: bytes, first: int, end: int) -> bytes:
        return object_id(self.namespace, self.fingerprint, self.profile, parent,
                         extras_in(self.extras, first, end), kind, self.tokens[first:end])

    def block(self, index: int) -> bytes:
        """The id of complete block index; of block -1, the root's parent, zeros."""
        while len(self._blocks) <= index:
            at = len(self._blocks) * self.block_tokens
            parent = self._blocks[-1] if self._blocks else NO_ID
            self._blocks.append(self._id("block", parent, at, at + self.block_tokens))
        return self._blocks[index] if index >= 0 else NO_ID

    def tail(self) -> bytes:
        return self._id("tail", self.block(self.complete - 1),
                        self.complete * self.block_tokens, len(self.tokens))

    def snapshot(self, position: int) -> bytes:
        parent = position // self.block_tokens
        return self._id("snapshot", self.block(parent - 1), parent * self.block_tokens, position)
