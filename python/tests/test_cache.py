"""Cache against the real daemon: what is stored is what is fetched, and what is not is a miss."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cachesvc import (Cache, CacheError, Code, Dtype, FetchOptions, Hit, Level, Newest, Output,
                      Query, Side, Tier, raw_profile)
from cachesvc.models import Model, full, state
from cachesvc.objects import Form
from cachesvc.wire import as_tokens

from daemon import Daemon
from given import Array, Computed, chunked, hybrid, plain, sinks, transformed, values, windowed


def joined(model: Model, tokens: Array, layer: int, side: Side, span: range) -> Array:
    fields = model.part(layer, 0)
    return values(tokens, layer, side, span.start, span.stop, fields.heads, fields.dim(side))


def check_rows(hit: Hit, model: Model, tokens: Array) -> None:
    """Every selected row and state of a hit is that of the formula."""
    for layer, index, part in model.parts():
        if not hit.selection.has(layer, index):
            continue
        source = Computed(model, tokens, Dtype.F32)
        heads = slice(*hit.selection.heads) if part.heads > 1 else slice(None)
        for side in part.sides:
            for first, end in (part.newest_rows(hit.tokens), part.sinks(hit.tokens)):
                first = min(max(first, hit.selection.from_token), end)
                got = hit.rows(layer, index, side, first, end).astype(np.float32)
                expected = source.rows(layer, index, side, first, end)[:, heads]
                assert np.array_equal(got, expected)
        if part.is_state or part.has_carry(hit.tokens):
            state = hit.state(layer, index)
            assert state is not None
            assert bytes(state) == source.state(layer, index, hit.tokens)


def test_what_is_stored_comes_back_as_stored_and_decoded(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(600)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        stored = cache.store_rows(model, tokens, Computed(model, tokens))
        assert stored.level >= Level.ACCEPTED and stored.objects == 3
        for output, dtype in ((Output.STORED, "<f2"), (Output.F16, "<f2"), (Output.F32, "<f4")):
            hit = cache.fetch_rows(model, tokens, options=FetchOptions(output))
            assert hit.tokens == 599 and hit.tier == Tier.RAM and hit.newest == Newest.EXACT_TAIL
            keys, rows = hit.keys_values(1)
            assert keys.dtype == dtype and keys.shape == rows.shape == (599, 2, 32)
            check_rows(hit, model, tokens)


def test_bf16_comes_as_its_bits(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(20)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        profile = raw_profile(model, Dtype.BF16)
        cache.store_rows(model, tokens, Computed(model, tokens, Dtype.BF16), profile=profile)
        for output in (Output.BF16, Output.STORED):
            keys, _ = cache.fetch_rows(model, tokens, options=FetchOptions(output)).keys_values(0)
            assert keys.dtype == np.uint16
            assert np.array_equal((keys.astype("<u4") << 16).view("<f4"),
                                  joined(model, tokens, 0, Side.K, range(19)))


def test_rows_come_in_the_models_dtype_unless_asked_for_otherwise(daemon: Daemon,
                                                                 namespace: str) -> None:
    tokens = np.arange(20)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        for tag, dtype in enumerate(Dtype, 1):
            model = Model("m", bytes([tag]) * 32, [[state()], [full(2, 32, dtype=dtype)]])
            cache.store_rows(model, tokens[:-1], Computed(model, tokens))
            assert cache.fetch_rows(model, tokens).rows(1).dtype == dtype.numpy
        only = Model("m", b"s" * 32, [[state()]])
        cache.store_rows(only, tokens[:-1], Computed(only, tokens))
        assert cache.fetch_rows(only, tokens).tokens == 19


def test_streams_come_whole_and_close_when_decoded(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(520)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens), profile=transformed(model))
        hit = cache.fetch_rows(model, tokens, options=FetchOptions(Output.F16))
        assert hit.tokens == 519
        for layer in range(2):
            for side, rows in zip((Side.K, Side.V), hit.keys_values(layer)):
                wrong = rows.astype("<f4") - joined(model, tokens, layer, side, range(519))
                assert not wrong[:4].any() and not wrong[512:].any()
                assert 0 < np.abs(wrong).max() <= 1 / 32 + 1 / 512
        stored = cache.fetch_rows(model, tokens, options=FetchOptions(Output.STORED))
        forms = [rows.form for rows in stored.pieces(0)]
        assert forms == [Form.EXACT, Form.STREAM, Form.STREAM, Form.EXACT]


def test_codes_come_as_codes_and_close_when_decoded(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(300)
    profile = raw_profile(model)
    profile.k_bits = profile.v_bits = 8
    for parts in profile.layers:
        parts[0].k_bits = parts[0].v_bits = 8
    with Cache(daemon.socket, namespace, strict=True) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens), profile=profile)
        hit = cache.fetch_rows(model, tokens)
        assert np.abs(hit.rows(0) - joined(model, tokens, 0, Side.K, range(299))).max() < 0.1
        hit = cache.fetch_rows(model, tokens, options=FetchOptions(Output.STORED))
        assert hit.tokens == 299
        assert [p.form.name for p in hit.pieces(0)] == ["EXACT", "CODES", "EXACT"]
        with pytest.raises(CacheError):
            hit.rows(0)


@pytest.mark.parametrize("model", [plain(), windowed(), sinks(), chunked(), hybrid()],
                         ids=lambda model: str(model.name))
def test_every_kind_is_stored_and_fetched(daemon: Daemon, namespace: str, model: Model) -> None:
    tokens = np.arange(700)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        # One token less, so that the same prompt is served: a state is one position's.
        stored = cache.store_rows(model, tokens[:-1], Computed(model, tokens))
        assert stored.level >= Level.ACCEPTED and not stored.lost
        hit = cache.fetch_rows(model, tokens)
        assert hit.tokens == 699, hit.why
        check_rows(hit, model, tokens)
        again = cache.store_rows(model, tokens[:-1], Computed(model, tokens))
        assert again.level >= Level.ACCEPTED
        other = np.concatenate([tokens[:400], tokens[400:] + 1000])
        part = cache.fetch_rows(model, other)
        assert part.common == 400
        if part:
            check_rows(part, model, other)
        else:
            assert part.why


def test_a_shared_prefix_is_a_hit_and_is_not_sent_again(daemon: Daemon, namespace: str) -> None:
    model = plain()
    first = np.arange(700)
    second = np.concatenate([first[:600], first[600:] + 5000])
    with Cache(daemon.socket, namespace, strict=True) as cache:
        assert cache.store_rows(model, first, Computed(model, first)).objects == 3
        hit = cache.fetch_rows(model, second)
        assert hit.tokens == hit.common == 600
        check_rows(hit, model, second)
        assert cache.store_rows(model, second, Computed(model, second)).objects == 1
        check_rows(cache.fetch_rows(model, second), model, second)


def test_arrays_by_layer_are_enough_for_a_plain_model(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(260)
    rows = [(joined(model, tokens, layer, Side.K, range(260)),
             joined(model, tokens, layer, Side.V, range(260))) for layer in range(2)]
    with Cache(daemon.socket, namespace) as cache:
        assert cache.store_rows(model, tokens.tolist(), rows).level >= Level.ACCEPTED
        check_rows(cache.fetch_rows(model, tokens.tolist()), model, tokens)
        short = cache.store_rows(model, tokens + 1, [rows[0]])
        assert not short and short.error is not None
        assert short.error.code == Code.INVALID_ARGUMENT and "layers" in str(short.error)
        fewer = cache.store_rows(model, tokens + 1, [(k[5:], v[5:]) for k, v in rows])
        assert not fewer and "not given" in str(fewer.error)
        assert cache.failures == {"invalid_argument": 2}
        assert cache.fetch_rows(model, tokens)


def test_extras_divide_what_equal_tokens_would_share(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(40)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens), extras=[(10, b"an image")])
        assert cache.fetch_rows(model, tokens, extras=[(10, b"an image")]).tokens == 39
        assert cache.fetch_rows(model, tokens, extras=[(10, b"another")]).tokens == 10
        assert cache.fetch_rows(model, tokens).tokens == 10


def test_lookup_prefetch_limits_and_erase(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(600)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        assert cache.lookup(model, tokens).tokens == 0
        cache.store_rows(model, tokens, Computed(model, tokens), wait_for=Level.SPILLED)
        assert cache.lookup(model, tokens).tokens == 599
        assert cache.prefetch(model, tokens).tier == Tier.RAM
        assert cache.fetch_rows(model, tokens, options=FetchOptions(max_tokens=0)).tokens == 0
        rounded = FetchOptions(round_to_block=True)
        assert cache.fetch_rows(model, tokens, options=rounded).tokens == 512
        with pytest.raises(CacheError) as error:
            cache.fetch_rows(model, tokens, options=FetchOptions(max_reply_bytes=1000))
        assert error.value.code == Code.RESOURCE_EXHAUSTED
        assert cache.stats()["stores"] >= 1
        assert cache.erase(model, tokens) >= 1
        assert cache.lookup(model, tokens).tokens < 599
        cache.erase(None)
        assert cache.lookup(model, tokens).tokens == 0


def test_many_lookups_at_once_answer_as_one_by_one(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(600)
    with Cache(daemon.socket, namespace, strict=True) as cache:
        cache.store_rows(model, tokens, Computed(model, tokens))
        marked = Query(as_tokens(tokens), [(20, b"image")])
        asked = [marked, *(tokens[:n] for n in range(1, 600, 5))]
        found = cache.lookup_all(model, asked)
        assert [f.tokens for f in found] == [20, *(n - 1 for n in range(1, 600, 5))]
        assert cache.lookup_all(model, []) == []
        profile = raw_profile(model, block_tokens=64)
        with Cache(daemon.socket, namespace, strict=True) as other:
            other.open(model, profile, replace=True)
        assert [f.tokens for f in cache.lookup_all(model, asked)] == [0] * len(asked)
        with pytest.raises(CacheError, match="extras"):
            cache.lookup_all(model, [tokens, Query(as_tokens(tokens), [(9999, b"")]), tokens])
        assert cache.lookup_all(model, [tokens])[0].reason == ""


def test_a_replaced_profile_is_opened_anew(daemon: Daemon, namespace: str) -> None:
    model, tokens = plain(), np.arange(300)
    with Cache(daemon.socket, namespace, strict=True) as ours, \
            Cache(daemon.socket, namespace, strict=True) as theirs:
        ours.store_rows(model, tokens, Computed(model, tokens))
        wanted = raw_profile(model, Dtype.F32, block_tokens=128)
        assert theirs.open(model, wanted).profile_id != wanted.id()  # one is in force
        assert theirs.open(model, wanted, replace=True).profile_id == wanted.id()
        assert ours.fetch_rows(model, tokens).tokens == 0  # of another profile
        other = tokens + 1000
        for cache, given in ((ours, tokens), (theirs, other)):
            stored = cache.store_rows(model, given, Computed(model, given))
            assert stored.objects == 3  # under 128 tokens a block
        for cache, given in ((ours, other), (theirs, tokens)):
            hit = cache.fetch_rows(model, given, options=FetchOptions(Output.STORED))
            assert hit.rows(0).dtype == np.float32
            check_rows(hit, model, given)


def test_objects_of_a_profile_that_replaced_ours_are_read_under_it(daemon: Daemon,
                                                                   namespace: str) -> None:
    model, tokens = plain(), np.arange(300)
    with Cache(daemon.socket, namespace, strict=True) as ours, \
            Cache(daemon.socket, namespace, strict=True) as theirs:
        before = ours.open(model).profile_id
        wanted = raw_profile(model, Dtype.F32, block_tokens=128)
        assert theirs.open(model, wanted, replace=True).profile_id != before
        theirs.store_rows(model, tokens, Computed(model, tokens))
        hit = ours.fetch_rows(model, tokens, options=FetchOptions(Output.STORED))
        assert hit.rows(0).dtype == np.float32 and len(hit.objects) == 3
        assert hit.profile is not None and hit.profile.id() == wanted.id()
        check_rows(hit, model, tokens)


def test_a_refusal_is_a_miss_that_says_why_and_the_next_call_goes_on(daemon: Daemon,
                                                                    namespace: str) -> None:
    bad = Model("odd", b"o" * 32, [])
    with Cache(daemon.socket, namespace) as cache:
        miss = cache.fetch_rows(bad, [1, 2, 3])
        assert miss.tokens == 0 and miss.error is not None and miss.why
        assert miss.error.call == "fetch_rows"
        assert sum(cache.failures.values()) == 1 and cache.last_error is miss.error
        assert cache.fetch_rows(plain(), [1, 2, 3]).error is None
    with Cache(daemon.socket, namespace, strict=True) as strict, pytest.raises(CacheError):
        strict.fetch_rows(bad, [1, 2, 3])


def test_values_that_are_not_finite_are_refused(daemon: Daemon, namespace: str) -> None:
    model = plain()
    rows = [(np.full((30, 2, 32), np.nan, np.float32),) * 2] * 2
    with Cache(daemon.socket, namespace) as cache:
        stored = cache.store_rows(model, range(30), rows)
        assert not stored and stored.error is not None
        assert stored.error.code == Code.INVALID_ARGUMENT
        assert cache.fetch_rows(model, range(30)).tokens == 0


def test_arguments_that_can_not_be_are_misses_that_name_field_and_limit(daemon: Daemon,
                                                                       namespace: str) -> None:
    model = plain()
    with Cache(daemon.socket, namespace) as cache:
        for tokens, extras, said in (([[1], [2, 3]], (), "tokens"), ([1 << 40], (), "i32"),
                                     (["a"], (), "tokens"), ([1], [(0, 7)], "extras"),
                                     ([1], [(-1, b"x")], "0 to 4294967295"),
                                     ([1], [(0, bytes(2000))], "0 to 1024")):
            miss = cache.fetch_rows(model, tokens, extras=extras)  # type: ignore[arg-type]
            assert miss.error is not None and miss.error.code == Code.INVALID_ARGUMENT, said
            assert said in miss.why
        short = Model("m", b"too short", model.layers)
        assert "fingerprint: 9 bytes, must be 32" in cache.fetch_rows(short, [1]).why
        assert cache.fetch_rows(model, [1, 2]).error is None
    with Cache(daemon.socket, "n" * 65) as cache:
        assert "namespace: 65, must be 1 to 64" in cache.fetch_rows(model, [1]).why


def test_what_a_row_source_raises_goes_through_and_the_next_call_goes_on(daemon: Daemon,
                                                                        namespace: str) -> None:
    model, tokens = plain(), np.arange(300)

    class Broken(Computed):
        def rows(self, *where: Any) -> Array:
            raise KeyError("no such layer")
    with Cache(daemon.socket, namespace) as cache:
        with pytest.raises(KeyError):
            cache.store_rows(model, tokens, Broken(model, tokens))
        assert cache.store_rows(model, tokens, Computed(model, tokens))
