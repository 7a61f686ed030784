"""tools/demo --remote: what one machine stored, an empty one serves through a Redis cluster.

Three redis-server shards on loopback stand for the cluster that an operator runs, two daemons with
directories of their own for two machines:
  1. machine A computes a prompt (cold) and its daemon copies what it stored to the cluster;
  2. kill -9 of A's engine and daemon; its directory is deleted;
  3. machine B, a daemon on an empty directory, is asked the same prompt (remote), then once more
     (ram).
Everything ends with the demo; nothing is written outside its directory.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import turns
from demo_engine import TINY, Place, compared, say, text_ids

MUST = 50  # how many times sooner the first token comes than cold, of a real model
SERVER = "redis-server"
SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))
PATIENCE = 120  # seconds, for the cluster and for the copy


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(so, what):
    """Asks until it is so; ends the demo where it is in vain."""
    end = time.monotonic() + PATIENCE
    while not so():
        if time.monotonic() > end:
            sys.exit(f"demo: {what}: not within {PATIENCE} s")
        time.sleep(0.02)


class Shard:
    """One redis-server of the cluster."""

    def __init__(self, folder):
        self.port, self.bus = free_port(), free_port()
        self.process = subprocess.Popen(
            [SERVER, "--bind", "127.0.0.1", "--port", str(self.port), "--cluster-enabled", "yes",
             "--cluster-port", str(self.bus), "--save", "", "--appendonly", "no",
             "--dir", folder, "--cluster-config-file", f"{self.port}.conf",
             "--loglevel", "warning", "--logfile", f"{self.port}.log"], stdin=subprocess.DEVNULL)

    def ask(self, *words):
        """One command; what is answered, as it comes. "": nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as link:
                link.sendall((" ".join(words) + "\r\nQUIT\r\n").encode())
                answer = b""
                while data := link.recv(65536):
                    answer += data
                return answer.decode(errors="replace")
        except OSError:
            return ""


class Cluster:
    """Three shards without replicas, that know each other."""

    def __init__(self, folder):
        os.makedirs(folder, mode=0o700)
        self.shards = [Shard(folder) for _ in SLOTS]
        try:
            self.join()
        except BaseException:
            self.close()
            raise

    def join(self):
        for i, shard in enumerate(self.shards):
            wait_until(lambda s=shard: self.runs(s) and s.ask("PING").startswith("+PONG"), SERVER)
            shard.ask("CLUSTER", "SET-CONFIG-EPOCH", str(i + 1))
            shard.ask("CLUSTER", "ADDSLOTSRANGE", *map(str, SLOTS[i]))
            for other in self.shards[:i]:
                shard.ask("CLUSTER", "MEET", "127.0.0.1", str(other.port), str(other.bus))
        wait_until(lambda: all("cluster_state:ok" in s.ask("CLUSTER", "INFO") and
                               "cluster_known_nodes:3" in s.ask("CLUSTER", "INFO")
                               for s in self.shards), "the cluster")

    @staticmethod
    def runs(shard):
        if shard.process.poll() is not None:
            sys.exit(f"demo: {SERVER} ended (exit {shard.process.returncode})")
        return True

    def nodes(self):
        return ", ".join(f'"127.0.0.1:{s.port}"' for s in self.shards)

    def used(self):
        """Keys, and bytes of memory that all shards have used."""
        keys = sum(int(s.ask("DBSIZE").split()[0].strip(":")) for s in self.shards)
        info = [s.ask("INFO", "memory") for s in self.shards]
        return keys, sum(int(text.partition("used_memory_dataset:")[2].split()[0])
                         for text in info if "used_memory_dataset:" in text)

    def close(self):
        for shard in self.shards:
            shard.process.kill()
            shard.process.wait()


def counters(options, place):
    """What the place's daemon counts."""
    out = subprocess.run([os.path.join(options.bin, "cachectl"), "counters", "--json",
                          place.socket], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(out.stdout)


def copied(options, place):
    """Whether all that the daemon has on its SSD is in the cluster."""
    now = counters(options, place)
    there = now["remote_objects_written"] + now["remote_existed"]
    return now["remote_write_queue"] == 0 and there >= now["ssd_objects"] > 0


class Runs:
    """The three runs, in order."""

    def __init__(self, options, tokens):
        self.options, self.tokens = options, tokens
        self.rows, self.replies = [], {}
        # What the runs are compared by, beyond the life of machine A.
        self.scratch = tempfile.mkdtemp(prefix="cachesvc-demo-")

    def run(self, place, name):
        say(f"  {name} …")
        logits = os.path.join(self.scratch, name + ".logits")
        reply = place.step.ask(cmd="run", tokens=self.tokens, lookup=name != "cold", logits=logits)
        self.replies[name] = reply | {"logits": logits}
        reused = reply["reused_tokens"]
        row = turns.row(
            engine="own", run=name, mode="socket", prompt_tokens=len(self.tokens),
            new_tokens=len(self.tokens) - reused, after_kill=name == "remote",
            **{k: reply[k] for k in ("tier", "reused_tokens", "ttft_ms", "fp16_bytes")},
            reason=reply["reason"] if name != "cold" and reused < len(self.tokens) - 1 else None)
        if name != "cold":
            row |= compared(place.step, self.replies[name], self.replies["cold"])
        self.rows.append(row)

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)


def all_runs(options, work, cluster):
    """Returns (rows, keys and bytes in the cluster)."""
    config = os.path.join(work, "remote.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"[remote]\nnodes = [{cluster.nodes()}]\n")
    first = Place(options, "socket", work, "machine-a", ("--config", config))
    second = Place(options, "socket", work, "machine-b", ("--config", config))
    runs = Runs(options, text_ids(options)[:options.tokens])
    try:
        if len(runs.tokens) < options.tokens:
            sys.exit(f"demo: {options.text} has {len(runs.tokens)} tokens, the prompt needs "
                     f"{options.tokens} (--tokens)")
        first.start()
        runs.run(first, "cold")
        wait_until(lambda: copied(options, first), "the copy to the cluster")
        used = cluster.used()
        say("  kill -9 of machine A; its directory is deleted; machine B starts on an empty one …")
        first.kill()
        shutil.rmtree(first.dir)
        second.start(first.namespace)
        runs.run(second, "remote")
        runs.run(second, "ram")
        second.step.close()
    finally:
        first.close()
        second.close()
        runs.close()
    return runs.rows, used


def print_table(rows):
    cold = rows[0]["ttft_ms"]
    table = [("run", "machine", "reused", "first token", "sooner", "same as cold")]
    for r in rows:
        same = "" if r["run"] == "cold" else "bit for bit" if r["logits_equal"] else \
            "the tokens" if r["tokens_equal"] else f"to token {r['first_difference']}"
        table.append((r["run"], "A" if r["run"] == "cold" else "B", f"{r['reused_tokens']:,}",
                      turns.milliseconds(r["ttft_ms"]),
                      "" if r["run"] == "cold" else turns.times(cold, r["ttft_ms"]), same))
    turns.print_columns(table, ("reused", "first token", "sooner"))


def run(options, work):
    """The table and what is to be said of it. Returns (rows, whether B gave A's answer)."""
    if not shutil.which(SERVER):
        sys.exit(f"demo: no {SERVER}: apt-get install redis-server")
    cluster = Cluster(os.path.join(work, "cluster"))
    try:
        rows, (keys, held) = all_runs(options, work, cluster)
    finally:
        cluster.close()
    cold, hit = rows[0], rows[1]
    print(f"{os.path.basename(options.model)}: a prompt of {options.tokens:,} tokens; machine A is "
          "gone, B was empty")
    print_table(rows)
    print(f"the cluster held {keys} keys in {held / 2**20:.1f} MiB of its memory")
    if options.model not in TINY:
        ratio = cold["ttft_ms"] / hit["ttft_ms"]
        print(f"REMOTE hit: first token {ratio:.0f}x sooner than cold; ≥ {MUST}x is "
              f"{'met' if ratio >= MUST else 'NOT met'}")
    good = all(r["tokens_equal"] and r["logits_equal"] and r["reused_tokens"] for r in rows[1:])
    print("machine B: " + ("the cold run's very tokens and logits, bit for bit" if good else
                           "FAILED: it missed, or gave something else than cold"))
    return rows, good
