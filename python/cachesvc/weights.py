"""Weights: which weights an engine loads by a model's name, told from samples of its files.

Names, sizes, beginnings and pieces of every file of a model's folder that changes a row, so it
takes milliseconds. A weight that was changed by hand between the pieces is not seen, and a name
that is no folder (of a hub) says nothing of its weights: a plug-in's `tag` tells such apart.
"""
from __future__ import annotations

import hashlib
import os

ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", "config.json")
HEAD_BYTES, PIECES, PIECE_BYTES = 64 << 10, 32, 4 << 10


def weights_of(name: str) -> str:
    """In hex; empty if name is no folder with weights."""
    if not os.path.isdir(name):
        return ""
    digest, found = hashlib.sha256(b"cachesvc weights 1"), False
    for folder, folders, files in os.walk(name):
        folders.sort()
        for file in sorted(file for file in files if file.endswith(ENDINGS)):
            path = os.path.join(folder, file)
            size = os.path.getsize(path)
            digest.update(f"{os.path.relpath(path, name)} {size}\n".encode())
            with open(path, "rb") as data:
                digest.update(data.read(HEAD_BYTES))
                for piece in range(PIECES):
                    data.seek(max(0, size - PIECE_BYTES) * piece // (PIECES - 1))
                    digest.update(data.read(PIECE_BYTES))
            found = True
    return digest.hexdigest() if found else ""
