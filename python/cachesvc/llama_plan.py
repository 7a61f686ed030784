"""Plans for llama.cpp: what `cachectl tune MODEL.gguf` found, for the rows of a server's slots.

That program runs the same file in this project's engine, whose keys have llama.cpp's order of
channels and its rotation: neighbours (2i, 2i + 1) of architectures whose tensors GGUF permutes,
halves (i, i + pairs) of others. A profile that undoes another rotation codes the rows all the same,
in more bytes, so it is refused by name.
"""
from __future__ import annotations

import dataclasses
from typing import List, Sequence

from . import calibrate
from .errors import CacheError, Code
from .llama_gguf import Gguf
from .models import Dtype, PartCoding, Profile, TransformProfile
from .wire import Reader, number, u8

HALVES = {"llama": False, "gemma3": True}  # architectures: which values of a head make a pair
TURNING = ("--rope", "--yarn")             # options that turn keys otherwise than the file says
FULL_EVERY = 6                             # layers of Gemma-3, if its file does not say
MAX_TABLES, MAX_COUNTS, MAX_ROTATIONS, MAX_PAIRS = 256, 255, 64, 1 << 15


def _refused(why: str) -> CacheError:
    return CacheError(Code.UNSUPPORTED, f"the plan: {why}")


def rotations(profile: Profile) -> List[bool]:
    """Of each rotation that a profile undoes: its pairs are halves of a head, not neighbours."""
    if not isinstance(profile, TransformProfile):
        return []
    r, found = Reader(profile.transforms), []
    for _ in range(number("I", MAX_TABLES).read(r)):
        r.raw(1)
        r.raw(2 * number("I", MAX_COUNTS).read(r))
    for _ in range(number("I", MAX_ROTATIONS).read(r)):
        found.append(u8.read(r) == 1)
        r.raw(4 * number("I", MAX_PAIRS).read(r))
    return found


def plan_for(path: str, gguf: Gguf, options: Sequence[str]) -> Profile:
    """The profile in a file, made for this GGUF. options: those of the server that may change a
    row. OSError; CacheError: it does not fit, and why."""
    profile = calibrate.plan(path, gguf.engine_fingerprint())
    undone, kind = rotations(profile), str(gguf.metadata.get("general.architecture"))
    turned = [word for word in options if word.startswith(TURNING)]
    if undone and turned:
        raise _refused(f"it undoes the rotation that the model's file names, {turned[0]} another")
    if undone and kind not in HALVES:
        raise _refused(f"it undoes a rotation, and which one {kind} has in llama.cpp is not known")
    if any(halves != HALVES[kind] for halves in undone):
        pairs = {True: "halves", False: "neighbours"}
        raise _refused(f"it undoes a rotation of {pairs[not HALVES[kind]]}, keys of {kind} in "
                       f"llama.cpp are turned as {pairs[HALVES[kind]]}")
    return profile


def in_slot_order(plan: Profile, gguf: Gguf, full: int, windowed: int, raw: Dtype) -> Profile:
    """A plan whose layers are numbered as in slot files, which have so many full layers before the
    windowed ones. raw: the dtype of rows there."""
    every = gguf.of_kind("attention.sliding_window_pattern") or FULL_EVERY
    order: List[List[List[PartCoding]]] = [[], []]
    for layer, parts in enumerate(plan.layers):
        order[windowed > 0 and (layer + 1) % every != 0].append(parts)
    if [len(order[0]), len(order[1])] != [full, windowed]:
        raise _refused(f"its {len(plan.layers)} layers would be {len(order[0])} full and "
                       f"{len(order[1])} windowed ones, a slot has {full} and {windowed}")
    return dataclasses.replace(plan, raw_dtype=raw, layers=order[0] + order[1])
