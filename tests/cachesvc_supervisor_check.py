#!/usr/bin/env python3
"""The program under a service manager: it tells that it is ready, alive, reloading and stopping,
serves on a socket that the manager opened, and reads its configuration anew at SIGHUP.

usage: cachesvc_supervisor_check.py PROGRAM
"""
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

LONGEST = 30.0  # seconds for anything that has to happen


class Daemon:
    """`serve` below `folder`, its log as JSON in a pipe, what it tells its manager in a socket."""

    def __init__(self, program, folder, *args, path=None, environment=None, listening=None):
        self.folder = folder
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(folder + "/notify")
        self.manager.settimeout(LONGEST)
        self.lines, self.unread = [], b""
        command = [program, "serve", "--socket", path or folder + "/run/s", "--ssd", "0",
                   "--ram", "64MiB", "--log-format", "json", *args]
        script = 'export LISTEN_PID=$$; exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, *command], stderr=subprocess.PIPE,
            pass_fds=[3] if listening is not None else [],
            preexec_fn=None if listening is None else lambda: os.dup2(listening.fileno(), 3),
            env={"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": folder,
                 "NOTIFY_SOCKET": folder + "/notify", **(environment or {})})

    def told(self, beginning):
        """The next message that begins so; others are passed over."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            message = self.manager.recv(4096).decode()
            if message.startswith(beginning):
                return message
        raise AssertionError(f"the manager was not told {beginning}")

    def next_line(self):
        """The next line of the log; waits for it."""
        stream = self.process.stderr.fileno()
        while b"\n" not in self.unread:
            assert select.select([stream], [], [], LONGEST)[0], f"no line after {self.lines}"
            data = os.read(stream, 65536)
            assert data, f"the program ended after {self.lines}"
            self.unread += data
        line, self.unread = self.unread.split(b"\n", 1)
        self.lines.append(line.decode())
        return json.loads(line)

    def logged(self, kind):
        """The message of the next line of this kind."""
        while (record := self.next_line()).get("kind") != kind:
            pass
        return record["message"]

    def said(self):
        """All that it says until its end."""
        stream, text = self.process.stderr.fileno(), self.unread
        while True:
            assert select.select([stream], [], [], LONGEST)[0], f"it goes on after {text}"
            data = os.read(stream, 65536)
            if not data:
                break
            text += data
        self.process.wait(LONGEST)
        return text.decode()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.told("STOPPING=1")
        assert self.process.wait(LONGEST) == 0, self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        self.manager.close()


@contextlib.contextmanager
def running(program, *args, **more):
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(program, folder, *args, **more)
        try:
            yield daemon
        finally:
            daemon.close()


def answers(path):
    """True if somebody serves there: a stranger's bytes are read, and an error comes back."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(LONGEST)
        stranger.connect(path)
        stranger.sendall(bytes(64))
        received = 0
        while data := stranger.recv(4096):
            received += len(data)
        return received > 0


def check_life(program):
    with running(program, environment={"WATCHDOG_USEC": "200000"}) as daemon:
        daemon.told("READY=1")
        line = daemon.told("STATUS=")
        assert line.startswith("STATUS=RAM ") and "of 0.1 GiB" in line, line
        for _ in range(5):
            daemon.told("WATCHDOG=1")
        daemon.stop()
    # Signs that are another process's are not given, and no manager's are not missed.
    with running(program, environment={"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}) as daemon:
        daemon.told("READY=1")
        daemon.manager.settimeout(1)
        with contextlib.suppress(socket.timeout):
            while True:
                message = daemon.manager.recv(4096)
                assert b"WATCHDOG" not in message, message
        daemon.manager.settimeout(LONGEST)
        daemon.stop()


def check_passed_socket(program):
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = folder + "/passed"
        listening.bind(path)
        listening.listen(8)
        environment = {"LISTEN_FDS": "1"}
        # A connection that came before the program did is served.
        with socket.socket(socket.AF_UNIX) as early:
            early.settimeout(LONGEST)
            early.connect(path)
            early.sendall(bytes(64))
            with running(program, path=path, environment=environment,
                         listening=listening) as daemon:
                daemon.told("READY=1")
                assert early.recv(4096), "who came first got no answer"
                assert answers(path)
                daemon.stop()
        assert os.path.exists(path), "the manager's socket file went with the program"
        with running(program, environment=environment, listening=listening) as daemon:
            said = daemon.said()
            assert daemon.process.returncode == 78, said
            assert f'server.socket: {daemon.folder}/run/s, but the service manager passed' in said
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with datagrams, running(program, environment=environment, listening=datagrams) as daemon:
            said = daemon.said()
            assert daemon.process.returncode == 78, said
            assert "LISTEN_FDS: expected a Unix stream socket" in said, said


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def check_reload(program):
    with tempfile.TemporaryDirectory() as folder:
        config = folder + "/c.toml"
        write(config, "[limits]\nworkers = 1\n")
        with running(program, "--config", config) as daemon:
            daemon.told("READY=1")
            write(config, '[log]\nlevel = "debug"\n[limits]\nworkers = 2\nmax_models = 7\n'
                          '[server]\nallow_uids = [4321]\n')
            daemon.process.send_signal(signal.SIGHUP)
            assert "MONOTONIC_USEC=" in daemon.told("RELOADING=1")
            daemon.told("READY=1")
            changed = daemon.logged("reloaded")
            assert "log.level = debug" in changed and "workers" not in changed, changed
            left = daemon.logged("reload_needs_restart")
            assert "limits.workers, limits.max_models" in left and "users beside" in left, left
            assert answers(daemon.folder + "/run/s")
            # A file with mistakes changes nothing, and each mistake is told.
            write(config, '[log]\nlevel = "loud"\n[limits]\nworkers = 0\n')
            daemon.process.send_signal(signal.SIGHUP)
            daemon.told("READY=1")
            refused = [daemon.logged("reload_refused") for _ in range(3)]
            for said in (f"{config}:2: log.level", f"{config}:4: limits.workers", "nothing was"):
                assert any(said in line for line in refused), f"{said} is not in {refused}"
            assert answers(daemon.folder + "/run/s")
            daemon.stop()
            assert '"debug"' in daemon.said(), "log.level = debug did not take effect"


def main():
    (program,) = sys.argv[1:]
    check_life(program)
    check_passed_socket(program)
    check_reload(program)
    print("ready, alive, reloading, stopping; a passed socket; SIGHUP")


if __name__ == "__main__":
    main()
