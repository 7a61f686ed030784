"""Slot files by hand: every byte is read and written; what is damaged or unknown is an error."""
from __future__ import annotations

import random
import struct
from typing import Dict

import numpy as np
import pytest

from cachesvc.errors import CacheError, Code
from cachesvc.llama_slot import encode, parse

import slot_files


FILES = [slot_files.plain(), slot_files.windowed()]


def written(data: bytes) -> bytes:
    return b"".join(bytes(part) for part in encode(parse(data)))


def test_a_plain_file_is_read_as_it_lies() -> None:
    file = parse(slot_files.plain())
    assert file.tokens.tolist() == list(range(7)) and file.checkpoints is None
    (only,) = file.caches
    assert (only.streams, only.stream, only.positions.tolist()) == (3, 1, list(range(7)))
    assert [layer.type for layer in only.keys + only.values] == [slot_files.F16] * 4
    assert only.keys[0].rows[2].tolist() == [14, 15, 16, 17, 18, 19, 20, 21]
    assert only.values[0].rows[0].tolist() == [62, 63, 0, 1, 2, 3, 4, 5]


def test_a_windowed_file_has_rings_and_checkpoints() -> None:
    file = parse(slot_files.windowed())
    assert [len(c.keys) for c in file.caches] == [2, 3]
    assert file.caches[1].positions.tolist() == [8, 9, 6, 7]
    assert file.checkpoints is not None
    first, other = file.checkpoints
    assert (first.tokens, first.first, first.last) == (6, 2, 5)
    assert first.cache is not None and first.cache.positions.tolist() == [2, 3, 4, 5]
    assert other.cache is None and b"".join(other.blobs[0]) == b"of another kind"


def test_an_empty_slot_has_no_rows() -> None:
    data = slot_files.slot_file([], [slot_files.cache([], 2, 8, streams=2)])
    assert written(data) == data and not parse(data).caches[0].keys


@pytest.mark.parametrize("data", FILES, ids=["plain", "windowed"])
def test_every_byte_is_written_again(data: bytes) -> None:
    assert written(data) == data


@pytest.mark.parametrize("data", FILES, ids=["plain", "windowed"])
def test_a_cut_file_is_an_error(data: bytes) -> None:
    ends = len(slot_files.slot_file(range(50, 60), [slot_files.cache(range(10), 2, 16)]))
    whole = (ends, ends + len(slot_files.cache([8, 9, 6, 7], 3, 16)))  # files of fewer parts
    for end in range(len(data)):
        if data == slot_files.plain() or end not in whole:
            with pytest.raises(CacheError):
                parse(data[:end])
    with pytest.raises(CacheError):
        parse(data + b"\0")


@pytest.mark.parametrize("data", FILES, ids=["plain", "windowed"])
def test_a_changed_file_is_an_error_or_another_file(data: bytes) -> None:
    """Never another exception, and nothing is dropped silently: what is read is written again."""
    chance, read = random.Random(7), 0
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            changed[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, changed[at] ^ 1])
        try:
            again = written(bytes(changed))
        except CacheError:
            continue
        read += 1
        assert again == changed
    assert read > 50  # rows and tokens may be any bytes


def at(given: bytes, skip: int, value: int) -> bytes:
    """The plain file with a u32 so many bytes behind the first place of `given`."""
    data = slot_files.plain()
    where = data.index(given) + skip
    return data[:where] + struct.pack("<I", value) + data[where + 4:]


SHAPE = struct.pack("<4I", 0, 2, 0, 0)  # V by rows, two layers, no rotations
TWO_STREAMS = struct.pack("<I", 2) + 2 * slot_files.cache([0], 1, 8)[4:]
UNKNOWN: Dict[str, bytes] = {
    "version": at(struct.pack("<I", 4), 0, 5),
    "media": at(struct.pack("<3I", 0, 3, 0), 0, 1),
    "V by columns": at(SHAPE, 0, 1),
    "rotation of K": at(SHAPE, 8, 1),
    "rotation of V": at(SHAPE, 12, 1),
    "several sequences": at(struct.pack("<3I", 1, 1, 1), 0, 2),
    "two streams": slot_files.slot_file([1], [TWO_STREAMS]),
    "no cache": slot_files.slot_file([1], []),
}


@pytest.mark.parametrize("name, data", UNKNOWN.items(), ids=UNKNOWN.keys())
def test_unknown_content_is_refused_by_name(name: str, data: bytes) -> None:
    with pytest.raises(CacheError) as refused:
        parse(data)
    assert refused.value.code == Code.UNSUPPORTED and name in str(refused.value)


def test_lengths_are_compared_before_anything_is_made_of_them() -> None:
    huge = np.array([2 ** 32 - 1], "<u4").tobytes()
    plain = slot_files.plain()
    for where in (8, plain.index(struct.pack("<3I", 3, 0, 7)) + 8):
        with pytest.raises(CacheError):
            parse(plain[:where] + huge + plain[where + 4:])
