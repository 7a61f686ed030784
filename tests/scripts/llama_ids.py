#!/usr/bin/env python3
"""Token ids of real texts as llama.cpp gives them, for tests/engine_tokenizer_test.cc.

usage: llama_ids.py MODEL.gguf OUT
OUT gets, per text: "<bytes> <ids>", newline, the text, newline, the ids in one
line. Needs xllamacpp.
"""
import glob
import json
import os
import sys
import urllib.request

import xllamacpp

HARD = ["", " ", "\n\n  \t x", "2024-11-05: 3.14159, 1,000,000 and ½ or ²³ or Ⅷ",
        "don't we'll I'M they've 'tis", "naïve café — “quotes” … 日本語のテキスト, Привет мир, مرحبا",
        "emoji 👩‍👩‍👧‍👦 🇩🇪 ✓", "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>",
        "   leading and trailing   ", "a\u00a0b\u2003c\u3000d", "x" * 3000,
        "a \u180eb \u180e\u180e c\u180e \u200b\u0085\u2028\u202f\u1680x",
        "\r\n\r\n\tif (a<b) { return c; }",
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<eos><unused7>",
        "\n" * 40 + "\t" * 33 + " " * 70, "<table><tr><td> <b>x</b></td></tr> <unused <<<unused1>>",
        "a\u2581b \u2581 c", "\u0000\u0001\u007f\u0085\ufeff\ufffd\U0010ffff", "ﬁ Å e\u0301 ㎏ Ⅳ",
        "ไทย हिन्दी 한국어 ქართული አማርኛ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🏳️‍🌈👍🏽"]


def main():
    model, out = sys.argv[1:3]
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.port, p.verbosity = model, 256, 0, -1
    server = xllamacpp.Server(p)
    texts = list(HARD)
    for path in ["GPL-3", "GPL-2", "Apache-2.0", "LGPL-2.1"]:
        path = "/usr/share/common-licenses/" + path
        if os.path.exists(path):
            texts.append(open(path, encoding="utf-8").read())
    for path in sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))[:12]:
        texts.append(open(path, encoding="utf-8", newline="").read())
    with open(out, "wb") as f:
        for text in texts:
            body = json.dumps({"content": text, "add_special": True}).encode()
            request = urllib.request.Request(server.listening_address + "/tokenize", body,
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as reply:
                ids = json.load(reply)["tokens"]
            data = text.encode()
            line = " ".join(map(str, ids)).encode()
            f.write(b"%d %d\n%s\n%s\n" % (len(data), len(ids), data, line))
    os._exit(0)


if __name__ == "__main__":
    main()
