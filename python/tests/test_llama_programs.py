"""Programs around llama.cpp's server, real ones: what a demo shows, and what is stopped leaves
nothing."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import xml.dom.minidom
from typing import List

import pytest

from daemon import PROGRAM, ROOT
from llama_engine import LONG_S, THREADS, launched, model_file, text, wait_until

pytestmark = pytest.mark.engines


def test_the_chat_demo_shows_what_a_kill_costs(tmp_path: pathlib.Path) -> None:
    model_file("KV_SMOLLM2_GGUF")
    given, rows_file, bars = tmp_path / "text", tmp_path / "rows", tmp_path / "bars.svg"
    given.write_text(text(0, 700), encoding="utf-8")
    subprocess.run([str(ROOT / "tools/chat_demo"), "--bin", os.path.dirname(PROGRAM), "--text",
                    str(given), "--threads", THREADS, "--json", str(rows_file), "--svg", str(bars),
                    "--budget-ms", "20000"], check=True, timeout=5 * LONG_S)
    rows = json.loads(rows_file.read_text(encoding="utf-8"))
    assert [(row["mode"], row["turn"]) for row in rows] == [
        (mode, turn) for mode in ("bare", "cachesvc") for turn in range(1, 6)]
    alone, kept = (row for row in rows if row["after_kill"])
    assert alone["reused_tokens"] == 0
    assert kept["reused_tokens"] > kept["prompt_tokens"] - 60  # all but the last turn's words
    assert len(xml.dom.minidom.parse(str(bars)).getElementsByTagName("rect")) == 11


def started_with(word: str) -> List[str]:
    """Command lines of processes that have the word in theirs."""
    lines = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if word in line]


SLOW_START = """
import subprocess, time
start = subprocess.Popen._execute_child
def slowly(*given):
    start(*given)
    time.sleep(0.5)  # the child runs, and its parent has no note of it yet
subprocess.Popen._execute_child = slowly
"""


@pytest.mark.parametrize("program", ["chat_demo", "demo", "cachesvc-llama"])
def test_what_is_stopped_leaves_nothing(program: str, tmp_path: pathlib.Path) -> None:
    """Even where the signal falls into the start of the first process that it starts."""
    folder = tmp_path / "stopped"  # in the command line of what is started
    folder.mkdir()
    model = folder / "model.gguf"
    model.symlink_to(model_file("KV_SMOLLM2_GGUF"))
    (folder / "sitecustomize.py").write_text(SLOW_START, encoding="utf-8")
    demo = [str(ROOT / "tools" / program), "--bin", os.path.dirname(PROGRAM)]
    proxy = [sys.executable, "-m", "cachesvc.llama", "--socket", str(folder / "s"), "--namespace",
             "n", "--listen", "127.0.0.1:0", *launched(str(model))]
    commands = {"chat_demo": demo, "demo": [*demo, "--dir", str(folder)], "cachesvc-llama": proxy}
    started = subprocess.Popen(commands[program], cwd=ROOT / "python", stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL,
                               env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(folder)})
    try:
        own = ("llama_server.py", "demo_step")  # the first that it starts
        wait_until(lambda: any(word in line for line in started_with(str(folder)) for word in own
                               if "cachesvc.llama" not in line))
        started.terminate()
        assert started.wait(LONG_S) == (0 if program == "cachesvc-llama" else 1)
        wait_until(lambda: not started_with(str(folder)))
    finally:
        started.kill()
        started.wait()
