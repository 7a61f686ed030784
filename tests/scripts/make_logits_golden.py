#!/usr/bin/env python3
"""Makes tests/golden/engine/smollm2_logits.txt: an independent engine's next-token logits.

usage: make_logits_golden.py MODEL.gguf > tests/golden/engine/smollm2_logits.txt
Needs transformers, torch, gguf, accelerate and xllamacpp. MODEL is SmolLM2-135M-Instruct.Q4_1.
Token ids are llama.cpp's (transformers' GGUF tokenizer misses the digit split); logits are those of
transformers in fp32 on the CPU, all positions in one forward pass without a cache. Run once
by hand; the test run needs only the result.
"""
import json
import sys
import urllib.request

TEXT = "/usr/share/common-licenses/GPL-3"
POSITIONS = 512


def llama_ids(model, text):
    """Token ids as llama.cpp's server gives them."""
    import xllamacpp
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.port, p.verbosity = model, 256, 0, -1
    server = xllamacpp.Server(p)
    body = json.dumps({"content": text, "add_special": False}).encode()
    request = urllib.request.Request(server.listening_address + "/tokenize", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


def main():
    model = sys.argv[1]
    with open(TEXT, encoding="utf-8") as f:
        ids = llama_ids(model, f.read())[:POSITIONS]
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
          f"first {POSITIONS} tokens")
    print("# token best second logit_best logit_second")
    for i, token in enumerate(ids):
        a, b = best.indices[i].tolist()
        x, y = best.values[i].tolist()
        print(f"{token} {a} {b} {x:.5f} {y:.5f}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
