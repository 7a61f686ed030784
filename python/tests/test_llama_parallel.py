"""Several slots of the real llama.cpp server, and requests at the same time."""
from __future__ import annotations

import threading
from typing import List

import pytest

from daemon import Daemon
from llama_engine import Message, launched, model_file, proxied, text, wait_until
from test_llama_engine import QUESTIONS, asked

pytestmark = pytest.mark.engines


def test_two_slots_serve_two_chats_at_once(daemon: Daemon, namespace: str) -> None:
    """Whichever slot each has and whatever the other one is doing: the rows are its own, as the
    server finds that computes both anew in a fresh process, which goes on from both."""
    model = model_file("KV_SMOLLM2_GGUF")
    chats = [asked(text(first, 500), question)
             for first, question in ((0, QUESTIONS[0]), (1500, QUESTIONS[2]))]
    two = launched(model, "-np", "2")
    with proxied(daemon.socket, namespace, two) as first:
        reused: List[int] = []

        def two_turns(chat: List[Message]) -> None:
            more = [*chat, {"role": "assistant", "content": first.chat(chat).text},
                    {"role": "user", "content": QUESTIONS[4]}]
            reused.append(first.chat(more).reused)
        threads = [threading.Thread(target=two_turns, args=(chat,)) for chat in chats]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(reused) == 2 and min(reused) > 100, "each goes on from its own slot"
        wait_until(lambda: sum(first.counts().get(name, 0) for name in
                               ("stores", "stores_dropped")) == 4)
        assert not {"mismatches", "passed_through"}.intersection(first.counts())
    with proxied(daemon.socket, namespace, two, "--shadow", "1") as second:
        for number, chat in enumerate(chats):
            again = second.chat(chat)
            assert again.reused == again.prompt - 1
            counts = second.wait_for("shadows", "failed_shadow", more_than=number)
        assert counts["shadows"] == 2 and counts["shadow_millinats"] < 200
