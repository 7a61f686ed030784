"""EngineProcess: a script of these tests that runs inside an engine's own Python environment and
does what it is told, a line of JSON for each call and each answer.

KV_NAME_PYTHON names the interpreter (`tools/install --engines`, then `--print-env`).
"""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Callable, Dict

HERE = pathlib.Path(__file__).resolve().parent


def interpreter(engine: str) -> str:
    """An engine's, or the test is skipped."""
    python = os.environ.get(f"KV_{engine}_PYTHON", "")
    if not os.path.exists(python):
        import pytest  # which an engine's own environment has not
        pytest.skip(f"KV_{engine}_PYTHON names nothing (tools/install --engines, --print-env)")
    return python


class EngineProcess:
    def __init__(self, engine: str, script: str) -> None:
        self._process = subprocess.Popen(
            [interpreter(engine), "-B", str(HERE / script)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)})

    def begin(self, name: str, **given: Any) -> None:
        """A call whose answer `end` gives: meanwhile other processes work."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": name, **given}) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the engine's process ended while it did what it was told"
        return json.loads(answer)

    def call(self, name: str, **given: Any) -> Any:
        self.begin(name, **given)
        return self.end()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)


def serve(calls: Dict[str, Callable[..., Any]]) -> None:
    """The script's side: answers until its input ends. What else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        given = json.loads(line)
        answer = calls[given.pop("call")](**given)
        print(json.dumps(answer), file=answers, flush=True)
