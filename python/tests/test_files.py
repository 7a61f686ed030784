"""cachesvc-files: an engine's files into the daemon, through cachectl's export and import, and out
of it again, byte for byte."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import List

import numpy as np
import pytest

from cachesvc import files
from cachesvc.llama_slot import parse

import gguf_files
from daemon import PROGRAM, Daemon
from slot_files import cache, checkpoint, checkpoint_blob, checkpoints, slot_file

CACHECTL = os.path.join(os.path.dirname(PROGRAM), "cachectl")
WINDOW = 4


class Place:
    """A daemon's namespace, and a model's file."""

    def __init__(self, daemon: Daemon, namespace: str, model: str) -> None:
        self.daemon, self.namespace, self._model = daemon, namespace, model

    def run(self, *given: str) -> str:
        return files.run([*given, "--model", self._model, "--socket", self.daemon.socket,
                          "--namespace", self.namespace])

    def other(self, namespace: str) -> "Place":
        return Place(self.daemon, namespace, self._model)


def cachectl(*given: str) -> str:
    ran = subprocess.run([CACHECTL, *given], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def windowed() -> bytes:
    """20 tokens: two layers of full attention, three that see 4, each with what a server keeps."""
    ring = cache([16, 17, 18, 19, 15, 14, 13, 12], 3, 16)
    early = checkpoint_blob(cache(range(5, 10), 3, 16))
    return slot_file(range(50, 70), [cache(range(20), 2, 16), ring,
                                     checkpoints([checkpoint(range(5, 10), early)])])


def test_a_slot_file_comes_back_byte_for_byte(daemon: Daemon, namespace: str,
                                              tmp_path: pathlib.Path) -> None:
    """Also from another namespace, into which cachectl brought what it exported."""
    slot = tmp_path / "slot.bin"
    slot.write_bytes(slot_file(range(300), [cache(range(300), 2, 16)]))
    place = Place(daemon, namespace, gguf_files.written(tmp_path))
    assert "300 tokens of Tiny" in place.run("put", str(slot), "--label", "from a slot")
    listed = json.loads(cachectl("ls", "--json", "--socket", daemon.socket, "--namespace",
                                 namespace))
    assert [(e["tokens"], e["label"]) for e in listed] == [(300, "from a slot")]
    out, again = tmp_path / "entry.safetensors", tmp_path / "again.safetensors"
    cachectl("export", "--socket", daemon.socket, "--id", listed[0]["id"], "--out", str(out))
    cachectl("import", "--socket", daemon.socket, "--in", str(out), "--namespace",
             namespace + "-2")
    for number, at in enumerate((place, place.other(namespace + "-2"))):
        back = tmp_path / f"back-{number}"
        at.run("get", str(back), "--like", str(slot))
        assert back.read_bytes() == slot.read_bytes()
    moved = json.loads(cachectl("ls", "--json", "--socket", daemon.socket, "--namespace",
                                namespace + "-2"))
    cachectl("export", "--socket", daemon.socket, "--id", moved[0]["id"], "--out", str(again))
    assert tensors(out) == tensors(again)


def tensors(path: pathlib.Path) -> List[bytes]:
    """The bytes of rows in an exported file, not those of names, which have the namespace."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    found = [data[8 + size + at:8 + size + end] for name, (at, end) in sorted(
        (name, one["data_offsets"]) for name, one in head.items() if name.startswith("object."))]
    assert found
    return found


def test_windows_come_back_as_a_server_takes_them(daemon: Daemon, namespace: str,
                                                  tmp_path: pathlib.Path) -> None:
    """In order, and with a checkpoint; what was got gives itself from then on."""
    slot, first, second = (tmp_path / name for name in ("slot", "first", "second"))
    slot.write_bytes(windowed())
    place = Place(daemon, namespace, gguf_files.written(tmp_path, WINDOW))
    place.run("put", str(slot))
    place.run("get", str(first), "--like", str(slot))
    given, found = parse(slot.read_bytes()), parse(first.read_bytes())
    assert found.tokens.tolist() == given.tokens.tolist()
    for layer, rows in enumerate(found.caches[1].keys):
        for row, position in enumerate(found.caches[1].positions):
            at = given.caches[1].positions.tolist().index(position)
            assert np.array_equal(rows.rows[row], given.caches[1].keys[layer].rows[at])
    other = place.other(namespace + "-2")
    other.run("put", str(first))
    other.run("get", str(second), "--like", str(slot))
    assert second.read_bytes() == first.read_bytes()


def test_a_part_of_a_prompt_is_had_by_its_tokens(daemon: Daemon, namespace: str,
                                                 tmp_path: pathlib.Path) -> None:
    slot, tokens, part = (tmp_path / name for name in ("slot", "tokens.json", "part"))
    slot.write_bytes(slot_file(range(40), [cache(range(40), 2, 16)]))
    place = Place(daemon, namespace, gguf_files.written(tmp_path))
    place.run("put", str(slot))
    tokens.write_text(json.dumps(list(range(30))))
    place.run("get", str(part), "--like", str(slot), "--tokens", str(tokens))
    found, given = parse(part.read_bytes()), parse(slot.read_bytes())
    assert found.tokens.tolist() == list(range(30))
    for rows, whole in zip(found.caches[0].keys, given.caches[0].keys):
        assert np.array_equal(rows.rows, whole.rows[:30])


def test_what_can_not_be_had_is_said_and_writes_nothing(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    slot, new, tokens = (tmp_path / name for name in ("slot", "new", "tokens.json"))
    slot.write_bytes(slot_file(range(40), [cache(range(40), 2, 16)]))
    common = ["--model", gguf_files.written(tmp_path), "--socket", daemon.socket, "--namespace",
              namespace]
    like = ["--like", str(slot)]

    def refused(*given: str) -> str:
        assert files.main([*given, *common]) == 1
        return capsys.readouterr().err
    assert "0 of 40 tokens are stored" in refused("get", str(new), *like)
    assert files.main(["put", str(slot), *common]) == 0
    assert "must be a new one" in refused("get", str(slot), *like)
    tokens.write_text("[1, 2]")
    assert "must be the file's 40" in refused("put", str(slot), "--tokens", str(tokens))
    tokens.write_text('{"tokens": 1}')
    assert "a JSON list of token ids" in refused("get", str(new), *like, "--tokens", str(tokens))
    slot.write_bytes(slot.read_bytes()[:-5])
    assert "corruption" in refused("put", str(slot))
    assert "--tokens is missing" in refused("put", "cache.safetensors")
    assert not new.exists()
