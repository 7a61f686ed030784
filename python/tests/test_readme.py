"""README.md's lines, run as they stand against a daemon."""
from __future__ import annotations

import re
from typing import Any, Dict

import pytest

from daemon import ROOT, Daemon


def test_its_lines_store_and_fetch(daemon: Daemon, namespace: str,
                                  capsys: "pytest.CaptureFixture[str]") -> None:
    text = (ROOT / "python/README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.S)
    assert found is not None
    code = found.group(1)
    assert len(code.split("cache = Cache")[1].splitlines()) <= 20
    code = code.replace("/run/user/1000/cachesvc.sock", daemon.socket)
    code = code.replace("my-namespace", namespace)
    names: Dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("0 of 1000 tokens")
    assert printed[1] in ("ACCEPTED Counter()", "SPILLED Counter()")
    assert printed[2] == "1000 (1000, 2, 32) float16"
    assert names["values"].min() == 1


def test_extras_bring_the_versions_that_are_tested() -> None:
    """As tools/engines.sh installs them, and README says."""
    project, readme, tested = ((ROOT / path).read_text(encoding="utf-8") for path in (
        "python/pyproject.toml", "python/README.md", "tools/engines.sh"))
    extras = project.split("[project.optional-dependencies]")[1].split("[project.scripts]")[0]
    found = re.findall(r'"([\w-]+)(?:\[\w+\])?==([\d.]+)', extras)
    assert len(found) >= 7
    for name, version in found:
        assert f"{name} {version}" in readme, name
        if name != "xllamacpp":  # tools/install has it from there
            assert re.search(rf"{name}(-cpu|\[cpu\])?=={re.escape(version)}(?![\d.])", tested), name
