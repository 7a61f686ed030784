"""Namespaces of other users: whoever has neither the right user nor the token is refused."""
from __future__ import annotations

import os
import pathlib
from typing import Callable

import pytest

from cachesvc import Cache, CacheError
from cachesvc.errors import Code

from daemon import Daemon

USER = 1001
TOKEN = b"sixteen bytes or more"


def answer_to(user: int, call: Callable[[], object]) -> int:
    """Code of the error that `call` raises in a process of that user; 0: none."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setresuid(user, user, user)
            call()
            code = 0
        except CacheError as error:
            code = int(error.code)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_a_token_opens_a_namespace(tmp_path: pathlib.Path) -> None:
    secret, config = tmp_path / "token", tmp_path / "config"
    secret.write_bytes(TOKEN + b"\n")
    secret.chmod(0o600)
    config.write_text(f"[server]\nallow_uids = [{USER}]\n"
                      f'[[namespace]]\nname = "theirs"\ntoken_file = "{secret}"\n',
                      encoding="utf-8")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o711)
    daemon = Daemon(str(tmp_path), "--config", str(config), "--ram", "64MiB", "--ssd", "0")

    def asks(namespace: str, token: bytes) -> int:
        return answer_to(USER, lambda: Cache(daemon.socket, namespace, strict=True,
                                             token=token).stats())
    try:
        assert asks("theirs", TOKEN) == 0
        assert asks("theirs", TOKEN + b"x") == Code.DENIED
        assert asks("theirs", b"") == Code.DENIED
        assert asks(f"uid-{USER}", b"") == 0
        assert asks("uid-1002", b"") == Code.DENIED
        assert Cache(daemon.socket, "theirs", strict=True).stats()["denied"] == 3
    finally:
        daemon.stop()
