#!/usr/bin/env python3
"""llama.cpp's speed on the same model: the yardstick of bench/engine_bench.cc.

usage: llama_speed.py MODEL.gguf [THREADS]
Prints prefill tokens/s and decode ms per token at four lengths. Needs xllamacpp.
"""
import json
import os
import sys
import urllib.request

import xllamacpp


def main():
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.port, p.verbosity, p.n_parallel = sys.argv[1], 8192, 0, -1, 1
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    p.cache_ram_mib = 0
    server = xllamacpp.Server(p)

    def post(path, body):
        request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.load(reply)

    with open("/usr/share/common-licenses/GPL-3", encoding="utf-8") as f:
        ids = post("/tokenize", {"content": f.read()})["tokens"]
    for n in (128, 512, 3000, 4096):
        t = post("/completion", {"prompt": ids[:n], "n_predict": 32, "temperature": 0,
                                 "cache_prompt": False, "ignore_eos": True})["timings"]
        print(f"{n} tokens: prefill {t['prompt_per_second']:.0f} tokens/s, "
              f"decode {t['predicted_per_token_ms']:.1f} ms per token", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
