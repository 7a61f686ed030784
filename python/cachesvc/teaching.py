"""Teaching: a program tells `cachectl quality` and `tune` what an engine's model predicts on rows
that some coding gave back. cachectl starts the program and asks; TEACHER.md in engine/ has the
words of both.

teacher.py is one for models of transformers, mlx_teacher.py for those of mlx-lm. Whoever else holds
an Engine, such as a model without a tokenizer, calls `serve` of his own script.
"""
from __future__ import annotations

import argparse
import os
import struct
import sys
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .checks import hit_of, spans
from .errors import CacheError
from .in_process import PLAN_BITS, PROBE, Engine, model_of
from .models import Model, Side, widened
from .objects import Array
from .store import ArrayRows

MAGIC = b"KVTEACH\x02"
ENCODE, EXACT, HIT = 1, 2, 3
MOST_TEXT_BYTES = 64 << 20
MOST_TOKENS = 1 << 15
MOST_TEXTS = 256
MOST_ROTATIONS, MOST_PAIRS = 16, 1 << 12
REPLY_BYTES = 1024
Encode = Callable[[str], Sequence[int]]
Place = Tuple[int, int, Side]


class Ended(Exception):
    """The asking side is gone."""


class Text(NamedTuple):
    """One text's prefix as the model computed it."""

    tokens: List[int]
    prefix: int
    rows: Dict[Place, Array]  # (rows, heads, dim) of the model's dtype
    states: Dict[Tuple[int, int, int], Any]


class Teacher:
    """The answers. predict: logits (tokens, vocabulary) in f32 of tokens that go on from a past.
    Rows of a layer's part with keys and values are told; states stay here, as they were computed.
    turns: for each way in which RoPE may have turned keys, the radians a position of each pair.

    CacheError: the model's caches can't be kept, and why.
    """

    def __init__(self, engine: Engine, encode: Encode, vocab: int, context: int,
                 predict: Callable[[Sequence[int], Any], Array], tag: str = "",
                 turns: Sequence[Array] = ()) -> None:
        past = engine.empty()
        engine.logits(PROBE[:-1], past)
        engine.model = model_of(engine, engine.layers(past), PLAN_BITS, tag)
        self._engine, self._encode, self._predict = engine, encode, predict
        self._vocab, self._context = vocab, min(context, MOST_TOKENS)
        self._texts: Dict[int, Text] = {}
        self._turns = turns
        self._places = [(layer, index, side) for layer, index, part in engine.model.parts()
                        for side in part.sides if part.v_dim]

    @property
    def model(self) -> Model:
        return self._engine.model

    def hello(self) -> bytes:
        model = self.model.encode()
        head = MAGIC + struct.pack("<III", self._vocab, self._context, len(model)) + model
        # Whether pairs are halves of a head or neighbours, the rows tell cachectl.
        told = [struct.pack("<BI", halves, len(steps)) + steps.astype("<f4").tobytes()
                for steps in self._turns for halves in (1, 0)][:MOST_ROTATIONS]
        return head + struct.pack("<I", len(told)) + b"".join(told)

    def encode(self, text: str, most: int) -> List[int]:
        return list(self._encode(text))[:most]

    def exact(self, number: int, tokens: List[int], prefix: int) -> Tuple[List[Array], Array]:
        """Rows of the prefix, by place, and logits behind it (tokens - prefix, vocabulary)."""
        past = self._engine.empty()
        self._engine.logits(tokens[:prefix], past)
        source = self._engine.rows_of(past, prefix)
        rows, states = {}, {}
        for layer, index, part in self.model.parts():
            if part.is_state:
                states[layer, index, prefix] = source.state(layer, index, prefix)
            for side in part.sides:
                found = source.rows(layer, index, side, *spans(part, prefix)[-1])
                assert found is not None
                rows[layer, index, side] = found
        self._texts[number] = Text(tokens, prefix, rows, states)
        return [rows[place] for place in self._places], self._predict(tokens[prefix:], past)

    def shape(self, number: int, place: Place) -> Tuple[int, ...]:
        """The shape of a place's rows. KeyError: no such text or place."""
        return self._texts[number].rows[place].shape

    def hit(self, number: int, given: Dict[Place, Array]) -> Array:
        """Logits as of exact, on these rows (f32) and the exact ones of all other places."""
        text, model = self._texts[number], self.model
        rows: Dict[Tuple[int, int], List[Array]] = {}
        for (layer, index, side), own in text.rows.items():
            coded = given.get((layer, index, side))
            rows.setdefault((layer, index), []).append(
                own if coded is None else narrowed(coded, own.dtype))
        past = self._engine.empty()
        self._engine.fill(past, hit_of(model, text.prefix,
                                       ArrayRows(model, text.prefix, rows, text.states)))
        return self._predict(text.tokens[text.prefix:], past)


def narrowed(rows: Array, dtype: Any) -> Array:
    """f32 rows as the model has them; uint16: bf16, to the nearest."""
    if dtype != np.uint16:
        return rows.astype(dtype)
    bits = rows.view("<u4")
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype("<u2")


class Asked:
    """The questions of cachectl, field by field. Ended: nothing more."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def bytes(self, size: int) -> bytes:
        got = self._stream.read(size)
        if len(got) < size:
            raise Ended
        return got

    def number(self, what: str, most: int) -> int:
        (number,) = struct.unpack("<I", self.bytes(4))
        if number > most:
            raise ValueError(f"{what}: {number}, at most {most}")
        return int(number)

    def tokens(self) -> List[int]:
        count = self.number("tokens", MOST_TOKENS)
        return list(struct.unpack(f"<{count}i", self.bytes(4 * count)))

    def floats(self, shape: Tuple[int, ...]) -> Array:
        return np.frombuffer(self.bytes(4 * int(np.prod(shape))), "<f4").reshape(shape)


def answer(teacher: Teacher, asked: Asked) -> List[Any]:
    """The answer to the next question: bytes and arrays. ValueError: it is none, and why."""
    verb = asked.bytes(1)[0]
    if verb == ENCODE:
        most = asked.number("tokens", MOST_TOKENS)
        text = asked.bytes(asked.number("bytes of text", MOST_TEXT_BYTES)).decode(errors="replace")
        ids = teacher.encode(text, most)
        return [struct.pack(f"<I{len(ids)}i", len(ids), *ids)]
    if verb not in (EXACT, HIT):
        raise ValueError(f"question {verb}: expected 1, 2 or 3")
    number = asked.number("number of a text", MOST_TEXTS - 1)
    if verb == EXACT:
        prefix, tokens = asked.number("prefix", MOST_TOKENS), asked.tokens()
        rows, logits = teacher.exact(number, tokens, prefix)
        return [np.ascontiguousarray(values, "<f4") for values in (*map(widened, rows), logits)]
    given = {}
    for _ in range(asked.number("places", 2 * len(teacher.model.parts()))):
        layer, index, side = struct.unpack("<HBB", asked.bytes(4))
        place = layer, index, Side(side)
        given[place] = asked.floats(teacher.shape(number, place))
    return [np.ascontiguousarray(teacher.hit(number, given), "<f4")]


def serve(teacher: Teacher, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answers until the questions end. What can't be computed is told and the next one awaited; a
    question that is none ends it."""
    asked, parts = Asked(questions), [teacher.hello()]
    while True:
        for part in parts:
            answers.write(memoryview(part).cast("B") if len(part) else b"")
        answers.flush()
        try:
            parts = [b"\0", *answer(teacher, asked)]
        except Ended:
            return
        except (RuntimeError, MemoryError, CacheError) as error:  # the model's, of what was asked
            told = f"{type(error).__name__}: {error}".encode()[:REPLY_BYTES]
            parts = [b"\1", struct.pack("<I", len(told)), told]


def arguments(program: str, about: str) -> argparse.ArgumentParser:
    """Those that every teacher's program takes."""
    parser = argparse.ArgumentParser(prog=program, description=about.strip())
    parser.add_argument("model", help="a folder, a name or a GGUF file")
    parser.add_argument("--tag", default="", help="as of the adapter")
    return parser


def teach(program: str, make: Callable[[], Teacher]) -> None:
    """Serves on standard input and output. What keeps a teacher from starting ends the program."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        teacher = make()
    except (OSError, ValueError, CacheError) as error:
        sys.exit(f"{program}: {error}")
    serve(teacher, sys.stdin.buffer, answers)
