"""Layouts: rows of slot files as entries of the cache, and back as slot files, without a server."""
from __future__ import annotations

import hashlib
import pathlib
import re
import struct
from typing import List, Optional, Sequence, Tuple

import numpy as np
import pytest

from cachesvc import Cache, Hit, Kind, Side
from cachesvc.checks import pattern
from cachesvc.errors import CacheError
from cachesvc.llama_check import TOKENS
from cachesvc.llama_gguf import Gguf
from cachesvc.llama_plan import plan_for
from cachesvc.llama_rows import Layout, SlotRows
from cachesvc.llama_slot import parse
from cachesvc.models import Model, Profile, full

import gguf_files
import slot_files
from daemon import ROOT, Daemon
from given import plan_file, transformed
from slot_files import F16, Q8_0, cache, checkpoint, checkpoints, slot_file

WINDOW = 16


def windowed_layout(folder: pathlib.Path) -> Layout:
    data = slot_file(range(8), [cache(range(8), 2, 16), cache(range(8), 3, 16)])
    return Layout(data, Gguf(gguf_files.written(folder, WINDOW)), ["llama.cpp"])


def joined(parts: Sequence[object]) -> bytes:
    return b"".join(bytes(part) for part in parts)  # type: ignore[call-overload]


def as_rows(layout: Layout, hit: Hit, tokens: object) -> SlotRows:
    return layout.source(joined(layout.file_for(np.asarray(tokens, "<i4"), hit)))


def check_same(layout: Layout, found: SlotRows, given: Hit) -> None:
    for layer, index, part in layout.model.parts():
        first, end = part.newest_rows(given.tokens)
        for side in part.sides:
            rows = found.rows(layer, index, side, first, end)
            assert rows is not None
            assert np.array_equal(rows, given.rows(layer, index, side))


def test_a_layout_says_what_each_layer_keeps(tmp_path: pathlib.Path) -> None:
    layout = windowed_layout(tmp_path)
    kinds = [parts[0].kind for parts in layout.model.layers]
    assert kinds == [Kind.FULL] * 2 + [Kind.WINDOW] * 3
    part = layout.model.part(4, 0)
    assert (part.window, part.heads, part.k_dim, part.v_dim) == (WINDOW + 1, 2, 4, 4)
    assert not layout.opaque and layout.windowed
    assert [layout.proof(n) for n in (5, WINDOW + 2)] == [4, WINDOW + 1]


def test_rows_go_out_and_come_back(tmp_path: pathlib.Path) -> None:
    layout = windowed_layout(tmp_path)
    given = pattern(layout.model, len(TOKENS))
    file = parse(joined(layout.file_for(TOKENS, given)))
    assert file.tokens.tolist() == TOKENS.tolist()
    assert file.caches[1].positions.tolist() == list(range(48 - WINDOW, 48))
    check_same(layout, as_rows(layout, given, TOKENS), given)


def test_a_window_comes_with_a_checkpoint(tmp_path: pathlib.Path) -> None:
    """It names two rows more than it has, as a server's own do, or that server does not take it."""
    layout = windowed_layout(tmp_path)
    whole = pattern(layout.model, len(TOKENS))
    short = Hit(10, model=layout.model, _pieces={
        (layer, 0, side): [type(rows[0])(0, 10, rows[0].form, rows[0].values[:10])]
        for (layer, _, side), rows in whole._pieces.items()})
    for given, last, first in ((short, 9, 0), (whole, 47, 48 - WINDOW)):
        (kept,) = parse(joined(layout.file_for(TOKENS, given))).checkpoints or []
        assert (kept.tokens, kept.first, kept.last) == (last + 1, max(0, first - 2), last)
        assert kept.cache is not None
        assert kept.cache.positions.tolist() == list(range(first, last + 1))


def test_through_the_daemon(daemon: Daemon, namespace: str, tmp_path: pathlib.Path) -> None:
    layout = windowed_layout(tmp_path)
    given = pattern(layout.model, len(TOKENS))
    rows = as_rows(layout, given, TOKENS)
    with Cache(daemon.socket, namespace, strict=True) as cache_:
        assert cache_.store_rows(layout.model, rows.tokens, rows, profile=layout.profile)
        hit = cache_.fetch_rows(layout.model, [*TOKENS.tolist(), 9], profile=layout.profile)
        assert hit.tokens == len(TOKENS)
        check_same(layout, as_rows(layout, hit, TOKENS), given)


def test_a_ring_and_its_checkpoints_are_one_run(tmp_path: pathlib.Path) -> None:
    layout = windowed_layout(tmp_path)
    early = slot_files.checkpoint_blob(cache(list(range(20)), 3, 16))
    tokens = list(range(30))
    ring = [24, 25, 26, 27, 28, 29, 18, 19, 20, 21, 22, 23]
    data = slot_file(tokens, [cache(tokens, 2, 16), cache(ring, 3, 16),
                              checkpoints([checkpoint(range(20), early)])])
    rows = layout.source(data)
    found = rows.rows(3, 0, Side.V, 10, 30)
    assert found is not None
    # The formula of slot_files.cache: by row of the file, and by number of the side: V of layer 1.
    where: List[int] = [*range(10, 18), *(ring.index(at) for at in range(18, 30))]
    number = 3 + 1
    bytes_ = [[(row * 7 + i + 31 * number) & 0x3F for i in range(16)] for row in where]
    assert found.view(np.uint8).reshape(20, 16).tolist() == bytes_
    assert rows.storable(30) and rows.storable(20) and not rows.storable(31)
    without = slot_file(tokens, [cache(tokens, 2, 16), cache(ring, 3, 16)])
    assert not layout.source(without).storable(30)
    assert layout.source(without).rows(3, 0, Side.V, 10, 30) is None


def test_a_fingerprint_of_the_engines_own_is_that_of_the_document(tmp_path: pathlib.Path) -> None:
    text = (ROOT / "engine/MODELS.md").read_text(encoding="utf-8").split("A file of 200 bytes")[1]
    data = bytes.fromhex("".join(re.findall(r"^[0-9a-f]{4}: ((?:[0-9a-f]{2} ?)+)",
                                            text.split("```")[1], flags=re.M)))
    assert len(data) == 200
    (tmp_path / "model.gguf").write_bytes(data)
    told = re.findall(r"^`([0-9a-f]{64})`", text, flags=re.M)[0]
    assert Gguf(str(tmp_path / "model.gguf")).engine_fingerprint().hex() == told


def planned(folder: pathlib.Path, kind: str, halves: Optional[bool], of: bytes = b"",
            options: Sequence[str] = ()) -> Tuple[Gguf, Profile]:
    """A GGUF of five layers, every second one full, and a plan for it, or for another model."""
    gguf = Gguf(gguf_files.written(folder, WINDOW, kind=kind, full_every=2))
    profile = transformed(Model("", bytes(32), [[full(2, 4)] for _ in range(5)]), halves=halves)
    for layer, parts in enumerate(profile.layers):
        parts[0].key_mean = np.full(8, layer, np.float32)
    (folder / "plan").write_bytes(plan_file(profile, of or gguf.engine_fingerprint()))
    return gguf, plan_for(str(folder / "plan"), gguf, options)


def test_a_plan_has_the_order_of_a_slots_layers(tmp_path: pathlib.Path) -> None:
    data = slot_file(range(8), [cache(range(8), 2, 16), cache(range(8), 3, 16)])
    gguf, plan = planned(tmp_path, "gemma3", True)
    layout = Layout(data, gguf, ["llama.cpp"], None, plan)
    assert [parts[0].key_mean[0] for parts in layout.profile.layers] == [1, 3, 0, 2, 4]
    assert layout.model.fingerprint != Layout(data, gguf, ["llama.cpp"]).model.fingerprint
    with pytest.raises(CacheError, match="a slot has 2 and 2"):
        Layout(slot_file(range(8), [cache(range(8), 2, 16)] * 2), gguf, [], None, plan)
    with pytest.raises(CacheError, match="ggml type 8"):
        Layout(slot_file(range(8), [cache(range(8), 2, 16, kind=Q8_0)]), gguf, [], None, plan)


def test_a_plan_that_does_not_fit_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    planned(tmp_path, "llama", False)
    planned(tmp_path, "tiny", None)
    planned(tmp_path, "llama", None, options=["--rope-freq-base", "1e6"])
    for kind, halves, options, says in (
            ("llama", True, (), "of halves, keys of llama in llama.cpp are turned as neighbours"),
            ("gemma3", False, (), "of neighbours, keys of gemma3"),
            ("tiny", True, (), "which one tiny has in llama.cpp is not known"),
            ("llama", False, ("--rope-freq-base", "1e6"), "--rope-freq-base another")):
        with pytest.raises(CacheError, match=says):
            planned(tmp_path, kind, halves, options=options)
    with pytest.raises(CacheError, match="for the model 6d6d"):
        planned(tmp_path, "llama", None, of=b"m" * 32)


def test_what_is_not_known_is_one_state(tmp_path: pathlib.Path) -> None:
    data = slot_file(range(8), [cache(range(8), 2, 16, kind=Q8_0)])
    layout = Layout(data, Gguf(gguf_files.written(tmp_path)), ["llama.cpp"])
    assert "ggml type 8" in layout.opaque
    rows = layout.source(data)
    assert bytes(rows.state(0, 0, 8) or b"") == data and rows.state(0, 0, 7) is None
    assert rows.storable(8) and not rows.storable(7)


def test_another_layout_than_the_servers_own_is_refused(tmp_path: pathlib.Path) -> None:
    layout = windowed_layout(tmp_path)
    with pytest.raises(CacheError):
        layout.source(slot_file(range(8), [cache(range(8), 2, 16), cache(range(8), 3, 8)]))


def test_fingerprints_differ_where_rows_do(tmp_path: pathlib.Path) -> None:
    data = slot_file(range(8), [cache(range(8), 2, 16, kind=F16)])

    def of(others: List[str], weights: bytes = bytes(64), kind: int = F16) -> bytes:
        gguf = Gguf(gguf_files.written(tmp_path, weights=weights))
        given = slot_file(range(8), [cache(range(8), 2, 16, kind=kind)])
        return Layout(given, gguf, others).model.fingerprint
    plain = of(["llama.cpp"])
    assert of(["llama.cpp"]) == plain and Gguf(gguf_files.written(tmp_path)).name == "Tiny"
    coded = Layout(data, Gguf(gguf_files.written(tmp_path)), ["llama.cpp"], (8, 4))
    others = {of(["llama.cpp", "--rope-freq-base", "1"]), of(["llama.cpp"], b"\1" + bytes(63)),
              of(["llama.cpp"], kind=slot_files.BF16), coded.model.fingerprint}
    assert len(others | {plain}) == 5


def test_a_gguf_that_is_cut_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cut.gguf"
    whole = pathlib.Path(gguf_files.written(tmp_path)).read_bytes()
    for end in range(1, len(whole) - 64 - 31):
        path.write_bytes(whole[:end])
        with pytest.raises(CacheError):
            Gguf(str(path))


def test_a_model_in_several_files_is_all_of_them(tmp_path: pathlib.Path) -> None:
    path = gguf_files.split_in_two(gguf_files.written(tmp_path, weights=bytes(range(64))), tmp_path)
    other = pathlib.Path(path.replace("-00001-", "-00002-"))
    files = [pathlib.Path(path).read_bytes(), other.read_bytes()]
    fields = [(b"v", b"\1"), (b"f", b"gguf sampled"), (b"h", files[0]),
              (b"s", struct.pack("<Q", len(files[0]))), (b"h", files[1][:-64]),
              (b"s", struct.pack("<Q", len(files[1]))), (b"d", files[1][-64:])]
    fields += [(b"d", files[1][at:]) for at in range(len(files[1]) - 64, len(files[1]))]
    hashed = b"".join(tag + struct.pack("<Q", len(data)) + data for tag, data in fields)
    assert Gguf(path).fingerprint() == hashlib.sha256(hashed).digest()
    assert Gguf(path).name == "Tiny"
    other.write_bytes(files[0])
    with pytest.raises(CacheError, match="another part"):
        Gguf(path)
    other.unlink()
    with pytest.raises(OSError):
        Gguf(path)
    for name in ("model.gguf", "model-00002-of-00002.gguf", "model-00001-of-00003.gguf"):
        (tmp_path / name).write_bytes(files[0])
        with pytest.raises(CacheError, match="not the first"):
            Gguf(str(tmp_path / name))
    pathlib.Path(path).write_bytes(files[1])
    with pytest.raises(CacheError, match="not the first"):
        Gguf(path)


def test_the_sampled_fingerprint_is_what_the_document_says(tmp_path: pathlib.Path) -> None:
    weights = bytes(i * 37 % 251 for i in range(1 << 20))
    path = gguf_files.written(tmp_path, weights=weights)
    whole = pathlib.Path(path).read_bytes()
    fields = [(b"v", b"\1"), (b"f", b"gguf sampled"), (b"h", whole[:-1 << 20]),
              (b"s", struct.pack("<Q", len(whole))), (b"d", weights[:4096])]
    fields += [(b"d", weights[at:at + 16384]) for at in range(0, 1 << 20, 4096)]
    fields += [(b"x", b"llama.cpp"), (b"x", b"")]
    hashed = b"".join(tag + struct.pack("<Q", len(data)) + data for tag, data in fields)
    assert Gguf(path).fingerprint(["llama.cpp", ""]) == hashlib.sha256(hashed).digest()
