"""Proxy: an HTTP server in front of llama.cpp's, which passes everything on as it comes.

Requests for completions go by Reuse where it may help; all others, and these too when anything is
unknown or fails, reach the server byte for byte. Bodies of answers are handed on as they arrive.
GET /cachesvc is the proxy's own: what it counted, as JSON. A thread per connection.

Until the server is known (llama.await_and_attach) nothing waits for the cache: all is passed
through. What waits is a request that comes within the moment of the self check in which a slot
holds a pattern in place of rows (Gate): for the server's own restore, save and erase of it.
"""
from __future__ import annotations

import contextlib
import functools
import http.client
import http.server
import json
import re
import threading
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from .llama_prompt import CHAT_PATHS, TEXT_PATHS, NotOurs, Prompt, check, prompt_of
from .report import Report
from .llama_reuse import Reuse
from .llama_upstream import Upstream, UpstreamError

BODY_BYTES = 256 << 20   # of a request
PIECE_BYTES = 64 << 10
OWN_PATH = "/cachesvc"
ADAPTERS_PATH = "/lora-adapters"  # a POST changes all rows from then on
ALONE_S = 60.0           # without a moment of no requests, until it is said
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer",
              "proxy-connection", "content-length"}
LAST = re.compile(rb'(?<!\\)"stop"\s*:\s*true|\[DONE\]')  # of a stream's events
TIMINGS = re.compile(rb'(?<!\\)"timings"\s*:\s*(\{[^{}]*\})')


class TooLong(Exception):
    """A request whose body is over its limit."""


class Gate:
    """Moments in which no request is with the server. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside, self._closed = 0, False

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            self._change(-1, False)

    @contextlib.contextmanager
    def alone(self, late: Callable[[], None]) -> Iterator[None]:
        """From a moment without requests on; they wait until its end. late: called where none has
        come for ALONE_S; requests that keep the server busy are let be."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._inside == 0, ALONE_S):
                late()
                self._changed.wait_for(lambda: self._inside == 0)
            self._closed = True
        try:
            yield
        finally:
            self._change(0, False)

    def _change(self, inside: int, closed: bool) -> None:
        with self._changed:
            self._inside, self._closed = self._inside + inside, closed
            self._changed.notify_all()


class Proxy(http.server.ThreadingHTTPServer):
    """reuse: none until the server is known; it may be set (attach) while requests run."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: Tuple[str, int], upstream: Upstream, report: Report) -> None:
        super().__init__(address, _Handler)
        self.upstream, self.report = upstream, report
        self.reuse: Optional[Reuse] = None
        self.gate = Gate()
        self._doubted = False  # a request came that may leave other rows in a slot than its tokens'

    def attach(self, reuse: Reuse) -> None:
        self.reuse = reuse
        if self._doubted:
            reuse.slots.doubt()

    def doubt(self) -> None:
        """A request that is not ours goes to the server."""
        self._doubted = True
        if self.reuse is not None:
            self.reuse.slots.doubt()

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.report.count("connections_broken")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a token goes out when it comes
    server: Proxy

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the server has a log of its own

    def do_POST(self) -> None:
        try:
            body = self._body()
        except (TooLong, ValueError):
            self.close_connection = True
            self._answer(413, b'{"error":{"code":413,"message":"the body is over its limit"}}')
            return
        path = self.path.split("?")[0]
        if self.command == "POST":
            with self.server.gate.request():
                self._posted(path, body)
        elif self.command == "GET" and path == OWN_PATH:
            self._answer(200, json.dumps(self.server.report.counts()).encode())
        else:
            self._pass(body)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _posted(self, path: str, body: bytes) -> None:
        if path in TEXT_PATHS + CHAT_PATHS:
            self._complete(path, body)
            return
        if path == ADAPTERS_PATH:
            self.server.doubt()
            if self.server.reuse is not None:
                self.server.reuse.step_aside("adapters were changed while the server runs")
        self._pass(body)

    # ---- completions

    def _complete(self, path: str, body: bytes) -> None:
        reuse, report, begin = self.server.reuse, self.server.report, time.monotonic()
        prompt = self._prompt(path, body, reuse is not None)
        found = reuse.find(prompt) if reuse is not None and prompt is not None else None
        if reuse is None or prompt is None or found is None:
            report.count("passed_through")
            self._pass(body)
            return
        with reuse.slots.taken(prompt.tokens) as slot:
            restored = reuse.restore(slot, prompt, found)
            begin += reuse.stop_at_system(slot, prompt, found)
            if restored == 0:  # with what it waited for a slot
                report.count("added_to_misses_us", int((time.monotonic() - begin) * 1e6))
            # A client that asks again as soon as it has read the end finds this slot.
            tail = self._pass(_pinned(body, slot.number),
                              functools.partial(reuse.slots.close, slot, prompt.tokens))
            reuse.finish(slot, prompt, restored, _timings(tail))

    def _prompt(self, path: str, body: bytes, wanted: bool) -> Optional[Prompt]:
        """None: a request that is not ours, or it is not wanted."""
        try:
            given = json.loads(body)
            if not isinstance(given, dict):
                raise NotOurs("a body that is no object")
            check(path, given)
            return prompt_of(self.server.upstream, path, given) if wanted else None
        except NotOurs as why:
            self.server.doubt()
            self.server.report.say(str(why), f"{why} is passed through as it is (said once)")
        except (ValueError, UpstreamError, RecursionError):
            pass  # the server says what is wrong with it
        return None

    # ---- passing on

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 <= length <= BODY_BYTES:
                raise TooLong
            return self._read(length)
        body = bytearray()
        while True:
            length = int(self.rfile.readline(64).split(b";")[0], 16)
            if not 0 <= length <= BODY_BYTES - len(body):
                raise TooLong
            body += self._read(length)
            self.rfile.readline(1024)
            if length == 0:
                return bytes(body)

    def _read(self, length: int) -> bytes:
        data = self.rfile.read(length)
        if len(data) < length:
            raise ConnectionError("the client left within its request")
        return data

    def _pass(self, body: bytes, before_end: Callable[[], None] = lambda: None) -> bytes:
        """Has the server answer, and hands the answer on; its last bytes once it is whole.
        before_end is called once or more before the client has all of the answer."""
        upstream = self.server.upstream.connect()
        try:
            self._send(upstream, body)
            reply = upstream.getresponse()
        except (OSError, http.client.HTTPException) as error:
            upstream.close()
            self._answer(502, json.dumps({"error": {
                "code": 502, "type": "unavailable_error",
                "message": f"llama.cpp's server: {type(error).__name__}"}}).encode())
            return b""
        try:
            return self._hand_on(reply, before_end)
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # whoever is left sees that the answer is not whole
            self.server.report.count("answers_broken")
            return b""
        finally:
            upstream.close()  # the server stops computing for a client that left

    def _send(self, upstream: http.client.HTTPConnection, body: bytes) -> None:
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP_BY_HOP:
                upstream.putheader(name, value)
        if body or self.command not in ("GET", "HEAD"):
            upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body or None)

    def _hand_on(self, reply: http.client.HTTPResponse, before_end: Callable[[], None]) -> bytes:
        length = reply.getheader("Content-Length")
        bodyless = self.command == "HEAD" or reply.status in (204, 304) or reply.status < 200
        chunked = length is None and not bodyless
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", length)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        tail = b""
        while not bodyless:
            piece = reply.read1(PIECE_BYTES)
            if not piece:
                break
            if reply.length == 0 or LAST.search(piece):
                before_end()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            tail = (tail + piece)[-PIECE_BYTES:]
        if length is not None and reply.length:
            raise http.client.IncompleteRead(b"", reply.length)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        return tail if reply.status == 200 else b""

    def _answer(self, status: int, text: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _pinned(body: bytes, slot: int) -> bytes:
    """The request with its slot; the client's own bytes stay as they are."""
    at = body.index(b"{") + 1
    return b'%b"id_slot":%d,"cache_prompt":true,%b' % (body[:at], slot, body[at:])


def _timings(tail: bytes) -> Dict[str, Any]:
    """The timings at an answer's end; empty: it has none, or did not come whole."""
    found = TIMINGS.findall(tail)
    try:
        timings = json.loads(found[-1]) if found else {}
    except ValueError:
        return {}
    return timings if isinstance(timings, dict) else {}
