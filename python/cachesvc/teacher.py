"""A teacher of a model of transformers, for `cachectl quality` and `tune` (teaching.py).

    cachectl quality MODEL --teacher "python3 -m cachesvc.teacher"

MODEL: a folder, a name or a GGUF file.
"""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch

from .objects import Array
from .teaching import MOST_PAIRS, MOST_TOKENS, Encode, Teacher, arguments, teach
from .transformers import Transformers, to_numpy

PROGRAM = "cachesvc.teacher"


def loaded(path: str, dtype: str, device: str) -> Tuple[Any, Encode]:
    """A model of transformers and its tokenizer's encode."""
    import transformers
    transformers.logging.set_verbosity_error()
    at: Dict[str, str] = {}
    if path.endswith(".gguf"):
        path, at["gguf_file"] = os.path.split(os.path.abspath(path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, **at)
    module = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **at)
    return module.eval().to(device), tokenizer.encode


def predictions(module: Any) -> Callable[[Sequence[int], Any], Array]:
    """Teacher's predict."""
    def predict(tokens: Sequence[int], past: Any) -> Array:
        if not tokens:
            return np.empty((0, module.config.get_text_config().vocab_size), np.float32)
        with torch.no_grad():
            ids = torch.tensor([tokens], device=module.device)
            logits = module(ids, past_key_values=past, use_cache=True).logits[0]
        return to_numpy(logits.float())
    return predict


def turns_of(module: Any) -> List[Array]:
    """Radians a position of each pair, of every RoPE that a module of transformers keeps."""
    found: List[Array] = []
    for name, buffer in module.named_buffers():
        steps = to_numpy(buffer.float()).reshape(-1) if name.endswith("inv_freq") else None
        if steps is None or not 0 < len(steps) <= MOST_PAIRS or steps.max() > 8:
            continue
        if not any(np.array_equal(steps, other) for other in found):
            found.append(steps)
    return found


def teacher_of(module: Any, encode: Encode, tag: str = "") -> Teacher:
    """A teacher of a model of transformers."""
    config = module.config.get_text_config()
    return Teacher(Transformers(module), encode, config.vocab_size,
                   getattr(config, "max_position_embeddings", MOST_TOKENS), predictions(module),
                   tag, turns_of(module))


def main(words: Optional[Sequence[str]] = None) -> None:
    parser = arguments(PROGRAM, __doc__ or "")
    parser.add_argument("--dtype", default="auto", help="of the model's weights: float32, …")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="of PyTorch")
    given = parser.parse_args(words)

    def make() -> Teacher:
        if given.threads:
            torch.set_num_threads(given.threads)
        module, encode = loaded(given.model, given.dtype, given.device)
        return teacher_of(module, encode, given.tag)
    teach(PROGRAM, make)


if __name__ == "__main__":
    main()
