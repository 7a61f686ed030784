"""Settings of a plug-in, and a model's folder, for the tests of engines that load plug-ins."""
from __future__ import annotations

import pathlib
from typing import Any, Dict

from daemon import Daemon


def settings(daemon: Daemon, namespace: str, **more: Any) -> Dict[str, Any]:
    """Its budget is one that a busy machine keeps."""
    return {"socket": daemon.socket, "namespace": namespace, "budget_ms": 20000, **more}


def weights(folder: pathlib.Path, name: str, data: bytes) -> str:
    """A model's folder, always under the same name."""
    path = folder / name / "model"
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(data)
    return str(path)
