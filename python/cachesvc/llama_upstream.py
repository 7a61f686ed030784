"""Upstream: the calls of llama.cpp's HTTP server that the adapter makes itself.

Each call has a connection and a timeout of its own; thread-safe. A failure is an UpstreamError. The
slot folder is the server's --slot-save-path, which this process can read and write.
"""
from __future__ import annotations

import http.client
import json
import os
import urllib.parse
import uuid
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .wire import Buffer, Tokens, as_tokens

ANSWER_BYTES = 64 << 20


class UpstreamError(Exception):
    """The server did not answer, or answered with an error."""


class Upstream:
    def __init__(self, url: str, slot_folder: str, api_key: str = "") -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UpstreamError(f"{url} is no http:// address")
        self.host, self.port = parts.hostname, parts.port or 80
        self._folder = slot_folder
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def connect(self, timeout: Optional[float] = None) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def call(self, path: str, body: Optional[Dict[str, Any]], timeout: float) -> Any:
        """The JSON that the server answers; body: of a POST, none: a GET."""
        connection = self.connect(timeout)
        try:
            connection.request("GET" if body is None else "POST", path,
                               None if body is None else json.dumps(body), self._headers)
            reply = connection.getresponse()
            text = reply.read(ANSWER_BYTES)
            if reply.status != 200:
                raise UpstreamError(f"{path}: HTTP {reply.status}")
            return json.loads(text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UpstreamError(f"{path}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def identity(self, timeout: float = 2.0) -> Tuple[object, ...]:
        """Another one after the server was started anew: the marker is drawn at each start."""
        props = self.call("/props", None, timeout)
        return tuple(_field(props, key) for key in ("model_path", "total_slots", "media_marker"))

    # ---- prompts

    def prompt_of(self, chat: Dict[str, Any], timeout: float) -> str:
        """The text that the server's template makes of a chat request."""
        return str(_field(self.call("/apply-template", chat, timeout), "prompt"))

    def tokens_of(self, text: str, timeout: float) -> Tokens:
        """The tokens of a prompt as the server's completions take it."""
        body = {"content": text, "add_special": True, "parse_special": True}
        return as_tokens(_field(self.call("/tokenize", body, timeout), "tokens"))

    # ---- slots

    def slots(self, timeout: float = 5.0) -> List[int]:
        return [int(_field(slot, "id")) for slot in self.call("/slots", None, timeout)]

    def compute(self, slot: int, tokens: Sequence[int], timeout: float) -> float:
        """Has a slot hold these tokens, computed; seconds that each took."""
        answer = self.call("/completion", {
            "prompt": list(tokens), "n_predict": 1, "id_slot": slot, "cache_prompt": False,
            "temperature": 0}, timeout)
        return float(_field(_field(answer, "timings"), "prompt_ms")) / 1000 / len(tokens)

    def advance(self, slot: int, tokens: Tokens, timeout: float) -> Tuple[int, float]:
        """Has a slot hold these tokens, going on from what it holds of them: how many it had, and
        the seconds that computing the others took."""
        answer = self.call("/completion", {
            "prompt": tokens.tolist(), "n_predict": 0, "id_slot": slot, "cache_prompt": True},
            timeout)
        timings = _field(answer, "timings")
        return int(_field(timings, "cache_n")), float(_field(timings, "prompt_ms")) / 1000

    def next_token(self, slot: int, tokens: Tokens, reuse: bool, most: int,
                   timeout: float) -> Tuple[Dict[int, float], int]:
        """Log probabilities of the `most` most probable tokens after a prompt; and how many of its
        tokens the server took from the slot. reuse: it may."""
        answer = self.call("/completion", {
            "prompt": tokens.tolist(), "n_predict": 1, "id_slot": slot, "cache_prompt": reuse,
            "temperature": 0, "n_probs": most}, timeout)
        try:
            likely = _field(answer, "completion_probabilities")[0]["top_logprobs"]
            found = {int(one["id"]): float(one["logprob"]) for one in likely[:most]}
        except (LookupError, TypeError, ValueError) as error:
            raise UpstreamError(f"an answer without probabilities: {error}") from error
        if not found:
            raise UpstreamError("an answer without probabilities")
        return found, int(_field(_field(answer, "timings"), "cache_n"))

    def save(self, slot: int, timeout: float) -> bytes:
        """The slot file of what a slot holds now."""
        name, path = self._new_name()
        try:
            self.call(f"/slots/{slot}?action=save", {"filename": name}, timeout)
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise UpstreamError(f"the slot file: {error}") from error
        finally:
            _remove(path)

    def restore(self, slot: int, file: Sequence[Buffer], timeout: float,
                valid: Callable[[], bool] = lambda: True) -> None:
        """valid: asked when the file's bytes have been read; false: an error."""
        name, path = self._new_name()
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                for part in file:
                    out.write(part)
            if not valid():
                raise UpstreamError("the service took the rows back while they were read")
            self.call(f"/slots/{slot}?action=restore", {"filename": name}, timeout)
        except OSError as error:
            raise UpstreamError(f"the slot file: {error}") from error
        finally:
            _remove(path)

    def erase(self, slot: int, timeout: float) -> None:
        self.call(f"/slots/{slot}?action=erase", {}, timeout)

    def _new_name(self) -> Tuple[str, str]:
        name = f"cachesvc-{uuid.uuid4().hex}"
        return name, os.path.join(self._folder, name)


def _field(answer: Any, key: str) -> Any:
    if not isinstance(answer, dict) or key not in answer:
        raise UpstreamError(f"an answer without {key}")
    return answer[key]


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it was not made
