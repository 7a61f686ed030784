"""cachesvc-mlx, mlx-lm's server and the daemon, all real, with tiny random models: what one process
computed, the next one reuses, with the same text; and whatever is killed, stopped or unknown, an
answer comes."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
from typing import Any, ContextManager, Iterator, List, Tuple

import pytest

from cachesvc import Cache
from cachesvc.frames import Type
from cachesvc.llama import free_port

from daemon import Daemon
from engine_process import EngineProcess, interpreter
from llama_engine import HERE, LONG_S, Message, Server
from proxy import Proxy, ending
from test_teacher import cachectl

pytestmark = pytest.mark.engines
KINDS = ("llama", "gemma3", "falcon_h1", "qwen3_next")
THINKING = ("gemma3", "falcon_h1")
SYSTEM = "You answer in a few words, and only what you know. " * 3
QUESTIONS = ("How do I start it, please?", "Where does it keep things?", "And if it is killed?",
             "What is a namespace, then?", "Thank you. In one word?")
QUANTISED = ("--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0")


@pytest.fixture(scope="module", name="models")
def made_models(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("models")
    for kind, name, seed, more in [*((kind, kind, 1, "") for kind in KINDS),
                                   ("llama", "other", 2, ""),
                                   *((kind, f"thinking {kind}", 1, "thinking")
                                     for kind in THINKING)]:
        subprocess.run([interpreter("MLX"), "-B", os.path.join(HERE, "mlx_models.py"), kind,
                        str(seed), str(folder / name), more], check=True,
                       stderr=subprocess.DEVNULL)
    return folder


class Mlx(Server):
    def answer(self, messages: List[Message]) -> Tuple[str, int, int]:
        """Its text, how many tokens of the prompt were reused, and how many it has."""
        return answer_of(self.call("/v1/chat/completions", {
            "messages": messages, "max_tokens": 12, "temperature": 0}), "message")

    def completion(self, prompt: str) -> Tuple[str, int, int]:
        return answer_of(self.call("/v1/completions", {
            "prompt": prompt, "max_tokens": 12, "temperature": 0}), "text")


def answer_of(given: Any, field: str) -> Tuple[str, int, int]:
    said, usage = given["choices"][0][field], given["usage"]
    text = said if isinstance(said, str) else said["content"]
    return text, usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


@contextlib.contextmanager
def serving(model: pathlib.Path, socket: str, namespace: str, *options: str,
            server: Tuple[str, ...] = (), errors: Any = subprocess.DEVNULL) -> Iterator[Mlx]:
    """Ended by SIGTERM, once all is stored. Its budget is one that a busy machine keeps."""
    port = free_port()
    process = subprocess.Popen(
        [interpreter("MLX"), "-B", "-m", "cachesvc.mlx", "--socket", socket, "--namespace",
         namespace, "--budget-ms", "20000", *options, "--", "--model", str(model),
         "--port", str(port), "--log-level", "WARNING", *server],
        stderr=errors, cwd=os.path.dirname(HERE))
    try:
        mlx, end = Mlx(f"http://127.0.0.1:{port}"), time.monotonic() + LONG_S
        while True:
            try:
                mlx.raw("/health")
                break
            except urllib.error.URLError:
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.1)
        yield mlx
    finally:
        process.terminate()
        assert process.wait(LONG_S) == 0


def asked(question: str) -> List[Message]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def system_tokens() -> int:
    """Of the chat template in mlx_models.py, whose tokens are characters."""
    return len(f"<system>{SYSTEM}</><user>")


@pytest.mark.parametrize("kind,options", [*((kind, ()) for kind in KINDS),
                                          ("gemma3", ("--bits", "8:4", "--shadow", "1"))])
def test_a_fresh_process_reuses_what_another_one_computed(
        daemon: Daemon, namespace: str, models: pathlib.Path, kind: str,
        options: Tuple[str, ...]) -> None:
    def served() -> ContextManager[Mlx]:
        return serving(models / kind, daemon.socket, namespace, *options)
    with served() as first:
        cold, reused, prompt = first.answer(asked(QUESTIONS[0]))
        assert reused == 0
        expected = first.answer(asked(QUESTIONS[1]))[0]
    with served() as second:
        again = second.answer(asked(QUESTIONS[0]))
        assert again[1:] == (prompt - 1, prompt)
        other = second.answer(asked("Who " + QUESTIONS[1]))
        assert other[1] >= system_tokens()
        if not options:
            assert again[0] == cold
            assert second.answer(asked(QUESTIONS[1]))[0] == expected


@pytest.mark.parametrize("kind,server", [("llama", QUANTISED), ("gemma3", ()), ("qwen3_next", ())])
def test_five_turns_and_a_restart_in_the_middle(
        daemon: Daemon, namespace: str, models: pathlib.Path, kind: str,
        server: Tuple[str, ...]) -> None:
    with serving(models / kind, daemon.socket, namespace + "-alone", server=server) as alone:
        expected = talk(alone, [], range(5))[0]
    with serving(models / kind, daemon.socket, namespace, server=server) as first:
        said, _ = talk(first, [], range(3))
    with serving(models / kind, daemon.socket, namespace, server=server) as second:
        said, reused = talk(second, said, range(3, 5))
    assert said == expected
    assert reused[0] > len("".join(m["content"] for m in conversation(expected, 2)))


def test_a_profile_of_transforms_codes_rows(daemon: Daemon, namespace: str, models: pathlib.Path,
                                            tmp_path: pathlib.Path) -> None:
    """Tuned to the very model that the server loads, by a teacher of mlx-lm."""
    plan, words = tmp_path / "plan", tmp_path / "text.txt"
    words.write_text(" ".join(f"{number} is not {number * number % 97}," for number in range(100)))
    teacher = f"{interpreter('MLX')} -B -m cachesvc.mlx_teacher"
    said = cachectl("tune", str(models / "gemma3"), "--teacher", teacher, "--text", str(words),
                    "--coding", "tc", "--budget", "0.4", "--out", str(plan))
    ratio, kld = (float(word) for word in said.splitlines()[-1].split()[-4:-2])
    assert ratio < 0.5 and kld < 0.05
    at = models / "gemma3", daemon.socket, namespace, "--plan", str(plan)
    question = asked(QUESTIONS[0] * 12)  # over a block
    with serving(*at) as first:
        prompt = first.answer(question)[2]
        assert prompt > 300
    with Cache(daemon.socket, namespace, strict=True) as cache:
        assert cache.stats()["encoded_planes"] > 0
    with open(tmp_path / "errors", "wb") as errors:
        with serving(*at, "--shadow", "1", errors=errors) as second:
            assert second.answer(question)[1:] == (prompt - 1, prompt)
    counts = json.loads((tmp_path / "errors").read_text(encoding="utf-8").splitlines()[-1]
                        .partition("cachesvc-mlx: ")[2])
    assert counts["shadows"] == 1 and "shadows_diverged" not in counts
    with open(tmp_path / "errors", "wb") as errors:
        with serving(models / "llama", *at[1:], errors=errors) as other:
            assert other.answer(question)[1] == 0
    assert "for the model" in (tmp_path / "errors").read_text(encoding="utf-8")


def conversation(answers: List[str], turn: int) -> List[Message]:
    messages = asked(QUESTIONS[0])
    for number in range(turn):
        messages += [{"role": "assistant", "content": answers[number]},
                     {"role": "user", "content": QUESTIONS[number + 1]}]
    return messages


def talk(server: Mlx, said: List[str], turns: Any) -> Tuple[List[str], List[int]]:
    """All answers, those that were said and the turns', and what the turns reused."""
    said, reused = list(said), []
    for turn in turns:
        text, count, _ = server.answer(conversation(said, turn))
        said.append(text)
        reused.append(count)
    return said, reused


@pytest.mark.parametrize("kind", THINKING)
def test_a_prompt_is_stored_without_its_thinking_tail(
        daemon: Daemon, namespace: str, models: pathlib.Path, kind: str) -> None:
    """The next turn has the answer where the mark <think> stood: what a ring or a recurrent state
    comes back at is the length before that."""
    first = asked(QUESTIONS[0])
    before = len("".join(f"<{m['role']}>{m['content']}</>" for m in first) + "<assistant>")
    with serving(models / f"thinking {kind}", daemon.socket, namespace) as server:
        server.answer(first)
    said = [*first, {"role": "assistant", "content": "By its name."},
            {"role": "user", "content": QUESTIONS[1]}]
    with serving(models / f"thinking {kind}", daemon.socket, namespace) as fresh:
        assert fresh.answer(said)[1] == before
        assert fresh.answer(first)[1:] == (before, before + 1)


def test_a_prompt_that_is_stored_to_its_last_token_is_answered(
        daemon: Daemon, namespace: str, models: pathlib.Path) -> None:
    """The server alone can't go on from it: it has no token to compute (mlx-lm 1215)."""
    with serving(models / "falcon_h1", daemon.socket, namespace) as server:
        prompt = SYSTEM + QUESTIONS[0]
        server.completion(prompt)  # stored without its last token, which is a character
        text, reused, tokens = server.completion(prompt[:-1])
        assert text and reused < tokens


def test_two_at_once_and_other_weights_share_what_they_may(
        daemon: Daemon, namespace: str, models: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "model"
    folder.symlink_to(models / "llama")
    with serving(folder, daemon.socket, namespace) as one:
        with serving(folder, daemon.socket, namespace) as two:
            texts = []
            threads = [threading.Thread(target=lambda server=server: texts.append(
                server.answer(asked(QUESTIONS[0]))[0])) for server in (one, two)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert texts[0] == texts[1]
            other = one.answer(asked(QUESTIONS[1]))
        again = two_again(folder, daemon.socket, namespace)
        assert again[0] == other[0]
    folder.unlink()
    folder.symlink_to(models / "other")
    assert two_again(folder, daemon.socket, namespace)[1] == 0


def two_again(folder: pathlib.Path, socket: str, namespace: str) -> Tuple[str, int, int]:
    with serving(folder, socket, namespace) as server:
        return server.answer(asked(QUESTIONS[1]))


def test_five_turns_with_a_daemon_that_is_killed_and_one_that_is_stopped(
        own_daemon: Daemon, namespace: str, models: pathlib.Path) -> None:
    at = (models / "llama", own_daemon.socket, namespace, "--budget-ms", "200")
    with serving(*at) as alone:
        expected, _ = talk(alone, [], range(5))
    happens = {1: lambda: own_daemon.signal(signal.SIGSTOP),
               2: lambda: own_daemon.signal(signal.SIGCONT), 3: own_daemon.kill,
               4: own_daemon.start}
    said: List[str] = []
    with serving(*at) as server:
        for turn in range(5):
            happens.get(turn, lambda: None)()
            said += talk(server, said, [turn])[0][-1:]
    assert said == expected
    with serving(models / "llama", own_daemon.socket, namespace) as fresh:
        text, reused, prompt = fresh.answer(conversation(expected, 4))
        assert (text, reused) == (expected[4], prompt - 1)


@pytest.mark.parametrize("reply", [Type.FETCH_OBJECT, Type.PUT_OK])
def test_a_daemon_that_ends_within_a_reply_is_a_miss(
        own_daemon: Daemon, namespace: str, models: pathlib.Path, reply: Type,
        tmp_path: pathlib.Path) -> None:
    fetches, question = reply == Type.FETCH_OBJECT, asked(QUESTIONS[0])
    with serving(models / "gemma3", own_daemon.socket, namespace) as first:
        expected = first.answer(question)[0]
    change, ended = ending(reply, lambda: own_daemon.signal(signal.SIGKILL), False)
    between = Proxy(own_daemon.socket)
    between.begin(change)
    there = namespace if fetches else namespace + "-empty"
    with open(tmp_path / "errors", "wb") as errors:
        with serving(models / "gemma3", between.path, there, errors=errors) as second:
            assert second.answer(question)[:2] == (expected, 0)
    said = (tmp_path / "errors").read_text(encoding="utf-8")
    assert len(ended) == 1 and ("load: " if fetches else "store: ") in said
    own_daemon.stop()
    between.close()


def test_what_it_can_not_keep_is_served_without(daemon: Daemon, namespace: str,
                                                models: pathlib.Path, tmp_path: pathlib.Path
                                                ) -> None:
    with open(tmp_path / "errors", "wb") as errors:
        with serving(models / "llama", daemon.socket, namespace, errors=errors,
                     server=("--draft-model", str(models / "other"))) as server:
            assert server.answer(asked(QUESTIONS[0]))[0]
    assert "no caching of" in (tmp_path / "errors").read_text(encoding="utf-8")


# Inside a window, at its end, over it at once and one by one, so that it wraps.
@pytest.mark.parametrize("steps", [[7], [39, 1], [100], [30, *[1] * 45]], ids=len)
def test_every_kind_of_cache_goes_both_ways(steps: List[int]) -> None:
    process = EngineProcess("MLX", "mlx_process.py")
    for kind in process.call("names"):
        for dtype in ("float32", "float16", "bfloat16"):
            assert process.call("round_trip", kind=kind, steps=steps, dtype=dtype), (kind, dtype)
    assert process.call("odd") == "a cache that holds a object (unsupported)"
    process.close()


def test_prompt_caches_of_mlx_lm_come_back(models: pathlib.Path, daemon: Daemon, namespace: str,
                                           tmp_path: pathlib.Path) -> None:
    """cachesvc-files, of full layers, windows that did not wrap and recurrent states: a model goes
    on from what comes back as from what save_prompt_cache wrote (which has room for more rows), and
    that gives itself from then on."""
    process = EngineProcess("MLX", "mlx_process.py")
    tokens = [1 + at * 7 % 200 for at in range(60)]
    prompt = tmp_path / "tokens.json"
    prompt.write_text(json.dumps(tokens))
    for kind in KINDS:
        model, given, back, again = str(models / kind), *(
            str(tmp_path / f"{kind}-{name}.safetensors") for name in ("given", "back", "again"))
        process.call("prompt_cache", model=model, path=given, tokens=tokens)
        common = ["--model", model, "--tokens", str(prompt), "--socket", daemon.socket,
                  "--namespace"]
        for verb, file, like, at in (("put", given, given, namespace),
                                     ("get", back, given, namespace),
                                     ("put", back, back, namespace + "-2"),
                                     ("get", again, given, namespace + "-2")):
            assert "60 tokens" in process.call(
                "files", given=[verb, file, "--like", like, *common, at])
        assert process.call("same_answers", model=model, one=given, other=back), kind
        assert process.call("same_files", one=back, other=again), kind
    process.close()
