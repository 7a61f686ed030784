#!/usr/bin/env python3
"""The demo's yardstick: llama.cpp (the xllamacpp wheel) with caches of its own.

usage: demo_llama.py MODEL.gguf TASK.json WORK_DIR NEW_TOKENS THREADS
TASK is one of
  {"repeat": ids}: the prompt cold, and after a slot restore
  {"system": ids, "asks": [{"conversation", "turn", "words": ids}], "history": {}, "restore": bool}:
    turns of a chat, each its conversation's history (at first the system prompt) and words. At the
    end the slot is saved; `restore`: begins with it. Last comes a line {"history": {…}} to go on.
Prints one JSON object a run on standard output (keys of turns.py). The server listens on the
loopback interface only and ends with this process.
"""
import json
import os
import sys
import time
import urllib.request

import xllamacpp


def post(base, path, body):
    """One JSON request; returns the decoded reply."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def generate(base, tokens, count, whole=True):
    """Greedy completion with streaming. Returns (ttft_ms, token ids, reused tokens). `whole`: on
    after the end of an answer."""
    body = {"prompt": tokens, "n_predict": count, "temperature": 0, "top_k": 1, "id_slot": 0,
            "cache_prompt": True, "stream": True, "return_tokens": True, "ignore_eos": whole}
    request = urllib.request.Request(base + "/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    ids, first, reused = [], None, 0
    start = time.perf_counter()
    with urllib.request.urlopen(request, timeout=600) as reply:
        for line in reply:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            ids += event.get("tokens", [])
            if ids and first is None:
                first = (time.perf_counter() - start) * 1e3
            reused = event.get("timings", {}).get("cache_n", reused)
    return first, ids[:count], reused


def serve(model, work_dir, context, threads):
    """A llama.cpp server in this process; returns (server, base URL)."""
    p = xllamacpp.CommonParams()
    p.model.path = model
    p.n_ctx = context
    p.n_parallel = 1
    p.cache_ram_mib = 0
    p.n_predict = -1
    p.slot_save_path = work_dir + "/"
    p.endpoint_slots = True
    p.cpuparams.n_threads = threads
    p.cpuparams_batch.n_threads = threads
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    p.warmup = True
    p.port = 0
    p.verbosity = -1
    server = xllamacpp.Server(p)
    return server, server.listening_address


def first_difference(a, b):
    """Position of the first difference, or None."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)


def slot(base, action):
    """Saves or restores what the slot holds; returns how many ms it took."""
    start = time.perf_counter()
    post(base, f"/slots/0?action={action}", {"filename": "slot.bin"})
    return (time.perf_counter() - start) * 1e3


def say(**row):
    print(json.dumps(row), flush=True)


def repeat(base, tokens, count, work_dir):
    ttft, cold, _ = generate(base, tokens, count)
    say(run="cold", tier="none", prompt_tokens=len(tokens), new_tokens=len(tokens),
        reused_tokens=0, ttft_ms=ttft)
    # llama.cpp saves whatever the slot holds: make it the prompt alone, then save.
    generate(base, tokens, 1)
    slot(base, "save")
    slot(base, "erase")
    restore_ms = slot(base, "restore")
    ttft, warm, reused = generate(base, tokens, count)
    at = first_difference(warm, cold)
    say(run="ssd", tier="ssd", prompt_tokens=len(tokens), new_tokens=len(tokens) - reused,
        reused_tokens=reused, ttft_ms=restore_ms + ttft, tokens_equal=at is None,
        text_equal=at is None, first_difference=at,
        stored_bytes=os.path.getsize(os.path.join(work_dir, "slot.bin")))


def chat(base, task, count):
    before = slot(base, "restore") if task["restore"] else 0
    history = dict(task["history"])
    for ask in task["asks"]:
        conversation = str(ask["conversation"])
        prompt = history.get(conversation, task["system"]) + ask["words"]
        ttft, answer, reused = generate(base, prompt, count, whole=False)
        say(conversation=ask["conversation"], turn=ask["turn"], prompt_tokens=len(prompt),
            tier="none" if not reused else "ssd" if before else "ram", reused_tokens=reused,
            new_tokens=len(prompt) - reused, ttft_ms=before + ttft)
        if answer and answer[-1] == ask["words"][0]:  # the end of an answer: next words bring it
            answer.pop()
        history[conversation] = prompt + answer
        before = 0
    slot(base, "save")
    say(history=history)


def longest(task, count):
    """Tokens of the longest prompt and its answer."""
    if "repeat" in task:
        return len(task["repeat"]) + count
    begun = max([len(task["system"]), *map(len, task["history"].values())])
    return begun + sum(len(ask["words"]) + count for ask in task["asks"])


def main():
    model, task_file, work_dir, count, threads = sys.argv[1:6]
    with open(task_file, encoding="utf-8") as f:
        task = json.load(f)
    os.makedirs(work_dir, mode=0o700, exist_ok=True)
    context = (longest(task, int(count)) + 511) // 256 * 256
    _server, base = serve(model, work_dir, context, int(threads))
    if "repeat" in task:
        repeat(base, task["repeat"], int(count), work_dir)
    else:
        chat(base, task, int(count))
    os._exit(0)  # the server's threads need no farewell


if __name__ == "__main__":
    main()
