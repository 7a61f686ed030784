#!/usr/bin/env python3
"""tools/bench's yardstick: llama.cpp (the xllamacpp wheel), flash attention on.

usage: bench_llama.py single  MODEL.gguf PROMPTS.json KV THREADS NEW
       bench_llama.py batched MODEL.gguf PROMPTS.json KV THREADS NEW
`single`: PROMPTS is {N: token ids}; prints {"KV/prefill/N": tokens/s, "KV/decode/N": tokens/s}.
`batched`: PROMPTS is a list of prompts, decoded together in one slot each after their first N-1
tokens are there, as a cache would bring them; prints {"decode": tokens/s of all of them}.
KV: f16 or q4_0. The server listens on the loopback interface only and ends with this process.
"""
import concurrent.futures
import json
import os
import sys
import tempfile

import xllamacpp
from demo_llama import post


def serve(model, kind, threads, context, slots, save_path=""):
    """A llama.cpp server in this process, to be kept; returns (server, base URL)."""
    p = xllamacpp.CommonParams()
    p.model.path = model
    p.n_ctx = context
    p.n_parallel = slots
    p.cache_ram_mib = 0
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    p.cache_type_k = p.cache_type_v = {"f16": xllamacpp.ggml_type.GGML_TYPE_F16,
                                       "q4_0": xllamacpp.ggml_type.GGML_TYPE_Q4_0}[kind]
    if save_path:
        p.slot_save_path = save_path + "/"
        p.endpoint_slots = True
    p.warmup = True
    p.port = 0
    p.verbosity = -1
    server = xllamacpp.Server(p)
    return server, server.listening_address


def complete(base, prompt, new, slot, cached):
    """The timings of one greedy completion."""
    return post(base, "/completion",
                {"prompt": prompt, "n_predict": new, "temperature": 0, "top_k": 1, "id_slot": slot,
                 "cache_prompt": cached, "ignore_eos": True})["timings"]


def single(model, prompts, kind, threads, new):
    server, base = serve(model, kind, threads, 8192, 1)
    values = {}
    for n, prompt in prompts.items():
        timings = complete(base, prompt, new, 0, False)
        values[f"{kind}/prefill/{n}"] = timings["prompt_per_second"]
        values[f"{kind}/decode/{n}"] = timings["predicted_per_second"]
    del server
    return values


def batched(model, prompts, kind, threads, new):
    context = (max(len(p) for p in prompts) + new + 511) // 256 * 256
    with tempfile.TemporaryDirectory() as work:
        server, base = serve(model, kind, threads, context * len(prompts), len(prompts), work)
        for slot, prompt in enumerate(prompts):
            if slot > 0 and prompt[:-1] == prompts[0][:-1]:
                post(base, f"/slots/{slot}?action=restore", {"filename": "slot.bin"})
                continue
            complete(base, prompt[:-1], 0, slot, True)
            if slot == 0:
                post(base, "/slots/0?action=save", {"filename": "slot.bin"})
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            timings = list(pool.map(lambda i: complete(base, prompts[i], new, i, True),
                                    range(len(prompts))))
    del server
    if any(t["prompt_n"] > 64 for t in timings):  # with windows some 6 after a restore
        raise SystemExit(f"llama.cpp computed a prompt anew: {[t['prompt_n'] for t in timings]}")
    slowest = max(t["predicted_ms"] for t in timings)
    return {"decode": 1e3 * sum(t["predicted_n"] for t in timings) / slowest}


def main():
    mode, model, file, kind, threads, new = sys.argv[1:7]
    with open(file, encoding="utf-8") as f:
        prompts = json.load(f)
    values = {"single": single, "batched": batched}[mode](model, prompts, kind, int(threads),
                                                          int(new))
    print("\n" + json.dumps(values), flush=True)
    os._exit(0)  # the server's threads need no farewell


if __name__ == "__main__":
    main()
