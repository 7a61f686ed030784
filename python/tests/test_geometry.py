"""Geometry from configs: every kind, and what is not known is refused by name."""
from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List

import pytest

from cachesvc import CacheError, Code, Dtype, Kind
from cachesvc.geometry import model_from_config

BASE: Dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
                        "hidden_size": 512, "torch_dtype": "bfloat16"}


def kinds(**config: Any) -> List[str]:
    model = model_from_config({**BASE, **config}, b"f" * 32)
    return ["+".join(part.kind.name.lower() for part in parts) or "none" for parts in model.layers]


def test_plain_attention() -> None:
    model = model_from_config({**BASE, "model_type": "llama"}, b"f" * 32)
    part = model.part(3, 0)
    assert (part.kind, part.heads, part.k_dim, part.v_dim, part.dtype) == (
        Kind.FULL, 2, 64, 64, Dtype.BF16)
    assert model.name == "llama"


@pytest.mark.parametrize("config,expected", [
    ({"model_type": "mistral", "sliding_window": None}, ["full"] * 4),
    ({"model_type": "mistral", "sliding_window": 128}, ["window"] * 4),
    ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": False}, ["full"] * 4),
    ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": True,
      "max_window_layers": 2}, ["full", "full", "window", "window"]),
    ({"model_type": "gemma2", "sliding_window": 128}, ["window", "full"] * 2),
    ({"model_type": "gemma3_text", "sliding_window": 128, "sliding_window_pattern": 2},
     ["window", "full"] * 2),
    ({"model_type": "llama4_text", "attention_chunk_size": 64}, ["chunk"] * 3 + ["full"]),
    ({"model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layers": [1, 0, 1, 0]},
     ["chunk", "full"] * 2),
    ({"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}, ["latent"] * 4),
    ({"model_type": "qwen3_next"}, ["state+state"] * 3 + ["full"]),
    ({"model_type": "llama", "sliding_window": 9,
      "layer_types": ["full_attention", "sliding_attention"] * 2}, ["full", "window"] * 2),
    ({"model_type": "gemma3n_text", "sliding_window": 128, "num_kv_shared_layers": 2,
      "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
     ["window", "window", "none", "none"]),
])
def test_kinds(config: Dict[str, Any], expected: List[str]) -> None:
    assert kinds(**config) == expected


def test_a_latent_is_one_head_of_rank_and_rope() -> None:
    part = model_from_config({**BASE, "model_type": "deepseek_v3", "kv_lora_rank": 512,
                              "qk_rope_head_dim": 64}, b"f" * 32).part(0, 0)
    assert (part.heads, part.k_dim, part.v_dim) == (1, 576, 0)


def test_a_file_and_a_nested_text_config(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", "dtype": "float16", "text_config": {
        "model_type": "gemma3_text", "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "hidden_size": 640, "sliding_window": 512}}))
    model = model_from_config(str(path), b"f" * 32)
    assert [parts[0].kind for parts in model.layers] == [Kind.WINDOW] * 5 + [Kind.FULL]
    assert model.part(0, 0).window == 512 and model.part(0, 0).k_dim == 256
    assert model.part(0, 0).dtype == Dtype.F16


@pytest.mark.parametrize("config,word", [
    ({"model_type": "never_heard_of"}, "never_heard_of"),
    ({}, "None"),
    ({"model_type": "llama", "layer_types": ["odd_attention"] * 4}, "odd_attention"),
    ({"model_type": "llama", "layer_types": ["full_attention"]}, "layer_types"),
    ({"model_type": "llama", "torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
    ({"model_type": "llama", "num_hidden_layers": 0}, "num_hidden_layers"),
    ({"model_type": "llama4_text"}, "attention_chunk_size"),
])
def test_what_is_not_known_is_refused_by_name(config: Dict[str, Any], word: str) -> None:
    with pytest.raises(CacheError) as error:
        kinds(**config)
    assert word in str(error.value)
    assert error.value.code in (Code.UNSUPPORTED, Code.INVALID_ARGUMENT)
