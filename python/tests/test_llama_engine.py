"""cachesvc-llama, llama.cpp's server and the daemon, all real: what one process computed, the next
one reuses, with the same text; and whatever is killed, stopped or unknown, an answer comes.

Texts are compared of answers that are computed in the same way. A prompt's last token computed
beside the others or by itself gives logits that differ by tenths of a nat, so that of two tokens
that are equally likely either may come: after a restore the same text comes as from the server's
own slot, which may be another one than it was at first.
"""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import time
import urllib.request
from typing import Any, Callable, Dict, List, Tuple

import pytest

from cachesvc import Cache
from cachesvc.checks import pattern
from cachesvc.errors import CacheError
from cachesvc.frames import Type
from cachesvc.llama import what_changes_rows
from cachesvc.llama_check import TOKENS
from cachesvc.llama_gguf import Gguf
from cachesvc.llama_rows import Layout
from cachesvc.llama_slot import encode, parse
from cachesvc.models import Model, full

from daemon import PROGRAM, ROOT, Daemon
from gguf_files import split_in_two
from given import plan_file, transformed
from llama_engine import (LONG_S, Message, Server, bare, launched, model_file, proxied,
                          server_command, text, wait_until)
from proxy import Proxy, ending

pytestmark = pytest.mark.engines
COUNTING = ", ".join(str(number) for number in range(1, 130)) + ","
MODELS = ("KV_SMOLLM2_GGUF", "KV_GEMMA3_GGUF")
# Half of it is what a stopped daemon costs. One that a busy machine does not keep costs more: each
# look-up that comes too late doubles the pause before the next one, up to a minute.
STOPPED = ("--budget-ms", "4000")
QUESTIONS = ("How do I start it?", "Where does it keep things?", "And if it is killed?",
             "What is a namespace?", "Thank you. In one word?")


def asked(system: str, question: str) -> List[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


@pytest.mark.parametrize("name", MODELS)
def test_a_fresh_process_reuses_what_another_one_computed(daemon: Daemon, namespace: str,
                                                          name: str) -> None:
    model = model_file(name)
    system = text(0, 700)
    with proxied(daemon.socket, namespace, launched(model)) as first:
        assert first.counts().get("attached") == 1
        cold = first.chat(asked(system, QUESTIONS[0]))
        assert cold.reused == 0
        first.wait_for("stores")
        own = first.chat(asked(system, QUESTIONS[0]))
    with proxied(daemon.socket, namespace, launched(model)) as second:
        other = second.chat(asked(system, QUESTIONS[1]))
        # All of the system prompt; on Gemma-3 from a checkpoint, one token less.
        assert cold.prompt - 30 < other.reused < other.prompt
        again = second.chat(asked(system, QUESTIONS[0]))
        windowed = int("GEMMA" in name)
        assert again.reused == cold.prompt - 1 - windowed == own.reused
        assert again.text == own.text
        counts = second.counts()
        assert counts["hits"] == 2 and "mismatches" not in counts
        print(f"{name}: cold {cold.seconds:.2f} s, after a restart {again.seconds:.2f} s")


@pytest.mark.parametrize("name,bits", [(MODELS[0], ""), (MODELS[0], "8:4"), (MODELS[1], "")])
def test_a_hit_is_computed_again_and_agrees(daemon: Daemon, namespace: str, name: str,
                                            bits: str) -> None:
    model = model_file(name)
    system = text(0, 1500)
    options = ("--bits", bits) if bits else ()
    with proxied(daemon.socket, namespace, launched(model), *options) as first:
        first.chat(asked(system, QUESTIONS[0]))
        first.wait_for("stores")
    with proxied(daemon.socket, namespace, launched(model), "--shadow", "1", *options) as second:
        second.chat(asked(system, QUESTIONS[1]))
        counts = second.wait_for("shadows", "failed_shadow", "shadows_unproved")
        assert counts["shadows"] == 1 and "shadows_diverged" not in counts
        print(f"{name} {bits or 'lossless'}: {counts['shadow_millinats']} thousandths of a nat")
        again = second.chat(asked(system, QUESTIONS[2]))  # the slot goes on from its own rows
        assert again.reused > again.prompt / 2


def test_rows_of_other_values_end_the_caching(daemon: Daemon, namespace: str,
                                              tmp_path: pathlib.Path) -> None:
    model = model_file("KV_SMOLLM2_GGUF")
    with bare(model, str(tmp_path)) as server:
        body = {"prompt": TOKENS.tolist(), "n_predict": 1, "id_slot": 0}
        server.call("/completion", body)
        server.call("/slots/0?action=save", {"filename": "file"})
    # Under the model's own name and tokens a store that has something else.
    others = ["llama.cpp", "", *what_changes_rows(server_command(model)), "[]"]
    layout = Layout((tmp_path / "file").read_bytes(), Gguf(model), others, None)
    rows = layout.source(b"".join(layout.file_for(TOKENS, pattern(layout.model, len(TOKENS)))))
    with Cache(daemon.socket, namespace, strict=True) as cache:
        cache.open(layout.model, layout.profile)
        cache.store_rows(layout.model, TOKENS, rows, timeout=LONG_S, profile=layout.profile)
    body = {"prompt": [*TOKENS.tolist(), 7], "n_predict": 2}
    with proxied(daemon.socket, namespace, launched(model), "--min-tokens", "16", "--shadow",
                 "1") as proxy:
        answer = proxy.call("/completion", body)
        assert answer["timings"]["cache_n"] == len(TOKENS), "they were restored"
        counts = proxy.wait_for("shadows", "failed_shadow", "shadows_unproved")
        assert counts["shadows_diverged"] == 1
        proxy.call("/completion", body)
        assert proxy.counts()["passed_through"] == 1


def test_a_window_is_restored_beyond_its_first_rows(daemon: Daemon, namespace: str) -> None:
    model = model_file("KV_GEMMA3_GGUF")
    question = asked(text(0, 2300), QUESTIONS[0])
    with proxied(daemon.socket, namespace, launched(model)) as first:
        cold = first.chat(question)
        assert cold.prompt > 600
        first.wait_for("stores")
    with proxied(daemon.socket, namespace, launched(model), "--shadow", "1") as second:
        again = second.chat(question)
        assert again.reused == cold.prompt - 2, second.counts()  # from a checkpoint
        counts = second.wait_for("shadows", "failed_shadow", "shadows_unproved")
        assert counts["shadow_millinats"] < 100 and "mismatches" not in counts
        print(f"{counts['shadow_millinats']} thousandths of a nat")


def test_a_system_message_is_kept_that_a_ring_loses(daemon: Daemon, namespace: str) -> None:
    """Its question is longer than a window: the server's own checkpoint has the rows. The template
    leaves out the spaces at both texts' ends."""
    model = model_file("KV_GEMMA3_GGUF")
    system = text(0, 1900) + "\n"
    with proxied(daemon.socket, namespace, launched(model)) as first:
        first.chat(asked(system, text(2000, 3400) + "\n"))
        assert first.wait_for("stores")["stored_ends"] == 2
    with proxied(daemon.socket, namespace, launched(model), "--shadow", "1") as second:
        again = second.chat(asked(system, QUESTIONS[0]))
        assert again.reused > 512 and again.prompt - 40 < again.reused < again.prompt
        counts = second.wait_for("shadows", "failed_shadow", "shadows_unproved")
        assert counts["shadow_millinats"] < 100 and "mismatches" not in counts


def test_a_model_in_two_files_is_served(daemon: Daemon, namespace: str,
                                        tmp_path: pathlib.Path) -> None:
    model = split_in_two(model_file("KV_SMOLLM2_GGUF"), tmp_path)
    question = asked(text(0, 400), QUESTIONS[0])
    with proxied(daemon.socket, namespace, launched(model)) as first:
        first.chat(question)
        first.wait_for("stores")
    with proxied(daemon.socket, namespace, launched(model)) as second:
        again = second.chat(question)
        assert again.reused == again.prompt - 1


def test_a_client_that_leaves_is_no_loss(daemon: Daemon, namespace: str) -> None:
    model = model_file("KV_SMOLLM2_GGUF")
    body = {"messages": asked(text(0, 400), QUESTIONS[0]), "max_tokens": 500, "stream": True}
    with proxied(daemon.socket, namespace, launched(model)) as proxy:
        request = urllib.request.Request(proxy.url + "/v1/chat/completions",
                                         json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=LONG_S) as reply:
            for _ in range(8):
                reply.readline()
        assert proxy.wait_for("stores")["answers_broken"] == 1
    with proxied(daemon.socket, namespace, launched(model)) as second:
        again = second.chat(asked(text(0, 400), QUESTIONS[0]))
        assert again.reused == again.prompt - 1


def test_coded_rows_are_reused_too(daemon: Daemon, namespace: str) -> None:
    model = model_file("KV_SMOLLM2_GGUF")
    question = asked(text(0, 900), QUESTIONS[0])
    with proxied(daemon.socket, namespace, launched(model), "--bits", "4:4") as first:
        cold = first.chat(question)
        assert cold.prompt > 256
        assert first.wait_for("stores")["calibrated"] == 1
    with proxied(daemon.socket, namespace, launched(model), "--bits", "4:4", "--shadow",
                 "1") as second:
        again = second.chat(question)
        assert again.reused == cold.prompt - 1 and again.text
        counts = second.wait_for("shadows", "failed_shadow", "shadows_unproved")
        assert "calibrated" not in counts and "shadows_diverged" not in counts
        print(f"4 bits: {counts['shadow_millinats']} thousandths of a nat")
    with proxied(daemon.socket, namespace + "-small", launched(model, "-c", "512"), "--bits",
                 "4:4") as small:
        assert small.counts()["not_calibrated"] == 1 and small.chat(question).text


def test_rows_are_coded_as_a_plan_says(daemon: Daemon, namespace: str,
                                       tmp_path: pathlib.Path) -> None:
    model, plan = model_file("KV_SMOLLM2_GGUF"), tmp_path / "plan"
    profile = transformed(Model("", bytes(32), [[full(3, 64)] for _ in range(30)]), 1 / 16, 3)
    plan.write_bytes(plan_file(profile, Gguf(model).engine_fingerprint()))
    question = asked(text(0, 900), QUESTIONS[0])
    cache = Cache(daemon.socket, namespace, strict=True)
    before = cache.stats()
    with proxied(daemon.socket, namespace, launched(model), "--plan", str(plan)) as first:
        cold = first.chat(question)
        assert cold.prompt > 256
        first.wait_for("stores")
    after = cache.stats()
    cache.close()
    assert after["encoded_planes"] - before["encoded_planes"] >= 60
    assert after["encode_raw_fallbacks"] == before["encode_raw_fallbacks"]
    with proxied(daemon.socket, namespace, launched(model), "--plan", str(plan), "--shadow",
                 "1") as second:
        again = second.chat(question)
        assert again.reused == cold.prompt - 1 and again.text
        counts = second.wait_for("shadows", "failed_shadow", "shadows_unproved")
        assert "shadows_diverged" not in counts and "not_calibrated" not in counts
        print(f"a plan: {counts['shadow_millinats']} thousandths of a nat")
    plan.write_bytes(plan_file(profile, b"m" * 32))
    with proxied(daemon.socket, namespace, launched(model), "--plan", str(plan)) as other:
        assert other.counts()["refused"] == 1 and other.chat(question).reused == 0


def test_five_turns_with_a_daemon_that_is_killed_and_one_that_is_stopped(
        own_daemon: Daemon, namespace: str, tmp_path: pathlib.Path) -> None:
    """The texts are those of the server alone, whatever happens to the daemon."""
    model = model_file("KV_SMOLLM2_GGUF")
    with bare(model, str(tmp_path)) as alone:
        expected = talk(alone, {})
        from_slot = alone.chat(conversation(expected, 4)).text
    happens = {1: lambda: own_daemon.signal(signal.SIGSTOP),
               2: lambda: own_daemon.signal(signal.SIGCONT), 3: own_daemon.kill,
               4: own_daemon.start}
    with proxied(own_daemon.socket, namespace, launched(model), *STOPPED) as proxy:
        assert talk(proxy, happens) == expected
        assert proxy.counts()["failed_lookup"] >= 2 and proxy.counts()["passed_through"] >= 2
        before, end = proxy.counts().get("stores", 0), time.monotonic() + LONG_S
        while proxy.counts().get("stores", 0) == before:  # it is there again by itself
            assert time.monotonic() < end
            proxy.chat(conversation(expected, 4))
    with proxied(own_daemon.socket, namespace, launched(model)) as fresh:
        last = fresh.chat(conversation(expected, 4))
        assert last.reused == last.prompt - 1 and last.text == from_slot


@pytest.mark.parametrize("reply,ends", [(Type.FETCH_OBJECT, signal.SIGKILL),
                                        (Type.FETCH_OBJECT, signal.SIGSTOP),
                                        (Type.PUT_OK, signal.SIGKILL)])
def test_a_daemon_that_ends_within_a_reply_is_a_miss(own_daemon: Daemon, namespace: str,
                                                     reply: Type, ends: signal.Signals) -> None:
    model = model_file("KV_SMOLLM2_GGUF")
    question, fetches = asked(text(0, 2000), QUESTIONS[0]), reply == Type.FETCH_OBJECT
    with proxied(own_daemon.socket, namespace, launched(model)) as first:
        cold = first.chat(question).text
        first.wait_for("stores")
        from_slot = first.chat(question).text
        first.wait_for("stores", more_than=1)
    with Cache(own_daemon.socket, namespace, strict=True) as cache:
        wait_until(lambda: cache.stats()["spill_queue_bytes"] == 0)
    change, ended = ending(reply, lambda: own_daemon.signal(ends), ends == signal.SIGSTOP)
    between = Proxy(own_daemon.socket)
    between.begin(change)
    there = namespace if fetches else namespace + "-empty"
    with proxied(between.path, there, launched(model), *STOPPED) as second:
        answer = second.chat(question)
        assert (answer.text, answer.reused) == (cold, 0)
        second.wait_for("failed_restore" if fetches else "failed_store")
        assert len(ended) == 1 and "hits" not in second.counts()
        own_daemon.stop()
        own_daemon.start()
    between.close()
    with proxied(own_daemon.socket, there, launched(model)) as third:
        again = third.chat(question)
        assert again.text == (from_slot if fetches else cold)
        assert (again.reused > 0) == fetches


def conversation(answers: List[str], turn: int) -> List[Message]:
    messages = asked(text(0, 500), QUESTIONS[0])
    for number in range(turn):
        messages += [{"role": "assistant", "content": answers[number]},
                     {"role": "user", "content": QUESTIONS[number + 1]}]
    return messages


def talk(server: Server, happens: Dict[int, Any]) -> List[str]:
    """Five turns; before some of them something happens."""
    answers: List[str] = []
    for turn in range(5):
        happens.get(turn, lambda: None)()
        answers.append(server.chat(conversation(answers, turn)).text)
    return answers


def test_other_weights_under_the_same_name_are_a_miss(daemon: Daemon, namespace: str,
                                                      tmp_path: pathlib.Path) -> None:
    model = model_file("KV_SMOLLM2_GGUF")
    copy = tmp_path / os.path.basename(model)
    shutil.copyfile(model, copy)
    question = asked(text(0, 400), QUESTIONS[0])
    with proxied(daemon.socket, namespace, launched(str(copy))) as first:
        first.chat(question)
        first.wait_for("stores")
    with open(copy, "r+b") as file:  # one layer or so, as another training would leave it
        file.seek(copy.stat().st_size // 2)
        weights = file.read(1 << 20)
        file.seek(-len(weights), os.SEEK_CUR)
        file.write(bytes(byte ^ (at % 64 == 0) for at, byte in enumerate(weights)))
    with proxied(daemon.socket, namespace, launched(str(copy))) as second:
        assert second.chat(question).reused == 0
        assert second.counts()["misses"] == 1


def test_quantised_rows_are_kept_whole_and_served_at_their_exact_length(
        daemon: Daemon, namespace: str) -> None:
    model = model_file("KV_SMOLLM2_GGUF")
    options = ("-ctk", "q8_0", "-ctv", "q8_0")
    question = asked(text(0, 400), QUESTIONS[0])
    with proxied(daemon.socket, namespace, launched(model, *options)) as first:
        answer = first.chat(question)
        first.wait_for("stores")
    longer = question + [{"role": "assistant", "content": answer.text},
                         {"role": "user", "content": QUESTIONS[1]}]
    with proxied(daemon.socket, namespace, launched(model, *options)) as second:
        other = second.chat(asked(text(0, 400), QUESTIONS[2]))
        assert other.prompt - 30 < other.reused < other.prompt, "of the system message"
        assert second.chat(longer).reused >= answer.prompt
        assert second.counts()["hits"] == 2


def test_before_a_server_that_runs_and_what_it_does_not_understand(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path) -> None:
    model = model_file("KV_SMOLLM2_GGUF")
    folder = str(tmp_path)
    with bare(model, folder, "-np", "2") as server:
        upstream = ["--upstream", server.url, "--slot-folder", folder]
        with proxied(daemon.socket, namespace, upstream) as proxy:
            body = {"prompt": COUNTING, "n_predict": 4, "temperature": 0, "stream": True}
            proxy.raw("/completion", body)  # from now on all but one token of it is in the slot
            proxy.wait_for("stores")
            through = proxy.raw("/completion", body)
            # At once after an answer: the same slot, not the other one that is free already.
            for _ in range(3):
                assert slot_of(proxy.raw("/completion", body)) == slot_of(through)
            wait_until(lambda: sum(proxy.counts().get(name, 0) for name in
                                   ("stores", "stores_dropped")) == 5)
            direct = server.raw("/completion", body)
            assert plain(through) == plain(direct)
            assert proxy.raw("/props") == server.raw("/props")
            tokens = server.call("/tokenize", {"content": text(0, 400)})["tokens"]
            theirs: List[Dict[str, Any]] = [{"cache_prompt": False}, {"id_slot": 1},
                                            {"n_predict": 0}, {"prompt": [tokens, tokens]}]
            for fields in theirs:
                proxy.call("/completion", {"prompt": tokens, "n_predict": 1, **fields})
            assert proxy.counts()["passed_through"] == len(theirs)
            assert proxy.call("/lora-adapters", []) == server.call("/lora-adapters", [])
            proxy.raw("/completion", body)  # other adapters, other rows: it has stepped aside
            assert proxy.counts()["passed_through"] == len(theirs) + 1
        assert not os.listdir(folder)
        check_codec(server, folder)
    if "KV_GEMMA3_GGUF" in os.environ:
        with bare(model_file("KV_GEMMA3_GGUF"), folder) as server:
            check_codec(server, folder)


def slot_of(events: bytes) -> bytes:
    found: List[bytes] = re.findall(rb'"id_slot":\d+', events)
    return found[-1]


def plain(events: bytes) -> bytes:
    """A stream without what differs by the clock and by slots."""
    return re.sub(rb'"timings":\{[^}]*\}|"id_slot":-?\d+|"tokens_cached":\d+', b"", events)


def check_codec(server: Server, folder: str) -> None:
    """Real files are written again byte for byte; cut and changed ones are errors, or other files
    that are written again as they are."""
    server.call("/completion", {"prompt": text(0, 1500), "n_predict": 4, "id_slot": 0})
    server.call("/slots/0?action=save", {"filename": "file"})
    data = pathlib.Path(folder, "file").read_bytes()
    assert b"".join(encode(parse(data))) == data
    chance = random.Random(3)
    for _ in range(100):
        with pytest.raises(CacheError):
            parse(data[:chance.randrange(len(data))])
    for _ in range(100):
        changed = bytearray(data)
        changed[chance.randrange(8000)] ^= 1 << chance.randrange(8)
        try:
            again = b"".join(encode(parse(changed)))
        except CacheError:
            continue
        assert again == changed
