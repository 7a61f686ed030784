"""Mean and gain of keys, which make coding them cheaper in errors: codec/TURBOQUANT.md, "Mean and
gain", here without queries. And plans, which have them and bits for each side."""
from __future__ import annotations

import copy
import hashlib
import os

import numpy as np

from .errors import invalid
from .models import Model, PartCoding, Profile, Side, widened
from .objects import Array
from .store import RowSource

TOKENS = 1024         # of the text, at most
SKIPPED = 4           # first positions, which are outliers and stay exact
LEAST_ROWS = 16       # of a part, else it stays as it is
PLAN_HEAD, PLAN_BYTES = 100, 16 << 20  # of a plan's file; both with its profile
VARIANCE_FLOOR, GAIN_MOST = 1e-4, 8.0


def text() -> str:
    """Mixed text of some 1,100 tokens: the one that the engine of this project has too."""
    path = os.path.join(os.path.dirname(__file__), "calibration_text.txt")
    with open(path, encoding="utf-8") as file:
        return file.read()


def plan(path: str, fingerprint: bytes) -> Profile:
    """The profile in a file of `cachectl tune` (codec/profile_file.h), made for the model of this
    fingerprint. OSError; CacheError: it is no such file, is damaged, or is another model's."""
    with open(path, "rb") as file:
        data = file.read(PLAN_BYTES + 1)
    told, body = data[68:PLAN_HEAD], data[PLAN_HEAD:]
    if data[:4] != b"KCL1" or len(data) > PLAN_BYTES or hashlib.sha256(body).digest() != told:
        raise invalid(f"plan {path}", "other bytes", "a file of cachectl tune, whole")
    if data[4:36] != fingerprint:
        raise invalid(f"plan {path}", f"for the model {data[4:36].hex()}", fingerprint.hex())
    return Profile.decode(body)


def calibrated(profile: Profile, model: Model, tokens: int, source: RowSource) -> Profile:
    """The profile with mean and gain of every part whose keys are coded. source: what the engine
    computed of so many tokens."""
    made = copy.deepcopy(profile)
    for layer, index, part in model.parts():
        coding = made.layers[layer][index]
        first, end = part.newest_rows(tokens)
        first = max(first, SKIPPED)
        if coding.k_bits and end - first >= LEAST_ROWS:
            keys = source.rows(layer, index, Side.K, first, end)
            if keys is not None:
                _fill(coding, widened(keys).astype(np.float64))
    return made


def _fill(coding: PartCoding, keys: Array) -> None:
    """keys: (rows, heads, dim). Gain: (1 / variance) ** 1/4, over its root mean square in a head;
    1 where a head's keys never change."""
    mean = keys.mean(0)
    variance = np.maximum(0, (keys * keys).mean(0) - mean * mean)
    floor = VARIANCE_FLOOR * variance.mean(1, keepdims=True)
    changes = floor > 0
    gain = np.where(changes, np.maximum(variance, np.where(changes, floor, 1)), 1) ** -0.25
    gain = gain / np.sqrt((gain * gain).mean(1, keepdims=True))
    coding.key_mean = mean.astype(np.float32).reshape(-1)
    coding.key_gain = np.clip(gain, 1 / GAIN_MOST, GAIN_MOST).astype(np.float32).reshape(-1)
