"""Model geometry from a Hugging Face config: which kind of cache each layer keeps.

A model type or layer type that is not known is refused by name: a geometry that is guessed serves
wrong rows. The fingerprint is the caller's: engine/MODELS.md, "Fingerprint".
"""
from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from .errors import CacheError, Code, invalid
from .models import Dtype, Layers, Model, Part, chunk, full, latent, state, window

Config = Mapping[str, Any]
FULL, SLIDING, CHUNKED, LINEAR = ("full_attention", "sliding_attention", "chunked_attention",
                                  "linear_attention")


def _all(kind: str) -> Callable[[Config, int], str]:
    return lambda config, layer: kind


def _window_if_set(config: Config, layer: int) -> str:
    return SLIDING if config.get("sliding_window") else FULL


def _window_if_used(config: Config, layer: int) -> str:
    used = config.get("use_sliding_window") and config.get("sliding_window")
    return SLIDING if used and layer >= int(config.get("max_window_layers", 28)) else FULL


def _every(key: str, default: int, others: str) -> Callable[[Config, int], str]:
    """Full in each layer whose number, from 1, the pattern divides."""
    def kind(config: Config, layer: int) -> str:
        return FULL if (layer + 1) % int(config.get(key) or default) == 0 else others
    return kind


def _chunked_with_rope(config: Config, layer: int) -> str:
    rope = config.get("no_rope_layers")
    if rope:
        return CHUNKED if rope[layer] else FULL
    return _every("no_rope_layer_interval", 4, CHUNKED)(config, layer)


# model_type -> the type of a layer, for configs that don't list layer_types.
LAYER_TYPES: Dict[str, Callable[[Config, int], str]] = {
    **dict.fromkeys(["llama", "gemma", "granite", "olmo2", "olmoe", "cohere", "stablelm",
                     "smollm3"], _all(FULL)),
    **dict.fromkeys(["mistral", "ministral", "mixtral", "phi3", "starcoder2"], _window_if_set),
    **dict.fromkeys(["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"], _window_if_used),
    "gemma2": _every("", 2, SLIDING), "gpt_oss": _every("", 2, SLIDING),
    "gemma3_text": _every("sliding_window_pattern", 6, SLIDING),
    "gemma3n_text": _every("", 5, SLIDING),
    "cohere2": _every("sliding_window_pattern", 4, SLIDING),
    "llama4_text": _chunked_with_rope,
    "qwen3_next": _every("full_attention_interval", 4, LINEAR),
    **dict.fromkeys(["deepseek_v2", "deepseek_v3", "kimi_k2"], _all(FULL)),
}
DTYPES = {"float32": Dtype.F32, "float16": Dtype.F16, "bfloat16": Dtype.BF16}


def _number(config: Config, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise invalid(f"the config's {key}", value, "a whole number above 0")
    return value


def _layer(config: Config, kind: str, dtype: Dtype) -> List[Part]:
    if kind == LINEAR:
        return [state("conv", dtype), state("recurrent", Dtype.F32)]
    if "kv_lora_rank" in config and config["kv_lora_rank"]:
        return [latent(config["kv_lora_rank"] + _number(config, "qk_rope_head_dim"), dtype)]
    heads = config.get("num_key_value_heads") or _number(config, "num_attention_heads")
    dim = config.get("head_dim") or (_number(config, "hidden_size")
                                     // _number(config, "num_attention_heads"))
    if kind == FULL:
        return [full(heads, dim, dtype=dtype)]
    if kind == SLIDING:
        return [window(_number(config, "sliding_window"), heads, dim, dtype=dtype)]
    if kind == CHUNKED:
        return [chunk(_number(config, "attention_chunk_size"), heads, dim, dtype=dtype)]
    raise CacheError(Code.UNSUPPORTED, f"layer type {kind!r} is not known")


def _dtype(config: Config) -> Dtype:
    name = str(config.get("dtype") or config.get("torch_dtype") or "float32").split(".")[-1]
    if name not in DTYPES:
        raise CacheError(Code.UNSUPPORTED, f"rows of dtype {name!r}")
    return DTYPES[name]


def model_from_config(config: Union[Config, str, "os.PathLike[str]"], fingerprint: bytes,
                      name: str = "", dtype: Optional[Dtype] = None) -> Model:
    """config: a config.json, its path or its values. dtype: of the cache, if not the config's."""
    if not isinstance(config, Mapping):
        with open(config, encoding="utf-8") as file:
            loaded: Config = json.load(file)
        return model_from_config(loaded, fingerprint, name, dtype)
    text: Config = config.get("text_config") or config
    of = dtype or _dtype(text if "dtype" in text or "torch_dtype" in text else config)
    kind = str(text.get("model_type"))
    if kind not in LAYER_TYPES:
        raise CacheError(Code.UNSUPPORTED, f"model_type {kind!r} is not known")
    count = _number(text, "num_hidden_layers")
    types = text.get("layer_types") or [LAYER_TYPES[kind](text, layer) for layer in range(count)]
    if len(types) != count:
        raise invalid("the config's layer_types", f"{len(types)} long", f"{count} long")
    own = count - int(text.get("num_kv_shared_layers") or 0)
    layers: Layers = [_layer(text, types[layer], of) if layer < own else []
                      for layer in range(count)]
    return Model(name or kind, fingerprint, layers)
