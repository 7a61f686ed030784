"""Proxied: the real cachesvc-llama before the real llama.cpp server: that of the xllamacpp wheel,
or the program that KV_LLAMA_SERVER names.

KV_PYTHON names the interpreter that has xllamacpp, KV_SMOLLM2_GGUF and KV_GEMMA3_GGUF the models;
`tools/install --print-env` prints all three.
"""
from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from typing import Any, Callable, Dict, Iterator, List, Sequence

import pytest

from cachesvc.llama import free_port

from daemon import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
LONG_S = 120.0  # nothing here takes so long but on a machine that is lost
ANSWER_TOKENS = 10
THREADS = os.environ.get("KV_LLAMA_THREADS", "2")
ROOMS = ("hall", "cellar", "attic", "tower", "garden room", "reading room")
THINGS = ("maps", "letters", "globes", "lamps", "ladders", "atlases", "diaries", "clocks")
PLACES = ("Norway", "Peru", "Kenya", "Japan", "Malta", "Iceland", "Chile", "Nepal")
Message = Dict[str, str]


def model_file(name: str) -> str:
    """A GGUF by its variable, or the test is skipped."""
    for needed in ("KV_PYTHON", name):
        if not os.path.exists(os.environ.get(needed, "")):
            pytest.skip(f"{needed} names nothing (tools/install --print-env)")
    return os.environ[name]


def text(begin: int, length: int) -> str:
    """A part of a text that is always the same: some 5,000 characters."""
    chance = random.Random(1)
    lines = ["This is the list of what the house keeps.\n"]
    for shelf in range(1, 101):
        lines.append(f"Shelf {shelf} in the {chance.choice(ROOMS)} holds {chance.randrange(2, 90)} "
                     f"{chance.choice(THINGS)} from {chance.choice(PLACES)}.\n")
    return "".join(lines)[begin:begin + length]


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


class Server:
    """Something that speaks llama.cpp's HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url

    def listens(self) -> bool:
        """It has loaded its model."""
        try:
            self.raw("/health")
        except OSError:
            return False
        return True

    def raw(self, path: str, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LONG_S) as reply:
            answer: bytes = reply.read()
            return answer

    def call(self, path: str, body: Any = None) -> Any:
        return json.loads(self.raw(path, body))

    def chat(self, messages: Sequence[Message]) -> "Answer":
        start = time.monotonic()
        return Answer(self.call("/v1/chat/completions", {
            "messages": list(messages), "max_tokens": ANSWER_TOKENS, "temperature": 0,
            "seed": 1}), time.monotonic() - start)

    def counts(self) -> Dict[str, int]:
        counts: Dict[str, int] = self.call("/cachesvc")
        return counts

    def wait_for(self, *names: str, more_than: int = 0) -> Dict[str, int]:
        """The counts, once one of these is above a number."""
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            counts = self.counts()
            if any(counts.get(name, 0) > more_than for name in names):
                return counts
            time.sleep(0.05)
        raise AssertionError(f"none of {names} came: {self.counts()}")


class Answer:
    """reused: tokens of the prompt that llama.cpp did not compute."""

    def __init__(self, given: Any, seconds: float) -> None:
        self.text: str = given["choices"][0]["message"]["content"]
        self.reused: int = given["timings"]["cache_n"]
        self.prompt: int = given["usage"]["prompt_tokens"]
        self.seconds = seconds


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[Server]:
    """A program that prints its address when it listens; ended by SIGTERM."""
    process = subprocess.Popen(list(command), stdout=subprocess.PIPE, cwd=os.path.dirname(HERE))
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://"), f"no address but {url!r}"
        yield Server(url)
    finally:
        process.terminate()
        process.wait(LONG_S)


def server_command(model: str, *options: str) -> List[str]:
    program = os.environ.get("KV_LLAMA_SERVER")
    server = ([program, "-np", "1", "-lv", "0"] if program
              else [os.environ["KV_PYTHON"], str(ROOT / "python/cachesvc/llama_server.py")])
    return [*server, "-m", model, "-c", "2048", "-t", THREADS, *options]


def launched(model: str, *options: str) -> List[str]:
    return ["--", *server_command(model, *options)]


@contextlib.contextmanager
def bare(model: str, folder: str, *options: str) -> Iterator[Server]:
    port = free_port()
    command = server_command(model, "--slot-save-path", folder + "/", "--port", str(port), *options)
    process, server = subprocess.Popen(command, stdout=subprocess.DEVNULL), Server(
        f"http://127.0.0.1:{port}")
    try:
        wait_until(lambda: process.poll() is not None or server.listens())
        yield server
    finally:
        process.terminate()
        process.wait(LONG_S)


@contextlib.contextmanager
def proxied(socket: str, namespace: str, server: Sequence[str], *options: str) -> Iterator[Server]:
    """server: the end of a command line, from `--` or `--upstream` on. Its budget is one that a
    busy machine keeps."""
    with running([sys.executable, "-B", "-m", "cachesvc.llama", "--socket", socket, "--namespace",
                  namespace, "--listen", "127.0.0.1:0", "--budget-ms", "20000", *options,
                  *server]) as proxy:
        proxy.wait_for("attached", "refused")
        yield proxy
