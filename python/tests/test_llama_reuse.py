"""Reuse with a real daemon, where the server says or does what a good one does not."""
from __future__ import annotations

import contextlib
import http.client
import json
import math
import pathlib
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import pytest

from cachesvc import Cache
from cachesvc.checks import pattern
from cachesvc.errors import CacheError
from cachesvc.hit import Hit
from cachesvc.llama_check import TOKENS, attach, profile_of_keys
from cachesvc.llama_gguf import Gguf
from cachesvc.llama_prompt import Prompt
from cachesvc.llama_proxy import Proxy
from cachesvc.report import Report
from cachesvc.llama_reuse import MISMATCHES, Reuse
from cachesvc.llama_rows import Layout
from cachesvc.llama_shadow import Shadow, kl
from cachesvc.llama_slots import NOTHING, Slot, Slots
from cachesvc.llama_upstream import Upstream, UpstreamError
from cachesvc.models import Side
from cachesvc.wire import Buffer, Tokens

import gguf_files
from daemon import Daemon
from slot_files import Q8_0, cache, slot_file
from test_llama_proxy import BROKEN, Scripted, posted

ANSWERED = {"cache_n": 0, "predicted_n": 1}


class Given(Upstream):
    """A server whose slot holds `tokens`, with rows that are a pattern's, whatever is asked."""

    def __init__(self, layout: Layout) -> None:
        super().__init__("http://127.0.0.1:1", "")
        self.tokens, self.restored = TOKENS, 0
        self.own = self.after_hit = {1: -0.1, 2: -3.0}  # the next token
        self.taken = len(TOKENS) - 1  # of a restored slot, by its word
        self.full, self._layout = False, layout

    def save(self, slot: int, timeout: float) -> bytes:
        hit = pattern(self._layout.model, len(TOKENS))
        hit.tokens = len(self.tokens)
        return b"".join(bytes(part) for part in self._layout.file_for(self.tokens, hit))

    def restore(self, slot: int, file: Sequence[Buffer], timeout: float,
                valid: Callable[[], bool] = lambda: True) -> None:
        if not valid():
            raise UpstreamError("taken back")
        self.restored += 1

    def tokens_of(self, text: str, timeout: float) -> Tokens:
        return TOKENS

    def compute(self, slot: int, tokens: Sequence[int], timeout: float) -> float:
        if self.full:
            raise UpstreamError("no room for so many")
        return 0.01

    def erase(self, slot: int, timeout: float) -> None:
        pass

    def next_token(self, slot: int, tokens: Tokens, reuse: bool, most: int,
                   timeout: float) -> Tuple[Dict[int, float], int]:
        return (self.after_hit, self.taken) if reuse else (self.own, 0)


class Echo(Given):
    """A server whose slot holds what was restored last, perhaps with another last byte."""

    def __init__(self, layout: Layout, data: bytes, damage: bool) -> None:
        super().__init__(layout)
        self._data, self._damage = data, damage

    def save(self, slot: int, timeout: float) -> bytes:
        return self._data

    def restore(self, slot: int, file: Sequence[Buffer], timeout: float,
                valid: Callable[[], bool] = lambda: True) -> None:
        self._data = b"".join(bytes(part) for part in file)
        self._data = self._data[:-1] + b"!" if self._damage else self._data


class Setting:
    def __init__(self, socket: str, namespace: str, folder: pathlib.Path,
                 shifts: bool = False, every: int = 0, row_bytes: int = 16) -> None:
        data = slot_file(range(8), [cache(range(8), 2, row_bytes)])
        self.layout = Layout(data, Gguf(gguf_files.written(folder)), ["llama.cpp"])
        self.server, self.report = Given(self.layout), Report("test")
        self.reuse = Reuse(self.server, Cache(socket, namespace, strict=True), self.layout,
                           self.layout.profile, Slots([0], shifts), self.report, 8, 20.0, 0.01,
                           Shadow(self.server, self.layout, every))
        self.prompt = Prompt(TOKENS)
        self.slot = Slot(0)  # once a turn was taken, that of the turn

    def hit(self) -> Dict[str, int]:
        """An answer after a restore that is proved."""
        with self.reuse.slots.taken(self.prompt.tokens) as self.slot:
            self.slot.tokens = NOTHING
            restored = self.reuse.restore(self.slot, self.prompt, len(TOKENS) - 1)
            self.reuse.finish(self.slot, self.prompt, restored,
                              {"cache_n": restored, "predicted_n": 1})
        self.reuse.settle()
        return self.report.counts()

    def turn(self, timings: Dict[str, int], restored: int = 0) -> Dict[str, int]:
        with self.reuse.slots.taken(self.prompt.tokens) as self.slot:
            self.reuse.finish(self.slot, self.prompt, restored, dict(timings))
        self.reuse.settle()
        return self.report.counts()


def test_an_answer_is_stored_and_restored(daemon: Daemon, namespace: str,
                                         tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    assert at.reuse.find(at.prompt) == 0
    assert at.turn(ANSWERED)["stores"] == 1
    assert at.reuse.find(at.prompt) == len(TOKENS) - 1
    assert at.reuse.restore(at.slot, at.prompt, len(TOKENS) - 1) == 0  # the slot has it all
    assert at.reuse.restore(Slot(0), at.prompt, len(TOKENS) - 1) == len(TOKENS) - 1
    assert at.server.restored == 1


def test_rows_that_the_service_takes_back_while_they_are_read_are_not_restored(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    at = Setting(daemon.socket, namespace, tmp_path, every=1)
    at.turn(ANSWERED)
    with monkeypatch.context() as changed:
        changed.setattr(Hit, "valid", lambda self: False)
        assert at.reuse.restore(Slot(0), at.prompt, len(TOKENS) - 1) == 0
    counts = at.report.counts()
    assert counts["failed_restore"] == 1 and "hits" not in counts and at.server.restored == 0
    hit = pattern(at.layout.model, len(TOKENS))
    monkeypatch.setattr(Hit, "valid", lambda self: False)
    with pytest.raises(UpstreamError, match="taken back"):
        Shadow(at.server, at.layout, 1).divergence(0, TOKENS, hit, 0.01)
    with pytest.raises(UpstreamError, match="took the rows back"):
        Upstream("http://127.0.0.1:1", str(tmp_path)).restore(0, [b"rows"], 1.0, hit.valid)


def test_three_restores_without_proof_end_it(daemon: Daemon, namespace: str,
                                            tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    at.turn(ANSWERED, restored=20)
    at.turn({"cache_n": 20, "predicted_n": 1}, restored=20)  # one that is proved starts anew
    for number in range(MISMATCHES):
        assert at.reuse.find(at.prompt) is not None
        assert at.turn(ANSWERED, restored=20)["mismatches"] == number + 2
    assert at.reuse.find(at.prompt) is None


def test_one_hit_in_n_is_computed_again(daemon: Daemon, namespace: str,
                                        tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path, every=3)
    at.turn(ANSWERED)
    for _ in range(7):
        counts = at.hit()
    assert counts["hits"] == 7 and counts["shadows"] == 2
    assert counts["shadow_millinats"] == 0 and "shadows_diverged" not in counts
    assert at.slot.sound and at.reuse.find(at.prompt) == len(TOKENS) - 1


def test_a_hit_with_another_next_token_ends_it(daemon: Daemon, namespace: str,
                                               tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path, every=1)
    stores = at.turn(ANSWERED)["stores"]
    at.server.after_hit = {2: -0.1, 1: -3.0}
    counts = at.hit()
    assert counts["shadows_diverged"] == 1 and counts["shadow_millinats"] > 2000
    assert counts["stores"] == stores, "what was computed on such rows is not stored"
    assert at.reuse.find(at.prompt) is None


def test_a_check_that_proves_nothing_ends_nothing(daemon: Daemon, namespace: str,
                                                  tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path, every=1)
    at.turn(ANSWERED)
    at.server.taken, at.server.after_hit = 5, {2: -0.1, 1: -3.0}
    assert at.hit()["shadows_unproved"] == 1
    at.server.after_hit = {}  # an answer that no server gives: kl() has nothing to go by
    at.server.taken = len(TOKENS) - 1
    assert at.hit()["failed_shadow"] == 1 and not at.slot.sound
    assert "shadows" not in at.report.counts() and at.reuse.find(at.prompt) is not None


def test_divergence_is_of_the_servers_own_most_probable_tokens() -> None:
    own = {1: math.log(0.5), 2: math.log(0.25), 3: math.log(0.25)}
    assert kl(own, own) == 0
    other = {1: math.log(0.25), 2: math.log(0.5), 3: math.log(0.25)}
    assert kl(own, other) == pytest.approx(0.25 * math.log(2))
    assert kl(own, {1: math.log(0.5), 9: math.log(0.01)}) > 1.5  # the others: 0.01 at most


def test_what_was_not_computed_in_order_is_not_stored(daemon: Daemon, namespace: str,
                                                     tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    cut: List[int] = [*TOKENS[:10].tolist(), *TOKENS[20:].tolist()]
    at.server.tokens = np.array(cut, "<i4")  # a context that was shifted
    assert "stores" not in at.turn(ANSWERED)
    at.server.tokens = TOKENS
    assert "stores" not in at.turn({"cache_n": 10, "predicted_n": 1})  # on rows of that slot
    assert at.turn(ANSWERED)["stores"] == 1  # computed anew


def test_an_answer_that_broke_off_is_kept_where_slots_stay_in_order(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path) -> None:
    shifting = Setting(daemon.socket, namespace, tmp_path, shifts=True)
    assert shifting.turn(ANSWERED)["stores"] == 1 and shifting.slot.sound
    assert shifting.turn({})["stores"] == 1 and not shifting.slot.sound
    at = Setting(daemon.socket, namespace + "2", tmp_path)
    at.server.tokens = TOKENS[:30]  # its client left while the prompt was computed
    assert at.turn({})["stores"] == 1 and at.slot.tokens.tolist() == TOKENS[:30].tolist()
    assert at.reuse.find(at.prompt) == 30


def test_another_server_ends_it(daemon: Daemon, namespace: str, tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    at.turn(ANSWERED)
    at.reuse._same_server = lambda: False
    assert at.reuse.restore(Slot(0), at.prompt, len(TOKENS) - 1) == 0
    assert at.server.restored == 0 and at.reuse.find(at.prompt) is None
    assert at.turn(ANSWERED)["stores"] == 1


def test_a_daemon_that_is_not_there_is_counted(namespace: str, tmp_path: pathlib.Path) -> None:
    at = Setting(str(tmp_path / "nobody"), namespace, tmp_path)
    assert at.reuse.find(at.prompt) is None and at.reuse.find(at.prompt) is None
    counts = at.report.counts()
    assert counts.pop("waited_us") >= 0 and counts == {"failed_lookup": 2}
    assert at.turn(ANSWERED)["failed_store"] == 1


def test_rows_on_the_ssd_are_waited_for(own_daemon: Daemon, namespace: str,
                                       tmp_path: pathlib.Path) -> None:
    at = Setting(own_daemon.socket, namespace, tmp_path)
    at.turn(ANSWERED)
    with Cache(own_daemon.socket, namespace, strict=True) as cache_:
        while cache_.stats()["spill_queue_bytes"]:
            time.sleep(0.01)
    own_daemon.kill()
    own_daemon.start()
    after = Setting(own_daemon.socket, namespace, tmp_path)
    assert after.reuse.find(after.prompt) == len(TOKENS) - 1
    assert after.reuse.restore(Slot(0), after.prompt, len(TOKENS) - 1) == len(TOKENS) - 1


@pytest.mark.parametrize("opaque", [False, True], ids=["rows", "whole"])
def test_the_self_check_refuses_a_server_that_gives_back_other_rows(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path, opaque: bool) -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    gguf = Gguf(gguf_files.written(tmp_path))
    data = (slot_file(TOKENS.tolist(), [cache(range(len(TOKENS)), 2, 34, kind=Q8_0)]) if opaque
            else at.server.save(0, 0))
    for damage in (False, True):
        echo = Echo(at.layout, data, damage)

        def attached(server: Echo = echo) -> Layout:
            return attach(server, lambda data: Layout(data, gguf, ["llama.cpp"]), 0)[0]
        if damage:
            with pytest.raises(CacheError, match="self check"):
                attached()
        else:
            assert bool(attached().opaque) == opaque


def test_keys_have_the_mean_and_gain_of_what_the_server_computes(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path, row_bytes=128)
    gguf = Gguf(gguf_files.written(tmp_path))
    layout = Layout(at.server.save(0, 0), gguf, ["llama.cpp"], (4, 4))
    rows = layout.source(at.server.save(0, 0))
    with Cache(daemon.socket, namespace, strict=True) as cache_:
        def asked() -> Any:
            return profile_of_keys(at.server, cache_, layout, 0, 0.01, at.report)
        at.server.full = True
        assert asked() is None, "a slot that computes no text"
        at.server.full, at.server.tokens = False, TOKENS[:20]
        assert asked() is None, "a slot that holds something else"
        at.server.tokens = TOKENS
        made = asked()
        keys = rows.rows(1, 0, Side.K, 4, len(TOKENS))
        assert keys is not None
        assert np.allclose(made.layers[1][0].key_mean, keys.astype("f8").mean(0).reshape(-1), 1e-3)
        assert made.layers[1][0].key_gain.size == keys[0].size
        cache_.open(layout.model, made)
        at.server.full = True
        assert asked().encode() == made.encode(), "it is in force"
        assert at.report.counts() == {"calibrated": 1}


def test_short_prompts_are_left_alone(daemon: Daemon, namespace: str,
                                     tmp_path: pathlib.Path) -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    assert at.reuse.find(Prompt(TOKENS[:7])) is None and not at.report.counts()


BROKEN_STREAM = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                 b'1d\r\ndata: {"content":"one","st\r\n')


@contextlib.contextmanager
def before(at: Setting) -> Iterator[Tuple[Proxy, Scripted]]:
    """The proxy with reuse in place, before a server that answers as it is told."""
    behind = Scripted()
    proxy = Proxy(("127.0.0.1", 0), Upstream(f"http://127.0.0.1:{behind.port}", ""), at.report)
    proxy.attach(at.reuse)
    threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield proxy, behind
    finally:
        proxy.shutdown()
        proxy.server_close()
        behind.close()


MEDIA = [{"type": "text", "text": "What is this?"},
         {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


def test_a_chat_with_media_is_passed_through_as_it_is(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path,
        capsys: "pytest.CaptureFixture[str]") -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    at.turn(ANSWERED)
    body = json.dumps({"messages": [{"role": "user", "content": MEDIA}]}).encode()
    with before(at) as (proxy, behind), at.reuse.slots.taken(TOKENS) as slot:
        assert slot.sound
        for _ in range(2):
            assert posted(proxy, "/v1/chat/completions", body) == (200, b"data:")
        assert [request.split(b"\r\n\r\n", 1)[1] for request in behind.requests] == [body, body]
        assert not slot.sound, "what it holds by now may be the image's rows"
    assert at.report.counts()["passed_through"] == 2 and at.server.restored == 0
    assert capsys.readouterr().err.count("a chat with media") == 1


def test_a_server_that_dies_within_its_answer_leaves_nothing_stored(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    at = Setting(daemon.socket, namespace, tmp_path)
    monkeypatch.setitem(BROKEN, "/completion", BROKEN_STREAM)
    body = json.dumps({"prompt": TOKENS.tolist(), "stream": True}).encode()

    def dead(slot: int, timeout: float) -> bytes:
        raise UpstreamError("nobody is there")
    with before(at) as (proxy, behind):
        with monkeypatch.context() as dying:
            dying.setattr(at.server, "save", dead)
            with pytest.raises(http.client.IncompleteRead):
                posted(proxy, "/completion", body)
            at.reuse.settle()
            assert at.report.counts()["failed_save"] == 1, "once its client knows"
        assert behind.requests[0].split(b"\r\n\r\n", 1)[1].startswith(b'{"id_slot":0,')
        assert at.report.counts()["answers_broken"] == 1 and "stores" not in at.report.counts()
        with at.reuse.slots.taken(TOKENS) as slot:
            assert not slot.sound and len(slot.tokens) == 0
    assert at.reuse.find(at.prompt) == 0
    assert at.turn(ANSWERED)["stores"] == 1, "of one that computes anew"
