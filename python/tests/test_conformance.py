"""The cases of tests/conformance, which every client runs."""
from __future__ import annotations

import json
import time
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from cachesvc import (Cache, CacheError, Cancel, Dtype, FetchOptions, Held, Hit, Kind, Level,
                      Model, Output, OwnMemory, Part, Profile, Selection, Side, Snapshot,
                      raw_profile)

from daemon import ROOT, Daemon
from given import Array, Computed, transformed
from test_cache import check_rows

TABLE: Dict[str, Any] = json.loads(
    (ROOT / "tests/conformance/cases.json").read_text(encoding="utf-8"))
Step = Dict[str, Any]
INTO_BYTES = 4 << 20


def model_of(name: str) -> Model:
    layers = [[part_of(part) for part in parts] for parts in TABLE["models"][name]]
    return Model(name, name.encode().ljust(32, b"."), layers)


def part_of(given: Dict[str, Any]) -> Part:
    fields: Dict[str, Any] = {
        **given, "kind": Kind[given["kind"].upper()],
        "dtype": Dtype[given.get("dtype", "f16").upper()],
        "snapshot": Snapshot(given.get("snapshot", 0))}
    return Part(**fields)


def tokens_of(step: Step) -> Array:
    parts = [np.arange(first, end) for first, end in step.get("tokens", [])]
    return np.concatenate(parts) if parts else np.arange(0)


def extras_of(step: Step) -> List[Tuple[int, bytes]]:
    return [(at, text.encode()) for at, text in step.get("extras", [])]


def profile_of(model: Model, step: Step) -> Optional[Profile]:
    given = step.get("profile")
    if given and given.get("transforms"):
        return transformed(model, 1 / 64, 2)  # under which the rows stay what they are
    return given and raw_profile(model, Dtype[given["raw"].upper()], given["block_tokens"])


def selection_of(step: Step) -> Selection:
    given = step.get("select", {})
    return Selection(**{key: tuple(value) if isinstance(value, list) else value
                        for key, value in given.items()})


def cancel_of(step: Step) -> Cancel:
    cancel = Cancel()
    if step.get("cancelled", False):
        cancel.now()
    return cancel


def run(cache: Cache, model: Model, step: Step, holds: Dict[str, int],
        memory: Optional[OwnMemory]) -> Dict[str, Any]:
    """A step's reply, by the names of the table. holds: their numbers, by the table's names."""
    call, tokens, extras = step["call"], tokens_of(step), extras_of(step)
    if call == "open":
        profile = profile_of(model, step)
        opened = cache.open(model, profile, step.get("replace", False))
        same = profile is not None and opened.profile_id == profile.id()
        return {"profile": "given" if same else "other"}
    if call == "store":
        wait_for = Level[step.get("wait_for", "accepted").upper()]
        rows = InMemory(memory, model, tokens) if memory else Computed(model, tokens)
        stored = cache.store_rows(model, tokens, rows, extras=extras, wait_for=wait_for, timeout=10,
                                  cancel=cancel_of(step), ends=step.get("ends", []),
                                  prefill_ms=step.get("prefill_ms", 0),
                                  label=step.get("label", ""))
        return {"level": min(stored.level, wait_for).name.lower(), "objects": stored.objects,
                "lost": len(stored.lost),
                "ends": [end.tokens for end in stored.ends if end.restorable]}
    if call == "fetch":
        return fetched(cache, model, step, holds, memory)
    if call == "hold":
        held = cache.hold(model, tokens, step["time_ms"] / 1000, extras=extras)
        holds[step["as"]] = held.number
        return {"held": bool(held), "tokens": held.found.tokens}
    if call == "renew":
        return {"renewed": cache.renew(Held(holds[step["hold"]]), step["time_ms"] / 1000) > 0}
    if call == "release":
        return {"released": cache.release(Held(holds[step["hold"]]))}
    if call == "prefetch":
        found = cache.prefetch(model, tokens, extras=extras, wait=step.get("wait", False),
                               hold=holds.get(step.get("hold", ""), 0), timeout=10,
                               cancel=cancel_of(step))
        return {"tokens": found.tokens, "common": found.common, "tier": found.tier.name.lower()}
    if call == "demote":
        reply = cache.demote(model, tokens, extras=extras, hold=holds.get(step.get("hold", ""), 0))
        return {"outcome": reply.outcome.name.lower(), "tokens": reply.tokens}
    if call == "retain":
        kept = cache.retain(model, tokens, step["time_ms"] / 1000, extras=extras)
        holds[step["as"]] = kept.number
        return {"outcome": kept.outcome.name.lower(), "tokens": kept.tokens}
    if call == "expire":
        given = cache.expire(model, tokens, step.get("seconds"), extras=extras,
                             whole=step.get("whole", False))
        return {"outcome": given.outcome.name.lower(), "objects": given.objects}
    if call == "wait":
        time.sleep(step["seconds"])
        return {}
    if call == "erase":
        return {"removed": cache.erase(model if "tokens" in step else None, tokens) > 0}
    if call == "erase_entry":
        return {"removed": cache.erase_entry(model, tokens) > 0}
    assert call == "lookup", call
    found = cache.lookup(model, tokens, extras=extras)
    return {"tokens": found.tokens, "common": found.common}


def fetched(cache: Cache, model: Model, step: Step, holds: Dict[str, int],
            memory: Optional[OwnMemory]) -> Dict[str, Any]:
    """memory: rows come there, instead of by the socket."""
    into = None
    if memory is not None:
        memory.clear()
        into = memory.array((INTO_BYTES,), np.uint8)
        into[:] = 0xee
    tokens, output = tokens_of(step), Output[step.get("form", "f16").upper()]
    limits = {key: step[key] for key in ("max_tokens", "max_reply_bytes", "round_to_block")
              if key in step}
    if "hold" in step:
        limits["hold"] = holds[step["hold"]]
    hit = cache.fetch_rows(model, tokens, extras=extras_of(step), timeout=10,
                           cancel=cancel_of(step),
                           options=FetchOptions(output, selection=selection_of(step), into=into,
                                                **limits))
    if hit:
        check_rows(widened(hit) if output == Output.BF16 else hit, model, tokens)
    values = sum(piece.values.size for pieces in hit._pieces.values() for piece in pieces)
    return {"tokens": hit.tokens, "common": hit.common, "tier": hit.tier.name.lower(),
            "newest": hit.newest.name.lower(), "values": values}


def widened(hit: Hit) -> Hit:
    """A hit whose bf16 rows are f32."""
    for pieces in hit._pieces.values():
        for piece in pieces:
            piece.values = (piece.values.astype("<u4") << 16).view("<f4")
    return hit


class InMemory(Computed):
    """Rows and states that lie in memory of the client's own."""

    def __init__(self, memory: OwnMemory, model: Model, tokens: Any) -> None:
        super().__init__(model, tokens)
        self._memory = memory

    def _moved(self, given: Array) -> Array:
        place = self._memory.array(given.shape, given.dtype)
        place[...] = given
        return place

    def rows(self, layer: int, part: int, side: Side, first: int, end: int) -> Array:
        return self._moved(super().rows(layer, part, side, first, end))

    def state(self, layer: int, part: int, position: int) -> bytes:
        given = np.frombuffer(super().state(layer, part, position), np.uint8)
        return self._moved(given).data


@pytest.mark.parametrize("way", ["streamed", "mapped", "own memory"])
@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: str(case["name"]))
def test_case(request: pytest.FixtureRequest, namespace: str, case: Dict[str, Any],
              way: str) -> None:
    restarts = any(step["call"] == "restart" for step in case["steps"])
    daemon: Daemon = request.getfixturevalue("own_daemon" if restarts else "daemon")
    model = model_of(case["model"])
    memory = OwnMemory(16 << 20) if way == "own memory" else None
    clients: Dict[int, Cache] = {}
    holds: Dict[str, int] = {}
    for number, step in enumerate(case["steps"]):
        if step["call"] == "restart":
            for cache in clients.values():
                cache.close()
            clients.clear()
            daemon.kill()
            daemon.start()
            continue
        cache = clients.setdefault(step.get("client", 0),
                                   Cache(daemon.socket, namespace, strict=True,
                                         map_segments=way != "streamed", memory=memory))
        try:
            reply = run(cache, model, step, holds, memory)
        except CacheError as error:
            reply = {"error": error.code.name.lower(), "message": str(error)}
        for key, expected in step["expect"].items():
            assert reply.get(key) == expected, f"step {number}: {step}: {reply}"
        assert "error" in step["expect"] or "error" not in reply, f"step {number}: {reply}"
    for cache in clients.values():
        cache.close()
