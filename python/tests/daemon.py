"""Daemon: the real cachesvc, started in a folder of its own and killed after.

KV_CACHESVC_BIN names the program; without it, the release build's.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
from typing import Iterator, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("KV_CACHESVC_BIN", str(ROOT / "build/release/bin/cachesvc"))


class Daemon:
    """cachesvc on a socket in `folder`; start again after a kill."""

    def __init__(self, folder: str, *options: str) -> None:
        self.socket = os.path.join(folder, "s")
        self._options: List[str] = ["--socket", self.socket, "--dir", os.path.join(folder, "store"),
                                    "--log-level", "warn", "--set", "tier.ssd.min_free=0", *options]
        self._process: "subprocess.Popen[bytes]"
        self.start()

    def start(self) -> None:
        readable, writable = os.pipe()
        self._process = subprocess.Popen(
            [PROGRAM, "serve", *self._options, "--ready-fd", str(writable)], pass_fds=[writable])
        os.close(writable)
        with os.fdopen(readable) as ready:
            assert ready.readline(), "the daemon did not start"

    @property
    def pid(self) -> int:
        return self._process.pid

    def bytes_read(self) -> int:
        """Of files and memory; what comes by sockets doesn't count."""
        return int(pathlib.Path(f"/proc/{self.pid}/io").read_text(encoding="ascii").split()[1])

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()


@contextlib.contextmanager
def started(ram: str, ssd: str, codec: str = "lossless") -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory() as folder:
        running = Daemon(folder, "--codec", codec, "--ram", ram, "--ssd", ssd)
        try:
            yield running
        finally:
            running.stop()
