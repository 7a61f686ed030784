"""Shelf against the real daemon: what does not come back as it was given ends the caching, and what
fails is a miss."""
from __future__ import annotations

import os
import pathlib
import time
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from cachesvc import Cache, CacheError
from cachesvc.entry import Stored
from cachesvc.keyed import Keyed, RowValues, Shape, Values
from cachesvc.report import Report
from cachesvc.plugin import Settings, Shelf, distance, identity_of
from cachesvc.weights import weights_of

from daemon import Daemon
from test_keyed import room_for, rows_of

SHAPE = Shape(layers=2, rows=256, heads=2, dim=64)
IDENTITY = identity_of("engine")


def shelf_of(keyed: Keyed, example: Any, bits: int = 0, **more: Any) -> Shelf:
    given: Dict[str, Any] = {"budget_ms": 20000, **more}
    return Shelf(keyed, IDENTITY, Settings("", "", **given), Report("test"), example, bits)


class Wrong(Values):
    """An engine's layout that is not what it is thought to be: one byte comes to another place."""

    def get_into(self, key: bytes, room: Any, **more: Any) -> bool:
        found = super().get_into(key, room, **more)
        np.frombuffer(room, np.uint8)[:2] = np.frombuffer(room, np.uint8)[1::-1]
        return found


def counted(shelf: Shelf) -> Dict[str, int]:
    """What it counted, but for the times."""
    return {name: count for name, count in shelf._report.counts().items()
            if not name.endswith("_us")}


def test_values_come_back_under_one_identity(daemon: Daemon, namespace: str) -> None:
    with Cache(daemon.socket, namespace) as cache:
        shelf, room = shelf_of(Values(cache), os.urandom(999)), bytearray(5)
        assert shelf.exists([b"key"]) == [False]
        assert shelf.put(b"key", b"value") and shelf.put(b"key", b"value")
        assert shelf.get_into(b"key", room) and room == b"value"
        assert shelf.exists([b"key", b"other"]) == [True, False]
        held = shelf.hold(b"key", 5.0)
        assert held and shelf.get_into(b"key", room, held.number) and shelf.release(held)
        assert shelf.prefetch(b"key") and not shelf.prefetch(b"other")
        assert counted(shelf) == {"stores": 1, "verified": 1, "loads": 2}
        other = Shelf(Values(cache), identity_of("engine", "other"), Settings("", ""),
                      Report("test"), b"example")
        assert other.exists([b"key"]) == [False] and not other.get_into(b"key", room)
        assert shelf.delete(b"key") and not shelf.delete(b"key")
        assert cache.stats()["namespace_holds"] == 0


@pytest.mark.parametrize("bits", [None, (8, 4)])
def test_keys_of_any_length(daemon: Daemon, namespace: str, bits: Any) -> None:
    given, room = rows_of(SHAPE, 1), room_for(SHAPE)
    with Cache(daemon.socket, namespace) as cache:
        shelf = shelf_of(RowValues(cache, SHAPE, IDENTITY, bits), given, min(bits or (0,)))
        for key in (b"", b"k" * 900, b"k" * 901, b"k" * 5000):
            assert shelf.exists([key]) == [False] and not shelf.get_into(key, room)
            assert shelf.put(key, given) and shelf.get_into(key, room)
            assert shelf.exists([b"l" * 5000]) == [False]
            assert shelf.hold(key, 1.0) and shelf.prefetch(key) and shelf.delete(key)


class Timed(Values):
    """What calls may take, in order."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self.puts: List[float] = []
        self.gets: List[float] = []

    def put(self, key: bytes, value: Any, *, timeout: float = 0.0, **more: Any) -> Stored:
        self.puts.append(timeout)
        return super().put(key, value, timeout=timeout, **more)

    def get_into(self, key: bytes, room: Any, **more: Any) -> bool:
        self.gets.append(more["timeout"])
        return super().get_into(key, room, **more)


def test_the_checks_may_take_the_time_of_their_bytes(daemon: Daemon, namespace: str) -> None:
    with Cache(daemon.socket, namespace) as cache:
        keyed = Timed(cache)
        shelf = shelf_of(keyed, bytes(1_000_000))
        assert shelf.put(b"key", bytes(2_000_000))
        assert keyed.puts == pytest.approx([1.01, 2.02])  # the pattern, the value
        assert keyed.gets == pytest.approx([1.01, 1.02])


def test_a_pattern_that_comes_back_as_another_one_ends_it(
        daemon: Daemon, namespace: str, capsys: "pytest.CaptureFixture[str]") -> None:
    with Cache(daemon.socket, namespace) as cache:
        shelf = shelf_of(Wrong(cache), b"01234567")
        assert not shelf.put(b"key", b"value") and shelf.exists([b"key"]) == [False]
        assert "self check differs" in capsys.readouterr().err
        assert counted(shelf) == {"aside": 1}


def test_a_new_value_that_comes_back_as_another_one_ends_it(
        daemon: Daemon, namespace: str, capsys: "pytest.CaptureFixture[str]") -> None:
    with Cache(daemon.socket, namespace) as cache:
        for verify, aside in ((0, False), (2, True)):
            shelf = shelf_of(Wrong(cache), b"00000000", verify=verify)  # which does not show it
            assert shelf.put(b"%d" % verify, b"value")
            assert shelf.put(b"%d again" % verify, b"value") != aside
            assert shelf._report.counts().get("aside", 0) == aside
        assert "read again differs" in capsys.readouterr().err


@pytest.mark.parametrize("bits", [None, (8, 8), (8, 4), (4, 4), (3, 3), (2, 2)])
def test_coded_rows_pass_within_their_bits(daemon: Daemon, namespace: str, bits: Any) -> None:
    given, room = rows_of(SHAPE, 1), room_for(SHAPE)
    with Cache(daemon.socket, namespace) as cache:
        keyed = RowValues(cache, SHAPE, IDENTITY, bits)
        shelf = shelf_of(keyed, given, min(bits) if bits else 0)
        assert shelf.put(b"key", given) and shelf.get_into(b"key", room)
        assert counted(shelf) == {"stores": 1, "verified": 1, "loads": 1}
        apart = distance(given, room)
        assert (apart > 0) == bool(bits)
        print(f"{bits}: {apart:.3f} of the size of what was stored")


def test_rows_of_other_tokens_are_no_coding_error() -> None:
    assert distance(rows_of(SHAPE, 1), rows_of(SHAPE, 2)) > 1.2
    assert distance(b"same", b"same") == 0.0 and distance(b"same", b"also") == np.inf


def test_a_daemon_that_comes_later_is_found(own_daemon: Daemon, namespace: str) -> None:
    own_daemon.kill()
    with Cache(own_daemon.socket, namespace, first_pause=0.01) as cache:
        shelf = shelf_of(Values(cache), b"example")
        assert not shelf.put(b"key", b"value") and not shelf.hold(b"key", 1.0)
        assert not shelf.delete(b"key") and shelf.exists([b"key"]) == [False]
        own_daemon.start()
        until = time.monotonic() + 60
        while not shelf.put(b"key", b"value") and time.monotonic() < until:
            time.sleep(0.01)
        assert shelf.exists([b"key"]) == [True]


def test_a_full_daemon_keeps_what_it_can(own_daemon: Daemon, namespace: str) -> None:
    values = [np.random.default_rng(n).bytes(4 << 20) for n in range(60)]  # RAM 64 MiB, SSD 128
    with Cache(own_daemon.socket, namespace) as cache:
        shelf, room = shelf_of(Values(cache), b"example", verify=1), bytearray(4 << 20)
        stored = [shelf.put(b"%d" % n, value) for n, value in enumerate(values)]
        found = [shelf.get_into(b"%d" % n, room) and room == value
                 for n, value in enumerate(values)]
        assert not shelf.put(b"huge", bytes(100 << 20))
        counts = shelf._report.counts()
    assert sum(stored) > 10 and 0 < sum(found) < 60
    assert sum(found) == counts["loads"] and "aside" not in counts


@pytest.mark.parametrize("given,words", [
    ({"namespace": "n"}, "'socket' is missing"), ({"socket": "s"}, "'namespace' is missing"),
    ({"socket": "s", "namespace": "n", "budget": 5}, "'budget' is unknown"),
    ({"socket": "s", "namespace": "n", "budget_ms": "5"}, "'budget_ms' is '5'"),
    ({"socket": 7, "namespace": "n"}, "'socket' is 7")])
def test_wrong_settings_are_named(given: Dict[str, Any], words: str) -> None:
    with pytest.raises(CacheError, match=words):
        Settings.of(given)


@pytest.mark.parametrize("bits", ["5:4", "8", "8:", "8:4:4", "tq4"])
def test_wrong_bits_are_named(bits: str) -> None:
    with pytest.raises(CacheError, match="bits"):
        Settings("s", "n", bits=bits).coding
    assert Settings("s", "n", bits="8:4").coding == (8, 4) and Settings("s", "n").coding is None


@pytest.mark.parametrize("change", [
    lambda folder: (folder / "model.safetensors").write_bytes(b"w" * 5000 + b"v" + b"w" * 294999),
    lambda folder: (folder / "model.safetensors").write_bytes(b"w" * 299999 + b"v"),
    lambda folder: (folder / "model.safetensors").write_bytes(b"w" * 299999),
    lambda folder: (folder / "config.json").write_text("{ }"),
    lambda folder: (folder / "sub").mkdir() or (folder / "sub" / "more.bin").write_bytes(b"")])
def test_weights_are_told_apart(tmp_path: pathlib.Path,
                                change: Callable[[pathlib.Path], object]) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"w" * 300000)
    (tmp_path / "config.json").write_text("{}")
    before = weights_of(str(tmp_path))
    (tmp_path / "README.md").write_text("no weights")
    assert before and weights_of(str(tmp_path)) == before
    change(tmp_path)
    assert weights_of(str(tmp_path)) not in ("", before)
    assert weights_of("org/name") == ""
