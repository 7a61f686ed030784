"""transformers: prompts of Hugging Face models that survive restarts. README.md, "transformers".

    attach(model, "/run/user/1000/cachesvc.sock", "my-namespace")
    output = generate(model, ids, max_new_tokens=100)  # as model.generate, sooner

or around any use of the model past = load(model, ids) and store(model, ids, past). One sequence
at a time: ids (1, tokens), at positions from 0. For the model's thread.
"""
from __future__ import annotations

from typing import Any, Iterator, List, Sequence, Tuple

import torch
from transformers import cache_utils as kinds

from .cache import Cache
from .errors import CacheError, Code
from .hit import Hit
from .in_process import Adapter, Entry, Settings
from .models import Dtype, Layers, Model, Part, full, state, window
from .objects import Array
from .sampled import places
from .store import ArrayRows

DTYPES = {torch.float32: Dtype.F32, torch.float16: Dtype.F16, torch.bfloat16: Dtype.BF16}
LAYERS = {"DynamicLayer", "DynamicSlidingWindowLayer", "LinearAttentionLayer", "DummyLayer",
          "LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer"}


def states_of(layer: Any) -> List[Tuple[str, int, torch.Tensor]]:
    """The states of a layer: which kind, which of them, the tensor."""
    return [(kind, number, tensor) for kind in ("conv", "recurrent") for number, tensor
            in sorted(getattr(layer, f"{kind}_states", {}).items()) if tensor is not None]


def parts_of(layer: Any) -> List[Part]:
    if type(layer).__name__ not in LAYERS:
        raise CacheError(Code.UNSUPPORTED, f"a cache layer of type {type(layer).__name__}")
    parts = [state(f"{kind} {number}") for kind, number, _ in states_of(layer)]
    if getattr(layer, "keys", None) is not None:
        (_, heads, _, dim), v_dim = layer.keys.shape, layer.values.shape[3]
        size, dtype = getattr(layer, "sliding_window", 0), DTYPES[layer.keys.dtype]
        parts.append(window(size, heads, dim, v_dim, dtype) if size else
                     full(heads, dim, v_dim, dtype))
    return parts


def to_numpy(tensor: torch.Tensor) -> Array:
    """A copy; of bf16, as uint16."""
    copied = tensor.detach().to("cpu", copy=True).contiguous()
    return (copied.view(torch.uint16) if copied.dtype == torch.bfloat16 else copied).numpy()


def to_torch(values: Any, like: torch.Tensor) -> torch.Tensor:
    """A copy of an array, of its dtype and on its device."""
    return torch.from_numpy(values.copy()).view(like.dtype).to(like.device)


class Transformers:
    """The Engine of one model. A past is a DynamicCache or, to be filled, a StaticCache."""
    model: Model

    def __init__(self, module: Any) -> None:
        self.name, self._module = f"{module.config.model_type} in transformers", module

    def describe(self) -> List[str]:
        config = {**self._module.config.to_dict(), "_name_or_path": "", "transformers_version": ""}
        return ["transformers", repr(sorted(config.items()))]

    def tensors(self) -> Iterator[Tuple[str, Iterator[bytes]]]:
        for name, of in sorted([*self._module.named_parameters(), *self._module.named_buffers()]):
            flat = of.detach().reshape(-1)
            yield f"{name} {of.dtype} {tuple(of.shape)}", (
                to_numpy(flat[at:end].view(torch.uint8)).tobytes() for at, end in places(len(flat)))

    def empty(self) -> Any:
        return kinds.DynamicCache(config=self._module.config)

    @torch.no_grad()
    def logits(self, tokens: Sequence[int], past: Any) -> Array:
        ids = torch.tensor([tokens], device=self._module.device)
        output = self._module(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
        return to_numpy(output.logits[0, -1].float())

    def layers(self, past: Any) -> Layers:
        self._like = past.layers
        return [parts_of(layer) for layer in past.layers]

    def rows_of(self, past: Any, tokens: int) -> ArrayRows:
        rows, states = {}, {}
        for layer, index, part in self.model.parts():
            of = past.layers[layer]
            if part.is_state:
                states[layer, index, tokens] = to_numpy(states_of(of)[index][2]).tobytes()
            else:  # the newest, in order
                rows[layer, index] = [to_numpy(side[0, :, :tokens].transpose(0, 1))
                                      for side in (of.keys, of.values)]
        return ArrayRows(self.model, tokens, rows, states)

    def fill(self, past: Any, hit: Hit) -> None:
        for layer, index, part in self.model.parts():
            of, like = past.layers[layer], self._like[layer]
            if part.is_state:
                kind, number, tensor = states_of(like)[index]
                given = to_torch(hit.state(layer, index), tensor).view(tensor.shape)
                getattr(of, f"update_{kind}_state")(given, state_idx=number)
                continue
            ring = isinstance(of, kinds.StaticSlidingWindowLayer)
            gone = int(ring and hit.tokens >= part.window)  # a full one's first place, next to go
            of.update(*(torch.nn.functional.pad(to_torch(side.transpose(1, 0, 2), like.keys)[None],
                                                (0, 0, gone, 0))
                        for side in hit.keys_values(layer, index)))
            if part.window:
                setattr(of, "cumulative_length" + "_int" * ring, hit.tokens)


def attach(model: Any, socket: str, namespace: str, token: bytes = b"", **settings: Any) -> Adapter:
    """settings: of Settings. CacheError: what the model caches can't be kept, and why."""
    cache = Cache(socket, namespace, strict=True, token=token)
    model.cachesvc = Adapter(Transformers(model), cache, Settings(**settings))
    return model.cachesvc


def load(model: Any, ids: torch.Tensor, into: Any = None) -> Any:
    """A past of the longest stored prefix, at most all of ids but the last; of no tokens, if there
    is none. into: an empty one to use, such as a StaticCache; default: a DynamicCache."""
    past = kinds.DynamicCache(config=model.config) if into is None else into
    if len(ids) != 1 or not model.cachesvc.load(ids[0].tolist(), past):
        past.reset()
    return past


def store(model: Any, ids: torch.Tensor, past: Any, entries: Sequence[Entry] = ()) -> None:
    """Stores, from a thread of its own, what past holds: the first of ids; and other entries."""
    tokens = int(past.get_seq_length())
    if len(ids) == 1 and tokens <= ids.shape[1]:
        model.cachesvc.store([*entries, model.cachesvc.entry(ids[0, :tokens].tolist(), past)])


def generate(model: Any, ids: torch.Tensor, ends: Sequence[int] = (), **options: Any) -> Any:
    """As model.generate, whose options these are. ends: lengths of the prompt worth an entry of
    their own, as its system message's: models with windows or states come back to no others."""
    if len(ids) != 1:
        return model.generate(ids, **options)
    past, tokens = load(model, ids), ids[0].tolist()
    entries = model.cachesvc.prefill(tokens, past, int(past.get_seq_length()), ends)
    output = model.generate(ids, past_key_values=past, **options)
    store(model, getattr(output, "sequences", output), past, entries)
    return output
