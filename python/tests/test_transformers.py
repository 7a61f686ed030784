"""The adapter of transformers, unmodified, and the daemon, both real: what one process computed,
another one reuses with the very tokens and logits; and whatever is killed, stopped or unknown, an
answer comes."""
from __future__ import annotations

import random
import signal
import time
from typing import Any, Iterator, List

import pytest

from cachesvc.frames import Type

from daemon import Daemon
from engine_process import EngineProcess as Process
from proxy import Proxy, ending

pytestmark = pytest.mark.engines
KINDS = ("llama", "gemma3", "qwen3_next", "falcon_h1")
LONG_S = 120.0


def started() -> Iterator[Process]:
    worker = Process("TRANSFORMERS", "transformers_engine.py")
    yield worker
    worker.close()


@pytest.fixture(scope="module", name="first")
def first_process() -> Iterator[Process]:
    yield from started()


@pytest.fixture(scope="module", name="second")
def second_process() -> Iterator[Process]:
    yield from started()


def text(seed: int, tokens: int) -> List[int]:
    chance = random.Random(seed)
    return [chance.randrange(3, 250) for _ in range(tokens)]


@pytest.mark.parametrize("kind,dtype", [*((kind, "float32") for kind in KINDS),
                                        ("llama", "bfloat16"), ("gemma3", "float16")])
def test_another_process_gets_the_tokens_and_logits_of_the_cold_run(
        daemon: Daemon, namespace: str, first: Process, second: Process, kind: str,
        dtype: str) -> None:
    at = {"kind": kind, "socket": daemon.socket, "namespace": namespace, "dtype": dtype}
    prompt = text(1, 300)  # over a block, and over gemma3's window of 64
    assert first.call("attach", **at) == second.call("attach", **at)
    cold = first.call("generate", tokens=prompt)
    assert cold["stores"] == 2 and not cold["hits"]  # the prompt, and all with the answer
    assert cold["tokens"] == first.call("generate", tokens=prompt, cached=False)["tokens"]
    hit = second.call("generate", tokens=prompt)
    assert hit["hits"] == 1 and hit["reused_tokens"] == 299
    assert (hit["tokens"], hit["logits"]) == (cold["tokens"], cold["logits"])
    static = second.call("static", tokens=prompt)
    assert static["loaded"] == 299
    print(f"{kind} {dtype}: logits by a StaticCache {static['apart']:.1e} apart")
    assert static["apart"] < (5e-6 if dtype == "float32" else 0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_five_turns_each_go_on_from_the_one_before(daemon: Daemon, namespace: str, first: Process,
                                                   second: Process, kind: str) -> None:
    for worker in (first, second):
        worker.call("attach", kind=kind, socket=daemon.socket, namespace=namespace)
    said: List[int] = []
    for turn in range(5):
        worker, before = (first, second)[turn % 2], len(said)
        said += text(10 + turn, 70)
        reused = worker.call("counts").get("reused_tokens", 0)
        answer = worker.call("generate", tokens=said)
        # All of the turn before but its last token, which was not computed.
        assert answer.get("reused_tokens", 0) - reused == max(0, before - 1)
        assert answer["tokens"] == worker.call("generate", tokens=said, cached=False)["tokens"]
        said += answer["tokens"]


@pytest.mark.parametrize("kind", KINDS)
def test_another_question_reuses_the_system_prompt(daemon: Daemon, namespace: str, first: Process,
                                                   second: Process, kind: str) -> None:
    for worker in (first, second):
        worker.call("attach", kind=kind, socket=daemon.socket, namespace=namespace)
    system = text(20, 150)
    first.call("generate", tokens=system + text(21, 60), ends=[len(system)])
    other = system + text(22, 60)
    answer = second.call("generate", tokens=other)
    assert answer["reused_tokens"] == len(system)
    assert answer["tokens"] == second.call("generate", tokens=other, cached=False)["tokens"]


def test_two_weights_of_one_name_share_nothing(daemon: Daemon, namespace: str, first: Process,
                                               second: Process) -> None:
    at = {"kind": "llama", "socket": daemon.socket, "namespace": namespace}
    one = first.call("attach", **at, seed=1)
    others = [second.call("attach", **at, seed=2), second.call("attach", **at, seed=1, tag="lora"),
              second.call("attach", **at, seed=1, dtype="bfloat16"),
              second.call("attach", **{**at, "kind": "llama, other"}, seed=1)]
    assert len({one, *others}) == 5
    first.call("generate", tokens=text(30, 100))
    for seed, tag, dtype in ((2, "", "float32"), (1, "lora", "float32"), (1, "", "bfloat16")):
        second.call("attach", **at, seed=seed, tag=tag, dtype=dtype)
        assert second.call("generate", tokens=text(30, 100))["hits"] == 0


def test_coded_rows_diverge_by_little(daemon: Daemon, namespace: str, first: Process,
                                      second: Process) -> None:
    for bits in ([8, 4], [4, 4]):
        for worker in (first, second):
            worker.call("attach", kind="gemma3", socket=daemon.socket, namespace=namespace,
                        bits=bits, shadow=1)
        prompt = text(40, 600)
        first.call("generate", tokens=prompt)
        found = second.call("divergence", tokens=prompt)
        assert found["loaded"] == 599 and found["nats"] > 0  # other rows than the engine's
        print(f"tiny gemma3, bits {bits}: {found['nats']:.1e} nats")
        counts = second.call("generate", tokens=prompt)
        assert counts["shadows"] == 1 and "shadows_diverged" not in counts


def test_a_cache_of_an_unknown_kind_is_refused_by_name(daemon: Daemon, namespace: str,
                                                       first: Process) -> None:
    said = first.call("attach", kind="deepseek_v32", socket=daemon.socket, namespace=namespace)
    assert said == "a cache layer of type DynamicIndexedLayer (unsupported)"


def test_what_it_does_not_keep_is_passed_through(daemon: Daemon, namespace: str,
                                                 first: Process) -> None:
    first.call("attach", kind="llama", socket=daemon.socket, namespace=namespace)
    assert first.call("bad") == {"loaded": 0, "hits": 0, "stores": 0}


def test_a_real_model(daemon: Daemon, namespace: str, first: Process, second: Process) -> None:
    for worker in (first, second):
        worker.begin("attach", kind="smollm2", socket=daemon.socket, namespace=namespace)
    assert first.end() == second.end()
    prompt = text(50, 100)
    cold = first.call("generate", tokens=prompt, new=4)
    hit = second.call("generate", tokens=prompt, new=4)
    assert hit["reused_tokens"] == 99
    assert (hit["tokens"], hit["logits"]) == (cold["tokens"], cold["logits"])


def test_five_turns_with_a_daemon_that_is_killed_and_one_that_is_stopped(
        own_daemon: Daemon, namespace: str, first: Process) -> None:
    happens = {1: lambda: own_daemon.signal(signal.SIGSTOP),
               2: lambda: own_daemon.signal(signal.SIGCONT), 3: own_daemon.kill,
               4: own_daemon.start}
    first.call("attach", kind="gemma3", socket=own_daemon.socket, namespace=namespace, budget_s=0.2)
    said: List[int] = []
    for turn in range(5):
        happens.get(turn, lambda: None)()
        said += text(60 + turn, 70)
        answer = first.call("generate", tokens=said)
        assert answer["tokens"] == first.call("generate", tokens=said, cached=False)["tokens"]
        said += answer["tokens"]
    assert answer["failed_load"] >= 2
    hits, end = answer["hits"], time.monotonic() + LONG_S
    while first.call("generate", tokens=said)["hits"] == hits:  # it is there again by itself
        assert time.monotonic() < end


@pytest.mark.parametrize("reply,ends", [(Type.FETCH_OBJECT, signal.SIGKILL),
                                        (Type.FETCH_OBJECT, signal.SIGSTOP),
                                        (Type.PUT_OK, signal.SIGKILL)])
def test_a_daemon_that_ends_within_a_reply_is_a_miss(
        own_daemon: Daemon, namespace: str, first: Process, second: Process, reply: Type,
        ends: signal.Signals) -> None:
    prompt, at = text(70, 300), {"kind": "gemma3", "namespace": namespace}
    first.call("attach", socket=own_daemon.socket, **at)
    want, fetches = first.call("generate", tokens=prompt), reply == Type.FETCH_OBJECT
    change, ended = ending(reply, lambda: own_daemon.signal(ends), ends == signal.SIGSTOP)
    between = Proxy(own_daemon.socket)
    between.begin(change)
    if not fetches:
        at["namespace"] += "-empty"
    second.call("attach", socket=between.path, budget_s=0.5, **at)
    answer = second.call("generate", tokens=prompt)
    assert (answer["tokens"], answer["logits"]) == (want["tokens"], want["logits"])
    assert len(ended) == 1 and answer["hits"] == 0
    assert answer["failed_load" if fetches else "failed_store"] >= 1
    own_daemon.stop()
    between.close()
