"""SGLang's own backend factory and host pools with our backend, in processes of their own, on a
real daemon: what one process stored, another one reads; and whatever is killed, stopped or unknown,
each call has an answer that SGLang goes on with."""
from __future__ import annotations

import pathlib
import signal
import threading
import time
from typing import Any, Dict, List

import pytest

from cachesvc import Cache
from cachesvc.keyed import Values

from daemon import Daemon
from engine_process import EngineProcess
from plugged import settings, weights

pytestmark = pytest.mark.engines
ENGINE, SCRIPT = "SGLANG", "sglang_process.py"  # of the fixtures
PAGES = list(range(30))
PAGE_BYTES = 2 * 2 * 16 * 2 * 64 * 2  # sides, layers, tokens, heads, values of 2 bytes
LAYOUTS = ("layer_first", "page_first", "page_first_direct")


def all_of(pages: int) -> Dict[str, int]:
    return {"found": pages, "came": pages, "equal": pages}


def loaded(engine: EngineProcess, numbers: List[int], **given: Any) -> Dict[str, int]:
    return {name: value for name, value in engine.call("load", numbers=numbers, **given).items()
            if name != "seconds"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_fresh_process_reads_what_another_one_stored(
        daemon: Daemon, namespace: str, two: List[EngineProcess], layout: str, dtype: str) -> None:
    first, second = two
    given = {"extra": settings(daemon, namespace), "layout": layout, "dtype": dtype}
    assert "error" not in first.call("open", **given)
    assert loaded(first, PAGES) == all_of(0)
    assert first.call("store", numbers=PAGES) == {"stored": 30}
    counts = first.call("counts")
    assert (counts["stores"], counts["verified"]) == (30, 1) and "aside" not in counts
    second.call("open", **given)
    assert loaded(second, [*PAGES, 99]) == all_of(30)
    assert loaded(second, PAGES, generic=True) == all_of(30)  # interface_v1: 0
    second.call("store", numbers=[*PAGES, 50], generic=True)  # what is there does not travel again
    assert second.call("counts")["stores"] == 1
    assert loaded(first, [50]) == all_of(1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pages_of_a_host_pool_that_is_a_memfd_do_not_travel(
        daemon: Daemon, namespace: str, two: List[EngineProcess], layout: str) -> None:
    first, second = two
    given = {"extra": settings(daemon, namespace), "layout": layout, "dtype": "bfloat16"}
    assert first.call("open", **given, allocator="shm") == {"memfd": True}
    before = daemon.bytes_read()
    assert first.call("store", numbers=PAGES) == {"stored": 30}
    assert daemon.bytes_read() - before >= 30 * PAGE_BYTES
    second.call("open", **given)  # from a pool of the usual kind the same values are sent
    assert loaded(second, PAGES) == all_of(30)
    second.call("store", numbers=[50])
    assert loaded(first, [50]) == all_of(1)


def test_extra_pools_decide_what_may_be_restored(daemon: Daemon, namespace: str,
                                                 one: EngineProcess) -> None:
    one.call("open", extra=settings(daemon, namespace))
    one.call("store", numbers=PAGES[:8])
    assert one.call("restorable", numbers=PAGES[:9], policy="all_pages")["pages"] == 0
    assert one.call("store_extra", numbers=[0, 1, 2, 5, 6]) == {"stored": 5}
    assert one.call("restorable", numbers=PAGES[:9], policy="all_pages") == {
        "pages": 3, "restorable": [1, 2, 3], "extra": {"kv": 8, "swa": 3}}
    assert one.call("restorable", numbers=PAGES[:9], policy="trailing_pages", trailing=2) == {
        "pages": 7, "restorable": [1, 2, 3, 7], "extra": {"kv": 8, "swa": 7}}
    assert one.call("restorable", numbers=PAGES[:9], policy="block_groups")["pages"] == 8
    assert one.call("load_extra", numbers=[0, 1, 2]) == {"came": 3, "equal": 3}
    assert one.call("load_extra", numbers=[3, 5]) == {"came": 1, "equal": 1}


@pytest.mark.parametrize("other", ["weights", "tag", "dtype", "layout", "rank"])
def test_another_models_pages_are_a_miss(daemon: Daemon, namespace: str, one: EngineProcess,
                                         tmp_path: pathlib.Path, other: str) -> None:
    path = weights(tmp_path, "first", b"w" * 300000)
    one.call("open", extra=settings(daemon, namespace), model=path)
    one.call("store", numbers=PAGES)
    if other == "weights":
        (pathlib.Path(path) / "model.safetensors").write_bytes(b"w" * 299999 + b"v")
    changed: Dict[str, Dict[str, Any]] = {
        "dtype": {"dtype": "bfloat16"}, "layout": {"layout": "layer_first"},
        "rank": {"tp_rank": 1, "tp_size": 2}}
    one.call("open", extra=settings(daemon, namespace, tag="other" if other == "tag" else ""),
             model=path, **changed.get(other, {}))
    assert loaded(one, PAGES) == all_of(0)


def test_ranks_of_mla_share_their_pages(daemon: Daemon, namespace: str,
                                        two: List[EngineProcess]) -> None:
    for rank, engine in enumerate(two):
        engine.call("open", extra=settings(daemon, namespace), is_mla_model=True, tp_rank=rank,
                    tp_size=2)
    two[0].call("store", numbers=PAGES)
    assert loaded(two[1], PAGES) == all_of(30)


def test_a_pool_that_is_not_what_it_says_is_refused(daemon: Daemon, namespace: str,
                                                    one: EngineProcess) -> None:
    answer = one.call("open", extra=settings(daemon, namespace), broken=True)
    assert "self check" in answer["error"] and "'kv'" in answer["error"]


def test_a_daemon_killed_between_and_amid_stores_and_loads(own_daemon: Daemon, namespace: str,
                                                           one: EngineProcess) -> None:
    one.call("open", extra=settings(own_daemon, namespace))
    one.call("store", numbers=PAGES)
    for after in (0.002, 0.01, 0.03):
        for call in ("store", "load"):
            killing = threading.Timer(after, own_daemon.kill)
            killing.start()
            answer = one.call(call, numbers=PAGES if call == "load" else
                              [int(1e6 * after) + n for n in PAGES])
            killing.join()
            assert call == "store" or answer["came"] == answer["equal"]
            assert loaded(one, PAGES) == all_of(0)
            own_daemon.start()
    until, found = time.monotonic() + 60, 0
    while not found and time.monotonic() < until:  # it reattaches by itself
        time.sleep(0.1)
        answer = one.call("load", numbers=PAGES)
        found = answer["found"]
        assert answer["equal"] == answer["came"]
    assert found > 0
    one.call("store", numbers=[7777])
    assert loaded(one, [7777]) == all_of(1)


def test_a_daemon_that_stops_costs_its_budget_once(own_daemon: Daemon, namespace: str,
                                                   one: EngineProcess) -> None:
    one.call("open", extra=settings(own_daemon, namespace, budget_ms=100))
    one.call("store", numbers=PAGES)
    own_daemon.signal(signal.SIGSTOP)
    answers = [one.call("load", numbers=PAGES) for _ in range(3)]
    assert [each["found"] for each in answers] == [0, 0, 0]
    print(", ".join(f"{1000 * each['seconds']:.0f} ms" for each in answers))
    assert one.call("store", numbers=[3000]) == {"stored": 0}
    own_daemon.signal(signal.SIGCONT)


def test_two_engines_at_once_and_a_clear(daemon: Daemon, namespace: str,
                                         two: List[EngineProcess]) -> None:
    for number, engine in enumerate(two):
        engine.call("open", extra=settings(daemon, namespace))
        engine.call("store", numbers=[100 * number + n for n in PAGES])
    for engine in two:
        for whose in (0, 1):
            assert loaded(engine, [100 * whose + n for n in PAGES]) == all_of(30)
    with Cache(daemon.socket, namespace + "2", strict=True) as cache:
        Values(cache).put(b"of another namespace", b"stays")
        assert two[0].call("clear") == {"cleared": True}
        assert loaded(two[1], PAGES) == all_of(0)
        assert Values(cache).get(b"of another namespace") == b"stays"


def test_odd_calls_have_answers(daemon: Daemon, namespace: str, one: EngineProcess) -> None:
    one.call("open", extra=settings(daemon, namespace))
    assert one.call("odd_calls") == {"v1": [False, False], "v2": [False, False], "get": True,
                                     "set": False, "batch_set": False}
    wrong = settings(daemon, namespace, sockets="x")
    assert "sockets" in one.call("open", extra=wrong)["error"]
