#!/usr/bin/env python3
"""Makes tests/golden/engine/{smollm2,gemma3}_logits.txt: an independent engine's next-token logits.

usage: make_logits_golden.py MODEL.gguf POSITIONS > tests/golden/engine/NAME_logits.txt
Needs transformers, torch, gguf, accelerate and xllamacpp. smollm2: SmolLM2-135M-Instruct.Q4_1, 512
positions; gemma3: gemma-3-270m-q4_k_m, 1152 (more than two windows). Token ids are llama.cpp's
(transformers' GGUF tokenizer misses SmolLM2's digit split), with the begin token where the model
wants one; logits are those of transformers in fp32 on the CPU, all positions in one forward pass
without a cache. Run once by hand; the test run needs only the result.
"""
import json
import sys
import urllib.request

TEXT = "/usr/share/common-licenses/GPL-3"


def llama_ids(model, text):
    """Token ids as llama.cpp's server gives them."""
    import xllamacpp
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.port, p.verbosity = model, 256, 0, -1
    server = xllamacpp.Server(p)
    body = json.dumps({"content": text, "add_special": True}).encode()
    request = urllib.request.Request(server.listening_address + "/tokenize", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


def main():
    model, positions = sys.argv[1], int(sys.argv[2])
    with open(TEXT, encoding="utf-8") as f:
        ids = llama_ids(model, f.read())[:positions]
    import os
    import torch
    import transformers
    folder, name = os.path.split(model)
    net = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name,
                                                            dtype=torch.float32)
    net.eval()
    with torch.no_grad():
        logits = net(torch.tensor([ids])).logits[0]
    best = torch.topk(logits, 2, dim=-1)
    print(f"# transformers {transformers.__version__} fp32; {os.path.basename(TEXT)}, "
          f"first {positions} tokens")
    print("# token best second logit_best logit_second")
    for i, token in enumerate(ids):
        a, b = best.indices[i].tolist()
        x, y = best.values[i].tolist()
        print(f"{token} {a} {b} {x:.5f} {y:.5f}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
