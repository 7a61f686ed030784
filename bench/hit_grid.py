#!/usr/bin/env python3
"""bench/hit_bench as a table and a picture: what m new tokens after n stored ones cost.

usage: hit_grid.py [--bin build/release/bin/hit_bench | --json FILE] [--threads 2]
                   [--stored N,…] [--new M,…] [--svg FILE]

Runs the grid (KV_SMOLLM2_GGUF) or reads what `hit_bench --benchmark_format=json` printed. A cell
of the Markdown table is the best time in ms, and how many times the work of these m tokens at the
speed of a long prefill the time beyond 3 ms (6 of one thread) is (the goal is 1.15): both of the
same run. The picture has a line for each n, against the yardstick of n = 0.
"""
import argparse
import html
import json
import math
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOAL = 1.15
COLOURS = ("#1f9d66", "#3b7dd8", "#8250df", "#c9741a", "#cf222e")  # by n, ascending
STYLE = ("text{fill:#24292f}.back{fill:#fff}.quiet{fill:#57606a}.rule{stroke:#d0d7de}"
         "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}"
         ".quiet{fill:#9da7b3}.rule{stroke:#30363d}}")
WIDE, HIGH, LEFT, TOP, BOTTOM = 720, 400, 60, 60, 40


def measured(options):
    if options.json:
        with open(options.json, encoding="utf-8") as file:
            return json.load(file)
    threads = f"threads:{options.threads}"
    stored, new = ("(" + "|".join(some.split(",")) + ")" for some in (options.stored, options.new))
    command = [options.bin, "--benchmark_format=json",
               f"--benchmark_filter={threads}/n:{stored}/m:{new}/|^(BM_Plain|BM_Long).*/{threads}"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"hit_grid: {options.bin} failed (exit {ran.returncode})")
    return json.loads(ran.stdout)


def cells_of(report, threads):
    """{(n, m): {best_ms, work_ms, over}}"""
    cells = {}
    for each in report["benchmarks"]:
        name = each["name"].split("/")
        if name[0] != "BM_Hit":
            continue
        fields = dict(part.split(":") for part in name[1:] if ":" in part)
        if int(fields["threads"]) == threads:
            cells[int(fields["n"]), int(fields["m"])] = each
    if not cells:
        sys.exit("hit_grid: no times of BM_Hit; is KV_SMOLLM2_GGUF set?")
    return cells


def print_table(cells):
    stored = sorted({n for n, _ in cells})
    print("| new tokens | " + " | ".join(f"after {n:,}" for n in stored) + " |")
    print("|---|" + "---|" * len(stored))
    for m in sorted({m for _, m in cells}):
        line = (f"{cells[n, m]['best_ms']:.1f} ms, {cells[n, m]['over']:.2f}x" for n in stored)
        print(f"| {m:,} | " + " | ".join(line) + " |")
    over = [key for key, cell in cells.items() if cell["over"] > GOAL]
    worst = max(cells, key=lambda key: cells[key]["over"])
    print(f"\n{len(cells) - len(over)} of {len(cells)} within {GOAL}x; the worst is "
          f"{cells[worst]['over']:.2f}x at n = {worst[0]:,}, m = {worst[1]}")


def picture(cells, threads):
    stored, new = sorted({n for n, _ in cells}), sorted({m for _, m in cells})
    low, high = 1, max(cell["best_ms"] for cell in cells.values())

    def x(m):
        return LEFT + math.log(m / new[0]) / math.log(new[-1] / new[0]) * (WIDE - LEFT - 110)

    def y(ms):
        return HIGH - BOTTOM - math.log(max(ms, low) / low) / math.log(high / low) * (
            HIGH - BOTTOM - TOP)

    def line(points, colour, dashes=""):
        path = " ".join(f"{x(m):.1f},{y(ms):.1f}" for m, ms in points)
        return (f'<polyline fill="none" stroke="{colour}" stroke-width="1.6"{dashes} '
                f'points="{path}"/>')

    title = f"A hit: m new tokens after n stored ones, SmolLM2-135M, {threads} threads"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" '
             f'viewBox="0 0 {WIDE} {HIGH}" font-family="sans-serif" font-size="12">',
             f"<style>{STYLE}</style>",
             f'<rect class="back" width="{WIDE}" height="{HIGH}"/>',
             f'<text x="12" y="22" font-size="14" font-weight="bold">{html.escape(title)}</text>',
             '<text class="quiet" x="12" y="40">ms by new tokens; dashed: as many tokens of a long '
             'prefill, n = 0</text>']
    for ms in (1, 3, 10, 30, 100, 300, 1000, 3000):
        if low <= ms <= high:
            parts += [f'<path class="rule" d="M{LEFT} {y(ms):.1f}H{WIDE - 110}"/>',
                      f'<text class="quiet" x="{LEFT - 6}" y="{y(ms) + 4:.1f}" '
                      f'text-anchor="end">{ms:,}</text>']
    for m in (1, 4, 16, 64, 256, 1024):
        if m in new:
            parts.append(f'<text class="quiet" x="{x(m):.1f}" y="{HIGH - BOTTOM + 18}" '
                         f'text-anchor="middle">{m:,}</text>')
    yardstick = [(m, cells[stored[0], m]["work_ms"]) for m in new]
    parts.append(line(yardstick, "#8b949e", ' stroke-dasharray="5 4"'))
    for n, colour in zip(stored, COLOURS):
        points = [(m, cells[n, m]["best_ms"]) for m in new]
        parts.append(line(points, colour))
    for place, (n, colour) in enumerate(zip(reversed(stored), reversed(COLOURS[:len(stored)]))):
        parts.append(f'<text x="{WIDE - 100}" y="{TOP + 16 * place}" style="fill:{colour}">'
                     f'n = {n:,}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin", "hit_bench"))
    parser.add_argument("--json", help="a report of hit_bench instead of a run")
    parser.add_argument("--threads", type=int, default=2, choices=(1, 2))
    parser.add_argument("--stored", metavar="N,…", default="[0-9]+", help="only these n")
    parser.add_argument("--new", metavar="M,…", default="[0-9]+", help="only these m")
    parser.add_argument("--svg", metavar="FILE", help="write the picture there")
    options = parser.parse_args()
    report = measured(options)
    cells = cells_of(report, options.threads)
    print_table(cells)
    for each in report["benchmarks"]:
        if each["name"].startswith(("BM_LongPrefill", "BM_PlainProducts")):
            rates = {key: value for key, value in each.items() if "GFLOP" in key}
            print(f"{each['name']}: " + ", ".join(f"{v:.0f} {k}" for k, v in rates.items()))
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(picture(cells, options.threads))


if __name__ == "__main__":
    main()
