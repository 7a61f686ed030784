"""The bytes: golden frames and ids, and that no length is believed."""
from __future__ import annotations

import re
import struct
from typing import Dict, Tuple
from typing import Type as Class

import numpy as np
import pytest

from cachesvc import frames, intent_messages, messages, own_memory, placed, pools, why_messages
from cachesvc.errors import CacheError, Code
from cachesvc.frames import Type
from cachesvc.ids import object_id
from cachesvc.models import Profile, TransformProfile, full, latent, raw_profile, window
from cachesvc.objects import Form, ObjectHeader, split
from cachesvc.store import sent
from cachesvc.models import Dtype
from cachesvc.wire import Reader, Record, as_tokens, crc32c

from daemon import ROOT
from given import plain
from proxy import with_header

BODIES: Dict[Type, Class[Record]] = {
    Type.HELLO: frames.Hello, Type.HELLO_OK: frames.HelloOk, Type.ERROR: messages.Error,
    Type.OPEN: messages.Open, Type.OPEN_OK: messages.OpenOk,
    Type.LOOKUP: messages.Question, Type.LOOKUP_OK: messages.LookupOk,
    Type.PREFETCH: intent_messages.Prefetch, Type.PREFETCH_OK: messages.LookupOk,
    Type.RESERVE: messages.Reserve, Type.RESERVE_OK: messages.ReserveOk,
    Type.PUT: messages.Put, Type.PUT_OK: messages.Empty,
    Type.COMMIT: messages.Commit, Type.COMMIT_OK: messages.CommitOk,
    Type.ABORT: messages.Abort, Type.ABORT_OK: messages.Empty,
    Type.FETCH: messages.Fetch, Type.FETCH_HEADER: messages.FetchHeader,
    Type.FETCH_OBJECT: messages.FetchObject, Type.FETCH_DONE: messages.FetchDone,
    Type.ERASE: messages.Erase, Type.ERASE_OK: messages.EraseOk,
    Type.ERASE_ENTRY: messages.Question, Type.ERASE_ENTRY_OK: messages.EraseOk,
    Type.HOLD: intent_messages.Hold, Type.HOLD_OK: intent_messages.HoldOk,
    Type.RENEW: intent_messages.Renew, Type.RENEW_OK: intent_messages.RenewOk,
    Type.RELEASE: intent_messages.Release, Type.RELEASE_OK: messages.Empty,
    Type.CANCEL: intent_messages.Cancel,
    Type.DEMOTE: intent_messages.Demote, Type.DEMOTE_OK: intent_messages.DemoteOk,
    Type.RETAIN: intent_messages.Retain, Type.RETAIN_OK: intent_messages.RetainOk,
    Type.EXPIRE: intent_messages.Expire, Type.EXPIRE_OK: intent_messages.ExpireOk,
    Type.WHY: why_messages.Why, Type.WHY_OK: why_messages.WhyOk,
    Type.STATS: messages.Stats, Type.STATS_OK: messages.StatsOk,
    Type.FETCH_MAPPED: messages.Fetch, Type.FETCH_MAPPED_OK: pools.FetchMappedOk,
    Type.SEGMENT: pools.Segment, Type.SEGMENT_REVOKED: pools.SegmentRevoked,
    Type.SEGMENT_UNMAPPED: pools.SegmentUnmapped, Type.LEASES_ENDED: pools.LeasesEnded,
    Type.MEMORY: own_memory.Offer, Type.MEMORY_OK: own_memory.OfferOk,
    Type.MEMORY_ENDED: own_memory.Ended,
    Type.FETCH_INTO: placed.FetchInto, Type.FETCH_PLACED: placed.FetchPlaced,
    Type.PUT_FROM: own_memory.PutFrom, Type.PUT_FROM_OK: messages.Empty,
}
GOLDEN = {path.stem: path.read_bytes() for path in (ROOT / "tests/golden/proto").glob("*.bin")}


def examples() -> Dict[str, bytes]:
    """Frames that PROTOCOL.md shows in hex, by name."""
    text = (ROOT / "proto/PROTOCOL.md").read_text(encoding="utf-8")
    found = re.findall(r"<!-- hex (\w+) -->\n```\n(.*?)```", text, re.S)
    return {name: bytes.fromhex("".join(line.split("|")[0] for line in lines.splitlines()))
            for name, lines in found}


EXAMPLES = examples()
FRAMES = {**GOLDEN, **{f"{name} example": data for name, data in EXAMPLES.items()}}


def test_every_frame_type_has_a_body_and_golden_bytes() -> None:
    assert set(BODIES) == set(Type)
    assert set(GOLDEN) == {kind.name.lower() for kind in Type}
    assert len(EXAMPLES) >= 5


def read(data: bytes) -> Tuple[frames.Header, Record]:
    header = frames.decode_header(data[:frames.HEADER_BYTES], True)
    r = Reader(data[frames.HEADER_BYTES:])
    return header, BODIES[header.type].read(r)


@pytest.mark.parametrize("name,data", sorted(FRAMES.items()))
def test_frames_are_read_and_written_to_the_same_bytes(name: str, data: bytes) -> None:
    header = frames.decode_header(data[:frames.HEADER_BYTES], True)
    assert header.type.name.lower() == name.split()[0]
    r = Reader(data[frames.HEADER_BYTES:])
    message = BODIES[header.type].read(r)
    body: bytes
    if isinstance(message, (messages.Put, messages.FetchObject)):
        messages.skip_to_payload(r)
        payload = bytes(r.raw(r.left()))
        split(0, message.header, Reader(payload))
        body = bytes(messages.before_payload(message)) + payload
    else:
        body = message.encode()
    r.end()
    assert frames.encode_header(header.type, header.request_id, len(body)) + body == data


def test_examples_say_what_their_words_say() -> None:
    assert read(EXAMPLES["hello"])[1] == frames.Hello(
        2, 2, 0, "tenant", "engine 1.0", b"a secret of 24 bytes ...")
    assert read(EXAMPLES["hello_ok"])[1] == frames.HelloOk(
        2, 0, bytes(range(0xB0, 0xC0)), 16, 1 << 20, "tenant", "cachesvc 0.1.0")
    lookup = read(EXAMPLES["lookup"])[1]
    assert isinstance(lookup, messages.Question)
    assert (lookup.timeout_ms, lookup.handle) == (100, 7)
    assert lookup.profile_id == bytes(range(4, 36))
    assert lookup.query.tokens.tolist() == [1, 2, 3, 70000]
    assert lookup.query.extras == [(2, b"\xde\xad")]
    assert read(EXAMPLES["lookup_ok"])[1] == messages.LookupOk(
        3, 4, messages.Tier.MIXED, messages.Newest.EXACT_TAIL, "a carry is missing")
    header, error = read(EXAMPLES["error"])
    assert header.request_id == 9 and error == messages.Error(Code.BUSY, "no room")


@pytest.mark.parametrize("name,data", sorted(GOLDEN.items()))
def test_every_length_of_a_golden_body_but_its_own_is_refused(name: str, data: bytes) -> None:
    body = data[frames.HEADER_BYTES:]
    record = BODIES[frames.decode_header(data[:32], True).type]
    if record in (messages.Put, messages.FetchObject):
        return  # the payload's length is the header's: test_damage
    for length in range(len(body)):
        with pytest.raises(CacheError):
            record.decode(body[:length])
    with pytest.raises(CacheError):
        record.decode(body + b"\0")


def test_an_id_is_the_one_of_the_example_in_format_md() -> None:
    text = (ROOT / "storage/FORMAT.md").read_text(encoding="utf-8")
    found = re.search(r"The file `d/([0-9a-f]{64})\.tail`", text)
    assert found is not None
    assert object_id("a", b"\x11" * 32, b"\x22" * 32, bytes(32), [], "tail",
                     np.array([7], "<i4")).hex() == found.group(1)


def test_counts_are_compared_with_the_bytes_that_are_there() -> None:
    many = struct.pack("<QI", 1, 1 << 20)  # a reservation, a million needs, no byte of them
    with pytest.raises(CacheError) as error:
        messages.ReserveOk.decode(many)
    assert error.value.code == Code.CORRUPTION
    with pytest.raises(CacheError):
        messages.ReserveOk.decode(struct.pack("<QI", 1, (1 << 20) + 1))


@pytest.mark.parametrize("kind,length", [(Type.PUT_OK, (64 << 10) + 1), (Type.OPEN_OK, 21 << 20),
                                         (Type.FETCH_OBJECT, 1100 << 20)])
def test_a_body_beyond_its_limit_is_refused_by_its_header(kind: Type, length: int) -> None:
    with pytest.raises(CacheError):
        frames.decode_header(frames.encode_header(kind, 1, length), True)
    with pytest.raises(CacheError):  # before hello_ok
        frames.decode_header(frames.encode_header(kind, 1, (8 << 10) + 1), False)


def test_every_bit_of_a_header_flipped_is_noticed() -> None:
    good = frames.encode_header(Type.LOOKUP_OK, 77, 12)
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CacheError):
            frames.decode_header(bad, True)


@pytest.mark.parametrize("at,field", [(0, b"KVC2"), (4, b"\1\0"), (6, b"\x77\0"), (24, b"\1\0")])
def test_a_header_of_another_protocol_is_refused_though_its_checksum_is_right(
        at: int, field: bytes) -> None:
    good = frames.encode_header(Type.LOOKUP_OK, 77, 12)
    assert frames.decode_header(with_header(good, at, good[at:at + len(field)]), True).length == 12
    with pytest.raises(CacheError):
        frames.decode_header(with_header(good, at, field), True)


def test_crc32c_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_tokens_are_i32_or_refused() -> None:
    assert as_tokens([1, -2]).dtype == np.dtype("<i4")
    assert len(as_tokens([])) == 0
    for bad in ([1 << 31], [1.5], [[1]], np.array([1 << 40])):
        with pytest.raises(CacheError):
            as_tokens(bad)


def test_part_groups_are_numbered_by_first_appearance() -> None:
    model = plain()
    plane, near = full(1, 32), window(8, 1, 32)
    model.layers = [[plane], [near, latent(64)], [plane], [near]]
    assert model.groups() == [[(0, 0), (2, 0)], [(1, 0), (3, 0)], [(1, 1)]]


def test_a_profile_has_the_id_of_its_bytes() -> None:
    profile = raw_profile(plain())
    assert type(profile).decode(profile.encode()).id() == profile.id()


def test_rows_go_out_as_they_lie_where_they_can() -> None:
    f16 = np.zeros((4, 2, 8), np.float16)
    dtype, values = sent(f16[1:3], Dtype.F16)
    assert dtype == Dtype.F16 and np.shares_memory(values, f16)
    assert sent(f16, Dtype.BF16)[0] == Dtype.F32
    bf16 = np.full((1, 1, 1), 0x3F80, np.uint16)
    assert sent(bf16, Dtype.BF16)[0] == Dtype.BF16
    dtype, values = sent(bf16, Dtype.F16)
    assert dtype == Dtype.F32 and values[0, 0, 0] == 1.0
    with pytest.raises(CacheError):
        sent(np.zeros((1, 1, 1), np.int32), Dtype.F16)


def test_a_profile_with_transforms_and_a_plane_with_a_stream_keep_every_byte() -> None:
    corpus = ROOT / "tests/fuzz/corpus"
    data = (corpus / "profile/transforms.bin").read_bytes()
    profile = Profile.decode(data)
    assert isinstance(profile, TransformProfile) and profile.k_bits == 16
    assert profile.encode() == data and len(profile.transforms) == 133
    data = (corpus / "object/stream.bin").read_bytes()
    header = ObjectHeader.decode(data)
    run = header.planes[0].runs[0]
    assert (run.form, run.rows, run.bytes, run.skip, run.of) == (Form.STREAM, 2, 21, 1, 5)
    assert header.encode() == data and header.payload_bytes() == 21 + 16 + 3
