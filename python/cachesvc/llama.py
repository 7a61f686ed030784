"""cachesvc-llama: llama.cpp's server with prompts that survive restarts. README.md, "llama.cpp".

    cachesvc-llama --socket S --namespace N [--listen HOST:PORT] -- llama-server -m MODEL.gguf …
    cachesvc-llama --socket S --namespace N --upstream URL --slot-folder DIR

The first form starts the server itself, on a port of its own and with a private folder for slot
files, and ends with it. The second one stands before a server that was started with
--slot-save-path DIR. What cachesvc cannot do for this server is said on standard error, and all
requests are passed through as they are.
"""
from __future__ import annotations

import argparse
import contextlib
import functools
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, List, Optional, Sequence, Tuple

from .cache import Cache
from .errors import CacheError
from .llama_check import attach, profile_of_keys
from .llama_gguf import Gguf
from .llama_plan import plan_for
from .llama_proxy import Proxy
from .report import Report
from .llama_reuse import Reuse
from .llama_rows import Layout
from .llama_shadow import Shadow
from .llama_slots import Slots
from .llama_upstream import Upstream, UpstreamError
from .options import add_options, bits_of, check_options, read_secret

PROGRAM = "cachesvc-llama"
FOLDER = "cachesvc-llama-"  # and a process id, for slot files
HARMLESS = {  # options of llama-server, with their values, that change no row
    "-m", "--model", "-a", "--alias", "-c", "--ctx-size", "-np", "--parallel", "-t", "--threads",
    "-tb", "--threads-batch", "-b", "--batch-size", "-ub", "--ubatch-size", "-n", "--predict",
    "--n-predict", "--host", "--port", "--api-key", "--api-key-file", "--chat-template",
    "--chat-template-file", "--timeout", "--threads-http", "--cache-ram", "--jinja", "--no-webui",
    "--metrics", "--slots", "--props", "--mlock", "--no-mmap", "--temp", "--top-k", "--top-p",
    "--min-p", "--seed", "-s", "-lv", "--verbosity", "-v", "--log-file", "--no-warmup", "--warmup"}


SHIFTS = {"--context-shift", "--cache-reuse"}  # a slot's rows may be of other positions


def arguments(given: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    """This program's options, and the server's command behind `--`."""
    at = list(given).index("--") if "--" in given else len(given)
    p = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.split("\n\n")[0],
                                usage=__doc__.split("\n\n")[1].strip())
    add_options(p)
    p.add_argument("--listen", default="127.0.0.1:8080", metavar="HOST:PORT")
    p.add_argument("--upstream", metavar="URL", help="of a server that runs")
    p.add_argument("--slot-folder", metavar="DIR", help="that server's --slot-save-path")
    p.add_argument("--model", metavar="GGUF", help="its model file, if it names none itself")
    p.add_argument("--api-key-file", help="of the server's API key, for calls of the proxy's own")
    options = p.parse_args(list(given[:at]))
    command = list(given[at + 1:])
    if bool(command) == bool(options.upstream):
        p.error("either --upstream URL or -- and a command")
    if options.upstream and not options.slot_folder:
        p.error("--upstream wants --slot-folder")
    check_options(p, options)
    return options, command


def what_changes_rows(command: Sequence[str]) -> List[str]:
    """The options of a server's command that may change a row, each with its values."""
    found: List[str] = []
    kept = False
    for word in command[1:]:
        if word.startswith("-") and not word[1:2].isdigit():
            name = word.split("=")[0]
            kept = name not in HARMLESS
        if kept:
            found.append(word)
    return found


class Engine:
    """The server: its address, its slot folder and, if we started it, its process."""

    def __init__(self, options: argparse.Namespace, command: List[str],
                 closing: contextlib.ExitStack) -> None:
        self.process: Optional["subprocess.Popen[bytes]"] = None
        self.url, self.folder = options.upstream, options.slot_folder
        self.others = ["llama.cpp", options.tag, *what_changes_rows(command)]
        if command:
            self.folder = closing.enter_context(private_folder())
            port = free_port()
            self.url = f"http://127.0.0.1:{port}"
            self.process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port),
                                             "--slot-save-path", self.folder + "/"])
            closing.callback(self._end)

    def _end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def private_folder() -> "tempfile.TemporaryDirectory[str]":
    """A 0700 folder for slot files, in memory where there is such a place. Those that killed
    processes of this user left behind are removed."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    for left in glob.glob(os.path.join(place, FOLDER + "*-*")):
        pid = os.path.basename(left)[len(FOLDER):].split("-")[0]
        if os.stat(left).st_uid == os.getuid() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-", dir=place)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_reuse(proxy: Proxy, options: argparse.Namespace, engine: Engine) -> Reuse:
    """Learns and checks the server. CacheError, UpstreamError or OSError: it is refused."""
    upstream, report = proxy.upstream, proxy.report
    alone = functools.partial(proxy.gate.alone, lambda: report.say(
        "busy", "no moment without a request yet for the self check: no caching until then"))
    shifts = engine.process is None or bool(SHIFTS.intersection(engine.others))
    identity = upstream.identity() if engine.process is None else ()
    props: Any = upstream.call("/props", None, 10)
    path = options.model or props.get("model_path")
    if not isinstance(path, str):
        raise UpstreamError("the server names no model file: --model is needed")
    adapters = props.get("default_generation_settings", {}).get("params", {}).get("lora")
    others = [*engine.others, json.dumps(adapters or [])]
    gguf, bits, slots = Gguf(path), bits_of(options), upstream.slots()
    plan = plan_for(options.plan, gguf, engine.others) if options.plan else None
    cache = Cache(options.socket, options.namespace, strict=True, program=PROGRAM,
                  token=read_secret(options.token_file))
    layout, token_s = attach(upstream, lambda data: Layout(data, gguf, others, bits, plan),
                             slots[-1], alone)
    profile = layout.profile if plan else profile_of_keys(upstream, cache, layout, slots[-1],
                                                          token_s, report)
    if profile is None and bits:
        report.count("not_calibrated")
        report.say("keys", "keys have 8 bits: no slot computed a text for their mean and gain")
        bits = (8, bits[1])
        layout, _ = attach(upstream, lambda data: Layout(data, gguf, others, bits), slots[-1],
                           alone)
    if layout.opaque:
        report.say("opaque", f"slots are stored whole, and served at their exact length only: "
                             f"{layout.opaque}")

    def same() -> bool:  # a server of our own ends with us
        return engine.process is not None or upstream.identity() == identity
    with contextlib.suppress(CacheError):  # a daemon that is not there yet may come
        cache.open(layout.model, profile or layout.profile)
    return Reuse(upstream, cache, layout, profile or layout.profile, Slots(slots, shifts), report,
                 options.min_tokens, options.budget_ms / 1000, token_s,
                 Shadow(upstream, layout, options.shadow), same)


def await_and_attach(proxy: Proxy, engine: Engine, options: argparse.Namespace) -> None:
    """A thread of its own: requests are passed through until the server is known."""
    while True:
        try:
            proxy.upstream.call("/health", None, 5)
            break
        except UpstreamError:
            time.sleep(0.2)  # it loads its model
    try:
        proxy.attach(make_reuse(proxy, options, engine))
        proxy.report.count("attached")
    except (CacheError, UpstreamError, OSError) as error:
        proxy.report.count("refused")
        proxy.report.say("refused", f"no caching, requests are passed through: {error}")


class Stop:
    """SIGTERM and SIGINT end the program in order, its server too, at whatever moment they come.
    Until there is a proxy they are only remembered: an exception could fall between the start of
    the server and the note that it runs."""

    def __init__(self) -> None:
        self.asked = False
        self._proxy: Optional[Proxy] = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop())

    def serve(self, proxy: Proxy) -> None:
        self._proxy = proxy
        if not self.asked:
            proxy.serve_forever(0.1)

    def _stop(self) -> None:
        self.asked = True
        if self._proxy is not None:  # a thread: it waits for the one that serves, this one
            threading.Thread(target=self._proxy.shutdown, daemon=True).start()


def end_with(proxy: Proxy, process: "subprocess.Popen[bytes]") -> None:
    process.wait()
    proxy.shutdown()


def main(given: Optional[Sequence[str]] = None) -> int:
    options, command = arguments(sys.argv[1:] if given is None else given)
    host, _, port = options.listen.rpartition(":")
    report, stop = Report(PROGRAM), Stop()
    with contextlib.ExitStack() as closing:
        engine = Engine(options, command, closing)
        upstream = Upstream(engine.url, engine.folder,
                            read_secret(options.api_key_file).decode())
        proxy = closing.enter_context(Proxy((host, int(port)), upstream, report))
        print(f"http://{host}:{proxy.server_port}", flush=True)
        threading.Thread(target=await_and_attach, args=(proxy, engine, options),
                         daemon=True).start()
        if engine.process is not None:
            threading.Thread(target=end_with, args=(proxy, engine.process), daemon=True).start()
        stop.serve(proxy)
        if proxy.reuse is not None:
            proxy.reuse.settle()
    if stop.asked or engine.process is None:
        return 0
    return engine.process.returncode or 0


if __name__ == "__main__":
    sys.exit(main())
