"""A teacher of a tiny random model of transformers whose tokens are letters: the command's last
word is its kind (transformers_engine.py)."""
from __future__ import annotations

import os
import sys

import torch

from cachesvc.teacher import teacher_of
from cachesvc.teaching import serve
from transformers_engine import letters, module_of

if __name__ == "__main__":
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    kind, _, dtype = sys.argv[1].partition(":")
    serve(teacher_of(module_of(kind, 0, dtype or "float32"), letters), sys.stdin.buffer, answers)
