"""Checks tests/seeds.md: every line of the two lists is there and names a test that exists, or says
"not here: " or "no test: " and why; "later" is for adapters and HTTP only.

Each rule is checked itself first, with a line that breaks it.

Usage: seeds_check.py TESTS_DIRECTORY. Exits 1 and says what is wrong, one line each.
"""

import pathlib
import re
import sys

FEATURES, DEFECTS = 44, 61
KNOWN = {"Some.Test"}
BROKEN = {  # what a line of the table says -> what must be said of it
    "": "says nothing",
    "it is so": "says nothing",
    "shown in `proto/plane.h`": "says nothing",
    "not here: ": "says nothing",
    "`Some.Other`": "no test is called Some.Other",
    "`some_check`": "no test is called some_check",
    "later": "says later",
    "`Some.Test`; single ones: later": "says later",
}
SOUND = ["`Some.Test`", "not here: why", "no test: see `a.h`", "`Some.Test`; over HTTP: later"]


def known_tests(folder):
    """All GoogleTest names (Suite.Name) and names of tests that CMake registers itself."""
    names = set()
    for source in folder.rglob("*.cc"):
        tests = re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", source.read_text(), re.M)
        names.update(f"{suite}.{name}" for suite, name in tests)
    for script in folder.glob("*.cmake"):
        names.update(re.findall(r"add_test\(NAME (\w+)", script.read_text()))
    return names


def of_line(shown, known):
    """What is wrong with one line's last column."""
    names = re.findall(r"`(\w+\.\w+|\w+_check)`", shown)
    names = [n for n in names if not n.endswith((".h", ".cc", ".py", ".md"))]
    later = re.search(r"\blater\b", shown)
    if later and not re.search(r"HTTP|adapter", shown):
        yield "says later, neither of adapters nor of HTTP"
    if not names and not later and not re.match(r"(not here|no test): \w", shown):
        yield "says nothing that is checked"
    for name in names:
        if name not in known:
            yield f"no test is called {name}"


def problems(table, known):
    rows = re.findall(r"^\| ([FB])(\d+) \| (.*) \| (.*) \|$", table, re.M)
    found = [f"{kind}{number}" for kind, number, _, _ in rows]
    expected = [f"F{i + 1}" for i in range(FEATURES)] + [f"B{i + 1}" for i in range(DEFECTS)]
    if found != expected:
        missing = sorted(set(expected) - set(found))
        yield f"lines missing or out of order: {missing or found}"
    for kind, number, what, shown in rows:
        for problem in of_line(shown, known):
            yield f"{kind}{number} ({what}): {problem}"


def own_problems():
    for shown, expected in BROKEN.items():
        if expected not in " ".join(of_line(shown, KNOWN)):
            yield f"the checker lets pass: {shown!r}"
    for shown in SOUND:
        if list(of_line(shown, KNOWN)):
            yield f"the checker refuses: {shown!r}"


def main():
    folder = pathlib.Path(sys.argv[1])
    bad = list(own_problems())
    bad += list(problems((folder / "seeds.md").read_text(), known_tests(folder)))
    for line in bad:
        print(f"tests/seeds.md: {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
