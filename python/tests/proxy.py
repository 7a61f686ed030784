"""Proxy: a hostile service, made of the real one. It stands on a socket before the daemon's, passes
requests on, and hands each frame of a reply to `change`, which says what the client gets instead.

A thread for each client. When either side ends, or `change` says so, both connections are closed.
Descriptors don't pass, so no feature is asked for.
"""
from __future__ import annotations

import os
import socket
import struct
import tempfile
import threading
from typing import Callable, List, Tuple

from cachesvc.frames import HEADER_BYTES, Type, encode_header
from cachesvc.wire import crc32c

# A change of one frame, given its number in its session: what the client gets, and whether the
# session goes on.
Change = Callable[[int, bytes], Tuple[bytes, bool]]


def take(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def take_frame(stream: socket.socket) -> bytes:
    header = take(stream, HEADER_BYTES)
    return header + take(stream, struct.unpack_from("<Q", header, 16)[0])


def type_of(frame: bytes) -> int:
    kind: int = struct.unpack_from("<H", frame, 6)[0]
    return kind


def with_body(frame: bytes, body: bytes) -> bytes:
    """The frame with another body, its header true to it."""
    request: int = struct.unpack_from("<Q", frame, 8)[0]
    return encode_header(Type(type_of(frame)), request, len(body)) + body


def exchange(client: socket.socket, service: socket.socket, frames: List[bytes],
             change: Change) -> None:
    """One request, and its reply's frames as `change` gives them."""
    request = take_frame(client)
    if type_of(request) == Type.HELLO:
        body = request[HEADER_BYTES:]
        request = with_body(request, body[:4] + bytes(4) + body[8:])
    service.sendall(request)
    last = False
    while not last:
        frame = take_frame(service)
        last = type_of(request) != Type.FETCH or type_of(frame) in (Type.FETCH_DONE, Type.ERROR)
        frames.append(frame)
        given, goes_on = change(len(frames) - 1, frame)
        client.sendall(given)
        if not goes_on:
            raise EOFError


def with_header(frame: bytes, at: int, field: bytes) -> bytes:
    """The frame with other bytes in its header, whose checksum is right."""
    head = frame[:at] + field + frame[at + len(field):HEADER_BYTES - 4]
    return head + struct.pack("<I", crc32c(head)) + frame[HEADER_BYTES:]


def with_type(frame: bytes, kind: Type) -> bytes:
    return with_header(frame, 6, struct.pack("<H", kind))


class Proxy:
    def __init__(self, service: str) -> None:
        self._service = service
        self._folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self._folder.name, "proxy")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._session: Tuple[List[bytes], Change] = ([], lambda number, frame: (frame, True))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def begin(self, change: Change) -> List[bytes]:
        """The list for the frames of connections made from now on."""
        self._session = ([], change)
        return self._session[0]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._folder.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client, *self._session),
                             daemon=True).start()

    def _pass_on(self, client: socket.socket, frames: List[bytes], change: Change) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
            try:
                service.connect(self._service)
                while True:
                    exchange(client, service, frames, change)
            except (EOFError, OSError):
                pass


def ending(reply: Type, end: Callable[[], None], goes_on: bool) -> Tuple[Change, List[int]]:
    """A change that calls `end` in the middle of the first such reply, half of which the client
    gets. goes_on: the connection stays. The list has the frame's number once it came."""
    ended: List[int] = []

    def change(number: int, frame: bytes) -> Tuple[bytes, bool]:
        if type_of(frame) != reply or ended:
            return frame, True
        ended.append(number)
        end()
        return frame[:len(frame) // 2], goes_on
    return change, ended
