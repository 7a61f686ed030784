#!/usr/bin/env python3
"""Runs tools/demo on a real prompt and checks its table.

Every hit must reuse N-1 tokens (with coded prefill: all complete blocks) and give the cold run's
very tokens and logits, in both modes, before and after kill -9. A second prompt that shares some
beginning reuses what its kind of cache allows. For the real models the entry's files and those of
all complete blocks have bounds against their fp16 rows. Whatever the figures, the demo must say
whether its speeds are what is promised.

usage: tools_demo_check.py PATH_TO_DEMO PATH_TO_CACHECTL smollm2|gemma3|tiny
       (exit 77: skipped, no model file; 0: good; 1: not)
"""
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

BATCH, BLOCK = 8, 256


@dataclass
class Case:
    model: str
    tokens: int
    new: int
    shared: int  # tokens that the second prompt reuses
    arguments: tuple = ()
    most: float = 0  # bytes of the entry's files over those of its fp16 rows; 0: not compared

    @property
    def coded(self):
        return "coded" in self.arguments

    @property
    def reused(self):
        return (self.tokens - 1) // BLOCK * BLOCK if self.coded else self.tokens - 1


# A window's rows lie at ends only, so Gemma's second prompt finds none where it branches off.
SMOLLM2 = Case("smollm2", 3000, 64, 1500, most=0.33)
GEMMA3 = Case("gemma3", 700, 24, 0, ("--no-llama",), most=0.44)
EVERY = ("--checkpoint-interval", "70")
CODED = ("--prefill", "coded")
TINY = (Case("qwen3_next", 600, 16, 0),
        Case("qwen3_next", 600, 16, 280, EVERY),
        Case("qwen3_next", 600, 16, 256, EVERY + CODED),
        Case("deepseek_v3", 600, 16, 300),
        Case("deepseek_v4", 600, 16, 256, CODED),
        Case("chunks", 600, 16, 256, CODED))


def fail(text):
    sys.exit(f"demo check: {text}")


def check_rows(case, rows):
    seen = {(r["mode"], r["run"]): r for r in rows}
    for mode in ("embedded", "socket"):
        for run in ("cold", "ram", "ssd", "shared_cold", "shared_hit"):
            row = seen.get((mode, run)) or fail(f"no row {mode} {run}")
            if row["prompt_tokens"] != case.tokens or not row["ttft_ms"] > 0:
                fail(f"bad row {row}")
        for run, tier in (("ram", "ram"), ("ssd", "ssd")):
            row = seen[mode, run]
            if row["tier"] != tier or row["reused_tokens"] != case.reused:
                fail(f"{mode} {run}: reused {row['reused_tokens']} from {row['tier']}")
            if row["tokens_equal"] is not True or row["logits_equal"] is not True:
                fail(f"{mode} {run}: not the cold run's tokens and logits: {row}")
        for run in ("cold", "shared_cold"):
            if seen[mode, run]["reused_tokens"] != 0:
                fail(f"{mode} {run} reused {seen[mode, run]['reused_tokens']} tokens")
        shared = seen[mode, "shared_hit"]
        if shared["reused_tokens"] != case.shared:
            fail(f"{mode} shared_hit: reused {shared['reused_tokens']}, expected {case.shared}")
        if case.coded and shared["logits_equal"] is not True:
            fail(f"{mode} shared_hit: coded prefill, and not the cold run's logits")
        if not case.most:
            continue
        ratio = seen[mode, "ram"]["stored_bytes"] / seen[mode, "ram"]["fp16_bytes"]
        if not 0.2 < ratio <= case.most:
            fail(f"{mode}: stored/fp16 {ratio}")


def check_llama(case, rows):
    """The comparison that bench/RESULTS.md needs, where its Python package is installed."""
    seen = {r["run"]: r for r in rows if r["mode"] == "llama.cpp"}
    for run, reused in (("cold", 0), ("ssd", case.tokens - 1)):
        row = seen.get(run) or fail(f"no row llama.cpp {run}")
        if row["reused_tokens"] != reused or not row["ttft_ms"] > 0:
            fail(f"bad row {row}")


def check_blocks(case, cachectl, store):
    """Sizes of files and rows come from the store itself, not from the demo."""
    out = subprocess.run([cachectl, "ls", "--blocks", "--json", store], capture_output=True,
                         text=True, check=True)
    blocks = [f for f in json.loads(out.stdout) if f["kind"] == "block"]
    if len(blocks) < case.tokens // BLOCK:
        fail(f"{store}: {len(blocks)} complete blocks of {case.tokens} tokens")
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
    if not 0.25 < rows[-1]["blocks_of_fp16"] <= 0.27:
        fail(f"complete blocks take {rows[-1]['blocks_of_fp16']} of fp16")


def run_demo(case, demo, scratch, *more):
    """The rows of one run and what it printed."""
    out = os.path.join(scratch, "rows.json")
    command = [demo, "--model", case.model, "--tokens", str(case.tokens), "--new", str(case.new),
               "--json", out, *case.arguments, *more]
    ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(" ".join(command), ran.stdout, sep="\n")
    if ran.returncode != 0:
        fail("tools/demo failed")
    with open(out, encoding="utf-8") as f:
        return json.load(f), ran.stdout


def check_case(case, demo, cachectl):
    real = case.most > 0
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "store")
        rows, said = run_demo(case, demo, scratch, "--dir", store)
        if said.count("sooner than cold") != (2 if real else 0):
            fail("tools/demo does not say how its speeds compare with what is promised")
        check_rows(case, rows)
        for mode in ("embedded", "socket") if real else ():
            check_blocks(case, cachectl, os.path.join(store, mode))
        if case is not SMOLLM2:
            return
        if os.environ.get("KV_PYTHON"):
            check_llama(case, rows)
        rows, _ = run_demo(case, demo, scratch, "--batch", str(BATCH), "--dir",
                           os.path.join(scratch, "batch"))
        check_batch(rows)


def main():
    demo, cachectl, name = sys.argv[1:]
    variable = {"smollm2": "KV_SMOLLM2_GGUF", "gemma3": "KV_GEMMA3_GGUF", "tiny": None}[name]
    if variable and not os.environ.get(variable):
        print(f"skipped: {variable} names no model file (tools/install downloads one)")
        return 77
    for case in {"smollm2": (SMOLLM2,), "gemma3": (GEMMA3,), "tiny": TINY}[name]:
        check_case(case, demo, cachectl)
    print("demo check: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
