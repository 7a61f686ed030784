"""Turns of a chat as rows: one schema, one table, one picture, for tools/demo and tools/chat_demo.

A row is a dict with all of KEYS, None where a program doesn't know: one row for each turn and mode.
Of the modes `bare` is the engine without this cache; the others' times are compared with it.
"""
import html
import json

QUESTIONS = ("What is this text about?", "Who may copy it?", "What must a copy have with it?",
             "What about patents?", "Sum it up in one sentence.", "What happens to who breaks it?")
OTHER_QUESTION = "When was it written, and by whom?"  # of another conversation on the same text
BARE = "bare"
KEYS = (
    "engine", "mode",
    "run",  # of tools/demo --repeat and --remote: cold, ram, ssd, remote, …; None: a turn
    "conversation", "turn",  # from 1
    "after_kill",  # the first turn after kill -9 of all that held the cache
    "tier", "prompt_tokens",
    "new_tokens", "reused_tokens",  # computed before the first token, taken from a cache
    "ttft_ms",
    "text_equal", "tokens_equal", "logits_equal",  # with what the run without cache gave
    "first_difference",  # in tokens of the answer; None: there is none
    "kld",  # mean of the answer's tokens up to there, in nats, of predictions
    "reason",  # in the cache's words: why a hit is shorter than what is shared, or missed
    "stored_bytes",  # of the files
    "fp16_bytes")  # of the rows that an engine's cache of the prompt holds
COLOURS = ("#8b949e", "#1f9d66", "#3b7dd8", "#c9741a")  # of modes, in order of their labels
TIERS = {"ram": "RAM", "ssd": "SSD", "mixed": "both", "remote": "shared"}
STYLE = ("text{fill:#24292f}.back{fill:#fff}.quiet{fill:#57606a}.rule{stroke:#57606a}"
         "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}"
         ".quiet{fill:#9da7b3}.rule{stroke:#9da7b3}}")


def row(**known):
    """A row of the schema. Raises KeyError for a key that it lacks."""
    unknown = set(known) - set(KEYS)
    if unknown:
        raise KeyError(f"not in a row: {sorted(unknown)}")
    return {key: known.get(key) for key in KEYS}


def write_json(path, rows):
    """An array with one row a line."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(each) for each in rows) + "\n]\n")


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def print_columns(table, right=()):
    """Lines of cells; columns whose heads are in `right` end together. One cell: a whole line."""
    head = table[0]
    widths = [max(len(line[i]) for line in table if len(line) > 1) for i in range(len(head))]
    for line in table:
        if len(line) == 1:
            print(line[0])
            continue
        cells = (cell.rjust(w) if title in right else cell.ljust(w)
                 for cell, w, title in zip(line, widths, head))
        print("  ".join(cells).rstrip())


def times(bare_ms, ms):
    """How many times sooner, as text."""
    if not bare_ms or not ms:
        return "-"
    ratio = bare_ms / ms
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def milliseconds(ms):
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.1f} ms"


def place(each):
    return each["conversation"], each["turn"]


def grouped(rows):
    """[(name of the turn, its rows)], in order."""
    groups = {}
    for each in rows:
        groups.setdefault(place(each), []).append(each)
    return [(f"{turn}" if conversation == 1 else "other", groups[conversation, turn])
            for conversation, turn in sorted(groups)]


def bare_times(rows):
    """Milliseconds without cache, by engine and turn."""
    return {(r["engine"], *place(r)): r["ttft_ms"] for r in rows if r["mode"] == BARE}


def answers(each):
    """Whether the answer is that of the run without cache, as text."""
    if each["text_equal"] is None:
        return ""
    if each["text_equal"]:
        return "same"
    at = each["first_difference"]
    return "differs" if at is None else f"differs at {at + 1}"


def print_table(rows, labels):
    """`labels`: {(engine, mode): what people call it}, in order."""
    bare, order = bare_times(rows), list(labels)
    table = [("turn", "cache", "prompt", "new", "reused", "from", "first token", "sooner",
              "answer")]
    for name, of_turn in grouped(rows):
        if any(r["after_kill"] for r in of_turn):
            table.append(("--- kill -9 of all that held a cache, then a restart ---",))
        elif name == "other":
            table.append(("--- another conversation on the same system prompt ---",))
        for each in sorted(of_turn, key=lambda r: order.index((r["engine"], r["mode"]))):
            mode = each["engine"], each["mode"]
            sooner = times(bare.get((each["engine"], *place(each))), each["ttft_ms"])
            table.append((name, labels[mode], f"{each['prompt_tokens']:,}",
                          f"{each['new_tokens']:,}", f"{each['reused_tokens']:,}",
                          TIERS.get(each["tier"], "-"),
                          milliseconds(each["ttft_ms"]),
                          "" if each["mode"] == BARE else sooner, answers(each)))
            name = ""
    print_columns(table, ("prompt", "new", "reused", "first token", "sooner"))


def print_misses(rows, labels):
    """A line for each reason why most of a turn's prompt was computed."""
    told = {}
    for name, of_turn in grouped(rows):
        for each in of_turn:
            if each["reason"] and each["reused_tokens"] < each["new_tokens"]:
                what = "missed" if not each["reused_tokens"] else "reused little"
                told.setdefault((what, name, each["reason"]), []).append(
                    labels[each["engine"], each["mode"]])
    for (what, name, reason), modes in told.items():
        print(f"{what}: turn {name} ({', '.join(modes)}): {reason}")


def bars(rows, labels, title):
    """An SVG of the times to the first token: a bar for each mode under each turn's name."""
    order, left, wide, high = list(labels), 100, 560, 50
    most = max(each["ttft_ms"] for each in rows)
    parts = []
    for name, of_turn in grouped(rows):
        if any(r["after_kill"] for r in of_turn):
            parts.append(f'<path class="rule" stroke-dasharray="4 3" d="M12 {high}H{wide - 12}"/>'
                         f'<text class="quiet" x="12" y="{high + 16}">everything that held a cache '
                         'was killed (kill -9) and started again</text>')
            high += 24
        prompt, new = of_turn[0]["prompt_tokens"], min(each["new_tokens"] for each in of_turn)
        heading = f"turn {name}" if name != "other" else "another conversation, same system prompt"
        parts.append(f'<text x="12" y="{high + 13}" font-weight="bold">{heading}'
                     f'<tspan class="quiet" font-weight="normal">: {prompt:,} tokens, {new:,} of '
                     'them new</tspan></text>')
        high += 20
        for each in sorted(of_turn, key=lambda r: order.index((r["engine"], r["mode"]))):
            mode = each["engine"], each["mode"]
            long = max(1.5, each["ttft_ms"] / most * (wide - left - 90))
            parts += [f'<text class="quiet" x="{left - 8}" y="{high + 12}" text-anchor="end">'
                      f'{html.escape(labels[mode])}</text>',
                      f'<rect x="{left}" y="{high + 1}" width="{long:.1f}" height="14" '
                      f'fill="{COLOURS[order.index(mode) % len(COLOURS)]}"/>',
                      f'<text x="{left + long + 6:.1f}" y="{high + 12}">'
                      f'{milliseconds(each["ttft_ms"])}</text>']
            high += 18
        high += 10
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
                      f'viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="13">',
                      f'<style>{STYLE}</style>',
                      f'<rect class="back" width="{wide}" height="{high}"/>',
                      f'<text x="12" y="22" font-weight="bold">{html.escape(title)}</text>',
                      '<text class="quiet" x="12" y="40">time to the first token of the answer'
                      '</text>', *parts, "</svg>"]) + "\n"
