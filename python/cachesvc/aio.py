"""AsyncCache: a Cache for asyncio. Same calls, same promises; made and used in one running loop.

A task that is cancelled takes its call back: the service ends it at once, and its connection stays.
"""
from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any, Callable, Counter, Dict, List, Optional, Sequence, TypeVar

from . import entry
from . import messages as m
from .aio_intent import IntentCalls
from .bodies import Bodies
from .cache import PROGRAM, fetch_missed, missed
from .connection import (Script, check_length, descriptors, failure, hang_up, named_failures,
                         receive)
from .deadline import Deadline
from .entry import Extras, FetchOptions, RowsGiven, Stored, as_query
from .errors import CacheError, Code, Refused
from .frames import HEADER_BYTES, decode_header
from .guard import Guard
from .hit import Hit
from .models import Model, Profile
from .own_memory import OwnMemory
from .pools import Pools
from .session import Frame, Opened, Pause, Receive, Send, Session
from .why_messages import RequestRecord
from .wire import Buffer, as_tokens

T = TypeVar("T")
SMALL = 64 << 10  # buffers below it are joined before they are sent
TAKE_BACK_S = 0.5  # a service that has not ended a cancelled call by then is left


class AsyncConnection:
    """Runs a Session's scripts; one at a time. Made by `connect`."""

    def __init__(self, namespace: str, program: str = PROGRAM, token: bytes = b"",
                 map_segments: bool = True, memory: Optional[OwnMemory] = None) -> None:
        self._pools = Pools()
        self.session = Session(namespace, program, token, self._pools if map_segments else None,
                               memory)
        self._bodies = Bodies()
        self.closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._process = os.getpid()
        self._amid_frame = False

    @classmethod
    async def connect(cls, path: str, namespace: str, program: str = PROGRAM,
                      timeout: float = 5.0, token: bytes = b"",
                      map_segments: bool = True,
                      memory: Optional[OwnMemory] = None) -> AsyncConnection:
        connection = cls(namespace, program, token, map_segments, memory)
        loop = asyncio.get_running_loop()

        def greet(session: Session) -> Script[Any]:
            return session.hello()
        deadline = Deadline(timeout)
        welcome = False
        try:
            await asyncio.wait_for(loop.sock_connect(connection._socket, path), timeout)
            await connection.run(greet, deadline.left())
            welcome = True
        except asyncio.TimeoutError:
            raise CacheError(Code.DEADLINE_EXCEEDED, f"connecting to {path}") from None
        except OSError as error:
            raise failure(error, f"connecting to {path}") from error
        finally:
            if not welcome:
                connection.close()
        return connection

    def close(self) -> None:
        hang_up(self._socket, self._process, self._pools, self._amid_frame)
        self.closed = True

    async def run(self, make: Callable[[Session], Script[T]], timeout: float) -> T:
        if self.closed:
            raise CacheError(Code.UNAVAILABLE, "the connection is closed")
        done = False
        self.session.begin(Deadline(timeout))
        running = asyncio.ensure_future(self._named(make(self.session)))
        try:
            if running not in (await asyncio.wait({running}, timeout=timeout))[0]:
                raise CacheError(Code.DEADLINE_EXCEEDED, "the call's time is over")
            value = running.result()
            done = True
            return value
        except Refused:
            done = True
            raise
        except asyncio.CancelledError:
            done = await self._take_back(running)
            raise
        finally:
            if not done:
                await self._give_up(running)

    async def _give_up(self, running: "asyncio.Future[Any]") -> None:
        running.cancel()
        try:
            await asyncio.wait({running})  # it lets go of the socket
        finally:
            self.close()
        if not running.cancelled():
            running.exception()  # seen

    async def _take_back(self, running: "asyncio.Future[Any]") -> bool:
        """Cancels what the script asked for, and reads the answers; whether they came."""
        self.session.cancelled = True
        if not self._amid_frame:
            self._send_cancels()
        ended = await asyncio.wait({running}, timeout=TAKE_BACK_S)
        if running not in ended[0] or running.cancelled():
            return False
        error = running.exception()
        return error is None or isinstance(error, Refused)

    def _send_cancels(self) -> None:
        """All of them, now: nothing else comes between. What can't be sent so ends the script."""
        cancels = self.session.cancels()
        try:
            whole = self._socket.send(cancels) == len(cancels)
        except OSError:
            whole = False
        if not whole:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    async def _named(self, script: Script[T]) -> T:
        with named_failures():  # within wait_for: a time that is over is no error of the system
            return await self._drive(script)

    async def _drive(self, script: Script[T]) -> T:
        reply: Optional[Frame] = None
        try:
            while True:
                command = script.send(reply)
                reply = None
                if isinstance(command, Send):
                    try:
                        await self._send(command)
                    except (BrokenPipeError, ConnectionResetError):
                        script = self.session.farewell()
                elif isinstance(command, Receive):
                    reply = await self._receive(command.most)
                elif isinstance(command, Pause):
                    await asyncio.sleep(command.seconds)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _send(self, command: Send) -> None:
        loop = asyncio.get_running_loop()
        self._amid_frame = True
        small = bytearray()
        buffers = command.buffers
        if command.descriptor >= 0:
            buffers = [await self._send_descriptor(command), *buffers[1:]]
        for buffer in buffers:
            if len(buffer) < SMALL:
                small += buffer
                continue
            await loop.sock_sendall(self._socket, small)
            small = bytearray()
            await loop.sock_sendall(self._socket, buffer)
        await loop.sock_sendall(self._socket, small)
        self._amid_frame = False
        if self.session.cancelled:
            self._send_cancels()

    async def _send_descriptor(self, command: Send) -> Buffer:
        """Sends the first bytes of a frame with its descriptor; those of its header left over."""
        header, loop = memoryview(command.buffers[0]), asyncio.get_running_loop()
        while True:
            try:
                return header[self._socket.sendmsg([header], descriptors(command)):]
            except BlockingIOError:
                await _ready(loop.add_writer, loop.remove_writer, self._socket)

    async def _receive(self, most: int) -> Frame:
        head = memoryview(bytearray(HEADER_BYTES))
        await self._fill(head)
        header = decode_header(head, self.session.limits is not None)
        check_length(header.length, most)
        body = self._bodies.room(header.length)
        await self._fill(body)
        return Frame(header.type, header.request_id, body)

    async def _fill(self, view: memoryview) -> None:
        while view:
            try:
                view = view[receive(self._socket, view, self.session.pools):]
            except BlockingIOError:
                await self._readable()

    async def _readable(self) -> None:
        """asyncio reads no descriptors itself (3.13)."""
        loop = asyncio.get_running_loop()
        await _ready(loop.add_reader, loop.remove_reader, self._socket)


async def _ready(add: Callable[..., None], remove: Callable[..., Any], stream: socket.socket
                 ) -> None:
    ready = asyncio.Event()
    add(stream, ready.set)
    try:
        await ready.wait()
    finally:
        remove(stream)


class AsyncCache(IntentCalls):
    def __init__(self, socket_path: str, namespace: str, *, strict: bool = False,
                 connections: int = 4, program: str = PROGRAM, first_pause: float = 1.0,
                 token: bytes = b"", map_segments: bool = True,
                 memory: Optional[OwnMemory] = None) -> None:
        self._path, self._namespace, self._program = socket_path, namespace, program
        self._token, self._map_segments, self._memory = token, map_segments, memory
        self._strict = strict
        self._guard = Guard(first_pause)
        self._free = asyncio.Semaphore(connections)
        self._idle: List[AsyncConnection] = []
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        self._drop_idle()

    async def __aenter__(self) -> AsyncCache:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def failures(self) -> Counter[str]:
        return self._guard.failures

    @property
    def last_error(self) -> Optional[CacheError]:
        return self._guard.last_error

    # ---- calls that fail open

    async def fetch_rows(self, model: Model, tokens: Any, *, extras: Extras = (),
                         options: Optional[FetchOptions] = None, timeout: float = 1.0,
                         profile: Optional[Profile] = None) -> Hit:
        return await self._failing_open(
            "fetch_rows", lambda s: entry.fetch(s, model, tokens, extras, options, profile),
            timeout, fetch_missed)

    async def store_rows(self, model: Model, tokens: Any, rows: RowsGiven, *, extras: Extras = (),
                         wait_for: m.Level = m.Level.ACCEPTED, timeout: float = 5.0,
                         profile: Optional[Profile] = None, ends: Sequence[int] = (),
                         prefill_ms: float = 0, label: str = "") -> Stored:
        return await self._failing_open(
            "store_rows",
            lambda s: entry.store(s, model, tokens, extras, rows, wait_for, profile, ends,
                                  prefill_ms, label),
            timeout, lambda error: Stored(error=error))

    async def lookup(self, model: Model, tokens: Any, *, extras: Extras = (),
                     timeout: float = 1.0, profile: Optional[Profile] = None) -> m.LookupOk:
        return await self._failing_open(
            "lookup", lambda s: entry.lookup(s, model, as_query(tokens, extras), profile), timeout,
            missed)

    async def prefetch(self, model: Model, tokens: Any = (), *, extras: Extras = (),
                       wait: bool = False, hold: int = 0, timeout: float = 1.0,
                       profile: Optional[Profile] = None) -> m.LookupOk:
        return await self._failing_open(
            "prefetch",
            lambda s: entry.prefetch(s, model, as_query(tokens, extras), wait, hold, profile),
            timeout, missed)

    async def lookup_all(self, model: Model, queries: Sequence[Any], *, timeout: float = 1.0,
                         profile: Optional[Profile] = None) -> List[m.LookupOk]:
        return await self._failing_open(
            "lookup_all", lambda s: entry.lookup_all(s, model, queries, profile), timeout,
            lambda error: [missed(error)] * len(queries))

    # ---- calls that raise

    async def open(self, model: Model, profile: Optional[Profile] = None, replace: bool = False,
                   timeout: float = 5.0) -> Opened:
        return await self._guarded(
            "open", lambda s: entry.reopen(s, model, profile, replace), timeout)

    async def erase(self, model: Optional[Model], tokens: Any = (), *, extras: Extras = (),
                    timeout: float = 30.0) -> int:
        return await self._guarded(
            "erase", lambda s: entry.erase(s, model, as_query(tokens, extras)), timeout)

    async def erase_entry(self, model: Model, tokens: Any, *, extras: Extras = (),
                          timeout: float = 30.0, profile: Optional[Profile] = None) -> int:
        return await self._guarded(
            "erase_entry",
            lambda s: entry.erase_entry(s, model, as_query(tokens, extras), profile), timeout)

    async def stats(self, timeout: float = 1.0) -> Dict[str, int]:
        return (await self._guarded("stats", lambda s: s.stats(), timeout))[0]

    async def why(self, number: int = 0, *, limit: int = 32, missed: bool = False,
                  namespace: str = "", tokens: Any = (), timeout: float = 1.0
                  ) -> List[RequestRecord]:
        reply = await self._guarded(
            "why", lambda s: s.why(number, limit, missed, namespace, as_tokens(tokens)), timeout)
        return reply.records

    # ---- how

    async def _failing_open(self, call: str, make: Callable[[Session], Script[T]], timeout: float,
                            miss: Callable[[CacheError], T]) -> T:
        try:
            return await self._guarded(call, make, timeout)
        except CacheError as error:
            if self._strict:
                raise
            error.forget()
            return miss(error)

    async def _guarded(self, call: str, make: Callable[[Session], Script[T]], timeout: float) -> T:
        resting = True
        try:
            self._guard.check()
            resting = False
            value = await self._lent(make, Deadline(timeout))
        except CacheError as error:
            error.call = call
            self._guard.failed(error, resting)
            raise
        self._guard.good()
        return value

    async def _lent(self, make: Callable[[Session], Script[T]], deadline: Deadline) -> T:
        """As Cache's, on one of the connections that wait, or a new one."""
        if self._closed:
            raise CacheError(Code.UNAVAILABLE, "the cache is closed")
        try:
            await asyncio.wait_for(self._free.acquire(), deadline.left())
        except asyncio.TimeoutError:
            raise Refused(Code.DEADLINE_EXCEEDED, "all connections are in use") from None
        try:
            while self._idle:
                connection = self._idle.pop()
                try:
                    return await self._run(connection, make, deadline)
                except CacheError as error:
                    if isinstance(error, Refused) or error.code != Code.UNAVAILABLE:
                        raise
                self._drop_idle()
            connection = await AsyncConnection.connect(self._path, self._namespace, self._program,
                                                       deadline.left(), self._token,
                                                       self._map_segments, self._memory)
            return await self._run(connection, make, deadline)
        finally:
            self._free.release()

    async def _run(self, connection: AsyncConnection, make: Callable[[Session], Script[T]],
                   deadline: Deadline) -> T:
        try:
            return await connection.run(make, deadline.left())
        finally:
            if self._closed:
                connection.close()
            elif not connection.closed:
                self._idle.append(connection)

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
