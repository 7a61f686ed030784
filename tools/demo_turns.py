"""tools/demo by default: a chat on a long system prompt, as people have it.

Five turns, then kill -9 of all that holds a cache and the sixth after the restart, then another
conversation on the same system prompt. Each turn is asked without a cache too (bare), and what
llama.cpp makes of the same questions with caches of its own stands beside it where it is installed.
Every mode is given the answers of the embedded one, so that all have the same prompts. Engines are
warmed up when they start, llama.cpp too.
"""
import os
import sys
from dataclasses import dataclass

import turns
from demo_engine import (Place, compared, print_bytes, run_llama, same_file, say, stored_bytes,
                         text_ids)

TURNS = len(turns.QUESTIONS)  # the last one after the kill
CACHED = ("embedded", "socket")
LABELS = {("own", turns.BARE): "no cache", ("own", "embedded"): "embedded",
          ("own", "socket"): "socket", ("llama.cpp", turns.BARE): "llama.cpp"}
# What stands around the system prompt and the turns: the first of which the model has the words.
FORMS = (("<|im_start|>", "<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n",
          "<|im_end|>\n<|im_start|>assistant\n"),
         ("<start_of_turn>", "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>user\n",
          "<end_of_turn>\n<start_of_turn>model\n"),
         ("", "", "\n\nQuestion: ", "\nAnswer:"))


@dataclass
class Ask:
    conversation: int
    turn: int
    words: list  # token ids behind the answer before, or behind the system prompt

    @property
    def after_kill(self):
        return self.turn == TURNS


class Words:
    """Token ids of the chat's pieces, by the model's own tokenizer."""

    def __init__(self, step, options):
        self.step = step
        self.begin = self.ids("")  # what every text begins with
        _, opening, self.before, self.after = next(
            form for form in FORMS if not form[0] or len(self.piece(form[0])) == 1)
        text = text_ids(options)[len(self.begin):]
        if len(text) < options.tokens:
            sys.exit(f"demo: {options.text} has {len(text)} tokens, the system prompt needs "
                     f"{options.tokens} (--tokens)")
        self.system = self.begin + self.piece(opening) + text[:options.tokens]

    def ids(self, text):
        return self.step.ask(cmd="tokenize", text=text)["tokens"]

    def piece(self, text):
        return self.ids(text)[len(self.begin):]

    def asks(self):
        found = [Ask(1, turn + 1, self.question(question))
                 for turn, question in enumerate(turns.QUESTIONS)]
        return found + [Ask(2, 1, self.question(turns.OTHER_QUESTION))]

    def question(self, question):
        return self.piece(self.before + question + self.after)


class Chat:
    """The same turns in every mode, one mode after the other."""

    def __init__(self, options, work):
        self.options = options
        self.places = {mode: Place(options, mode, work) for mode in (*CACHED, turns.BARE)}
        self.rows, self.repeats, self.socket_equal, self.coding = [], [], True, ""

    def run(self):
        try:
            for place in self.places.values():
                place.start()
            words = Words(self.places[turns.BARE].step, self.options)
            history, given = {1: words.system, 2: words.system}, []
            ends = {1: [], 2: []}  # of the system prompt and of each turn
            for ask in words.asks():
                if ask.after_kill:
                    self.kill()
                ends[ask.conversation].append(len(history[ask.conversation]))
                prompt = history[ask.conversation] + ask.words
                replies = self.ask_all(ask, prompt, ends[ask.conversation])
                answer = replies["embedded"]["tokens"]
                if answer[-1] == ask.words[0]:  # its end, which the next words bring
                    answer = answer[:-1]
                history[ask.conversation] = prompt + answer
                if ask.after_kill:
                    self.repeat(prompt, ends[ask.conversation], replies)
                given.append(ask)
            for place in self.places.values():
                place.step.close()
        finally:
            for place in self.places.values():
                place.close()
        return words.system, given

    def kill(self):
        say("  kill -9 of all that holds a cache, drop the page cache, restart …")
        for mode in CACHED:
            self.places[mode].kill()
            self.places[mode].start()

    def ask_all(self, ask, prompt, ends):
        """The turn's rows; returns replies by mode."""
        replies = {}
        for mode, place in self.places.items():
            say(f"  conversation {ask.conversation}, turn {ask.turn}: {mode} …")
            replies[mode] = self.ask(place, prompt, ends, f"{ask.conversation}-{ask.turn}")
            self.note(ask, mode, prompt, replies[mode])
        for row in self.rows[-len(replies):]:
            if row["mode"] != turns.BARE:
                row |= compared(self.places[turns.BARE].step, replies[row["mode"]],
                                replies[turns.BARE])
        self.coding = replies["socket"]["coding"]
        self.socket_equal &= equal(replies["embedded"], replies["socket"])
        for mode in () if ask.after_kill else replies:
            os.remove(replies[mode]["logits"])
        return replies

    @staticmethod
    def ask(place, prompt, ends, name):
        logits = os.path.join(place.scratch, name + ".logits")
        cached = place.mode != turns.BARE
        reply = place.step.ask(cmd="run", tokens=prompt, lookup=cached, store=cached, stop=True,
                               ends=ends, logits=logits)
        return reply | {"logits": logits}

    def note(self, ask, mode, prompt, reply):
        stored = None
        if mode != turns.BARE:
            stored = stored_bytes(self.options, self.places[mode], reply)
        reused = reply["reused_tokens"]
        reason = reply["reason"] if mode != turns.BARE else None
        if mode != turns.BARE and not reused and not reason:
            reason = "nothing stored begins like this prompt"
        self.rows.append(turns.row(
            engine="own", mode=mode, conversation=ask.conversation, turn=ask.turn,
            after_kill=ask.after_kill, tier=reply["tier"], prompt_tokens=len(prompt),
            new_tokens=len(prompt) - reused, reused_tokens=reused, ttft_ms=reply["ttft_ms"],
            reason=reason or None, stored_bytes=stored, fp16_bytes=reply["fp16_bytes"]))

    def repeat(self, prompt, ends, replies):
        """The last turn's very prompt again, where a cache is."""
        say("  the same turn again …")
        for mode in CACHED:
            again = self.ask(self.places[mode], prompt, ends, "again")
            self.repeats.append(again["reused_tokens"] == len(prompt) - 1 and
                                equal(again, replies[mode]))
            os.remove(again["logits"])


def equal(a, b):
    return a["tokens"] == b["tokens"] and same_file(a["logits"], b["logits"])


def llama_rows(options, work, system, asks):
    """llama.cpp's turns: its own answers, its prompt cache in RAM, its slot file after the kill."""
    if not options.with_llama:
        return []
    say("  llama.cpp: the same chat with its prompt cache, a slot file for the restart …")
    rows, history = [], {}
    for part in ([a for a in asks if not a.after_kill and a.conversation == 1],
                 [a for a in asks if a.after_kill or a.conversation > 1]):
        task = {"system": system, "history": history, "restore": bool(history),
                "asks": [{"conversation": a.conversation, "turn": a.turn, "words": a.words}
                         for a in part]}
        said = run_llama(options, work, task)
        if not said:
            return []
        history = said.pop()["history"]
        rows += [turns.row(engine="llama.cpp", mode=turns.BARE, after_kill=a.after_kill, **each)
                 for a, each in zip(part, said)]
    return rows


def print_speeds(rows):
    """How much sooner the turns come that could be hits."""
    bare = turns.bare_times(rows)
    for what, chosen in (("turns 2 to 5", lambda r: 1 < r["turn"] < TURNS),
                         ("after kill -9", lambda r: r["after_kill"]),
                         ("another conversation", lambda r: r["conversation"] > 1)):
        said = []
        for mode in CACHED:
            ratios = sorted(bare["own", r["conversation"], r["turn"]] / r["ttft_ms"]
                            for r in rows if r["mode"] == mode and chosen(r))
            ends = dict.fromkeys(turns.times(ratio, 1) for ratio in (ratios[0], ratios[-1]))
            said.append(f"{' to '.join(ends)} ({mode})")
        print(f"first token sooner, {what}: {', '.join(said)}")


def print_verdicts(chat):
    """One line for each promise. Returns whether those hold that are kept bit for bit."""
    hits = [r for r in chat.rows if r["mode"] in CACHED and r["reused_tokens"]]
    missed = [r for r in chat.rows if r["mode"] in CACHED and not r["reused_tokens"]
              and (r["conversation"], r["turn"]) != (1, 1)]
    same, repeated = sum(r["text_equal"] for r in hits), all(chat.repeats)
    print("repeats: turn 6 asked again " +
          ("gave the same tokens and logits, bit for bit" if repeated else
           "FAILED: it missed, or gave something else"))
    print("embedded and socket: " + ("the same tokens and logits at every turn, bit for bit"
                                     if chat.socket_equal else "FAILED: they differ"))
    worst = max((r["kld"] for r in hits), default=0)
    print(f"hits on a shorter prefix: {same} of {len(hits)} answers as without cache; KLD at most "
          f"{worst:.1e}")
    for name, of_turn in turns.grouped([r for r in hits if not r["text_equal"]]):
        for at in sorted({r["first_difference"] for r in of_turn}):
            modes = ", ".join(r["mode"] for r in of_turn if r["first_difference"] == at)
            print(f"  turn {name} ({modes}): other tokens from the answer's {at + 1}. on")
    exact = chat.coding != "lossless" or all(r["logits_equal"] for r in hits)
    if chat.coding == "lossless":
        print("lossless: " + ("every hit gave the logits of the run without cache, bit for bit"
                              if exact else "FAILED: a hit gave other logits than without cache"))
    if missed:
        print(f"hits: FAILED: {len(missed)} of {len(hits) + len(missed)} turns missed")
    return repeated and chat.socket_equal and exact and not missed


def run(options, work):
    """The table and what is to be said of it. Returns (rows, whether what is promised holds)."""
    chat = Chat(options, work)
    system, asks = chat.run()
    rows = chat.rows + llama_rows(options, work, system, asks)
    rows.sort(key=lambda r: (r["conversation"], r["turn"],
                             list(LABELS).index((r["engine"], r["mode"]))))
    name = os.path.basename(options.model)
    title = f"{name}, {chat.coding}: a chat on a system prompt of {len(system):,} tokens"
    print(title)
    turns.print_table(rows, LABELS)
    turns.print_misses(rows, LABELS)
    print_bytes(next(r for r in rows if r["after_kill"] and r["mode"] == "embedded"),
                "turn 6 and ends before it")
    print_speeds(rows)
    if options.svg:
        turns.write_text(options.svg, turns.bars(rows, LABELS, title))
    return rows, print_verdicts(chat)
