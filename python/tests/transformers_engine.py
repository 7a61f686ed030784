"""Script of an EngineProcess: transformers, unmodified, with tiny random models of every kind of
cache that the adapter keeps, and SmolLM2 from its GGUF file."""
from __future__ import annotations

import hashlib
import os
from typing import Any, Callable, Dict, List, Sequence

import torch
import transformers

from cachesvc import transformers as adapter
from cachesvc.checks import divergence
from cachesvc.errors import CacheError
from engine_process import serve

SMALL = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "head_dim": 32,
         "num_attention_heads": 4, "num_key_value_heads": 2}
CONFIGS: Dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SMALL, num_hidden_layers=2),
    "llama, other": lambda: transformers.LlamaConfig(**SMALL, num_hidden_layers=2,
                                                     rms_norm_eps=1e-3),
    "gemma3": lambda: transformers.Gemma3TextConfig(**SMALL, num_hidden_layers=6,
                                                    sliding_window=64),
    "qwen3_next": lambda: transformers.Qwen3NextConfig(
        **SMALL, num_hidden_layers=4, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, shared_expert_intermediate_size=32, linear_num_value_heads=4,
        linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32),
    "falcon_h1": lambda: transformers.FalconH1Config(
        **SMALL, num_hidden_layers=2, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16,
        mamba_d_state=16, mamba_n_groups=1),
    "deepseek_v32": lambda: transformers.DeepseekV32Config(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2),
}
modules: Dict[Any, Any] = {}


def module_of(kind: str, seed: int, dtype: str) -> Any:
    if (kind, seed, dtype) not in modules:
        torch.manual_seed(seed)
        if kind == "smollm2":
            folder, name = os.path.split(os.environ["KV_SMOLLM2_GGUF"])
            made = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name)
        else:
            made = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind]())
        modules[kind, seed, dtype] = made.eval().to(getattr(torch, dtype))
    return modules[kind, seed, dtype]


def letters(text: str) -> List[int]:
    """Tokens of a text, for models that have no tokenizer."""
    return [ord(letter) % 250 for letter in text]


class Engine:
    """What a test calls. One model is in use: the last one that was attached."""
    module: Any

    def attach(self, kind: str, socket: str, namespace: str, seed: int = 0, dtype: str = "float32",
               **settings: Any) -> str:
        self.module = module_of(kind, seed, dtype)
        settings = {"budget_s": 20.0, **settings}  # one that a busy machine keeps
        if settings.get("bits") == [4, 4]:
            settings["encode"] = letters
        try:
            attached = adapter.attach(self.module, socket, namespace, **settings)
        except CacheError as error:
            return str(error)
        return attached.model.fingerprint.hex()

    def generate(self, tokens: List[int], new: int = 8, cached: bool = True,
                 ends: Sequence[int] = ()) -> Any:
        """The answer, a digest of its logits, and the adapter's counts once all is stored."""
        options = {"max_new_tokens": new, "do_sample": False, "output_logits": True,
                   "return_dict_in_generate": True, "eos_token_id": None}
        ids = torch.tensor([tokens])
        given = (adapter.generate(self.module, ids, ends, **options) if cached else
                 self.module.generate(ids, **options))
        return {"tokens": given.sequences[0, len(tokens):].tolist(), **self.counts(),
                "logits": hashlib.sha256(torch.cat(given.logits).float().numpy()).hexdigest()}

    def static(self, tokens: List[int], new: int = 8) -> Any:
        """By a StaticCache that is loaded, and one that is not: how many tokens the first had, and
        by how much the logits of the answers are apart."""
        answers = []
        for cached in (True, False):
            past = transformers.StaticCache(self.module.config, max_cache_len=len(tokens) + new)
            ids = torch.tensor([tokens])
            if cached:
                adapter.load(self.module, ids, past)
                loaded = int(past.get_seq_length())
            answers.append(self.module.generate(
                ids, past_key_values=past, max_new_tokens=new, do_sample=False, eos_token_id=None,
                output_logits=True, return_dict_in_generate=True).logits)
        return {"loaded": loaded, "apart": max(
            float((one - other).abs().max()) for one, other in zip(*answers))}

    def divergence(self, tokens: List[int]) -> Any:
        """In nats, of the next token on a stored prefix from that on none."""
        ids = torch.tensor([tokens])
        past = adapter.load(self.module, ids)
        loaded = int(past.get_seq_length())
        with torch.no_grad():
            other = self.module(ids[:, loaded:], past_key_values=past).logits[0, -1]
            own = self.module(ids).logits[0, -1]
        return {"nats": divergence(own, other), "loaded": loaded}

    def bad(self) -> Any:
        """Two sequences, and a past that holds more than is named."""
        two = torch.ones((2, 100), dtype=torch.long)
        past = adapter.load(self.module, two)
        self.module(two[:1], past_key_values=past)
        adapter.store(self.module, two[:1, :80], past)
        return {"loaded": past.get_seq_length() - 100, **self.counts()}

    def in_force(self) -> str:
        """The id of the profile that the service has for the model."""
        attached = self.module.cachesvc
        opened = attached._cache.known(attached.model, attached._profile)
        return str(opened.profile_id.hex())

    def counts(self) -> Dict[str, int]:
        self.module.cachesvc.stores.settle()
        return {"hits": 0, "stores": 0, **self.module.cachesvc.report.counts()}


if __name__ == "__main__":
    torch.set_num_threads(1)  # of several, each waits for the slowest on a busy machine
    transformers.logging.set_verbosity_error()
    engine = Engine()
    serve({name: getattr(engine, name) for name in (
        "attach", "generate", "static", "divergence", "bad", "counts", "in_force")})
