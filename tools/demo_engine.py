"""What tools/demo runs: engine processes, the daemon, and the places where their caches lie."""
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Short name: the variable that names its file, and what installs it.
MODELS = {"smollm2": ("KV_SMOLLM2_GGUF", "tools/install"),
          "gemma3": ("KV_GEMMA3_GGUF", "tools/install --with-gemma")}
TINY = ("sinks", "chunks", "deepseek_v3", "deepseek_v4", "qwen3_next")


def say(text):
    print(text, file=sys.stderr, flush=True)


def installed():
    """The variables that tools/install tells, those of the environment first."""
    out = subprocess.run([os.path.join(ROOT, "tools", "install"), "--print-env"],
                         capture_output=True, text=True, check=False)
    env = dict(line.split("=", 1) for line in out.stdout.splitlines() if "=" in line)
    return {**env, **{key: value for key, value in os.environ.items() if key.startswith("KV_")}}


def find_model(name):
    """A path as given, a tiny model, or an installed package's model file by its short name."""
    if os.path.exists(name):
        return os.path.abspath(name)
    if name in TINY:
        return name
    if name not in MODELS:
        sys.exit(f"demo: no model '{name}': give a path to a .gguf, or one of "
                 f"{', '.join((*MODELS, 'tiny', *TINY))}")
    variable, how = MODELS[name]
    path = installed().get(variable)
    if not path:
        sys.exit(f"demo: {name} is not installed: run {how}")
    return path


class Step:
    """One demo_step process: an engine with its cache client; one JSON line in, one out."""

    def __init__(self, options, mode, place, namespace):
        program = "demo_step_tiny" if options.model_path in TINY else "demo_step"
        command = [os.path.join(options.bin, program), "--model", options.model_path,
                   "--mode", mode, "--place", place, "--namespace", namespace,
                   "--new", str(options.new), "--threads", str(options.threads),
                   "--coding", options.coding, "--prefill", options.prefill,
                   "--calibration", options.calibration]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def ask(self, **command):
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and what it said first is the reason
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"demo: demo_step ended early (exit {self.process.wait()})")
        reply = json.loads(line)
        if "error" in reply:
            sys.exit("demo: " + reply["error"])
        return reply

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Daemon:
    """`cachesvc serve` on a socket of its own."""

    def __init__(self, programs, directory, socket_path, more=()):
        ready_read, ready_write = os.pipe()
        self.process = subprocess.Popen(
            [os.path.join(programs, "cachesvc"), "serve", "--socket", socket_path,
             "--dir", directory, "--log-level", "warn", "--ready-fd", str(ready_write), *more],
            pass_fds=[ready_write])
        os.close(ready_write)
        with os.fdopen(ready_read) as ready:
            if not ready.readline():
                sys.exit("demo: cachesvc serve did not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Place:
    """A store below `work`, and whoever holds its cache: an engine's process (mode embedded) or a
    daemon with an engine beside it (socket), which is given `more` arguments. The scratch folder
    goes with close()."""

    def __init__(self, options, mode, work, name=None, more=()):
        self.options, self.mode, self.more = options, mode, more
        self.dir = os.path.join(work, name or mode)
        os.makedirs(self.dir, mode=0o700, exist_ok=True)
        self.scratch = tempfile.mkdtemp(prefix="cachesvc-demo-")
        self.socket = os.path.join(self.scratch, "s", "cachesvc.sock")
        self.namespace = f"demo-{secrets.token_hex(4)}"
        self.step = self.daemon = None

    def start(self, namespace=None):
        """An engine, and first the daemon if it is needed and not there."""
        place = self.dir
        if self.mode == "socket":
            place = self.socket
            self.daemon = self.daemon or Daemon(self.options.bin, self.dir, place, self.more)
        engine = "socket" if self.mode == "socket" else "embedded"
        self.step = Step(self.options, engine, place, namespace or self.namespace)
        return self.step

    def kill(self):
        """kill -9 of all that runs; what it left is read from the device next."""
        self.step.kill()
        if self.daemon:
            self.daemon.kill()
            self.daemon = None
        drop_page_cache(self.dir)

    def close(self):
        if self.step and self.step.process.poll() is None:
            self.step.kill()
        if self.daemon:
            self.daemon.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)


def drop_page_cache(directory):
    """Writes back and forgets every file below `directory`, so that reads come from the device."""
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            except OSError:
                continue
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def in_memory(directory):
    """Whether the directory lies in RAM: then what is called SSD is none."""
    out = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True,
                         check=False)
    return out.stdout.strip() in ("tmpfs", "ramfs")


def stored_bytes(options, place, reply):
    """Bytes of the files of a prompt's blocks and tail and of their window rows, headers included;
    None for the tiny models, whose snapshots have other names."""
    if options.model in TINY:
        return None
    total = 0
    for folder, _, names in os.walk(place.dir):
        for name in names:
            if any(name.startswith(i) for i in reply["objects"]):
                total += os.path.getsize(os.path.join(folder, name))
    return total


def same_file(a, b):
    with open(a, "rb") as x, open(b, "rb") as y:
        return x.read() == y.read()


def first_difference(a, b):
    """The first place where two answers differ, or None."""
    if a == b:
        return None
    differing = (i for i, (x, y) in enumerate(zip(a, b)) if x != y)
    return next(differing, min(len(a), len(b)))


def compared(step, reply, other):
    """Keys of a row: how an answer and its predictions differ from those of another run. Both have
    their logits in files."""
    a, b = reply["tokens"], other["tokens"]
    at = first_difference(a, b)
    alike = min(len(a), len(b)) if at is None else min(at + 1, len(a), len(b))
    kld = step.ask(cmd="compare", a=other["logits"], b=reply["logits"], positions=alike)["kld"]
    return {"text_equal": at is None, "tokens_equal": at is None, "first_difference": at,
            "logits_equal": same_file(reply["logits"], other["logits"]), "kld": kld}


def run_llama(options, work, task):
    """What tools/demo_llama.py says of a task, one object a line; [] if it failed."""
    python = installed().get("KV_PYTHON", "")
    if not os.path.exists(python):
        say("  llama.cpp: skipped, no Python with xllamacpp (tools/install makes one)")
        return []
    path = os.path.join(work, "llama.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(task, file)
    out = subprocess.run([python, os.path.join(ROOT, "tools", "demo_llama.py"),
                          options.model_path, path, os.path.join(work, "llama"),
                          str(options.new), str(options.threads)],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    os.remove(path)
    if out.returncode != 0:
        say(f"  llama.cpp: failed (exit {out.returncode}), left out")
        return []
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]


def print_bytes(row, what):
    """The files of a row's entry beside the cache that an engine holds."""
    if row["stored_bytes"] is None:
        return
    stored, held = row["stored_bytes"] / 2**20, row["fp16_bytes"] / 2**20
    print(f"{what}: {stored:.1f} MiB in files, {stored / held:.2f} of an engine's fp16 cache")


def text_ids(options):
    """The tokens of the text file."""
    with tempfile.TemporaryDirectory() as scratch:
        step = Step(options, "embedded", scratch, "tokenize")
        ids = step.ask(cmd="tokenize", file=options.text)["tokens"]
        step.close()
    return ids
