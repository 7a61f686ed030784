#!/usr/bin/env python3
"""llama.cpp's greedy continuations of real text, for tests/engine_model_test.cc.

usage: llama_greedy.py MODEL.gguf OUT PROMPT_TOKENS NEW_TOKENS
OUT gets two lines: the prompt's ids (the start of GPL-3) and the generated ids. Needs xllamacpp.
"""
import json
import os
import sys
import urllib.request

import xllamacpp


def main():
    model, out, prompt_tokens, new_tokens = sys.argv[1:5]
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.port, p.verbosity, p.n_parallel = model, 2048, 0, -1, 1
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 2
    server = xllamacpp.Server(p)

    def post(path, body):
        request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.load(reply)

    with open("/usr/share/common-licenses/GPL-3", encoding="utf-8") as f:
        ids = post("/tokenize", {"content": f.read()})["tokens"][:int(prompt_tokens)]
    made = post("/completion", {"prompt": ids, "n_predict": int(new_tokens), "temperature": 0,
                                "top_k": 1, "ignore_eos": True, "return_tokens": True})["tokens"]
    with open(out, "w", encoding="utf-8") as f:
        for line in (ids, made):
            f.write(" ".join(map(str, line)) + "\n")
    os._exit(0)


if __name__ == "__main__":
    main()
