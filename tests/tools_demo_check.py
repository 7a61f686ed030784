#!/usr/bin/env python3
"""Runs tools/demo and checks what it shows: its turns and its repeats.

Turns: every one goes on from the one before, the sixth from the SSD after kill -9, and another
conversation from the end of the system prompt, whatever the kind of cache, in both modes; the table
fits 80 columns, the picture is an SVG with a bar for each row.
Repeats: every hit must reuse N-1 tokens (with coded prefill: all complete blocks) and give the cold
run's very tokens and logits, in both modes, before and after kill -9. A second prompt that shares
some beginning reuses what its kind of cache allows, and is spoken of by itself. For the real models
the entry's files and those of all complete blocks have bounds against the fp16 rows that an engine
holds. Whatever the figures, the demo must say whether its speeds are what is promised.
Remote: an empty machine gives the tokens and logits of the one that is gone, by a Redis cluster.

usage: tools_demo_check.py PATH_TO_DEMO PATH_TO_CACHECTL smollm2|gemma3|tiny
       (exit 77: skipped, no model file; 0: good; 1: not)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import xml.dom.minidom
from dataclasses import dataclass

BATCH, BLOCK = 8, 256


@dataclass
class Case:
    model: str
    tokens: int
    new: int
    shared: int  # tokens that the second prompt reuses
    arguments: tuple = ()
    most: float = 0  # bytes of the entry's files over its fp16 cache's; 0: not compared

    @property
    def coded(self):
        return "coded" in self.arguments

    @property
    def reused(self):
        return (self.tokens - 1) // BLOCK * BLOCK if self.coded else self.tokens - 1


SMOLLM2 = Case("smollm2", 1290, 32, 645, most=0.33)
# Its files hold a window's rows for three ends: the prompt's, and by price those of both blocks.
GEMMA3 = Case("gemma3", 700, 24, 350, ("--no-llama",), most=0.58)
CODED = ("--prefill", "coded")
TINY = (Case("qwen3_next", 600, 16, 256),
        Case("qwen3_next", 600, 16, 256, CODED),
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


def run_demo(demo, scratch, model, *more):
    """The rows of one run and what it printed."""
    out = os.path.join(scratch, "rows.json")
    command = [demo, "--model", model, "--json", out, *more]
    ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(" ".join(command), ran.stdout, sep="\n")
    if ran.returncode != 0:
        fail("tools/demo failed")
    with open(out, encoding="utf-8") as f:
        return json.load(f), ran.stdout


def check_case(case, demo, cachectl):
    real = case.most > 0
    given = ("--tokens", str(case.tokens), "--new", str(case.new), "--coding", "tq4",
             *case.arguments)
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "store")
        rows, said = run_demo(demo, scratch, case.model, "--repeat", *given, "--dir", store)
        if said.count("sooner than cold") != (2 if real else 0):
            fail("tools/demo does not say how its speeds compare with what is promised")
        if said.count("shared hit, ") != 2 or said.count(": missed: ") != (0 if case.shared else 2):
            fail("tools/demo does not say what became of the shared half, and why")
        check_rows(case, rows)
        for mode in ("embedded", "socket") if real else ():
            check_blocks(case, cachectl, os.path.join(store, mode))
        if case is not SMOLLM2:
            return
        if os.environ.get("KV_PYTHON"):
            check_llama(case, rows)
        rows, _ = run_demo(demo, scratch, case.model, "--batch", str(BATCH), *given, "--dir",
                           os.path.join(scratch, "batch"))
        check_batch(rows)


def check_turn(row, before, system):
    """A turn's row of a mode with a cache, and the one before it in its conversation."""
    least = before["prompt_tokens"] if before else system if row["conversation"] == 2 else 0
    if not least <= row["reused_tokens"] < row["prompt_tokens"]:
        fail(f"{row['mode']}: reused {row['reused_tokens']}, not {least} or more: {row}")
    if row["after_kill"] and row["tier"] != "ssd" or (row["tier"] == "none") != (not least):
        fail(f"reused from another tier: {row}")
    if bool(row["reason"]) != (least == 0) and row["conversation"] == 1:
        fail(f"a reason, or none, where there should be: {row}")
    if not 0 <= row["kld"] < 0.01 or row["text_equal"] != row["tokens_equal"]:
        fail(f"far from the run without cache: {row}")
    if row["text_equal"] != (row["first_difference"] is None):
        fail(f"the answer differs nowhere, or does not, at a place: {row}")


def check_turns(model, tokens, demo, llama):
    """The demo as people run it first, with a shorter system prompt."""
    import turns
    with tempfile.TemporaryDirectory() as scratch:
        picture = os.path.join(scratch, "bars.svg")
        rows, said = run_demo(demo, scratch, model, "--tokens", str(tokens), "--new", "12", "--svg",
                              picture, *(() if llama else ("--no-llama",)))
        bars = xml.dom.minidom.parse(picture).getElementsByTagName("rect")
    places = [(1, turn) for turn in range(1, 7)] + [(2, 1)]
    modes = ["bare", "embedded", "socket"] + ["bare"] * llama
    if [((r["conversation"], r["turn"]), r["mode"]) for r in rows] != [
            (place, mode) for place in places for mode in modes]:
        fail("not a row for each turn and mode")
    if len(bars) != len(rows) + 1 or any(float(bar.getAttribute("width")) <= 0 for bar in bars):
        fail("not a bar for each row")
    before = {}
    for row in rows:
        if tuple(row) != turns.KEYS or row["after_kill"] != ((row["conversation"], row["turn"]) ==
                                                             (1, 6)):
            fail(f"not the keys of a row: {row}")
        if row["new_tokens"] + row["reused_tokens"] != row["prompt_tokens"] or row["ttft_ms"] <= 0:
            fail(f"bad row {row}")
        mode = row["engine"], row["mode"], row["conversation"]
        if row["mode"] != "bare":
            check_turn(row, before.get(mode), tokens)
        elif row["engine"] == "own" and row["reused_tokens"]:
            fail(f"a run without cache reused {row}")
        before[mode] = row
    lines = said.splitlines()[1:]
    if max(map(len, lines)) > 80 or sum(line.startswith("---") for line in lines) != 2:
        fail("the table is wider than 80 columns, or does not tell of the kill")
    for word in ("missed: turn 1 (embedded, socket)", "repeats: turn 6 asked again gave the same",
                 "embedded and socket: the same", "hits on a shorter prefix: "):
        if word not in said:
            fail(f"tools/demo does not say '{word}'")


def check_lossless(demo, model, tokens):
    """With nothing coded a hit changes nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        rows, said = run_demo(demo, scratch, model, "--tokens", str(tokens), "--new", "12",
                              "--no-llama", "--coding", "lossless")
    hits = [r for r in rows if r["mode"] != "bare" and r["reused_tokens"]]
    if len(hits) != 12 or not all(r["logits_equal"] for r in hits):
        fail(f"lossless: other logits than without cache: {hits}")
    if "lossless: every hit gave the logits of the run without cache" not in said:
        fail("tools/demo does not say what lossless gave")


def check_remote(demo, model):
    """Where redis-server is not installed the demo says so, and nothing is checked."""
    if not shutil.which("redis-server"):
        return
    with tempfile.TemporaryDirectory() as scratch:
        rows, said = run_demo(demo, scratch, model, "--remote", "--tokens", "600", "--new", "12")
    if [r["run"] for r in rows] != ["cold", "remote", "ram"]:
        fail("not the three runs of --remote")
    if any(r["reused_tokens"] != 599 or not r["logits_equal"] for r in rows[1:]):
        fail(f"an empty machine did not go on from what the other one stored: {rows}")
    if "machine B: the cold run's very tokens and logits" not in said:
        fail("tools/demo does not say what machine B gave")


def check_odd_ones(demo):
    """Prompts that were refused, and lengths that should be."""
    from demo_engine import Place
    with tempfile.TemporaryDirectory() as scratch:
        short = os.path.join(scratch, "short")
        with open(short, "w", encoding="utf-8") as file:
            file.write("forty letters of text, and then a second")
        run_demo(demo, scratch, "sinks", "--repeat", "--text", short, "--tokens", "30")
        for options in (["--tokens", "0"], ["--repeat", "--svg", os.path.join(scratch, "s")]):
            if subprocess.run([demo, "--model", "sinks", *options], check=False,
                              stderr=subprocess.DEVNULL).returncode != 2:
                fail(f"tools/demo takes {options}")
        options = types.SimpleNamespace(
            bin=os.path.join(os.path.dirname(os.path.dirname(demo)), "build", "release", "bin"),
            model="deepseek_v3", model_path="deepseek_v3", new=4, threads=1, coding="",
            prefill="exact", calibration="")
        place = Place(options, "embedded", scratch)
        try:
            step, text = place.start(), list(b"a text of some length" * 30)
            for tokens in (600, 513, 300, 40):  # each begins what is stored
                step.ask(cmd="run", tokens=text[:tokens], lookup=True)
        finally:
            place.close()


def main():
    demo, cachectl, name = sys.argv[1:]
    variable = {"smollm2": "KV_SMOLLM2_GGUF", "gemma3": "KV_GEMMA3_GGUF", "tiny": None}[name]
    if variable and not os.environ.get(variable):
        print(f"skipped: {variable} names no model file (tools/install downloads one)")
        return 77
    sys.path.insert(0, os.path.dirname(demo))  # its modules
    if name == "tiny":
        for model in ("sinks", "chunks", "deepseek_v3", "deepseek_v4", "qwen3_next"):
            check_turns(model, 300, demo, False)
        check_lossless(demo, "sinks", 300)
        for model in ("deepseek_v4", "qwen3_next"):
            check_remote(demo, model)
        check_odd_ones(demo)
    else:
        check_turns(name, 700, demo, name == "smollm2" and bool(os.environ.get("KV_PYTHON")))
        check_lossless(demo, name, 500)
    for case in {"smollm2": (SMOLLM2,), "gemma3": (GEMMA3,), "tiny": TINY}[name]:
        check_case(case, demo, cachectl)
    print("demo check: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
