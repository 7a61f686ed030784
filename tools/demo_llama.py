#!/usr/bin/env python3
"""The demo's yardstick: llama.cpp (the xllamacpp wheel) cold, and after its slot restore.

usage: demo_llama.py MODEL.gguf TOKENS.json WORK_DIR NEW_TOKENS THREADS
TOKENS.json is a list of token ids. Prints one JSON row per run on standard output (keys as in
`tools/demo --json`). The server listens on the loopback interface only and ends with this process.
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


def generate(base, tokens, count):
    """Greedy completion with streaming. Returns (ttft_ms, token ids, reused tokens)."""
    body = {"prompt": tokens, "n_predict": count, "temperature": 0, "top_k": 1, "id_slot": 0,
            "cache_prompt": True, "stream": True, "return_tokens": True, "ignore_eos": True}
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


def main():
    model, tokens_file, work_dir, count, threads = sys.argv[1:6]
    with open(tokens_file, encoding="utf-8") as f:
        tokens = json.load(f)
    context = (len(tokens) + int(count) + 511) // 256 * 256
    os.makedirs(work_dir, mode=0o700, exist_ok=True)
    server, base = serve(model, work_dir, context, int(threads))
    ttft, cold, _ = generate(base, tokens, int(count))
    row = {"run": "cold", "mode": "llama.cpp", "tier": "none", "prompt_tokens": len(tokens),
           "reused_tokens": 0, "ttft_ms": ttft, "tokens_equal": None, "logits_equal": None,
           "first_difference": None, "stored_bytes": None, "fp16_bytes": None}
    print(json.dumps(row), flush=True)
    # llama.cpp saves whatever the slot holds: make it the prompt alone, then save.
    generate(base, tokens, 1)
    post(base, "/slots/0?action=save", {"filename": "slot.bin"})
    post(base, "/slots/0?action=erase", {})
    start = time.perf_counter()
    post(base, "/slots/0?action=restore", {"filename": "slot.bin"})
    restore_ms = (time.perf_counter() - start) * 1e3
    ttft, warm, reused = generate(base, tokens, int(count))
    row |= {"run": "ssd", "tier": "ssd", "ttft_ms": restore_ms + ttft, "reused_tokens": reused,
            "tokens_equal": warm == cold, "first_difference": first_difference(warm, cold),
            "stored_bytes": os.path.getsize(os.path.join(work_dir, "slot.bin"))}
    print(json.dumps(row), flush=True)
    os._exit(0)  # the server's threads need no farewell


if __name__ == "__main__":
    main()
