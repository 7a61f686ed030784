"""Adapter with a small engine of its own and a real daemon: rows come back and are counted, and
whatever is wrong with them, with the daemon or with the engine ends in computing."""
from __future__ import annotations

import threading
import time
from typing import Any, List, Sequence

import numpy as np
import pytest

from cachesvc import Cache, calibrate
from cachesvc.adapter import WAITING_STORES, Stores
from cachesvc.checks import OneIn, divergence, pattern, same_rows, spans
from cachesvc.errors import CacheError, Code, Refused
from cachesvc.in_process import Adapter, Settings
from cachesvc.report import Report
from cachesvc.models import Dtype, Model, Profile, Side, profile_of
from cachesvc.sampled import PIECE_VALUES, fingerprint, places

import given
from daemon import ROOT, Daemon, started
from toy_engine import Toy, next_token

LONG_S = 20.0
PROMPT = [7 * i % 40 for i in range(300)]
KINDS = (given.plain(), given.windowed(), given.sinks())


class Setting:
    def __init__(self, socket: str, namespace: str, model: Model = KINDS[0],
                 **settings: Any) -> None:
        self.engine = Toy(model)
        settings = {"budget_s": LONG_S, **settings}
        self.adapter = Adapter(self.engine, Cache(socket, namespace, strict=True),
                               Settings(**settings))
        self.adapter.stores.settle()  # and the model is open
        self.engine.computed = 0

    def answer(self, prompt: List[int], ends: Sequence[int] = ()) -> int:
        """The next token; the prompt is stored."""
        past = self.engine.empty()
        there = self.adapter.load(prompt, past)
        if not there:
            past = self.engine.empty()
        entries = self.adapter.prefill(prompt, past, there, ends)
        token = next_token(self.engine, prompt, past, max(there, len(prompt) - 1))
        self.adapter.store(entries)
        self.adapter.stores.settle()
        return token

    def count(self, name: str) -> int:
        return self.adapter.report.counts().get(name, 0)


@pytest.mark.parametrize("model", KINDS, ids=[kind.name for kind in KINDS])
def test_what_one_computed_another_reuses(daemon: Daemon, namespace: str, model: Model) -> None:
    first, second = (Setting(daemon.socket, namespace, model) for _ in range(2))
    token = first.answer(PROMPT)
    assert first.engine.computed == len(PROMPT) and first.count("stores") == 1
    assert second.answer(PROMPT) == token
    assert second.engine.computed == 1 and second.count("reused_tokens") == len(PROMPT) - 1


def test_a_window_comes_back_at_the_ends_that_were_asked_for(daemon: Daemon,
                                                             namespace: str) -> None:
    first, second = (Setting(daemon.socket, namespace, KINDS[1]) for _ in range(2))
    first.answer(PROMPT, [150, 298, 300, 999])
    assert first.count("stores") == 3  # at 150, 298 and the 299 that a prompt of 300 has
    other = PROMPT[:150] + [1] * 50
    assert second.answer(other) == Setting(daemon.socket, "alone-" + namespace,
                                           KINDS[1]).answer(other)
    assert second.count("reused_tokens") == 150


def test_short_prompts_are_left_alone(daemon: Daemon, namespace: str) -> None:
    at = Setting(daemon.socket, namespace)
    at.answer(PROMPT[:50])
    assert set(at.adapter.report.counts()) <= {"copied_us"}


def test_rows_that_come_back_as_others_are_refused_by_name(daemon: Daemon, namespace: str) -> None:
    engine = Toy(KINDS[0])
    engine.swapped = True
    with pytest.raises(CacheError, match="the self check of toy"):
        Adapter(engine, Cache(daemon.socket, namespace, strict=True), Settings())


def test_one_hit_in_n_is_computed_again(daemon: Daemon, namespace: str) -> None:
    at = Setting(daemon.socket, namespace, shadow=2)
    for _ in range(5):
        at.answer(PROMPT)
    assert at.count("hits") == 4 and at.count("shadows") == 2
    assert at.count("shadow_millinats") == 0 and not at.adapter.aside


def test_a_hit_with_another_next_token_ends_it(daemon: Daemon, namespace: str,
                                               capfd: pytest.CaptureFixture[str]) -> None:
    liar = Setting(daemon.socket, namespace)
    liar.engine.swapped = True  # after its self check
    liar.answer(PROMPT)
    at = Setting(daemon.socket, namespace, shadow=1)
    at.answer(PROMPT)
    assert at.count("shadows_diverged") == 1 and at.adapter.aside
    at.answer(PROMPT)
    assert at.count("hits") == 1 and at.count("stores") == 0
    assert "no more caching" in capfd.readouterr().err


def test_other_weights_and_words_are_other_models(daemon: Daemon, namespace: str) -> None:
    Setting(daemon.socket, namespace).answer(PROMPT)
    other = Setting(daemon.socket, namespace, tag="lora")
    other.answer(PROMPT)
    assert other.count("misses") == 1 and other.count("hits") == 0
    assert fingerprint([("a", [b"12"])], ["x"]) != fingerprint([("a", [b"1", b"2"])], ["x"])
    assert fingerprint([("a", [b"1"])], ["x"]) != fingerprint([("a", [b"1"])], ["x", ""])


def test_rows_that_others_had_coded_are_no_hit(daemon: Daemon, namespace: str) -> None:
    """Whoever replaces the profile changes what a hit means, which was to be lossless."""
    at = Setting(daemon.socket, namespace)
    at.answer(PROMPT)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        model = at.adapter.model
        profile = profile_of(model, model.layers[0][0].dtype, (8, 4))
        cache.open(model, profile, replace=True)
        rows = at.adapter.entry(PROMPT, computed(at.engine))[1]
        cache.store_rows(model, PROMPT, rows, profile=profile)
    fresh = Setting(daemon.socket, namespace)
    fresh.answer(PROMPT)
    assert fresh.count("failed_load") == 1 and fresh.count("hits") == 0


def computed(engine: Toy) -> Any:
    past = engine.empty()
    engine.logits(PROMPT, past)
    return past


def test_without_a_daemon_the_engine_computes(namespace: str) -> None:
    """The one that comes codes what nobody wants otherwise."""
    with started("64MiB", "128MiB", "tq4") as daemon:
        daemon.kill()
        at = Setting(daemon.socket, namespace)
        token = at.answer(PROMPT)
        assert at.count("failed_open") == 1 and at.count("failed_load") == 1
        daemon.start()
        end, failed = time.monotonic() + LONG_S, 0
        while at.count("failed_load") > failed:  # the pause after a failure is a second at first
            failed = at.count("failed_load")
            time.sleep(0.2)
            at.adapter.load(PROMPT, at.engine.empty())
            assert time.monotonic() < end
        assert [at.answer(PROMPT), at.answer(PROMPT)] == [token, token]
        assert at.count("hits") == 1


def test_stores_are_dropped_where_too_many_wait() -> None:
    report, go = Report("test"), threading.Event()
    stores, began = Stores(report), threading.Event()

    def slow() -> None:
        began.set()
        go.wait()
    stores.later(slow)
    began.wait()
    for _ in range(WAITING_STORES + 3):
        stores.later(lambda: report.count("done"))
    go.set()
    stores.settle()
    assert report.counts() == {"stores_dropped": 3, "done": WAITING_STORES}


def test_a_pattern_knows_its_own_rows_only() -> None:
    model = given.sinks()
    hit = pattern(model, 200)
    assert spans(model.part(0, 0), 200) == [(0, 4), (151, 200)]
    assert spans(model.part(0, 0), 50) == [(0, 1), (1, 50)]
    assert spans(model.part(0, 0), 49) == [(0, 49)]
    source = given.Computed(model, [1] * 200)
    assert not same_rows(hit, source)


def test_places_cover_a_tensor_from_end_to_end() -> None:
    assert places(10) == [(0, 10)]
    found = places(1 << 20)
    assert found[0] == (0, PIECE_VALUES) and found[-1][1] == 1 << 20
    assert all(begin < end <= after for (begin, end), (after, _) in zip(found, found[1:]))


def test_one_in_and_divergence() -> None:
    third = OneIn(3)
    assert [third.due() for _ in range(6)] == [False, False, True] * 2
    assert not any(OneIn(0).due() for _ in range(5))
    first = OneIn(3, first=True)
    assert [first.due() for _ in range(5)] == [True, False, False, True, False]
    assert not OneIn(0, first=True).due()
    assert divergence(np.zeros(4), np.ones(4)) == 0
    assert divergence([0, 0], [np.log(3), 0]) == pytest.approx(0.5 * np.log(4 / 3))


def test_coded_keys_have_mean_and_gain_from_the_first_open_on(daemon: Daemon,
                                                             namespace: str) -> None:
    first = Setting(daemon.socket, namespace, bits=(4, 4), encode=letters)
    found = in_force(daemon, namespace, first)
    computed = len(letters(calibrate.text())[:calibrate.TOKENS])
    keys = given.values(np.array(letters(calibrate.text())), 1, Side.K, 4, computed, 2, 32)
    assert (found.k_bits, found.v_bits) == (4, 4)
    mean, gain = found.layers[1][0].key_mean, found.layers[1][0].key_gain
    assert np.allclose(mean, keys.mean(0).reshape(-1), atol=1e-3)
    # What varies less counts more, and nothing on the average.
    order = np.argsort(keys.var(0)[0])
    assert gain[order[0]] >= gain[order[-1]] and np.isclose((gain[:32] ** 2).mean(), 1, atol=0.01)
    second = Setting(daemon.socket, namespace, bits=(4, 4), encode=refused)  # it is not asked
    assert in_force(daemon, namespace, second).id() == found.id()
    token = first.answer(PROMPT)
    assert second.answer(PROMPT[:-1]) is not None and second.count("hits") == 1 and token


def test_without_tokens_of_the_text_coded_keys_have_8_bits(daemon: Daemon,
                                                          namespace: str) -> None:
    at = Setting(daemon.socket, namespace, bits=(3, 4))
    found = in_force(daemon, namespace, at)
    assert (found.k_bits, found.v_bits) == (8, 4) and not len(found.layers[0][0].key_mean)


def in_force(daemon: Daemon, namespace: str, at: Setting) -> Profile:
    with Cache(daemon.socket, namespace, strict=True) as cache:
        return cache.open(at.adapter.model).profile


def letters(text: str) -> List[int]:
    return [ord(letter) % 97 for letter in text]


def refused(text: str) -> List[int]:
    raise AssertionError("the text is computed a second time")


def test_the_text_is_the_engine_s() -> None:
    source = (ROOT / "engine/calibration_text.cc").read_text(encoding="utf-8")
    assert f'R"TEXT({calibrate.text()})TEXT"' in source


def test_known_puts_no_profile_in_force(daemon: Daemon, namespace: str) -> None:
    model = given.plain(9)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        with pytest.raises(Refused) as error:
            cache.known(model, profile_of(model, Dtype.F16, (4, 4)))
        assert error.value.code == Code.UNSUPPORTED
        assert cache.open(model, profile_of(model, Dtype.F16, (2, 3))).profile.k_bits == 2
        assert cache.known(model, profile_of(model, Dtype.F16, (4, 4))).profile.k_bits == 2
