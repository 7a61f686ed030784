#!/usr/bin/env python3
"""Checks that every test which FORMAT.md names beside a promise exists.

usage: storage_promises_check.py FORMAT.md TESTS_FOLDER   (exit 0: good; 1: not)
"""
import pathlib
import re
import sys

from seeds_check import known_tests


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        promises = f.read().split("## Promises")[1].split("## Limits")[0]
    named = set(re.findall(r"`(\w+\.\w+)`", promises))
    gone = sorted(named - known_tests(pathlib.Path(sys.argv[2])))
    if len(named) < 15 or gone:
        sys.exit(f"promises check: {len(named)} tests named, missing: {', '.join(gone) or 'none'}")
    print(f"promises check: ok, {len(named)} tests")


if __name__ == "__main__":
    main()
