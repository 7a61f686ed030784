"""vLLM's own TieringOffloadingManager with our tier, in processes of their own, on a real daemon:
what one process's GPU computed, another one's reads; and whatever is killed, stopped or unknown,
vLLM goes on."""
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
ENGINE, SCRIPT = "VLLM", "vllm_process.py"  # of the fixtures
CHUNKS = list(range(40))


def test_a_fresh_process_reads_what_another_one_computed(
        daemon: Daemon, namespace: str, two: List[EngineProcess]) -> None:
    first, second = two
    assert first.call("open", tier=settings(daemon, namespace)) == {}
    assert first.call("load", numbers=CHUNKS)["found"] == 0
    first.call("store", numbers=CHUNKS)
    counts = first.call("counts")
    assert (counts["stores"], counts["verified"]) == (40, 1) and "aside" not in counts
    second.call("open", tier=settings(daemon, namespace))
    loaded = second.call("load", numbers=[*CHUNKS, 99])
    assert (loaded["found"], loaded["equal"]) == (40, 40)
    assert second.call("counts")["loads"] == 40
    second.call("store", numbers=[*CHUNKS, 50])  # what is there does not travel again
    assert second.call("counts")["stores"] == 1


def test_two_engines_at_once_share_one_daemon(daemon: Daemon, namespace: str,
                                              two: List[EngineProcess]) -> None:
    for number, engine in enumerate(two):
        engine.call("open", tier=settings(daemon, namespace))
        engine.call("store", numbers=[number * 100 + n for n in range(30)], settle=False)
    for engine in two:
        engine.call("forget")  # once its stores are done
    for engine in two:
        for whose in (0, 1):
            loaded = engine.call("load", numbers=[whose * 100 + n for n in range(30)])
            assert (loaded["found"], loaded["equal"]) == (30, 30)


@pytest.mark.parametrize("other", ["weights", "tag", "layout"])
def test_another_model_under_the_same_name_is_a_miss(
        daemon: Daemon, namespace: str, one: EngineProcess, tmp_path: pathlib.Path,
        other: str) -> None:
    path = weights(tmp_path, "first", b"w" * 300000)
    one.call("open", tier=settings(daemon, namespace), model=path)
    one.call("store", numbers=CHUNKS)
    if other == "weights":
        (pathlib.Path(path) / "model.safetensors").write_bytes(b"w" * 299999 + b"v")
    one.call("open", tier=settings(daemon, namespace, tag=other if other == "tag" else ""),
             model=path, layout="HND" if other == "layout" else "NHD")
    assert one.call("load", numbers=CHUNKS)["found"] == 0


def test_a_daemon_killed_between_and_amid_stores_and_loads(
        own_daemon: Daemon, namespace: str, one: EngineProcess) -> None:
    one.call("open", tier=settings(own_daemon, namespace))
    one.call("store", numbers=CHUNKS)
    for moment in range(4):  # amid stores, as they are not waited for
        one.call("store", numbers=[1000 + 20 * moment + n for n in range(20)], settle=False)
        own_daemon.kill()
        one.call("forget")
        loaded = one.call("load", numbers=CHUNKS)
        assert loaded["found"] == loaded["equal"] == 0
        own_daemon.start()
    for after in (0.002, 0.01, 0.03):  # amid loads
        killing = threading.Timer(after, own_daemon.kill)
        killing.start()
        loaded = one.call("load", numbers=CHUNKS)
        assert loaded["found"] == loaded["equal"]
        killing.join()
        one.call("forget")
        own_daemon.start()
    until = time.monotonic() + 60
    loaded = one.call("load", numbers=CHUNKS)
    while not loaded["found"] and time.monotonic() < until:  # it reattaches by itself
        time.sleep(0.1)
        loaded = one.call("load", numbers=CHUNKS)
    assert loaded["found"] > 0 and loaded["equal"] == loaded["found"]
    one.call("store", numbers=[2000])
    one.call("forget")
    assert one.call("load", numbers=[2000])["equal"] == 1
    assert one.call("close") == {"released": True}  # no failed call holds vLLM's memory


def test_a_daemon_that_stops_costs_its_budget_once(own_daemon: Daemon, namespace: str,
                                                   one: EngineProcess) -> None:
    one.call("open", tier=settings(own_daemon, namespace, budget_ms=100))
    one.call("store", numbers=CHUNKS)
    one.call("forget")
    own_daemon.signal(signal.SIGSTOP)
    loaded = [one.call("load", numbers=CHUNKS) for _ in range(3)]
    assert [each["found"] for each in loaded] == [0, 0, 0]
    print(", ".join(f"{1000 * each['seconds']:.0f} ms, longest call "
                    f"{1000 * each['longest']:.2f} ms" for each in loaded))
    one.call("store", numbers=[3000, 3001])
    own_daemon.signal(signal.SIGCONT)


def test_an_engine_that_starts_before_the_daemon_finds_it_later(
        own_daemon: Daemon, namespace: str, one: EngineProcess) -> None:
    own_daemon.kill()
    assert one.call("open", tier=settings(own_daemon, namespace)) == {}
    one.call("store", numbers=CHUNKS)
    own_daemon.start()
    until = time.monotonic() + 60
    while "stores" not in one.call("counts") and time.monotonic() < until:
        one.call("forget")
        one.call("store", numbers=CHUNKS)
        time.sleep(0.1)
    one.call("forget")
    assert one.call("load", numbers=CHUNKS)["equal"] == 40


def test_chunks_that_went_are_computed_again(daemon: Daemon, namespace: str,
                                             one: EngineProcess) -> None:
    one.call("open", tier=settings(daemon, namespace))
    one.call("store", numbers=CHUNKS)
    one.call("forget")
    assert one.call("load", numbers=CHUNKS, lose=True)["found"] == 0
    assert one.call("counts")["load_misses"] == 40
    one.call("store", numbers=CHUNKS)
    one.call("forget")
    assert one.call("load", numbers=CHUNKS)["equal"] == 40


def action(name: str, of: str, **payload: Any) -> Dict[str, Any]:
    return {"action_id": name, "action_type": of, "action_version": "1.0", "payload": payload}


def test_hints_pin_prefetch_and_release_with_an_outcome(daemon: Daemon, namespace: str,
                                                        one: EngineProcess) -> None:
    one.call("open", tier=settings(daemon, namespace))
    with Cache(daemon.socket, namespace, strict=True) as cache:
        one.call("store", numbers=CHUNKS, hints=[action("a", "kv.pin", ttl_seconds=60)])
        assert one.call("outcome", action="a") == "accepted"
        assert cache.stats()["namespace_holds"] == 40
        one.call("load", numbers=CHUNKS, hints=[
            action("b", "kv.pin", ttl_seconds=3600), action("c", "kv.prefetch"),
            action("d", "kv.release", action_id="a"), action("e", "kv.release", action_id="a"),
            action("f", "kv.pin", ttl_seconds="long"), action("g", "kv.fetch")])
        outcomes = {name: one.call("outcome", action=name) for name in "bcdefg"}
        assert outcomes == {"b": "clipped", "c": "accepted", "d": "accepted", "e": "missing",
                            "f": "rejected", "g": "rejected"}
        assert cache.stats()["namespace_holds"] == 40  # b's
        one.call("load", numbers=[777], hints=[action("h", "kv.pin", ttl_seconds=1),
                                               action("i", "kv.prefetch")])
        assert one.call("outcome", action="h") == one.call("outcome", action="i") == "missing"


@pytest.mark.parametrize("wrong,words", [
    ({"sockets": "x"}, "sockets"), ({"budget_ms": "soon"}, "budget_ms"), ({"namespace": ""},
                                                                         "namespace")])
def test_a_setting_that_is_wrong_is_named_at_the_start(daemon: Daemon, namespace: str,
                                                       one: EngineProcess, wrong: Dict[str, Any],
                                                       words: str) -> None:
    given = {**settings(daemon, namespace), **wrong}
    assert words in one.call("open", tier=given)["error"]
