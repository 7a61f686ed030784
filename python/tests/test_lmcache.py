"""LMCache's own StorageManager with our plug-in adapter, in processes of their own, on a real
daemon: what one process stored, another one reads; and whatever is killed, stopped or unknown,
LMCache goes on."""
from __future__ import annotations

import pathlib
import signal
import threading
import time
from typing import Any, Dict, List

import pytest

from cachesvc import Cache

from daemon import Daemon
from engine_process import EngineProcess
from plugged import settings, weights

pytestmark = pytest.mark.engines
ENGINE, SCRIPT = "VLLM", "lmcache_process.py"  # of the fixtures
CHUNKS = list(range(20))
CODED: Dict[str, Any] = {"bits": "8:4", "head_dim": 64}
FUSED = {**CODED, "fused": True}


@pytest.mark.parametrize("coding", [{}, CODED, FUSED], ids=["lossless", "coded", "fused"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_fresh_process_reads_what_another_one_stored(
        daemon: Daemon, namespace: str, two: List[EngineProcess], coding: Dict[str, Any],
        dtype: str) -> None:
    first, second = two
    given, fused = settings(daemon, namespace, **coding), "fused" in coding
    assert first.call("open", params=given, dtype=dtype, fused=fused) == {}
    assert first.call("load", numbers=CHUNKS)["found"] == 0
    first.call("store", numbers=CHUNKS)
    counts = first.call("counts")
    assert (counts["stores"], counts["verified"]) == (20, 1) and counts["is_healthy"]
    second.call("open", params=given, dtype=dtype, fused=fused)
    loaded = second.call("load", numbers=[*CHUNKS, 99])
    assert (loaded["found"], loaded["from_l2"]) == (20, 20)
    assert loaded["equal"] == (0 if coding else 20)
    assert loaded["apart"] < 0.1 and (loaded["apart"] > 0) == bool(coding)
    print(f"{dtype} {coding or 'lossless'}: {loaded['apart']:.3f} of a chunk's size apart")
    assert second.call("counts")["loads"] == 20
    with Cache(daemon.socket, namespace) as cache:  # what was locked has been unlocked
        until = time.monotonic() + 60
        while cache.stats()["namespace_holds"] and time.monotonic() < until:
            time.sleep(0.01)
        assert cache.stats()["namespace_holds"] == 0


def test_two_engines_at_once_share_one_daemon(daemon: Daemon, namespace: str,
                                              two: List[EngineProcess]) -> None:
    for number, engine in enumerate(two):
        engine.call("open", params=settings(daemon, namespace))
        engine.call("store", numbers=[number * 100 + n for n in range(20)], settle=number == 1)
    for engine in two:
        for whose in (0, 1):
            until, loaded = time.monotonic() + 60, {"found": 0}
            while loaded["found"] < 20 and time.monotonic() < until:
                engine.call("forget")
                loaded = engine.call("load", numbers=[whose * 100 + n for n in range(20)])
            assert loaded["from_l2"] == loaded["equal"] == 20


@pytest.mark.parametrize("other", ["weights", "tag", "dtype", "shape", "bits", "salt"])
def test_another_models_chunks_are_a_miss(daemon: Daemon, namespace: str, one: EngineProcess,
                                          tmp_path: pathlib.Path, other: str) -> None:
    path = weights(tmp_path, "first", b"w" * 300000)
    one.call("open", params=settings(daemon, namespace), model=path)
    one.call("store", numbers=CHUNKS)
    if other == "weights":
        (pathlib.Path(path) / "model.safetensors").write_bytes(b"w" * 299999 + b"v")
    more = {"tag": {"tag": "other"}, "bits": CODED}.get(other, {})
    one.call("open", params=settings(daemon, namespace, **more), model=path, fused=other == "shape",
             dtype="bfloat16" if other == "dtype" else "float16")
    loaded = one.call("load", numbers=CHUNKS, salt="other" if other == "salt" else "")
    assert loaded["found"] == 0


def test_chunks_that_cannot_be_coded_stay_lossless(daemon: Daemon, namespace: str,
                                                   one: EngineProcess) -> None:
    odd: Dict[str, Any] = {**CODED, "head_dim": 60}
    for first, more, fused in ((0, CODED, True), (100, {"bits": "8:4"}, False), (200, odd, False),
                               (300, FUSED, False), (400, {**odd, "fused": True}, True)):
        one.call("open", params=settings(daemon, namespace, **more), fused=fused)
        one.call("store", numbers=[first, first + 1])
        one.call("forget")
        assert one.call("load", numbers=[first, first + 1])["equal"] == 2


def test_keys_of_chunks_have_8_bits_at_least(daemon: Daemon, namespace: str,
                                             one: EngineProcess) -> None:
    """Nobody computes a mean and gain for fewer: what 4:4 stores is what 8:4 finds."""
    one.call("open", params=settings(daemon, namespace, **{**CODED, "bits": "4:4"}))
    one.call("store", numbers=CHUNKS)
    one.call("open", params=settings(daemon, namespace, **CODED))
    loaded = one.call("load", numbers=CHUNKS)
    assert loaded["from_l2"] == 20 and 0 < loaded["apart"] < 0.2


def test_what_is_not_finite_is_not_coded_and_not_restored(daemon: Daemon, namespace: str,
                                                          one: EngineProcess) -> None:
    one.call("open", params=settings(daemon, namespace, **CODED))
    one.call("store", numbers=[1])
    one.call("store", numbers=[2, 3], bad=True)
    assert one.call("counts")["failed_store"] == 2 and one.call("counts")["is_healthy"]
    one.call("forget")
    assert one.call("load", numbers=[1, 2, 3])["found"] == 1
    one.call("open", params=settings(daemon, namespace))  # lossless: any bytes
    one.call("store", numbers=[4], bad=True)
    one.call("forget")
    assert one.call("load", numbers=[4])["found"] == 1


@pytest.mark.parametrize("coding", [{}, CODED], ids=["lossless", "coded"])
def test_chunks_that_went_between_lookup_and_load_do_not_come(
        daemon: Daemon, namespace: str, one: EngineProcess, coding: Dict[str, Any]) -> None:
    one.call("open", params=settings(daemon, namespace, **coding))
    one.call("store", numbers=CHUNKS)
    one.call("forget")
    assert one.call("lose", numbers=CHUNKS) == {"found": 20, "loaded": 0}


def test_a_daemon_killed_between_and_amid_stores_and_loads(own_daemon: Daemon, namespace: str,
                                                           one: EngineProcess) -> None:
    one.call("open", params=settings(own_daemon, namespace))
    one.call("store", numbers=CHUNKS)
    for moment in range(3):
        one.call("store", numbers=[1000 + 20 * moment + n for n in range(20)], settle=False)
        own_daemon.kill()
        one.call("forget")
        assert one.call("load", numbers=CHUNKS)["found"] == 0
        own_daemon.start()
        killing = threading.Timer((0.002, 0.01, 0.03)[moment], own_daemon.kill)
        killing.start()
        loaded = one.call("load", numbers=CHUNKS)
        assert loaded["equal"] == loaded["found"]
        killing.join()
        own_daemon.start()
    until, loaded = time.monotonic() + 60, {"found": 0}
    while not loaded["found"] and time.monotonic() < until:  # it reattaches by itself
        time.sleep(0.1)
        one.call("forget")
        loaded = one.call("load", numbers=CHUNKS)
    assert loaded["equal"] == loaded["found"] > 0


def test_a_daemon_that_stops_costs_its_budget_once(own_daemon: Daemon, namespace: str,
                                                   one: EngineProcess) -> None:
    one.call("open", params=settings(own_daemon, namespace, budget_ms=100))
    one.call("store", numbers=CHUNKS)
    one.call("forget")
    own_daemon.signal(signal.SIGSTOP)
    loaded = [one.call("load", numbers=CHUNKS) for _ in range(3)]
    assert [each["found"] for each in loaded] == [0, 0, 0]
    print(", ".join(f"{1000 * each['seconds']:.0f} ms" for each in loaded))
    own_daemon.signal(signal.SIGCONT)


def test_keys_are_listed_counted_and_deleted(daemon: Daemon, namespace: str,
                                             one: EngineProcess) -> None:
    one.call("open", params=settings(daemon, namespace))
    one.call("store", numbers=CHUNKS)
    until, page = time.monotonic() + 60, one.call("keys", page=15)
    while page["bytes"] < 20 * 262144 and time.monotonic() < until:  # told once a task has ended
        page = one.call("keys", page=15)
    rest = one.call("keys", page=15, cursor=page["next"])
    assert len(page["keys"]) == 15 and len(rest["keys"]) == 5 and rest["next"] is None
    assert len({*page["keys"], *rest["keys"]}) == 20 and page["sizes"] == [262144]
    assert (page["bytes"], page["fraction"]) == (20 * 262144, -1.0)
    one.call("delete", numbers=[0, 1, 777])
    assert one.call("keys", page=99)["bytes"] == 18 * 262144
    one.call("forget")
    assert one.call("load", numbers=CHUNKS)["found"] == 0  # the prefix's first ones are gone
    assert one.call("load", numbers=CHUNKS[2:])["equal"] == 18


def test_keys_that_it_does_not_know_of_any_more_are_not_counted(
        daemon: Daemon, namespace: str, one: EngineProcess) -> None:
    one.call("open", params=settings(daemon, namespace), kept=15)
    one.call("store", numbers=CHUNKS)
    one.call("store", numbers=[100])
    until, page = time.monotonic() + 60, one.call("keys", page=99)
    while ((len(page["keys"]), page["bytes"]) != (15, 15 * 262144)
           and time.monotonic() < until):  # told once a task has ended
        page = one.call("keys", page=99)
    assert (len(page["keys"]), page["bytes"]) == (15, 15 * 262144)
    one.call("forget")
    assert one.call("load", numbers=CHUNKS)["equal"] == 20


@pytest.mark.parametrize("given,words", [
    ({"sockets": "x"}, "sockets"), ({"bits": "5:4", "head_dim": 64}, "bits")])
def test_a_setting_that_is_wrong_is_named_at_the_start(
        daemon: Daemon, namespace: str, one: EngineProcess, given: Dict[str, Any],
        words: str) -> None:
    assert words in one.call("open", params=settings(daemon, namespace, **given))["error"]
