"""Connection: a socket that runs a Session's scripts, blocking, with a deadline on every call.

Not thread-safe: one thread at a time (Cache lends each call a connection of its own), but that any
thread may cancel its call. After an error other than Refused the connection is closed. After a fork
it is the parent's alone.
"""
from __future__ import annotations

import array
import contextlib
import os
import socket
import threading
import time
from typing import Callable, Generator, Iterator, List, Optional, Tuple, TypeVar

from .bodies import Bodies
from .cancel import Cancel
from .deadline import Deadline, Patience
from .errors import CacheError, Code, Malformed, Refused
from .frames import HEADER_BYTES, decode_header
from .own_memory import OwnMemory
from .pools import DESCRIPTORS, Pools
from .session import Command, Frame, Pause, Receive, Send, Session

T = TypeVar("T")
Script = Generator[Command, Optional[Frame], T]
_BESIDE = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
BUFFERS_AT_ONCE = 512  # below the kernel's limit of 1,024


def failure(error: OSError, what: str) -> CacheError:
    if isinstance(error, socket.timeout):
        return CacheError(Code.DEADLINE_EXCEEDED, f"no progress in time while {what}")
    return CacheError(Code.UNAVAILABLE, f"{what}: {error.strerror or error}")


@contextlib.contextmanager
def named_failures() -> Iterator[None]:
    """Errors of the system while a script runs, as the cache's."""
    try:
        yield
    except OSError as error:
        raise failure(error, "talking to the service") from error
    except MemoryError as error:
        raise CacheError(Code.RESOURCE_EXHAUSTED, "no memory for a reply") from error


def hang_up(stream: socket.socket, process: int, pools: Pools, amid_frame: bool) -> None:
    """Closes a socket that `process` made, for the service too: a forked child may have it open.
    Segments that no array shows are let go, with a word unless a frame is sent in part."""
    last = pools.close()
    if process == os.getpid():
        with contextlib.suppress(OSError):  # the service was first, or does not read
            stream.settimeout(0)
            if last and not amid_frame:
                stream.send(last)
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
    stream.close()


def advance(buffers: List[memoryview], sent: int) -> List[memoryview]:
    """The rest of buffers whose first `sent` bytes are gone."""
    at = 0
    while at < len(buffers) and sent >= len(buffers[at]):
        sent -= len(buffers[at])
        at += 1
    left = buffers[at:]
    if left and sent:
        left[0] = left[0][sent:]
    return left


def descriptors(command: Send) -> List[Tuple[int, int, bytes]]:
    """The data beside a frame's first byte, as sendmsg takes it."""
    if command.descriptor < 0:
        return []
    packed = array.array("i", [command.descriptor]).tobytes()
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]


def check_length(frame_bytes: int, most: int) -> None:
    if frame_bytes > most:
        raise Malformed(f"a body of {frame_bytes} bytes where at most {most} are due")


def receive(stream: socket.socket, view: memoryview, pools: Optional[Pools]) -> int:
    """Bytes that are there, at least one, and for pools the descriptors beside them."""
    if pools is None:
        count = stream.recv_into(view)
    else:
        count, beside, flags, _ = stream.recvmsg_into([view], _BESIDE, socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = array.array("i")
                found.frombytes(data[:len(data) // found.itemsize * found.itemsize])
                pools.descriptors.extend(found)
        if flags & socket.MSG_CTRUNC or len(pools.descriptors) > DESCRIPTORS:
            raise Malformed(f"more than {DESCRIPTORS} descriptors")
    if count == 0:
        raise CacheError(Code.UNAVAILABLE, "the service closed the connection")
    return count


class Connection:
    """Connects and says hello within `timeout` seconds. map_segments: hits are read where they lie
    in the service's RAM, where it grants that. memory: rows of stores that lie there are read by
    the service, where it takes that."""

    def __init__(self, path: str, namespace: str, program: str = "cachesvc python",
                 timeout: float = 5.0, token: bytes = b"", map_segments: bool = True,
                 memory: Optional[OwnMemory] = None) -> None:
        self._pools = Pools()
        self.session = Session(namespace, program, token, self._pools if map_segments else None,
                               memory)
        self._bodies = Bodies()
        deadline = Deadline(timeout)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._process = os.getpid()
        self._sending = threading.Lock()  # who writes frames
        self._amid_frame = False
        self.closed = False
        try:
            self._socket.settimeout(deadline.left())
            self._socket.connect(path)
            self.session.begin(deadline)
            self._run(self.session.hello(), deadline)
        except OSError as error:
            self.close()
            raise failure(error, f"connecting to {path}") from error
        except CacheError:
            self.close()
            raise

    def close(self) -> None:
        hang_up(self._socket, self._process, self._pools, self._amid_frame)
        self.closed = True

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, make: Callable[[Session], Script[T]], timeout: float,
            cancel: Optional[Cancel] = None, patience: Optional[Patience] = None) -> T:
        """Runs a script of this connection's session: `connection.run(lambda s: s.stats(), 1)`."""
        if self.closed:
            raise CacheError(Code.UNAVAILABLE, "the connection is closed")
        deadline = Deadline(timeout, patience)
        self.session.begin(deadline)
        if cancel is None:
            return self._run(make(self.session), deadline)
        with cancel.over(self._take_back):
            return self._run(make(self.session), deadline)

    def _take_back(self) -> None:
        """Cancels what the script asked for; any thread."""
        self.session.cancelled = True
        with self._sending:
            self._send_cancels()

    def _send_cancels(self) -> None:
        cancels = self.session.cancels()
        if self._amid_frame or not cancels:
            return  # the script sends no more, or has sent nothing
        with contextlib.suppress(OSError):  # the script sees it too
            if self._socket.send(cancels) < len(cancels):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self, script: Script[T], deadline: Deadline) -> T:
        done = False
        try:
            with named_failures():
                value = self._drive(script, deadline)
            done = True
            return value
        except Refused:
            done = True
            raise
        finally:
            if not done:
                self.close()

    def _drive(self, script: Script[T], deadline: Deadline) -> T:
        reply: Optional[Frame] = None
        try:
            while True:
                command = script.send(reply)
                reply = None
                if isinstance(command, Send):
                    try:
                        self._send(command, deadline)
                    except (BrokenPipeError, ConnectionResetError):
                        script = self.session.farewell()
                elif isinstance(command, Receive):
                    reply = self._receive(command.most, deadline)
                elif isinstance(command, Pause):
                    time.sleep(min(command.seconds, deadline.left()))
        except StopIteration as end:
            value: T = end.value
            return value

    def _send(self, command: Send, deadline: Deadline) -> None:
        left = [memoryview(b) for b in command.buffers if len(b)]
        beside = descriptors(command)
        with self._sending:
            while left:
                self._socket.settimeout(deadline.turn())
                try:
                    left = advance(left, self._socket.sendmsg(left[:BUFFERS_AT_ONCE], beside))
                except socket.timeout:
                    if not deadline.goes_on():
                        raise
                    continue
                beside = []
                self._amid_frame = bool(left)
            if self.session.cancelled:
                self._send_cancels()

    def _receive(self, most: int, deadline: Deadline) -> Frame:
        head = memoryview(bytearray(HEADER_BYTES))
        self._fill(head, deadline)
        header = decode_header(head, self.session.limits is not None)
        check_length(header.length, most)
        body = self._bodies.room(header.length)
        self._fill(body, deadline)
        return Frame(header.type, header.request_id, body)

    def _fill(self, view: memoryview, deadline: Deadline) -> None:
        while view:
            self._socket.settimeout(deadline.turn())
            try:
                view = view[receive(self._socket, view, self.session.pools):]
            except socket.timeout:
                if not deadline.goes_on():
                    raise
