"""`cachectl quality` and `tune` with models of transformers as their teacher, all three real."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import random
import shlex
import subprocess
from typing import Any, Dict, List

import pytest

from cachesvc.calibrate import PLAN_HEAD

from daemon import PROGRAM, Daemon
from engine_process import HERE, EngineProcess, interpreter
from llama_engine import model_file

pytestmark = pytest.mark.engines
ENGINE, SCRIPT = "TRANSFORMERS", "transformers_engine.py"
KINDS = ("llama:bfloat16", "gemma3", "qwen3_next", "falcon_h1")


def cachectl(*words: str, fails: bool = False) -> str:
    ran = subprocess.run([os.path.join(os.path.dirname(PROGRAM), "cachectl"), *words],
                         capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(HERE.parent)}, check=False)
    assert (ran.returncode != 0) == fails, ran.stderr
    return ran.stderr if fails else ran.stdout


def taught(script: str = "taught.py") -> str:
    return f"{interpreter(ENGINE)} -B {shlex.quote(str(HERE / script))}"


@pytest.fixture(name="text")
def text_file(tmp_path: pathlib.Path) -> str:
    chance, file = random.Random(5), tmp_path / "text.txt"
    file.write_text("".join(chance.choice("etaoin shrdlu\n") for _ in range(2000)))
    return str(file)


def measured(file: pathlib.Path) -> Dict[str, Any]:
    return {setting["name"]: setting for setting in json.loads(file.read_text())["settings"]}


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_bits_diverge_more_and_none_do_not(tmp_path: pathlib.Path, text: str,
                                                 kind: str) -> None:
    out = tmp_path / "out.json"
    said = cachectl("quality", kind, "--teacher", taught(), "--text", text, "--tokens", "600",
                    "--settings", "lossless,tq8,tq4,tq2", "--json", str(out))
    assert "hit: KLD" in said and "whole" not in said
    found = measured(out)
    klds = [found[name]["hit"]["kld"] for name in ("lossless", "tq8", "tq4", "tq2")]
    print(kind, klds)
    # Windows and states are where they were: with the very rows nothing moves.
    assert klds[0] < 0.05 * klds[2] and klds[1] < 0.2 * klds[2] and klds[2] < 0.2 * klds[3]
    assert found["tq2"]["ratio"] < found["tq4"]["ratio"] < found["tq8"]["ratio"] < 0.6


def test_a_plan_is_in_force_where_an_adapter_has_it(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path, text: str,
        one: EngineProcess) -> None:
    plan, at = tmp_path / "plan", {"socket": daemon.socket, "namespace": namespace}
    said = cachectl("tune", "falcon_h1", "--teacher", taught(), "--text", text, "--budget", "0.3",
                    "--out", str(plan))
    rows = [line.split() for line in said.splitlines()]
    klds = {row[0]: float(row[-3]) for row in rows if len(row) > 4 and row[0] in ("tq4", "budget")}
    assert klds["budget"] <= klds["tq4"] < 0.01
    one.call("attach", kind="falcon_h1", plan=str(plan), **at)
    assert one.call("in_force") == hashlib.sha256(plan.read_bytes()[PLAN_HEAD:]).hexdigest()
    assert "for the model" in one.call("attach", kind="falcon_h1", plan=str(plan), tag="lora", **at)
    plan.write_bytes(plan.read_bytes()[:-1])
    assert "tune, whole" in one.call("attach", kind="falcon_h1", plan=str(plan), **at)


@pytest.mark.parametrize("kind", ("llama", "gemma3"))
def test_transforms_are_in_force_where_an_adapter_has_them(
        daemon: Daemon, namespace: str, tmp_path: pathlib.Path, text: str, one: EngineProcess,
        kind: str) -> None:
    plan = tmp_path / "plan"
    said = cachectl("tune", kind, "--teacher", taught(), "--text", text, "--coding", "tc",
                    "--budget", "0.4", "--out", str(plan))
    ratio, kld = (float(word) for word in said.splitlines()[-1].split()[-4:-2])
    assert ratio < 0.5 and kld < 0.01
    one.call("attach", kind=kind, plan=str(plan), socket=daemon.socket, namespace=namespace)
    assert one.call("in_force") == hashlib.sha256(plan.read_bytes()[PLAN_HEAD:]).hexdigest()


def test_our_engine_and_transformers_agree_on_a_real_model(tmp_path: pathlib.Path) -> None:
    model, file = model_file("KV_SMOLLM2_GGUF"), tmp_path / "out.json"
    text = pathlib.Path(HERE.parent / "cachesvc/calibration_text.txt")
    program = f"{interpreter(ENGINE)} -B -m cachesvc.teacher --threads 1 --dtype float32"
    teachers: List[List[str]] = [[], ["--teacher", program]]
    found = []
    for teacher in teachers:
        cachectl("quality", model, *teacher, "--text", str(text), "--tokens", "768", "--hit-only",
                 "--settings", "tq4,tq3", "--json", str(file))
        found.append(measured(file))
    for name, own in found[0].items():
        kld, other = own["hit"]["kld"], found[1][name]["hit"]["kld"]
        print(f"SmolLM2, {name}: {kld:.5f} nats by our engine, {other:.5f} by transformers")
        assert own["ratio"] == found[1][name]["ratio"]
        assert 0.7 < other / kld < 1.4
        assert found[1][name]["hit"]["perplexity_exact"] == pytest.approx(
            own["hit"]["perplexity_exact"], rel=0.02)


def test_a_teacher_that_fails_is_named(text: str) -> None:
    asked = ("--text", text, "--tokens", "600")
    assert "ended early" in cachectl("quality", "llama", "--teacher", "exit 3;", *asked, fails=True)
    assert '"KVTEACH"' in cachectl("quality", "llama", "--teacher", "echo loading the model;",
                                   *asked, fails=True)
    assert "text.txt has 2000 tokens" in cachectl(
        "quality", "llama", "--teacher", taught(), "--text", text, "--tokens", "2001", fails=True)
