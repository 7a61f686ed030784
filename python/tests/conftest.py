"""Fixtures: a daemon, and a namespace that held nothing."""
from __future__ import annotations

import uuid
from typing import Iterator

import pytest

from daemon import Daemon, started


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """One for all tests that leave it as it is."""
    with started("1GiB", "512MiB") as running:
        yield running


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    """One that the test may kill."""
    with started("64MiB", "128MiB") as running:
        yield running


@pytest.fixture
def namespace() -> str:
    return uuid.uuid4().hex
