"""Script of an EngineProcess, for engine_hits.py: one prompt's first token in an engine's own
Python environment, by its adapter; and SmolLM2's GGUF file as a folder that engines read.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
import time
import types
from typing import Any, Dict, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests")]

from engine_process import serve  # noqa: E402

os.environ["TQDM_DISABLE"] = "1"

BUDGET_S = 20.0  # one that a busy machine keeps
WARMING = 16     # tokens computed before, for what only an engine's first call takes


def convert(gguf: str, folder: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    at: Dict[str, str] = {"gguf_file": os.path.basename(gguf)}
    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(gguf), dtype=torch.float32, **at)
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    plain = type(model)(type(model.config).from_dict(config))  # one of GGUF can't be saved
    plain.load_state_dict(model.state_dict())
    plain.to(torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(os.path.dirname(gguf), **at).save_pretrained(folder)


def first_token(engine: str, **given: Any) -> Dict[str, Any]:
    return {"TRANSFORMERS": _transformers, "MLX": _mlx}[engine](**given)


def _transformers(model: str, socket: str, namespace: str, tokens: int, text: str,
                  bits: Optional[List[int]]) -> Dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from cachesvc.transformers import attach, generate
    of = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    encode = AutoTokenizer.from_pretrained(model).encode
    adapter = attach(of, socket, namespace, budget_s=BUDGET_S, encode=encode,
                     bits=tuple(bits) if bits else None)
    ids = torch.tensor([encode(pathlib.Path(text).read_text(encoding="utf-8"))[:tokens]])
    of(ids[:, -WARMING:])
    begin = time.perf_counter()
    with torch.no_grad():
        output = generate(of, ids, max_new_tokens=1, do_sample=False, return_dict_in_generate=True)
    first_ms = (time.perf_counter() - begin) * 1e3
    adapter.stores.settle()
    with tempfile.NamedTemporaryFile() as file:
        torch.save([(each.keys, each.values) for each in output.past_key_values.layers], file)
        own = file.tell()
    return {"first_ms": first_ms, "counts": adapter.report.counts(), "own_bytes": own,
            "own": "torch.save", "reused": adapter.report.counts().get("reused_tokens", 0)}


def _mlx(model: str, socket: str, namespace: str, tokens: int, text: str,
         bits: Optional[List[int]]) -> Dict[str, Any]:
    """As the server goes: a look-up, the prompt without its last token in steps, the last one.
    Without a text for mean and gain of keys: on a processor mlx takes minutes for that."""
    import mlx.core as mx
    from mlx_lm import load
    from mlx_lm.models.cache import save_prompt_cache

    from cachesvc.cache import Cache
    from cachesvc.in_process import Adapter, Settings
    from cachesvc.mlx import Mlx
    of, tokenizer = load(model)[:2]
    options = argparse.Namespace(kv_bits=None, kv_group_size=64, quantized_kv_start=0)
    engine = Mlx(types.SimpleNamespace(model=of, cli_args=options))
    adapter = Adapter(engine, Cache(socket, namespace, strict=True), Settings(
        bits=(bits[0], bits[1]) if bits else None, budget_s=BUDGET_S))
    prompt = list(tokenizer.encode(pathlib.Path(text).read_text(encoding="utf-8")))[:tokens]
    engine.logits(prompt[-WARMING:], adapter.empty())
    begin, past = time.perf_counter(), adapter.empty()
    there = adapter.load(prompt, past)
    if there == 0:
        past = adapter.empty()
    if prompt[there:-1]:
        engine.logits(prompt[there:-1], past)
    mx.eval([each.state for each in past])
    entry = adapter.entry(prompt[:-1], past)
    copied_ms = adapter.report.counts()["copied_us"] / 1e3  # the server copies behind the answer
    engine.logits(prompt[-1:], past)
    first_ms = (time.perf_counter() - begin) * 1e3 - copied_ms
    adapter.store([entry])
    adapter.stores.settle()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cache.safetensors")
        save_prompt_cache(path, past)
        own = os.path.getsize(path)
    return {"first_ms": first_ms, "counts": adapter.report.counts(), "own_bytes": own,
            "own": "mlx-lm's safetensors", "reused": there}


if __name__ == "__main__":
    serve({"convert": convert, "first_token": first_token})
