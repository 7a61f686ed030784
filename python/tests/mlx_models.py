"""Script of mlx-lm's environment: writes a tiny random model of a kind, with a tokenizer whose
tokens are characters, into a folder.

    mlx_models.py KIND SEED FOLDER [thinking]

thinking: one whose template begins its answers with <think>, which mlx-lm takes for a mark of its.
"""
from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Dict

import mlx.core as mx
from mlx.utils import tree_flatten
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
SMALL = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "head_dim": 32,
         "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 4096, "rope_theta": 10000.0, "tie_word_embeddings": False}
CONFIGS: Dict[str, Dict[str, Any]] = {
    "llama": {"model_type": "llama", "num_hidden_layers": 2},
    "gemma3": {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 64,
               "sliding_window_pattern": 3, "query_pre_attn_scalar": 32, "rope_traditional": False,
               "rope_global_base_freq": 1e6, "rope_local_base_freq": 1e4},
    "falcon_h1": {"model_type": "falcon_h1", "num_hidden_layers": 2, "mamba_d_ssm": 64,
                  "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16,
                  "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_chunk_size": 64,
                  "mamba_expand": 1, "attention_bias": False, "mlp_bias": False,
                  "projectors_bias": False, "mamba_proj_bias": False, "mamba_conv_bias": True,
                  "mamba_rms_norm": False, "mamba_norm_before_gate": True},
    "qwen3_next": {"model_type": "qwen3_next", "num_hidden_layers": 4, "linear_num_value_heads": 4,
                   "linear_num_key_heads": 2, "linear_key_head_dim": 32,
                   "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 4,
                   "num_experts_per_tok": 2, "decoder_sparse_step": 1,
                   "shared_expert_intermediate_size": 32, "mlp_only_layers": [],
                   "moe_intermediate_size": 32, "partial_rotary_factor": 0.5,
                   "norm_topk_prob": True, "full_attention_interval": 4},
}


def write(kind: str, seed: int, folder: str, thinking: bool) -> None:
    config = {**SMALL, **CONFIGS[kind]}
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(config))
    weights = {name: mx.random.normal(of.shape) * 0.2 if of.ndim > 1 else of
               for name, of in tree_flatten(model.parameters())}
    os.makedirs(folder, exist_ok=True)
    mx.save_safetensors(os.path.join(folder, "model.safetensors"), weights)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    marks = ["<think>", "</think>"] if thinking else []
    letters = 255 - len(marks)
    vocabulary = {chr(0x100 + i) if i < 32 or i > 126 else chr(i): i for i in range(letters)}
    vocabulary.update((mark, letters + i) for i, mark in enumerate(marks))
    tokenizer = Tokenizer(models.WordLevel({**vocabulary, "<eos>": 255}, unk_token="\u0100"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>",
                                   chat_template=TEMPLATE.replace(
                                       "<assistant>", "<assistant>" + "".join(marks[:1])))
    fast.add_tokens(marks, special_tokens=True)
    fast.save_pretrained(folder)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), sys.argv[3], "thinking" in sys.argv[4:])
