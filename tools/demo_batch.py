"""tools/demo --batch N: N prompts over one long prefix, each by itself, then all decoded together:
the same tokens and logits, and how many tokens/s either way."""
import os
import sys

import turns
from demo_engine import Step, same_file, say, text_ids

BLOCK = 256  # tokens


def make_prompts(options):
    """Prompts that share a long beginning and end in 16 to 31 tokens of their own."""
    ids = text_ids(options)
    shared = options.tokens - 32
    if shared < 1 or len(ids) < options.tokens + 97 * options.batch:
        sys.exit(f"demo: {options.text} has {len(ids)} tokens, too few for --tokens and --batch")
    ends = (ids[options.tokens + 97 * i:][:16 + i] for i in range(options.batch))
    return ids[:shared], [ids[:shared] + end for end in ends]


def all_rows(options, work):
    """Every prompt by itself, then all together, in one process with an embedded cache."""
    prefix, prompts = make_prompts(options)
    store = os.path.join(work, "embedded")
    os.makedirs(store, mode=0o700, exist_ok=True)
    step = Step(options, "embedded", store, "demo-batch")
    paths = {kind: [os.path.join(work, f"{kind}{i}.logits") for i in range(len(prompts))]
             for kind in ("single", "batch")}
    try:
        say("  the prefix that all prompts share …")
        step.ask(cmd="run", tokens=prefix + [prefix[0]], lookup=False,
                 logits=paths["batch"][0])
        say(f"  {len(prompts)} prompts one by one …")
        single = [step.ask(cmd="run", tokens=p, lookup=True, logits=path)
                  for p, path in zip(prompts, paths["single"])]
        say(f"  {len(prompts)} prompts together …")
        together = step.ask(cmd="batch", prompts=prompts, logits=paths["batch"])["rows"]
        rows = []
        for i, (a, b) in enumerate(zip(single, together)):
            rows.append({"run": "batch", "row": i, "prompt_tokens": len(prompts[i]),
                         "reused_tokens": b["reused_tokens"], "tier": b["tier"],
                         "tokens_equal": a["tokens"] == b["tokens"],
                         "logits_equal": same_file(paths["single"][i], paths["batch"][i]),
                         "single_tokens_per_s": 1e3 / a["decode_ms_per_token"],
                         "stored_bytes": b["block_bytes"], "fp16_bytes": b["fp16_bytes"]})
    finally:
        step.close()
        for path in paths["single"] + paths["batch"]:
            if os.path.exists(path):
                os.remove(path)
    one_by_one = 1e3 * len(single) / sum(r["decode_ms_per_token"] for r in single)
    at_once = sum(1e3 / r["decode_ms_per_token"] for r in together)
    in_blocks = sum(r["fp16_bytes"] * ((r["prompt_tokens"] - 1) // BLOCK * BLOCK) /
                    (r["prompt_tokens"] - 1) for r in rows)
    total = {"run": "throughput", "rows": len(rows), "single_tokens_per_s": one_by_one,
             "batch_tokens_per_s": at_once, "ratio": at_once / one_by_one,
             "blocks_of_fp16": sum(r["stored_bytes"] for r in rows) / in_blocks}
    return rows, total


def run(options, work):
    """The table and what is to be said of it. Returns (rows, whether the batch is right)."""
    rows, total = all_rows(options, work)
    yes = {True: "yes", False: "no"}
    table = [("row", "prompt", "reused", "same tokens", "same logits", "alone")]
    table += [(str(r["row"]), str(r["prompt_tokens"]), str(r["reused_tokens"]),
               yes[r["tokens_equal"]], yes[r["logits_equal"]],
               f"{r['single_tokens_per_s']:.1f} tokens/s") for r in rows]
    turns.print_columns(table)
    print(f"{total['rows']} rows together: {total['batch_tokens_per_s']:.1f} tokens/s, one by one "
          f"{total['single_tokens_per_s']:.1f}: {total['ratio']:.2f}x; complete blocks take "
          f"{total['blocks_of_fp16']:.3f} of fp16")
    good = all(r["tokens_equal"] and r["logits_equal"] and r["reused_tokens"] for r in rows)
    print("batch: " + ("every row gave its single run's very tokens and logits"
                       if good else "FAILED: a row differs from its single run"))
    return rows + [total], good
