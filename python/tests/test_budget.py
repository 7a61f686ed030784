"""A daemon that does not move, or not fast: what an adapter itself counts as waited for it, in all,
beside its budget. Ten times that is allowed: other work has the processor too."""
from __future__ import annotations

import argparse
import pathlib
import signal
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from cachesvc import Cache
from cachesvc.adapter import MOVES, Fetches
from cachesvc.errors import CacheError, Code
from cachesvc.frames import Type
from cachesvc.hit import Hit
from cachesvc.keyed import Values
from cachesvc.llama import Engine, await_and_attach
from cachesvc.llama_check import TOKENS
from cachesvc.llama_gguf import Gguf
from cachesvc.llama_proxy import Proxy
from cachesvc.llama_rows import Layout
from cachesvc.messages import LookupOk
from cachesvc.models import Dtype, Profile, profile_of
from cachesvc.plugin import Settings as PluginSettings
from cachesvc.plugin import Shelf
from cachesvc.report import Report

import gguf_files
import given
from daemon import Daemon
from proxy import Proxy as Between
from proxy import type_of
from slot_files import cache as slot_cache
from slot_files import slot_file
from test_in_process import PROMPT, Setting, letters
from test_llama_proxy import Scripted, posted
from test_llama_reuse import Given

BUDGET_S = 0.2
MOST_US = 10 * BUDGET_S * 1e6
HUGE = 1e8  # bytes of a token: at 100 MB/s a minute passes with 60 of them
LONG_S = 120.0


def waited(report: Report) -> int:
    return report.counts().get("waited_us", 0)


def test_one_that_stands_still_from_the_start_on(own_daemon: Daemon, namespace: str) -> None:
    Setting(own_daemon.socket, namespace).answer(PROMPT)
    own_daemon.signal(signal.SIGSTOP)
    at = Setting(own_daemon.socket, namespace, budget_s=BUDGET_S, bits=(4, 4), encode=letters)
    assert 0 < waited(at.adapter.report) < MOST_US
    at.answer(PROMPT)
    assert at.count("hits") == 0 and waited(at.adapter.report) < MOST_US


def test_one_that_stops_within_a_look_up(own_daemon: Daemon, namespace: str) -> None:
    at = Setting(own_daemon.socket, namespace, budget_s=BUDGET_S)
    end = time.monotonic() + LONG_S
    while at.count("hits") == 0 and time.monotonic() < end:
        at.answer(PROMPT)
    assert at.count("hits"), at.adapter.report.counts()
    own_daemon.signal(signal.SIGSTOP)
    before = waited(at.adapter.report)
    past = at.engine.empty()
    assert at.adapter.load(PROMPT, past) == 0
    assert waited(at.adapter.report) - before < MOST_US


@pytest.mark.parametrize("reply", [Type.FETCH_HEADER, Type.FETCH_OBJECT])
def test_one_that_stops_within_a_fetch(own_daemon: Daemon, namespace: str, reply: Type) -> None:
    """Rows of gigabytes, by their model's word, may take minutes: of one that moves."""
    model, tokens = given.plain(), np.arange(700)
    with Cache(own_daemon.socket, namespace, strict=True) as cache:
        assert cache.store_rows(model, tokens, given.Computed(model, tokens))
    ended, over = threading.Event(), threading.Event()

    def half_of_it(number: int, frame: bytes) -> Tuple[bytes, bool]:
        if ended.is_set():  # what the service had said before
            over.wait()
            return b"", False
        if type_of(frame) != reply:
            return frame, True
        own_daemon.signal(signal.SIGSTOP)
        ended.set()
        return frame[:len(frame) // 2], True
    between, report = Between(own_daemon.socket), Report("test")
    between.begin(half_of_it)
    with Cache(between.path, namespace, strict=True) as cache:
        profile = cache.open(model, timeout=LONG_S).profile
        fetches = Fetches(cache, model, profile, HUGE, BUDGET_S, report)
        with pytest.raises(CacheError) as error:
            fetches.fetch(tokens, len(tokens) - 1, 1.0)
        assert error.value.code == Code.DEADLINE_EXCEEDED and ended.is_set()
        assert waited(report) < MOST_US
    over.set()
    own_daemon.signal(signal.SIGCONT)
    between.close()


def test_one_that_says_nothing_for_long_and_answers_others_is_waited_for(
        own_daemon: Daemon, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while it decodes: the reply comes once it was asked something else three times."""
    model, tokens = given.plain(), np.arange(700)
    asked = threading.Semaphore(0)

    def answers(self: Cache, seconds: float) -> bool:
        asked.release()
        return True

    def slow(number: int, frame: bytes) -> Tuple[bytes, bool]:
        if type_of(frame) == Type.FETCH_HEADER:
            for _ in range(3):
                assert asked.acquire(timeout=LONG_S)
        return frame, True
    monkeypatch.setattr(Cache, "_answers", answers)
    between = Between(own_daemon.socket)
    between.begin(slow)
    with Cache(between.path, namespace, strict=True) as cache:
        assert cache.store_rows(model, tokens, given.Computed(model, tokens), timeout=LONG_S)
        hit = cache.fetch_rows(model, tokens, timeout=LONG_S, silence=0.01)
        assert hit.tokens == len(tokens) - 1
    between.close()


def test_a_question_beside_a_call_is_answered(daemon: Daemon, namespace: str) -> None:
    with Cache(daemon.socket, namespace) as cache:
        assert cache._answers(LONG_S)
    assert not Cache("/nowhere/at/all", namespace)._answers(LONG_S)


class Slow:
    """A daemon of whose promotions something comes with every question, or nothing."""

    def __init__(self, moves: bool) -> None:
        self._moves, self.asked = moves, 0

    def lookup(self, *_: Any, **__: Any) -> LookupOk:
        raise AssertionError

    def fetch_rows(self, *_: Any, **__: Any) -> Hit:
        self.asked += 1
        return Hit(7) if self.asked > 30 else Hit(pending=7)

    def stats(self, timeout: float) -> Dict[str, int]:
        return {MOVES[0]: self.asked if self._moves else 5, "lookups": self.asked}


@pytest.mark.parametrize("moves", [True, False])
def test_rows_from_the_ssd_are_waited_for_while_they_come(moves: bool) -> None:
    model = given.plain()
    profile: Profile = profile_of(model, Dtype.F16, None)
    slow, report = Slow(moves), Report("test")
    cache: Any = slow
    fetches = Fetches(cache, model, profile, 1.0, 0.01, report)
    hit = fetches.fetch(PROMPT, 8, LONG_S)  # half of computing them is minutes
    assert hit.tokens == (7 if moves else 0)
    assert report.counts().get("hits_too_slow", 0) == (not moves)


def test_a_shelf_waits_no_longer_for_its_pattern(own_daemon: Daemon, namespace: str) -> None:
    room, report = bytearray(5), Report("test")
    with Cache(own_daemon.socket, namespace, first_pause=0.01) as cache:
        settings = PluginSettings("", "", budget_ms=int(BUDGET_S * 1000))
        shelf, end = Shelf(Values(cache), b"id", settings, report, b"12345"), LONG_S
        until = time.monotonic() + end
        while not shelf.put(b"key", b"value") and time.monotonic() < until:
            time.sleep(0.01)
        own_daemon.signal(signal.SIGSTOP)
        before = waited(report)
        assert not shelf.get_into(b"key", room) and waited(report) - before < MOST_US
        Shelf(Values(cache), b"other", settings, report, b"12345")  # it is made all the same


class Known(Given):
    """A llama.cpp server as await_and_attach learns it; requests that are passed through go to
    another one."""

    def __init__(self, layout: Layout, port: int, model: str) -> None:
        super().__init__(layout)
        self.host, self.port, self._model = "127.0.0.1", port, model
        self._data = b""

    def call(self, path: str, body: Any, timeout: float) -> Any:
        return {"model_path": self._model} if path == "/props" else {}

    def slots(self, timeout: float = 5.0) -> List[int]:
        return [0]

    def identity(self, timeout: float = 2.0) -> Tuple[object, ...]:
        return ()

    def save(self, slot: int, timeout: float) -> bytes:
        return self._data or super().save(slot, timeout)

    def restore(self, slot: int, file: Any, timeout: float,
                valid: Callable[[], bool] = lambda: True) -> None:
        self._data = b"".join(bytes(part) for part in file)


def test_a_request_does_not_wait_while_the_proxy_attaches(
        own_daemon: Daemon, namespace: str, tmp_path: pathlib.Path) -> None:
    model = gguf_files.written(tmp_path)
    layout = Layout(slot_file(range(8), [slot_cache(range(8), 2, 16)]), Gguf(model), ["llama.cpp"])
    behind, report = Scripted(), Report("test")
    proxy = Proxy(("127.0.0.1", 0), Known(layout, behind.port, model), report)
    threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
    engine = Engine.__new__(Engine)
    engine.process, engine.others = None, ["llama.cpp"]
    options = argparse.Namespace(
        socket=own_daemon.socket, namespace=namespace, token_file=None, bits=None, min_tokens=8,
        budget_ms=int(BUDGET_S * 1000), shadow=0, model=None, tag="", plan="")
    own_daemon.signal(signal.SIGSTOP)
    thread = threading.Thread(target=await_and_attach, args=(proxy, engine, options), daemon=True)
    thread.start()
    body = b'{"prompt": %b}' % str(TOKENS.tolist()).encode()
    assert posted(proxy, "/v1/completions", body) == (200, b"data:")
    assert waited(report) < MOST_US
    own_daemon.signal(signal.SIGCONT)
    thread.join(LONG_S)
    assert report.counts().get("attached") == 1 and proxy.reuse is not None
    proxy.shutdown()
    proxy.server_close()
    behind.close()
