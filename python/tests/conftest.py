"""Fixtures: a daemon, a namespace that held nothing, and processes of a test file's engine. A run
all of whose tests were skipped exits with SKIPPED, which ctest counts as such."""
from __future__ import annotations

import uuid
from typing import Any, Iterator, List

import pytest

from daemon import Daemon, started
from engine_process import EngineProcess

SKIPPED = 77  # tests/python.cmake, SKIP_RETURN_CODE


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    found = {word for word, reports in reporter.stats.items() if reports}
    if found - {"", "deselected"} == {"skipped"}:
        session.exitstatus = SKIPPED


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


@pytest.fixture(scope="module")
def two(request: pytest.FixtureRequest) -> Iterator[List[EngineProcess]]:
    """Two processes of the test file's ENGINE, which run its SCRIPT."""
    engines = [EngineProcess(request.module.ENGINE, request.module.SCRIPT) for _ in range(2)]
    yield engines
    for engine in engines:
        engine.close()


@pytest.fixture
def one(two: List[EngineProcess]) -> EngineProcess:
    return two[0]
