#!/usr/bin/env python3
"""README's lines "With your engine", run as they stand: the environment is made, pip installs what
they name, and the programs of the table are there with the options that it gives them. With a model
file the command for llama.cpp serves it, and its self check passes.

usage: python_readme_check.py SOURCE_FOLDER
       (exit 77: skipped, PyPI can't be reached; 0: good; 1: not)
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

WITHOUT_ENGINE = ("cachesvc-llama", "cachesvc-llama-server", "cachesvc-files")  # say --help
NO_NETWORK = ("ConnectionError", "NewConnectionError", "Temporary failure in name", "timed out")
LONG_S = 120


def fail(text):
    sys.exit(f"README check: {text}")


def set_up(lines, folder, env):
    """Runs the lines in a copy of the project's python/, in which pip leaves files."""
    ran = subprocess.run(["bash", "-euc", lines], cwd=folder, env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ran.returncode and any(word in ran.stdout for word in NO_NETWORK):
        print("skipped: PyPI can't be reached\n" + ran.stdout)
        sys.exit(77)
    if ran.returncode:
        fail(f"its lines fail:\n{lines}\n{ran.stdout}")


def check_command(command, programs, env):
    name, *words = shlex.split(command.split(" -- ")[0])
    if not (programs / name).exists():
        fail(f"{name} is not there after its lines")
    if name not in WITHOUT_ENGINE:
        return
    said = subprocess.run([name, "--help"], env=env, check=True, stdout=subprocess.PIPE, text=True)
    for word in words:
        if word.startswith("-") and word not in said.stdout:
            fail(f"{name} has no option {word}")


def check_serves(command, model, folder, env):
    """The llama.cpp command, with a socket that no daemon has: it attaches all the same."""
    words = {"PATH": os.path.join(folder, "s"), "NAME": "n", "model.gguf": model}
    given = [words.get(word, word) for word in shlex.split(command)]
    given[1:1] = ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(given, env=env, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            url, end, counts = proxy.stdout.readline().strip(), time.monotonic() + LONG_S, {}
            while not {"attached", "refused"} & set(counts) and time.monotonic() < end:
                time.sleep(0.1)
                with urllib.request.urlopen(url + "/cachesvc", timeout=LONG_S) as reply:
                    counts = json.load(reply)
        finally:
            proxy.terminate()
    if "attached" not in counts:
        fail(f"{command} did not attach: {counts}")


def main(source):
    text = (source / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"\*\*With your engine\.\*\*.*?\n```\n(.*?)```", text, re.S).group(1)
    for place in ("python/README.md", "tools/quickstart"):
        other = (source / place).read_text(encoding="utf-8")
        for line in lines.splitlines():
            if line.split("  #")[0] not in other:
                fail(f"{place} has other lines than README: {line}")
    commands = re.findall(r"^\|[^|]*\| `(cachesvc-[^`]*)`", text, re.M)
    if not commands:
        fail("no command of ours in the table")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source / "python", os.path.join(folder, "python"),
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        # Another home, Debian's Python, and pip's settings and downloads that there are.
        env = {"PIP_CACHE_DIR": os.path.expanduser("~/.cache/pip"), **os.environ, "HOME": folder,
               "PATH": "/usr/bin:/bin", "PIP_NO_COMPILE": "1",
               "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        settings = os.path.expanduser("~/.config/pip/pip.conf")
        if os.path.exists(settings):
            env.setdefault("PIP_CONFIG_FILE", settings)
        env.pop("PYTHONPATH", None)
        set_up(lines, folder, env)
        programs = next(pathlib.Path(folder).glob("*/bin/activate")).parent
        env["PATH"] = f"{programs}:{env['PATH']}"
        for command in [*commands, *(c.split(" -- ")[1] for c in commands if " -- cachesvc" in c)]:
            check_command(command, programs, env)
        model = os.environ.get("KV_SMOLLM2_GGUF")
        if model:
            check_serves(next(c for c in commands if " -- cachesvc-llama-server" in c), model,
                         folder, env)
    print("README's lines for engines work")


main(pathlib.Path(sys.argv[1]))
