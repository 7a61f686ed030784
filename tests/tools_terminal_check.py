#!/usr/bin/env python3
"""cachectl in a terminal: top and tree in panes of tmux, wide and narrow, their screens read. top
keeps within its pane, renews itself, ends with q and leaves the screen as it was; tree has colour
on a terminal alone.

usage: tools_terminal_check.py CACHESVC CACHECTL
Exits with 77 (skipped), saying so, where no tmux is installed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
PATIENCE_S = 60
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Pane:
    """A shell in a terminal of so many columns and rows."""

    def __init__(self, folder, columns, rows):
        self._socket = os.path.join(folder, f"tmux-{columns}")
        self.columns, self.rows = columns, rows
        self._tmux("new-session", "-d", "-x", str(columns), "-y", str(rows),
                   "env", "-u", "NO_COLOR", "PS1=ready>", "sh")
        self.wait(lambda lines: lines and lines[-1] == "ready>")

    def _tmux(self, *args):
        return subprocess.run(["tmux", "-f", "/dev/null", "-S", self._socket, *args], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def close(self):
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], check=False)

    def type(self, text, *keys):
        self._tmux("send-keys", "-l", text)
        if keys:
            self._tmux("send-keys", *keys)

    def screen(self, *options):
        """Its lines, without the empty ones at the end."""
        return self._tmux("capture-pane", "-p", *options).rstrip("\n").split("\n")

    def wait(self, seen, *options):
        end = time.monotonic() + PATIENCE_S
        while True:
            lines = [line.rstrip() for line in self.screen(*options)]
            if seen(lines):
                return lines
            assert time.monotonic() < end, "\n".join(lines)
            time.sleep(0.05)


def check_top(pane, cachectl, socket):
    pane.type("clear; echo before", "Enter")
    pane.wait(lambda lines: lines[-1] == "ready>" and "before" in lines)
    pane.type(f"{cachectl} top --every 0.1 --socket {socket}", "Enter")
    whole = "0 B to the SSD, each a second"  # a long line is broken, not cut
    lines = pane.wait(lambda lines: lines[0].startswith("cachectl top:") and whole in " ".join(
        " ".join(lines).split()))
    assert len(lines) <= pane.rows, lines
    assert all(len(line) <= pane.columns for line in lines), lines
    assert any(line.startswith("RAM") for line in lines), lines
    assert not any("before" == line for line in lines), "the shell's screen shows through"
    pane.type("q")
    lines = pane.wait(lambda lines: lines[-1].endswith("ready>"))
    assert "before" in lines, ("top took the shell's screen", lines)
    return lines


def check_stores_are_seen(pane, cachectl, socket):
    """top renews itself: what others do meanwhile appears."""
    pane.type(f"{cachectl} top --every 0.1 --socket {socket}", "Enter")
    pane.wait(lambda lines: lines[0].startswith("cachectl top:"))
    before = pane.screen()
    for seed in range(3):
        subprocess.run([cachectl, "put", "--socket", socket, "--tokens", str(700 + seed)],
                       check=True, stdout=subprocess.PIPE)
    pane.wait(lambda lines: [line for line in lines if line.startswith("RAM")] !=
              [line for line in before if line.startswith("RAM")])
    pane.type("q")
    pane.wait(lambda lines: lines[-1].endswith("ready>"))


def check_tree(pane, cachectl, socket):
    pane.type(f"clear; {cachectl} tree --socket {socket}", "Enter")
    pane.wait(lambda lines: lines[-1] == "ready>" and "sharing saves" in "\n".join(lines),
              "-J")  # lines that the terminal broke are whole
    assert all(len(line) <= pane.columns for line in pane.screen())
    joined = pane.screen("-J")
    assert COLOUR.search("\n".join(pane.screen("-e"))), "no colour on a terminal"
    piped = subprocess.run([cachectl, "tree", "--socket", socket], check=True,
                           stdout=subprocess.PIPE).stdout.decode()
    assert "\x1b" not in piped, "colour in a pipe"
    for line in piped.splitlines():
        assert any(line in shown for shown in joined), (line, joined)


def check_pipes(cachectl, socket):
    out = subprocess.run([cachectl, "top", "--count", "2", "--every", "0.1", "--socket", socket],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "\x1b" not in out and out.count("cachectl top:") == 2, out


def main():
    cachesvc, cachectl = sys.argv[1:3]
    if not shutil.which("tmux"):
        print("no tmux (tools/install --all installs it): skipped")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        socket, (reads, writes) = os.path.join(folder, "s"), os.pipe()
        daemon = subprocess.Popen(
            [cachesvc, "serve", "--socket", socket, "--dir", os.path.join(folder, "store"),
             "--ram", "64MiB", "--ssd", "64MiB", "--set", "tier.ssd.min_free=0", "--log-level",
             "warn", "--ready-fd", str(writes)], pass_fds=[writes])
        os.close(writes)
        panes = []
        try:
            with os.fdopen(reads) as ready:
                assert ready.readline(), "the daemon did not start"
            for tokens in (300, 600, 601):
                subprocess.run([cachectl, "put", "--socket", socket, "--tokens", str(tokens)],
                               check=True, stdout=subprocess.PIPE)
            for columns, rows in ((120, 30), (80, 24), (40, 20)):
                panes.append(Pane(folder, columns, rows))
                check_top(panes[-1], cachectl, socket)
                check_tree(panes[-1], cachectl, socket)
            check_stores_are_seen(panes[0], cachectl, socket)
            check_pipes(cachectl, socket)
        finally:
            for pane in panes:
                pane.close()
            daemon.terminate()
            daemon.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
