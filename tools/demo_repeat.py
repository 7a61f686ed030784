"""tools/demo --repeat: the very same prompt again, in both modes, as one table.

Per mode (embedded: the tiered cache inside the engine's process; socket: the daemon):
  1. cold, then warm from RAM;
  2. kill -9 of the process that holds the cache, page cache of its files dropped, restart:
     warm from SSD, then a second prompt that shares only the first half (shared_hit);
  3. that second prompt's own cold run, in a namespace of its own (shared_cold).
llama.cpp, cold and after a slot restore, stands in the same table where it is installed.
"""
import os
import sys

import turns
from demo_engine import (TINY, Place, compared, print_bytes, run_llama, say, stored_bytes,
                         text_ids)

MUST = {"ram": 100, "ssd": 50}  # how many times sooner the first token comes than cold
ORDER = ("cold", "ram", "ssd", "shared_cold", "shared_hit")


class Mode:
    """The five runs of one mode."""

    def __init__(self, options, mode, work, prompts):
        self.options, self.mode, self.prompts = options, mode, prompts
        self.place = Place(options, mode, work)
        self.rows, self.replies = {}, {}

    def run(self, name, prompt, lookup):
        say(f"  {self.mode}: {name} …")
        logits = os.path.join(self.place.scratch, name + ".logits")
        tokens = self.prompts[prompt]
        reply = self.place.step.ask(cmd="run", tokens=tokens, lookup=lookup, logits=logits)
        self.replies[name] = reply | {"logits": logits}
        self.rows[name] = turns.row(
            engine="own", run=name, mode=self.mode, prompt_tokens=len(tokens),
            new_tokens=len(tokens) - reply["reused_tokens"], after_kill=name == "ssd",
            stored_bytes=stored_bytes(self.options, self.place, reply),
            **{k: reply[k] for k in ("tier", "reused_tokens", "ttft_ms", "fp16_bytes")},
            reason=reply["reason"] if lookup and reply["reused_tokens"] < len(tokens) - 1 else None)

    def compare(self, name, like):
        self.rows[name] |= compared(self.place.step, self.replies[name], self.replies[like])

    def all_runs(self):
        place = self.place
        try:
            place.start()
            self.run("cold", "first", lookup=False)
            self.run("ram", "first", lookup=True)
            self.compare("ram", "cold")
            say(f"  {self.mode}: kill -9, drop the page cache, restart …")
            place.kill()
            place.start()
            self.run("ssd", "first", lookup=True)
            self.compare("ssd", "cold")
            self.run("shared_hit", "second", lookup=True)
            place.step.close()
            place.start(place.namespace + "-cold")
            self.run("shared_cold", "second", lookup=False)
            self.compare("shared_hit", "shared_cold")
            place.step.close()
        finally:
            place.close()
        return [self.rows[name] for name in ORDER]


def llama_rows(options, work, prompt):
    if not options.with_llama:
        return []
    say("  llama.cpp: cold, slot save, slot restore …")
    return [turns.row(engine="llama.cpp", mode="llama.cpp", **each)
            for each in run_llama(options, work, {"repeat": prompt})]


def make_prompts(options):
    """Two prompts of equal length that share exactly their first half, of real text."""
    ids, n = text_ids(options), options.tokens
    if len(ids) < n:
        sys.exit(f"demo: {options.text} has {len(ids)} tokens, the prompt needs {n} (--tokens)")
    half = min(1500, n // 2)
    for shift in (*range(97, len(ids)), *range(1, min(97, len(ids)))):
        rest = [ids[(half + shift + i) % len(ids)] for i in range(n - half)]
        if rest[0] != ids[half]:
            return {"first": ids[:n], "second": ids[:half] + rest}
    sys.exit(f"demo: {options.text} is one token repeated; no second prompt can be made of it")


def sameness(row):
    if row["logits_equal"]:
        return "bit for bit"
    if row["tokens_equal"] is None:
        return ""
    return "the tokens" if row["tokens_equal"] else f"to token {row['first_difference']}"


def print_table(rows):
    cold = {(r["mode"], r["run"][:6]): r["ttft_ms"] for r in rows if "cold" in r["run"]}
    table = [("mode", "run", "from", "reused", "first token", "sooner", "same as cold", "MiB")]
    for r in rows:
        kind = "shared" if "shared" in r["run"] else "cold"
        sooner = turns.times(cold.get((r["mode"], kind)), r["ttft_ms"])
        table.append((r["mode"], r["run"], turns.TIERS.get(r["tier"], "-"),
                      f"{r['reused_tokens']:,}", turns.milliseconds(r["ttft_ms"]),
                      "" if "cold" in r["run"] else sooner, sameness(r),
                      "" if r["stored_bytes"] is None else f"{r['stored_bytes'] / 2**20:.1f}"))
    turns.print_columns(table, ("reused", "first token", "sooner", "MiB"))


def print_speeds(rows):
    """One line per hit, for people: whether its speed is what the project promises."""
    ttft = {(r["mode"], r["run"]): r["ttft_ms"] for r in rows}
    for run, must in MUST.items():
        ratios = [ttft[mode, "cold"] / ttft[mode, run] for mode in ("embedded", "socket")]
        said = "met" if min(ratios) >= must else "NOT met"
        shown = " and ".join(f"{r:.0f}x" for r in ratios)
        print(f"{run.upper()} hit: first token {shown} sooner than cold (embedded, "
              f"socket); ≥ {must}x is {said}")


def print_verdicts(rows):
    """What repeats gave, and what the hit on the shared half did; whether the repeats are right."""
    repeats = [r for r in rows if r["run"] in ("ram", "ssd") and r["engine"] == "own"]
    good = all(r["tokens_equal"] and r["logits_equal"] and r["reused_tokens"] for r in repeats)
    print("repeats: " + ("every one gave the cold run's very tokens and logits, bit for bit"
                         if good else "FAILED: one missed, or gave something else than cold"))
    for r in rows:
        if r["run"] != "shared_hit":
            continue
        if not r["reused_tokens"]:
            print(f"shared hit, {r['mode']}: missed: {r['reason']}")
            continue
        at = r["first_difference"]
        said = "the cold run's very tokens" if at is None else f"other tokens from {at + 1} on"
        said += " and logits" if r["logits_equal"] else f", KLD {r['kld']:.1e}"
        print(f"shared hit, {r['mode']}: {r['reused_tokens']:,} of {r['prompt_tokens']:,} tokens "
              f"reused; {said}")
    return good


def run(options, work):
    """The table and what is to be said of it. Returns (rows, whether the repeats are right)."""
    prompts = make_prompts(options)
    rows = Mode(options, "embedded", work, prompts).all_runs()
    rows += Mode(options, "socket", work, prompts).all_runs()
    rows += llama_rows(options, work, prompts["first"])
    print(f"{os.path.basename(options.model)}: a prompt of {options.tokens:,} tokens, and one that "
          f"shares {min(1500, options.tokens // 2):,} of them")
    print_table(rows)
    print_bytes(rows[0], "stored")
    if options.model not in TINY:
        print_speeds(rows)
    return rows, print_verdicts(rows)
