"""Runs inside vLLM's environment: a tiny random model, vLLM with LMCache between it and the cache,
and LMCache's own client of Redis.

Told by test_vllm_lmcache.py, by engine_process.py.
"""
from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any, Dict, List, Optional

from engine_process import serve

LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 64
# A little memory, and nobody else's machine.
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
               "VLLM_NO_USAGE_STATS": "1"}


def make_model(folder: str, large: bool = False) -> int:
    """Bytes of a token's rows. large: with a prefill that takes seconds."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(7)
    layers = 8 * LAYERS if large else LAYERS
    config = LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=512,
                         num_hidden_layers=layers, num_attention_heads=4,
                         num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
                         max_position_embeddings=8192, bos_token_id=None, eos_token_id=None)
    LlamaForCausalLM(config).save_pretrained(folder)
    return 2 * layers * KV_HEADS * HEAD_DIM * 4  # f32


class Engine:
    """vLLM as its users have it: nothing of it or of LMCache is changed."""

    def __init__(self) -> None:
        self._llm: Any = None

    def open(self, model: str, lmcache_port: Optional[int], length: int = 1024) -> None:
        from vllm import LLM
        from vllm.config import KVTransferConfig
        transfer = lmcache_port and KVTransferConfig(
            kv_connector="LMCacheMPConnector", kv_role="kv_both",
            kv_connector_extra_config={"lmcache.mp.host": "tcp://localhost",
                                       "lmcache.mp.port": lmcache_port})
        self._llm = LLM(model=model, skip_tokenizer_init=True, dtype="float32",
                        max_model_len=length, enforce_eager=True, kv_transfer_config=transfer)

    def generate(self, prompt: List[int], most: int = 16) -> Dict[str, Any]:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        answer = self._llm.generate(
            TokensPrompt(prompt_token_ids=prompt),
            SamplingParams(temperature=0, max_tokens=most, detokenize=False), use_tqdm=False)[0]
        return {"cached": answer.num_cached_tokens, "tokens": list(answer.outputs[0].token_ids)}


class Values:
    """LMCache's RESP client, which its `resp` adapter drives. Values follow from their number."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._client: Any = None

    def connect(self, port: int, password: str) -> None:
        from lmcache.v1.storage_backend.native_clients.resp_client import RESPClient
        self._client = RESPClient("127.0.0.1", port, 2, self._loop, password=password)

    def _do(self, call: Any) -> Any:
        return self._loop.run_until_complete(call)

    def exists(self, numbers: List[int]) -> List[bool]:
        answer: List[bool] = self._do(self._client.batch_exists([_key(n) for n in numbers]))
        return answer

    def set(self, numbers: List[int], length: int) -> None:
        self._do(self._client.batch_set([_key(n) for n in numbers],
                                        [memoryview(_value(n, length)) for n in numbers]))

    def get(self, numbers: List[int], length: int) -> List[bool]:
        """Which values came as they were set."""
        buffers = [bytearray(length) for _ in numbers]
        self._do(self._client.batch_get([_key(n) for n in numbers],
                                        [memoryview(buffer) for buffer in buffers]))
        return [buffer == _value(n, length) for n, buffer in zip(numbers, buffers)]


def _key(number: int) -> str:
    return f"model@00000000@0@{hashlib.sha256(b'%d' % number).hexdigest()}@salt"


def _value(number: int, length: int) -> bytearray:
    return bytearray(hashlib.shake_128(b"%d" % number).digest(length))


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    engine, values = Engine(), Values()
    serve({"make_model": make_model, "open": engine.open, "generate": engine.generate,
           "connect": values.connect, "exists": values.exists, "set": values.set,
           "get": values.get})
