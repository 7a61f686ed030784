"""Prompt: the tokens that a completion request will be computed on, by the server's own template
and tokenizer; none where the proxy must not meddle with a request.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional

from .llama_upstream import Upstream
from .wire import Tokens, as_tokens

TEXT_PATHS = ("/completion", "/completions", "/v1/completions")
CHAT_PATHS = ("/v1/chat/completions", "/chat/completions")
CALL_S = 2.0
# Fields with which a request computes something else, answers otherwise, or picks its slot itself.
NOT_OURS = ("id_slot", "lora", "n_cmpl", "response_fields", "multimodal_data", "n_cache_reuse")


class NotOurs(Exception):
    """The request is passed through as it is; the text says why."""


@dataclasses.dataclass
class Prompt:
    """system_end: the text up to a chat's first message behind its system message; empty: there
    is none."""

    tokens: Tokens
    system_end: str = ""


def check(path: str, body: Dict[str, Any]) -> None:
    """Raises NotOurs; asks nobody."""
    for name in NOT_OURS:
        if name in body:
            raise NotOurs(f"a request with {name}")
    if body.get("cache_prompt") is False:
        raise NotOurs("a request with cache_prompt false")
    if body.get("n", 1) != 1:
        raise NotOurs("a request for several answers")
    if body.get("n_predict", body.get("max_tokens")) == 0:
        raise NotOurs("a request for no tokens")
    if path in CHAT_PATHS:
        _check_messages(body.get("messages"))
        return
    prompt = body.get("prompt")
    if not isinstance(prompt, str) and not (isinstance(prompt, list) and prompt and all(
            type(token) is int for token in prompt)):
        raise NotOurs("a prompt that is neither a text nor tokens")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        raise NotOurs("a chat without messages")
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and any(
                not isinstance(piece, dict) or piece.get("type") != "text" for piece in content):
            raise NotOurs("a chat with media")


def prompt_of(upstream: Upstream, path: str, body: Dict[str, Any]) -> Prompt:
    """Of a request that check lets pass. May raise UpstreamError."""
    if path in CHAT_PATHS:
        text = upstream.prompt_of(body, CALL_S)
        return Prompt(upstream.tokens_of(text, CALL_S), _up_to_system(text, body["messages"]))
    prompt = body["prompt"]
    return Prompt(upstream.tokens_of(prompt, CALL_S) if isinstance(prompt, str)
                  else as_tokens(prompt))


def _up_to_system(text: str, messages: Any) -> str:
    first: Optional[Any] = messages[0] if messages else None
    if not isinstance(first, dict) or first.get("role") not in ("system", "developer"):
        return ""
    content = _trimmed(first)
    at = text.find(content) if content else -1
    if at < 0:
        return ""
    second = _trimmed(messages[1]) if len(messages) > 1 else ""
    end = at + len(content)
    return text[:max(end, text.find(second, end) if second else -1)]


def _trimmed(message: Any) -> str:
    """The text of a message, as templates write it that leave out the spaces around it."""
    content = message.get("content") if isinstance(message, dict) else None
    return content.strip() if isinstance(content, str) else ""
