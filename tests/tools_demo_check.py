#!/usr/bin/env python3
"""Runs tools/demo on a real prompt and checks its table.

Every hit must reuse N-1 tokens and give the cold run's very tokens and logits, in both modes,
before and after kill -9. The entry's files must take at most 0.33 of its fp16 rows, all files of
complete blocks together at most 0.27 of theirs. Whatever the figures, the demo must say whether its
speeds are what is promised.

usage: tools_demo_check.py PATH_TO_DEMO PATH_TO_CACHECTL
       (exit 77: skipped, no model file; 0: good; 1: not)
"""
import json
import os
import subprocess
import sys
import tempfile

TOKENS, SHARED, NEW, BATCH = 3000, 1500, 64, 8


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


def check_llama(rows):
    """The comparison that the README's table needs, where its Python package is installed."""
    seen = {r["run"]: r for r in rows if r["mode"] == "llama.cpp"}
    for run, reused in (("cold", 0), ("ssd", TOKENS - 1)):
        row = seen.get(run) or fail(f"no row llama.cpp {run}")
        if row["reused_tokens"] != reused or not row["ttft_ms"] > 0:
            fail(f"bad row {row}")


def check_blocks(cachectl, store):
    """Sizes of files and rows come from the store itself, not from the demo."""
    out = subprocess.run([cachectl, "ls", "--blocks", "--json", store], capture_output=True,
                         text=True, check=True)
    blocks = [f for f in json.loads(out.stdout) if f["kind"] == "block"]
    if len(blocks) < TOKENS // 256:
        fail(f"{store}: {len(blocks)} complete blocks of {TOKENS} tokens")
    ratio = sum(f["file_bytes"] for f in blocks) / sum(f["fp16_bytes"] for f in blocks)
    if not 0.2 < ratio <= 0.27:
        fail(f"{store}: complete blocks/fp16 {ratio}")


def check_batch(rows):
    for row in rows[:-1]:
        if row["tokens_equal"] is not True or row["logits_equal"] is not True:
            fail(f"a row of the batch is not its single run's: {row}")
        if row["reused_tokens"] != row["prompt_tokens"] - 1:
            fail(f"a row of the batch reused {row['reused_tokens']} of {row['prompt_tokens']}")
    if len(rows) != BATCH + 1 or not rows[-1]["batch_tokens_per_s"] > 0:
        fail(f"no throughput of {BATCH} rows: {rows[-1]}")
    if not 0.25 < rows[-1]["blocks_of_fp16"] <= 0.28:
        fail(f"complete blocks take {rows[-1]['blocks_of_fp16']} of fp16")


def main():
    if not os.environ.get("KV_SMOLLM2_GGUF"):
        print("skipped: KV_SMOLLM2_GGUF names no model file (tools/install downloads one)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        out, store = os.path.join(scratch, "rows.json"), os.path.join(scratch, "store")
        command = [sys.argv[1], "--tokens", str(TOKENS), "--new", str(NEW), "--json", out,
                   "--dir", store, "--model", os.environ["KV_SMOLLM2_GGUF"]]
        ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        print(ran.stdout)
        if ran.returncode != 0:
            fail("tools/demo failed")
        if ran.stdout.count("sooner than cold") != 2:
            fail("tools/demo does not say how its speeds compare with what is promised")
        with open(out, encoding="utf-8") as f:
            rows = json.load(f)
        check_rows(rows)
        if os.environ.get("KV_PYTHON"):
            check_llama(rows)
        command += ["--batch", str(BATCH), "--dir", os.path.join(scratch, "batch")]
        if subprocess.run(command, check=False).returncode != 0:
            fail("tools/demo --batch failed")
        with open(out, encoding="utf-8") as f:
            check_batch(json.load(f))
        for mode in ("embedded", "socket"):
            check_blocks(sys.argv[2], os.path.join(store, mode))
    print("demo check: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
