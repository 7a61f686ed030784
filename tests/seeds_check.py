"""Checks tests/seeds.md: every test named there exists, and every line of the two lists is there.

Usage: seeds_check.py TESTS_DIRECTORY. Exits 1 and says what is wrong, one line each.
"""

import pathlib
import re
import sys

FEATURES, DEFECTS = 44, 61


def known_tests(folder):
    """All GoogleTest names (Suite.Name) and names of tests that CMake registers itself."""
    names = set()
    for source in folder.rglob("*.cc"):
        tests = re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", source.read_text(), re.M)
        names.update(f"{suite}.{name}" for suite, name in tests)
    for script in folder.glob("*.cmake"):
        names.update(re.findall(r"add_test\(NAME (\w+)", script.read_text()))
    return names


def problems(table, known):
    rows = re.findall(r"^\| ([FB])(\d+) \| (.*) \| (.*) \|$", table, re.M)
    found = [f"{kind}{number}" for kind, number, _, _ in rows]
    expected = [f"F{i + 1}" for i in range(FEATURES)] + [f"B{i + 1}" for i in range(DEFECTS)]
    if found != expected:
        missing = sorted(set(expected) - set(found))
        yield f"lines missing or out of order: {missing or found}"
    for kind, number, what, shown in rows:
        if not shown.strip() or "@" in shown:
            yield f"{kind}{number} ({what}): says nothing"
        for name in re.findall(r"`(\w+\.\w+|\w+_check)`", shown):
            path = name.endswith((".h", ".cc", ".py", ".md"))
            if not path and name not in known:
                yield f"{kind}{number} ({what}): no test is called {name}"


def main():
    folder = pathlib.Path(sys.argv[1])
    bad = list(problems((folder / "seeds.md").read_text(), known_tests(folder)))
    for line in bad:
        print(f"tests/seeds.md: {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
