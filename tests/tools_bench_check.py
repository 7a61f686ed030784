#!/usr/bin/env python3
"""Checks tools/bench and bench/instructions: every benchmark they name exists in its program.

usage: tools_bench_check.py PATH_TO_BENCH BIN_FOLDER   (exit 0: good; 1: not)
"""
import importlib.machinery
import importlib.util
import os
import sys


def load(path):
    """A script as a module; it has no .py ending. Leaves no compiled copy beside it."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("bench", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
    sys.modules["bench"] = module
    loader.exec_module(module)
    return module


def main():
    bench = load(sys.argv[1])
    programs = {r.program for r in bench.ROWS if r.program not in bench.SOURCES}
    if not programs:
        sys.exit("bench check: the table names no program")
    checked = 0
    for program in sorted(programs):
        rows = [r for r in bench.ROWS if r.program == program]
        path = os.path.join(sys.argv[2], program)
        if not os.path.exists(path):
            sys.exit(f"bench check: {path} is not built")
        try:
            checked += len(bench.check_names(path, rows))
        except bench.BenchError as error:
            sys.exit(f"bench check: {error}")
    root = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[1])))
    counted = load(os.path.join(root, "bench", "instructions")).names()
    gone = counted - bench.listed_names(os.path.join(sys.argv[2], "codec_bench"))
    if gone or not counted:
        sys.exit(f"bench check: bench/instructions names {sorted(gone) or 'nothing'}")
    print(f"bench check: ok, {checked} names in {len(programs)} programs")


if __name__ == "__main__":
    main()
