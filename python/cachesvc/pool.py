"""Pool: the connections of one Cache in one process, those that wait for their next call and those
lent.

Thread-safe.
"""
from __future__ import annotations

import threading
from typing import Callable, List, Tuple

from .connection import Connection
from .deadline import Deadline
from .errors import CacheError, Code, Refused


class Pool:
    def __init__(self, connect: Callable[[float], Connection], most: int) -> None:
        self._connect, self._most = connect, most
        self._changed = threading.Condition()
        self._idle: List[Connection] = []
        self._lent = 0
        self._closed = False

    def take(self, deadline: Deadline) -> Tuple[Connection, bool]:
        """A connection, and whether it is new."""
        with self._changed:
            while not self._idle and self._lent >= self._most and not self._closed:
                if deadline.over(0) or not self._changed.wait(deadline.first_answer()):
                    raise Refused(Code.DEADLINE_EXCEEDED,
                                  f"all {self._most} connections are in use")
            if self._closed:
                raise CacheError(Code.UNAVAILABLE, "the cache is closed")
            self._lent += 1
            if self._idle:
                return self._idle.pop(), False
        try:
            return self._connect(deadline.first_answer()), True
        except BaseException:
            with self._changed:
                self._lent -= 1
                self._changed.notify()
            raise

    def give_back(self, connection: Connection) -> None:
        with self._changed:
            self._lent -= 1
            if self._closed:
                connection.close()
            elif not connection.closed:
                self._idle.append(connection)
            self._changed.notify()

    def drop_idle(self) -> None:
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.drop_idle()
