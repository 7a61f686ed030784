#!/usr/bin/env python3
"""Engines with cachesvc and without: first tokens, bytes, and what an adapter adds.

usage: /usr/bin/python3 bench/engine_hits.py llama|requests|mlx|transformers|lmcache [--tokens N]
           [--model smollm2|gemma3] [--json FILE]

Needs the daemon built (release), tools/install, and tools/install --engines for all but llama. One
prompt of N tokens: cold; again in a process of the engine's own that is new, from the daemon's RAM;
and once more after kill -9 of the daemon, from the SSD. Beside it the bytes that a store takes and
those of the engine's own way; what the adapter adds to a miss, timed inside the adapter, and to a
store. `requests`: those of llama.cpp's proxy a second against the bare server's, with nothing
cached. SmolLM2 or, of llama.cpp, Gemma-3 as GGUF files, for others SmolLM2 as transformers converts
it; vLLM, which runs no GGUF, has a random model.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests")]

from cachesvc import Cache  # noqa: E402
from cachesvc.llama import free_port  # noqa: E402
from daemon import Daemon  # noqa: E402
from engine_process import EngineProcess  # noqa: E402
from llama_engine import bare, proxied, server_command  # noqa: E402

SPACE, CODED_SPACE = "bench", "bench-coded"
ROUNDS, REQUESTS, REQUEST_TOKENS, ANSWER_TOKENS = 5, 6, 200, 16
TEXT = "/usr/share/common-licenses/GPL-3"


class Kept:
    """A daemon that is killed and started again, and the bytes of what it stores."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.daemon = Daemon(folder, "--codec", "lossless", "--ram", "1GiB", "--ssd", "2GiB",
                             *options)
        self.socket = self.daemon.socket

    def settle(self):
        """All that was stored is on the SSD."""
        with Cache(self.socket, SPACE, strict=True) as cache:
            while cache.stats()["spill_queue_bytes"]:
                time.sleep(0.02)

    def kill(self):
        self.settle()
        self.daemon.kill()
        self.daemon.start()

    def bytes(self):
        """Of the files of objects."""
        self.settle()
        objects = pathlib.Path(self.folder, "store").glob("*/[0-9a-f]*")
        return sum(path.stat().st_size for path in objects if path.is_file())


@contextlib.contextmanager
def kept(*options):
    with tempfile.TemporaryDirectory() as folder:
        its = Kept(folder, *options)
        try:
            yield its
        finally:
            its.daemon.stop()


class Table:
    """Rows of a figure's name, its value and what it is compared with."""

    def __init__(self, engine, tokens):
        self.engine, self.tokens, self.rows = engine, tokens, []

    def add(self, name, value, unit, note="", **ratio):
        """ratio: its name and value, at most one."""
        self.rows.append({"engine": self.engine, "tokens": self.tokens, "name": name,
                          "value": round(value, 3), "unit": unit, "note": note,
                          **{key: round(of, 4) for key, of in ratio.items()}})

    def hits(self, cold_ms, ram_ms, ssd_ms):
        self.add("first token, cold", cold_ms, "ms")
        self.add("first token, from RAM", ram_ms, "ms", sooner=cold_ms / ram_ms)
        self.add("first token, from SSD after kill -9", ssd_ms, "ms", sooner=cold_ms / ssd_ms)

    def bytes(self, ours, own, how):
        self.add("bytes, lossless", ours / 2**20, "MiB", how, of_own=ours / own)
        self.add(f"bytes, {how}", own / 2**20, "MiB")

    def miss(self, added_us, cold_ms):
        self.add("added to a miss", added_us / 1e3, "ms", "goal: at most .02",
                 of_cold=added_us / 1e3 / cold_ms)

    def show(self):
        for row in self.rows:
            ratio = next((f"{key.replace('_', ' ')} {row[key]:g}" for key in
                          ("sooner", "of_own", "of_cold", "of_bare") if key in row), "")
            print(f"{row['engine']:12} {row['name']:36} {row['value']:10,.1f} {row['unit']:6}"
                  f" {ratio:18} {row['note']}".rstrip())


def installed():
    """Where models and engines are, into the environment."""
    lines = subprocess.run([str(ROOT / "tools/install"), "--print-env"], check=True,
                           capture_output=True, text=True).stdout
    for line in lines.splitlines():
        key, _, value = line.partition("=")
        os.environ.setdefault(key, value)


# ---- llama.cpp


def timed(server, prompt, tokens=1):
    """Milliseconds of a completion, and how many of the prompt's tokens were reused."""
    begin = time.perf_counter()
    answer = server.call("/completion", {"prompt": prompt, "n_predict": tokens, "temperature": 0})
    return (time.perf_counter() - begin) * 1e3, answer["timings"]["cache_n"]


def reused(found, prompt):
    took, count = found
    if count < len(prompt) - 2:
        sys.exit(f"a hit was not one: {count} of {len(prompt)} tokens")
    return took


def text_of(server):
    """A text's tokens, by the server's own tokenizer."""
    text = pathlib.Path(TEXT).read_text(encoding="utf-8")
    return server.call("/tokenize", {"content": text, "add_special": True})["tokens"]


def llama(table, model):
    tokens = table.tokens
    context = ("-c", str(max(2048, tokens + 256)))  # that a text for mean and gain of keys has room
    server = ["--", *server_command(model, *context)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with bare(model, folder, *context) as alone:
            prompt = text_of(alone)[:tokens]
            cold, _ = timed(alone, prompt)
            alone.call("/slots/0?action=save", {"filename": "slot"})
            own = os.path.getsize(os.path.join(folder, "slot"))
        with bare(model, folder, *context) as alone:
            begin = time.perf_counter()
            alone.call("/slots/0?action=restore", {"filename": "slot"})
            restore = (time.perf_counter() - begin) * 1e3 + reused(timed(alone, prompt), prompt)
    with kept() as cache:
        with proxied(cache.socket, SPACE, server) as proxy:
            proxy_cold, _ = timed(proxy, prompt)
            counts = proxy.wait_for("stores")
        with proxied(cache.socket, SPACE, server) as proxy:
            ram = reused(timed(proxy, prompt), prompt)
        ours = cache.bytes()
        cache.kill()
        with proxied(cache.socket, SPACE, server) as proxy:
            ssd = reused(timed(proxy, prompt), prompt)
        before = cache.bytes()
        with proxied(cache.socket, CODED_SPACE, server, "--bits", "8:4") as proxy:
            timed(proxy, prompt)
            proxy.wait_for("stores")
        coded = cache.bytes() - before
    table.hits(cold, ram, ssd)
    table.add("first token, slot file in RAM", restore, "ms", "llama.cpp's own restore",
              sooner=cold / restore)
    table.add("first token, a miss by the proxy", proxy_cold, "ms")
    table.bytes(ours, own, "slot file")
    table.add("bytes, --bits 8:4", coded / 2**20, "MiB", "", of_own=coded / own)
    table.miss(counts["added_to_misses_us"], proxy_cold)
    table.add("behind an answer, in its slot", counts["added_to_answers_us"] / 1e3, "ms", "save",
              of_cold=counts["added_to_answers_us"] / 1e3 / cold)
    table.add("a store, by a thread of its own", counts["stores_us"] / 1e3, "ms", "",
              of_cold=counts["stores_us"] / 1e3 / cold)


def stored(proxy):
    return sum(proxy.counts().get(name, 0) for name in ("stores", "stores_dropped"))


def requests(table, model):
    """Bare server and proxy by turns, prompts that nobody has asked before, one at a time."""
    command = server_command(model)

    def rate(server, number):
        begin = time.perf_counter()
        for request in range(REQUESTS):
            timed(server, [number + 2, request + 2, *prompt[number:number + REQUEST_TOKENS]],
                  ANSWER_TOKENS)
        return REQUESTS / (time.perf_counter() - begin)
    with kept() as cache, tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with bare(model, folder) as alone, \
                proxied(cache.socket, SPACE, ["--", *command]) as proxy:
            prompt, pairs = text_of(alone), []
            for number in range(0, 2 * ROUNDS, 2):
                pairs.append((rate(alone, number), rate(proxy, number + 1)))
                while stored(proxy) < (number // 2 + 1) * REQUESTS:
                    time.sleep(0.05)  # the bare server gets a machine that has nothing to store
            counts = proxy.counts()
            if counts.get("hits"):
                sys.exit("a request was a hit")
    best = [statistics.median(side) for side in zip(*pairs)]
    table.add("requests a second, bare", best[0], "1/s")
    table.add("requests a second, proxy, all misses", best[1], "1/s",
              f"{REQUEST_TOKENS} tokens each; goal: at least .95",
              of_bare=statistics.median(ours / bare_one for bare_one, ours in pairs))
    each = ROUNDS * REQUESTS * 1e3
    for name, key in (("added to a miss, with what it waited", "added_to_misses_us"),
                      ("behind an answer, in its slot", "added_to_answers_us"),
                      ("a store, by a thread of its own", "stores_us")):
        table.add(name, counts[key] / each, "ms")


# ---- engines in their own Python


class Inside:
    """bench/engine_hits_inside.py in an engine's environment."""

    def __init__(self, engine):
        self.engine = engine

    def __enter__(self):
        self._process = EngineProcess(self.engine, str(ROOT / "bench/engine_hits_inside.py"))
        return self._process

    def __exit__(self, *_):
        self._process.close()


def converted(model, folder):
    with Inside("TRANSFORMERS") as process:
        process.call("convert", gguf=model, folder=folder)


def in_process(table, engine, model):
    tokens = table.tokens

    def life(cache, space, bits=None):
        with Inside(engine) as process:
            return process.call("first_token", engine=engine, model=model, socket=cache.socket,
                                namespace=space, tokens=tokens, text=TEXT, bits=bits)
    with kept() as cache:
        cold = life(cache, SPACE)
        ram = life(cache, SPACE)
        ours = cache.bytes()
        cache.kill()
        ssd = life(cache, SPACE)
        before = cache.bytes()
        life(cache, CODED_SPACE, [8, 4])
        coded = cache.bytes() - before
    if min(ram["reused"], ssd["reused"]) < tokens - 1:
        sys.exit(f"a hit was not one: {ram}, {ssd}")
    table.hits(*(each["first_ms"] for each in (cold, ram, ssd)))
    table.bytes(ours, cold["own_bytes"], cold["own"])
    table.add("bytes, 8 and 4 bits", coded / 2**20, "MiB", "", of_own=coded / cold["own_bytes"])
    counts = cold["counts"]
    table.miss(counts["added_to_misses_us"], cold["first_ms"])
    for name, key in (("rows copied for a store", "copied_us"),
                      ("a store, by a thread of its own", "stores_us")):
        table.add(name, counts[key] / 1e3, "ms", "", of_cold=counts[key] / 1e3 / cold["first_ms"])


def transformers(table, model):
    with tempfile.TemporaryDirectory() as folder:
        converted(model, folder)
        in_process(table, "TRANSFORMERS", folder)


def mlx(table, model):
    with tempfile.TemporaryDirectory() as folder:
        converted(model, folder)
        in_process(table, "MLX", folder)


# ---- vLLM through LMCache


@contextlib.contextmanager
def lmcache_server(adapter):
    program = pathlib.Path(os.environ["KV_VLLM_PYTHON"]).with_name("lmcache")
    number = free_port()
    with subprocess.Popen(
            [str(program), "server", "--port", str(number), "--http-port", str(free_port()),
             "--supported-transfer-mode", "engine_driven", "--no-l1-use-lazy", "--l1-size-gb", "1",
             "--eviction-policy", "LRU", "--l2-adapter", json.dumps(adapter)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield number
        finally:
            process.send_signal(signal.SIGKILL)


def lmcache(table, _):
    tokens = table.tokens // 256 * 256 + 1
    prompt = [i * 37 % 997 for i in range(tokens)]
    port = free_port()
    with kept("--resp", f"127.0.0.1:{port}") as cache, tempfile.TemporaryDirectory() as folder:
        def life():
            with lmcache_server({"type": "resp", "host": "127.0.0.1", "port": port,
                                 "num_workers": 2}) as number:
                process = EngineProcess("VLLM", "vllm_lmcache_process.py")
                process.call("open", model=folder, lmcache_port=number, length=tokens + 64)
                process.call("generate", prompt=prompt[:64])  # what only a first call takes
                begin = time.perf_counter()
                answer = process.call("generate", prompt=prompt[::-1], most=1)
                took = (time.perf_counter() - begin) * 1e3
                cache.settle()
                time.sleep(2)  # LMCache stores behind the answer
                process.close()
                return took, answer["cached"]
        maker = EngineProcess("VLLM", "vllm_lmcache_process.py")
        row = maker.call("make_model", folder=folder, large=True)
        maker.close()
        cold, _ = life()
        ram, from_ram = life()
        ours = cache.bytes()
        cache.kill()
        ssd, from_ssd = life()
    if min(from_ram, from_ssd) < tokens - 1:
        sys.exit(f"a hit was not one: {from_ram}, {from_ssd} of {tokens}")
    table.hits(cold, ram, ssd)
    table.bytes(ours, row * (tokens - 1), "LMCache's chunks")


ENGINES = {"llama": llama, "requests": requests, "mlx": mlx, "transformers": transformers,
           "lmcache": lmcache}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("engine", choices=ENGINES)
    p.add_argument("--tokens", type=int, default=4096, help="of the prompt (default: %(default)s)")
    p.add_argument("--model", choices=("smollm2", "gemma3"), default="smollm2")
    p.add_argument("--json", metavar="FILE", help="write one object a figure there")
    options = p.parse_args()
    installed()
    table = Table(options.engine, options.tokens)
    ENGINES[options.engine](table, os.environ[f"KV_{options.model.upper()}_GGUF"])
    table.show()
    if options.json:
        pathlib.Path(options.json).write_text(
            "[\n" + ",\n".join(json.dumps(row) for row in table.rows) + "\n]\n", encoding="utf-8")


main()
