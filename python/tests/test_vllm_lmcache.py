"""vLLM and LMCache as their users have them, before the daemon's RESP port and with our plug-in of
LMCache: what one life of both computed, the next one reads, with the same text."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List

import pytest

from cachesvc import Cache
from cachesvc.llama import free_port

from daemon import Daemon
from engine_process import HERE, EngineProcess, interpreter

pytestmark = pytest.mark.engines
LONG_S = 300.0  # to start vLLM or LMCache on a machine with much to do
PASSWORD, NAMESPACE = "a password of tests", "plugged"
PROMPT = [i * 37 % 997 for i in range(300)]
CHUNK = 256  # tokens that LMCache stores together
VALUE_OBJECTS = 2  # a block and a snapshot (FORMAT.md, "Values without tokens")


class Port:
    """The RESP port of a daemon of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        password = folder / "password"
        password.touch(0o600)
        password.write_text(PASSWORD)
        self.number = free_port()
        self.daemon = Daemon(str(folder), "--ram", "256MiB", "--ssd", "512MiB",
                             "--resp", f"127.0.0.1:{self.number}",
                             "--set", f"server.resp.password_file={password}")

    def ask(self, command: str) -> bytes:
        """The first line of the answer to an inline command."""
        with socket.create_connection(("127.0.0.1", self.number), timeout=LONG_S) as peer:
            peer.sendall(f'AUTH "{PASSWORD}"\r\n{command}\r\n'.encode())
            with peer.makefile("rb") as answers:
                assert answers.readline() == b"+OK\r\n"
                return answers.readline().strip()


@pytest.fixture
def port(tmp_path: pathlib.Path) -> Iterator[Port]:
    its = Port(tmp_path)
    yield its
    its.daemon.stop()


@contextlib.contextmanager
def engine() -> Iterator[EngineProcess]:
    process = EngineProcess("VLLM", "vllm_lmcache_process.py")
    try:
        yield process
    finally:
        process.close()


def resp(port: Port) -> Dict[str, Any]:
    return {"type": "resp", "host": "127.0.0.1", "port": port.number, "num_workers": 2,
            "password": PASSWORD}


def plugin(port: Port) -> Dict[str, Any]:
    return {"type": "plugin", "module_path": "cachesvc.lmcache", "class_name": "CachesvcL2Adapter",
            "adapter_params": {"socket": port.daemon.socket, "namespace": NAMESPACE,
                               "budget_ms": 20000}}


@contextlib.contextmanager
def lmcache(adapter: Dict[str, Any]) -> Iterator[int]:
    """LMCache's server with an L2 adapter; gives its port."""
    program = pathlib.Path(interpreter("VLLM")).with_name("lmcache")
    number = free_port()
    with subprocess.Popen(
            [str(program), "server", "--port", str(number), "--http-port", str(free_port()),
             "--supported-transfer-mode", "engine_driven", "--no-l1-use-lazy", "--l1-size-gb", "1",
             "--eviction-policy", "LRU", "--l2-adapter", json.dumps(adapter)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)}) as process:
        try:
            wait_for_port(process, number)
            yield number
        finally:
            process.kill()


def wait_for_port(process: "subprocess.Popen[bytes]", number: int) -> None:
    end = time.monotonic() + LONG_S
    while True:
        assert process.poll() is None and time.monotonic() < end, "lmcache server did not start"
        try:
            socket.create_connection(("127.0.0.1", number)).close()
            return
        except OSError:
            time.sleep(0.2)


def test_lmcaches_own_client(port: Port) -> None:
    some: List[int] = list(range(12))
    with engine() as lm:
        lm.call("connect", port=port.number, password=PASSWORD)
        assert lm.call("exists", numbers=some) == [False] * 12
        for length in (1, 70_000, 3_000_000):
            numbers = [length + n for n in some]
            lm.call("set", numbers=numbers, length=length)
            assert lm.call("exists", numbers=[*numbers, -1]) == [True] * 12 + [False]
            assert lm.call("get", numbers=numbers, length=length) == [True] * 12
        # Values that the cache drops leave each connection in step.
        lm.call("set", numbers=[-2, -3], length=100_000_000)
        assert lm.call("exists", numbers=[-2]) == [False]
        assert lm.call("get", numbers=numbers, length=length) == [True] * 12


def lived(adapter: Dict[str, Any], model: str, stored: Callable[[], bool]) -> Any:
    """One life of vLLM and LMCache's server, until what it computed is stored."""
    with lmcache(adapter) as number, engine() as vllm:
        vllm.call("open", model=model, lmcache_port=number)
        answer, end = vllm.call("generate", prompt=PROMPT), time.monotonic() + LONG_S
        while not stored():
            assert time.monotonic() < end, "nothing was stored"
            time.sleep(0.1)
        return answer


def on_ssd(port: Port, values: int) -> bool:
    """So many values were stored, and all that there are have files: what RAM alone has dies with
    the daemon."""
    with Cache(port.daemon.socket, NAMESPACE, strict=True) as cache:
        stats = cache.stats()
    return (stats["objects_committed"] >= values * VALUE_OBJECTS
            and stats["ssd_objects"] == stats["ram_objects"] >= VALUE_OBJECTS
            and stats["spill_queue_bytes"] == 0)


@pytest.mark.parametrize("adapter", [resp, plugin], ids=["resp", "plugin"])
def test_what_one_life_computed_the_next_one_reads(
        port: Port, tmp_path: pathlib.Path, adapter: Callable[[Port], Dict[str, Any]]) -> None:
    model = str(tmp_path / "model")
    values = 2 if adapter is plugin else 1  # a chunk, and what the plug-in stores as it starts
    with engine() as maker:
        maker.call("make_model", folder=model)
    first = lived(adapter(port), model, lambda: on_ssd(port, values))
    assert first["cached"] == 0
    port.daemon.kill()
    port.daemon.start()
    second = lived(adapter(port), model, lambda: True)
    assert second == {"cached": CHUNK, "tokens": first["tokens"]}
