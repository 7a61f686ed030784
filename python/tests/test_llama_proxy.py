"""The proxy before a server that is scripted byte by byte: what comes is handed on as it came."""
from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from typing import Dict, Iterator, List, Tuple

import numpy as np
import pytest

from cachesvc.llama import arguments, what_changes_rows
from cachesvc import llama_proxy
from cachesvc.llama_proxy import Gate, Proxy
from cachesvc.report import Report
from cachesvc.llama_slots import Slots, common
from cachesvc.llama_upstream import Upstream

HEAD = b"HTTP/1.1 200 OK\r\nX-Odd: \xe9\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERS: Dict[str, Tuple[bytes, int, bytes]] = {  # path: what the server says, status, body
    "/length": (HEAD + b"Content-Length: 5\r\n\r\nabcde", 200, b"abcde"),
    "/chunks": (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 200, b"abcde"),
    "/close": (HEAD + b"Connection: close\r\n\r\nabcde", 200, b"abcde"),
    "/none": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "/error": (b"HTTP/1.1 503 Loading\r\nContent-Length: 2\r\n\r\n{}", 503, b"{}"),
    "/v1/completions": (CHUNKED + b"5\r\ndata:\r\n0\r\n\r\n", 200, b"data:"),
    "/v1/chat/completions": (CHUNKED + b"5\r\ndata:\r\n0\r\n\r\n", 200, b"data:"),
}
BROKEN = {"/cut/length": HEAD + b"Content-Length: 9\r\n\r\nabcde",
          "/cut/chunk": CHUNKED + b"9\r\nabcde", "/cut/chunks": CHUNKED + b"5\r\nabcde\r\n"}


class Scripted:
    """A server that reads one request, answers by its path and closes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.requests: List[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += client.recv(65536)
                head, body = request.split(b"\r\n\r\n", 1)
                length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                               if line.lower().startswith(b"content-length")), 0)
                while len(body) < length:
                    body += client.recv(65536)
                self.requests.append(head + b"\r\n\r\n" + body)
                path = head.split(b" ")[1].decode()
                client.sendall(ANSWERS[path][0] if path in ANSWERS else BROKEN[path])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def standing() -> Iterator[Tuple[Scripted, http.client.HTTPConnection, Report]]:
    behind, report = Scripted(), Report("test")
    proxy = Proxy(("127.0.0.1", 0), Upstream(f"http://127.0.0.1:{behind.port}", ""), report)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    client = http.client.HTTPConnection("127.0.0.1", proxy.server_port, timeout=20)
    try:
        yield behind, client, report
    finally:
        client.close()
        proxy.shutdown()
        proxy.server_close()
        behind.close()


def posted(proxy: Proxy, path: str, body: bytes) -> Tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", proxy.server_port, timeout=60)
    try:
        client.request("POST", path, body)
        reply = client.getresponse()
        return reply.status, reply.read()
    finally:
        client.close()


def test_answers_come_as_they_are_on_one_connection() -> None:
    with standing() as (_, client, _):
        for path, (_, status, body) in ANSWERS.items():
            client.request("GET" if path == "/none" else "POST", path, b"{}")
            reply = client.getresponse()
            assert (reply.status, reply.read()) == (status, body), path
            if status == 200:
                assert reply.getheader("X-Odd") == "\xe9"


def test_requests_arrive_as_they_are() -> None:
    with standing() as (behind, client, _):
        client.request("POST", "/length?a=b".split("?")[0], b'{"prompt": 1}',
                       {"Authorization": "Bearer secret", "X-Two": "2"})
        client.getresponse().read()
        client.request("PUT", "/length", iter([b"ab", b"cde"]), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})
        client.getresponse().read()
        post, put = behind.requests
        assert b"Authorization: Bearer secret" in post and b"X-Two: 2" in post
        assert post.startswith(b"POST /length HTTP/1.1") and post.endswith(b'{"prompt": 1}')
        assert put.startswith(b"PUT ") and put.endswith(b"\r\n\r\nabcde")


@pytest.mark.parametrize("path", BROKEN)
def test_an_answer_that_breaks_off_is_seen_to_break_off(path: str) -> None:
    with standing() as (_, client, report):
        client.request("GET", path)
        with pytest.raises(http.client.IncompleteRead):
            client.getresponse().read()
        client.close()
        client.request("GET", "/length")
        assert client.getresponse().read() == b"abcde"
        assert report.counts()["answers_broken"] == 1


def test_without_a_server_the_answer_says_so() -> None:
    with standing() as (behind, client, _):
        behind.close()
        client.request("POST", "/v1/completions", b"{}")
        reply = client.getresponse()
        assert reply.status == 502 and "llama.cpp" in json.loads(reply.read())["error"]["message"]


def test_a_body_over_the_limit_is_refused() -> None:
    with standing() as (behind, client, _):
        client.request("POST", "/length", headers={"Content-Length": str(1 << 40)})
        assert client.getresponse().status == 413 and not behind.requests


def test_a_request_that_breaks_off_does_not_reach_the_server() -> None:
    with standing() as (behind, client, report):
        client.request("POST", "/length", b"half", {"Content-Length": "8"})
        client.close()
        client.request("POST", "/length", b"whole")
        assert client.getresponse().read() == b"abcde"
        assert len(behind.requests) == 1 and behind.requests[0].endswith(b"whole")


def test_requests_wait_for_a_moment_of_none_and_no_longer() -> None:
    gate, order, late = Gate(), [], threading.Event()
    first, go, inside, alone = (threading.Event() for _ in range(4))

    def request() -> None:
        with gate.request():
            first.set()
            go.wait()

    def checks() -> None:
        with gate.alone(late.set):
            inside.set()
            alone.wait()
            order.append("alone")
    threads = [threading.Thread(target=each) for each in (request, checks)]
    threads[0].start()
    first.wait()
    threads[1].start()
    with gate.request():  # the check waits for its moment and keeps nobody
        order.append("request")
    go.set()
    inside.wait()

    def next_one() -> None:
        with gate.request():
            order.append("next")
    threads.append(threading.Thread(target=next_one))
    threads[2].start()
    alone.set()
    for thread in threads:
        thread.join()
    assert order == ["request", "alone", "next"] and not late.is_set()


def test_a_check_says_that_it_found_no_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_proxy, "ALONE_S", 0.0)
    gate, late = Gate(), threading.Event()

    def checks() -> None:
        with gate.alone(late.set):
            pass
    with gate.request():
        thread = threading.Thread(target=checks)
        thread.start()
        late.wait()
    thread.join()


def test_a_request_waits_for_the_slot_that_holds_its_prompt() -> None:
    slots = Slots([0, 1], shifts=False)
    tokens = np.arange(10, dtype="<i4")
    order: List[int] = []

    def again() -> None:
        with slots.taken(tokens) as slot:
            order.append(slot.number)
    with slots.taken(tokens) as slot:
        with slots.taken(tokens) as other:  # it is not known yet what the first one holds
            assert other.number != slot.number
        slots.close(slot, tokens)
        thread = threading.Thread(target=again)
        thread.start()
        first = slot.number
    thread.join()
    assert order == [first]
    with slots.taken(tokens + 1) as slot:
        assert slot.number != first  # the one that was used longest ago


def test_common_prefixes() -> None:
    def of(*tokens: int) -> "np.ndarray[int, np.dtype[np.int32]]":
        return np.array(tokens, "<i4")
    assert common(of(1, 2, 3), of(1, 2, 4)) == 2 and common(of(), of(1)) == 0
    assert common(of(1, 2), of(1, 2, 3)) == 2


def test_options_of_the_command_line() -> None:
    ours, command = arguments(["--socket", "s", "--namespace", "n", "--", "llama-server", "-m",
                               "x.gguf", "--rope-freq-base", "10000", "-c", "4096", "-ctk", "f32",
                               "--lora=a.gguf"])
    assert ours.namespace == "n" and command[0] == "llama-server"
    assert what_changes_rows(command) == ["--rope-freq-base", "10000", "-ctk", "f32",
                                          "--lora=a.gguf"]
    for wrong in (["--socket", "s"], ["--socket", "s", "--namespace", "n"],
                  ["--socket", "s", "--namespace", "n", "--upstream", "http://x"],
                  ["--socket", "s", "--namespace", "n", "--bits", "9:4", "--", "x"]):
        with pytest.raises(SystemExit):
            arguments(wrong)
