#!/usr/bin/env python3
"""A hit of 100 MiB in RAM, over the socket, as numpy arrays: the entry of service_bench's
BM_FetchMapped, which is its yardstick and runs first.

usage: /usr/bin/python3 bench/python_hit.py [RUNS]    (needs numpy, and the daemon built: release)

Prints the median, the fastest and the slowest of RUNS fetches, and of as many that ask for the rows
as f16 (four times the bytes). Each fetch ends with a view of every run of rows in hand. The goal of
rows as stored: twice the yardstick and 200 us.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests")]

import numpy as np  # noqa: E402

from cachesvc import Cache, FetchOptions, Output, Side  # noqa: E402
from cachesvc.models import Dtype, Model, full  # noqa: E402
from daemon import started  # noqa: E402

TOKENS, LAYERS, HEADS, DIM = 3072, 32, 8, 128


class Random:
    """A RowSource of noise, the same for each layer."""

    def __init__(self):
        chance = np.random.default_rng(1)
        self.noise = chance.standard_normal((TOKENS, HEADS, DIM), np.float32).astype(np.float16)

    def rows(self, layer, part, side, first, end):
        return self.noise[first:end]

    def state(self, layer, part, position):
        return None


def arrays(hit):
    """Views of all rows, and their bytes."""
    views = [rows.values for layer in range(LAYERS) for side in (Side.K, Side.V)
             for rows in hit.pieces(layer, 0, side)]
    return views, sum(view.nbytes for view in views)


def measured(cache, model, prompt, output):
    """Milliseconds of one fetch, and the bytes of its rows."""
    begin = time.perf_counter()
    hit = cache.fetch_rows(model, prompt, options=FetchOptions(output), timeout=30)
    _, size = arrays(hit)
    spent = time.perf_counter() - begin
    if hit.tokens != TOKENS:
        sys.exit(f"a miss: {hit.why}")
    return 1000 * spent, size


def yardstick():
    """Microseconds of the C++ client's hit: the median of seven."""
    command = [str(ROOT / "build/release/bin/service_bench"), "--benchmark_format=json",
               "--benchmark_filter=^BM_FetchMapped/real_time$", "--benchmark_repetitions=7",
               "--benchmark_min_time=0.1"]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return next(one["real_time"] for one in json.loads(out.stdout)["benchmarks"]
                if one.get("aggregate_name") == "median")


def main():
    allowed = 2 * yardstick() + 200
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    model = Model("large", b"l" * 32, [[full(HEADS, DIM, dtype=Dtype.F16)]] * LAYERS)
    prompt = np.random.default_rng(1).integers(0, 50_000, TOKENS + 1)
    with started("1GiB", "1GiB", "tq4") as daemon:
        cache = Cache(daemon.socket, "bench", strict=True)
        cache.store_rows(model, prompt[:-1], Random(), timeout=60)
        for output in (Output.STORED, Output.F16):
            measured(cache, model, prompt, output)  # the first one opens the model
            times, sizes = zip(*(measured(cache, model, prompt, output) for _ in range(runs)))
            print(f"{output.name.lower():7} {sizes[0] / 2**20:6.1f} MiB: median "
                  f"{statistics.median(times):.2f} ms, {min(times):.2f} to {max(times):.2f}"
                  + (f" (goal {allowed / 1000:.2f})" if output is Output.STORED else ""))


main()
