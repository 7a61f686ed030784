"""Calls that are taken back: the service ends them, and their connection stays."""
from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any, Generator, List, Optional

import numpy as np
import pytest

from cachesvc import AsyncCache, Cache, Cancel, Code, Connection, Level, Refused
from cachesvc import puts
from cachesvc.aio import AsyncConnection
from cachesvc.entry import as_query
from cachesvc.session import Command, Frame, Session
from cachesvc.store import objects_for

from daemon import Daemon
from given import Computed, plain

MODEL, TOKENS = plain(), np.arange(600)
Script = Generator[Command, Optional[Frame], Any]


def put_all(session: Session) -> Script:
    """A reservation that has all it lacked: its commit is all that is left."""
    query = as_query(TOKENS, ())
    opened = yield from session.opened(MODEL)
    reserved = yield from session.reserve(opened, query)
    yield from puts.put(session, reserved.reservation,
                        objects_for(opened, query, reserved.needs, Computed(MODEL, TOKENS)))
    return reserved.reservation


def test_a_call_is_taken_back_by_another_thread(own_daemon: Daemon) -> None:
    cancel = Cancel()
    refused: List[Refused] = []
    with Connection(own_daemon.socket, "n") as connection:
        reservation = connection.run(put_all, 10)
        before = connection.session._next_id

        def commit() -> None:
            try:
                connection.run(lambda s: s.commit(reservation, Level.DURABLE), 30, cancel)
            except Refused as error:
                refused.append(error)
        own_daemon.signal(signal.SIGSTOP)  # it then sees the commit and the cancel together
        thread = threading.Thread(target=commit)
        thread.start()
        while connection.session._next_id == before:
            pass
        cancel.now()
        own_daemon.signal(signal.SIGCONT)
        thread.join()
        assert [error.code for error in refused] == [Code.CANCELLED]
        assert "by its client" in refused[0].message  # so says the service
        assert connection.run(lambda s: s.stats(), 10)[0]["sessions"] == 1


def test_a_cancelled_task_leaves_its_connection_usable(own_daemon: Daemon) -> None:
    async def main() -> None:
        connection = await AsyncConnection.connect(own_daemon.socket, "n")
        reservation = await connection.run(put_all, 10)
        before = connection.session._next_id
        own_daemon.signal(signal.SIGSTOP)
        task = asyncio.ensure_future(
            connection.run(lambda s: s.commit(reservation, Level.DURABLE), 30))
        while connection.session._next_id == before:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)  # it has sent the cancel and reads on
        assert not task.done()
        own_daemon.signal(signal.SIGCONT)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not connection.closed
        assert (await connection.run(lambda s: s.stats(), 10))[0]["sessions"] == 1
        connection.close()
    asyncio.run(main())


def test_a_service_that_hangs_does_not_keep_a_cancelled_task(own_daemon: Daemon) -> None:
    async def main() -> None:
        async with AsyncCache(own_daemon.socket, "n", strict=True, connections=1) as cache:
            await cache.store_rows(MODEL, TOKENS, Computed(MODEL, TOKENS), timeout=30)
            own_daemon.signal(signal.SIGSTOP)
            task = asyncio.ensure_future(cache.fetch_rows(MODEL, TOKENS, timeout=600))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            own_daemon.signal(signal.SIGCONT)
            assert (await cache.fetch_rows(MODEL, TOKENS, timeout=30)).tokens == 599
    asyncio.run(main())


class CancelsItself(Computed):
    """Rows whose caller changes its mind while they are computed."""

    def __init__(self, cancel: Cancel) -> None:
        super().__init__(MODEL, TOKENS)
        self.cancel, self.asked = cancel, 0

    def rows(self, *args: Any) -> Any:
        self.asked += 1
        self.cancel.now()
        return super().rows(*args)


def test_a_store_that_is_taken_back_leaves_nothing(daemon: Daemon, namespace: str) -> None:
    with Cache(daemon.socket, namespace, strict=True, connections=1) as cache:
        rows = CancelsItself(Cancel())
        with pytest.raises(Refused) as error:
            cache.store_rows(MODEL, TOKENS, rows, cancel=rows.cancel, timeout=30)
        assert error.value.code == Code.CANCELLED and rows.asked > 0
        assert cache.stats()["namespace_reservations"] == 0
        assert cache.lookup(MODEL, TOKENS).tokens == 0
        with pytest.raises(Refused):
            cache.fetch_rows(MODEL, TOKENS, cancel=rows.cancel)
        assert cache.store_rows(MODEL, TOKENS, Computed(MODEL, TOKENS), timeout=30)
        assert cache.stats()["namespace_sessions"] == 1
