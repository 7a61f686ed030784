#!/usr/bin/env python3
"""The settings that OPERATING.md lists are the program's, with their defaults; what print-config
prints is TOML to another parser too, and check-config takes it.

usage: cachesvc_settings_check.py PROGRAM OPERATING.md
"""
import os
import re
import subprocess
import sys
import tempfile
import tomllib

ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("CACHESVC_", "XDG_"))}


def flat(table, prefix=""):
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def defaults(printed):
    """Default by name, from the comments above the settings."""
    out, table, comment = {}, "", ""
    for line in printed.splitlines():
        if line.startswith("#"):
            comment += line[1:]
        elif line.startswith("["):
            table = line.strip("[]") + "."
        elif " = " in line:
            out[table + line.split(" = ")[0]] = re.search(r"Default: (.*)\.$", comment)[1]
        if not line.startswith("#"):
            comment = ""
    return out


def main():
    program, document = sys.argv[1:]
    printed = subprocess.run([program, "print-config"], env=ENVIRONMENT, check=True,
                             capture_output=True, text=True).stdout
    program_has = defaults(printed)
    assert list(flat(tomllib.loads(printed))) == list(program_has), "names are not tables and keys"
    with open(document, encoding="utf-8") as file:
        table = file.read().split("\n## Settings\n")[1]
    rows = re.findall(r"^\| `([a-z_.]+)` \| ([^|]*) \| [^|]+ \|$", table, flags=re.M)
    listed = {name: default.replace("`", "") for name, default in rows}
    for name in sorted(program_has.keys() | listed.keys()):
        assert program_has.get(name) == listed.get(name), (
            f"{name}: the program's default is {program_has.get(name)}, "
            f"{os.path.basename(document)} says {listed.get(name)}")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(printed)
        file.flush()
        subprocess.run([program, "check-config", file.name], env=ENVIRONMENT, check=True)
    print(f"{len(listed)} settings")


if __name__ == "__main__":
    main()
