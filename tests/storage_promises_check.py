#!/usr/bin/env python3
"""Checks that every test which FORMAT.md names beside a promise exists.

usage: storage_promises_check.py FORMAT.md TESTS_FOLDER   (exit 0: good; 1: not)
"""
import glob
import os
import re
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        promises = f.read().split("## Promises")[1].split("## Limits")[0]
    named = set(re.findall(r"`(\w+\.\w+)`", promises))
    defined = set()
    for path in glob.glob(os.path.join(sys.argv[2], "*_test.cc")):
        with open(path, encoding="utf-8") as f:
            found = re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", f.read(), re.M)
            defined |= {".".join(name) for name in found}
    gone = sorted(named - defined)
    if len(named) < 15 or gone:
        sys.exit(f"promises check: {len(named)} tests named, missing: {', '.join(gone) or 'none'}")
    print(f"promises check: ok, {len(named)} tests")


if __name__ == "__main__":
    main()
