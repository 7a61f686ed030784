#!/usr/bin/env python3
"""Runs tools/demo on a real prompt and checks its table.

Every hit must reuse N-1 tokens and give the cold run's very tokens and logits, in both modes,
before and after kill -9, and the entry's files must take at most 0.33 of its fp16 rows.

usage: tools_demo_check.py PATH_TO_DEMO   (exit 77: skipped, no model file; 0: good; 1: not)
"""
import json
import os
import subprocess
import sys
import tempfile

TOKENS, SHARED, NEW = 3000, 1500, 64


def fail(text):
    sys.exit(f"demo check: {text}")


def check_rows(rows):
    seen = {(r["mode"], r["run"]): r for r in rows}
    for mode in ("embedded", "socket"):
        for run in ("cold", "ram", "ssd", "shared_cold", "shared_hit"):
            row = seen.get((mode, run)) or fail(f"no row {mode} {run}")
            if row["prompt_tokens"] != TOKENS or not row["ttft_ms"] > 0:
                fail(f"bad row {row}")
        for run, tier in (("ram", "ram"), ("ssd", "ssd")):
            row = seen[mode, run]
            if row["tier"] != tier or row["reused_tokens"] != TOKENS - 1:
                fail(f"{mode} {run}: reused {row['reused_tokens']} from {row['tier']}")
            if row["tokens_equal"] is not True or row["logits_equal"] is not True:
                fail(f"{mode} {run}: not the cold run's tokens and logits: {row}")
        for run in ("cold", "shared_cold"):
            if seen[mode, run]["reused_tokens"] != 0:
                fail(f"{mode} {run} reused {seen[mode, run]['reused_tokens']} tokens")
        shared = seen[mode, "shared_hit"]["reused_tokens"]
        if shared != SHARED:
            fail(f"{mode} shared_hit: reused {shared}, expected {SHARED}")
        ratio = seen[mode, "ram"]["stored_bytes"] / seen[mode, "ram"]["fp16_bytes"]
        if not 0.2 < ratio <= 0.33:
            fail(f"{mode}: stored/fp16 {ratio}")


def main():
    if not os.environ.get("KV_SMOLLM2_GGUF"):
        print("skipped: KV_SMOLLM2_GGUF names no model file (tools/install downloads one)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "rows.json")
        command = [sys.argv[1], "--tokens", str(TOKENS), "--new", str(NEW), "--json", out,
                   "--model", os.environ["KV_SMOLLM2_GGUF"]]
        if subprocess.run(command, check=False).returncode != 0:
            fail("tools/demo failed")
        with open(out, encoding="utf-8") as f:
            check_rows(json.load(f))
    print("demo check: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
