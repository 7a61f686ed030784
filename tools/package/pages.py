#!/usr/bin/env python3
"""Man pages and completions for bash, made from the programs' own help.

usage: pages.py --out FOLDER --version VERSION PROGRAM:SECTION...
Writes FOLDER/NAME.SECTION.gz, cachesvc.toml.5.gz from what print-config prints, and
FOLDER/completions/NAME.
"""
import argparse
import gzip
import os
import re
import subprocess
import textwrap

OPTION = re.compile(r"^  (-\S+(?:,\s*-\S+)*)(.*)$")
COMMAND = re.compile(r"^  ([a-z][a-z-]*)(?:\s{2,}|$)")


def said(program, *arguments):
    """What it prints, of a user who has no settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run([program, *arguments], check=True, text=True, env=environment,
                          stdout=subprocess.PIPE).stdout


class Help:
    """The help of a program or a command: what it is, its sections as lists of (name, text)."""

    def __init__(self, program, *command):
        self.command = list(command)
        lines = said(program, *command, "--help").splitlines()
        self.about = lines[0]
        self.sections, self.rest = {}, []
        name = ""
        for line in lines[1:]:
            if line.startswith("Usage: "):
                self.usage = line[len("Usage: "):].replace(program, os.path.basename(program))
            elif re.match(r"^[A-Z][a-z]+:$", line):
                name = line[:-1]
                self.sections[name] = []
            elif line.startswith("  ") and name:
                self._item(name, line)
            elif line.strip():
                self.rest.append(line)

    def _item(self, section, line):
        items = self.sections[section]
        if line.startswith(" " * 8) and items:  # its text, on a line of its own
            items[-1] = (items[-1][0], (items[-1][1] + " " + line.strip()).strip())
            return
        parts = re.split(r"\s{2,}", line.strip(), maxsplit=1)
        items.append((parts[0], parts[1] if len(parts) > 1 else ""))

    def commands(self):
        return [name for name, _ in self.sections.get("Subcommands", [])]

    def options(self):
        """Option words: "--ram"."""
        words = []
        for name, _ in self.sections.get("Options", []):
            words += [word for word in re.split(r"[,\s]+", name) if word.startswith("-")]
        return words


def roff(text):
    """`text` as running text of a man page."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in ".'" else line for line in text.splitlines())


def items(section):
    return "".join(f".TP\n.B {roff(name)}\n{roff(text)}\n" for name, text in section)


def page(name, section, version, about, body):
    short = about.split(":", 1)[-1].strip()
    return (f'.TH {name.upper()} {section} "" "cachesvc {version}" "cachesvc"\n'
            f".SH NAME\n{roff(name)} \\- {roff(short)}\n" + body)


def program_page(program, section, version):
    name = os.path.basename(program)
    whole = Help(program)
    body = f".SH SYNOPSIS\n.B {roff(whole.usage)}\n"
    body += ".SH OPTIONS\n" + items(whole.sections.get("Options", []))
    body += ".SH COMMANDS\n" + items(whole.sections.get("Subcommands", []))
    for command in whole.commands():
        one = Help(program, command)
        body += f".SH {roff(command.upper())}\n{roff(one.about)}\n.PP\n.B {roff(one.usage)}\n"
        for title in ("Positionals", "Options"):
            listed = [item for item in one.sections.get(title, []) if "--help" not in item[0]]
            body += items(listed)
    codes = [line for line in whole.rest if line.startswith("exit codes")]
    rest = [line for line in whole.rest if line not in codes]
    for title, lines in (("NOTES", rest), ("EXIT STATUS", codes)):
        if lines:
            body += f".SH {title}\n" + roff("\n".join(lines)) + "\n"
    return page(name, section, version, whole.about, body)


def settings_page(program, version):
    body = (".SH DESCRIPTION\nSettings in TOML, each here with its help and its default. Tables "
            "[[namespace]] are described in OPERATING.md.\n.SH SETTINGS\n")
    table, text = "", ""
    for line in said(program, "print-config", "--config", "/dev/null").splitlines():
        if header := re.match(r"^\[([a-z_.]+)\]$", line):
            table, text = header[1], ""
        elif line.startswith("#"):
            text += line[1:]
        elif table and (setting := re.match(r"^(\w+) = ", line)):
            body += f".TP\n.B {roff(table + '.' + setting[1])}\n{roff(text.strip())}\n"
            text = ""
    return page("cachesvc.toml", 5, version, "settings of cachesvc", body)


def completion(program):
    name = os.path.basename(program)
    whole = Help(program)
    cases = "".join(
        f"    {command}) words=\"{' '.join(Help(program, command).options())}\" ;;\n"
        for command in whole.commands())
    return textwrap.dedent(f"""\
        # bash completion for {name}, made from its help (tools/package/pages.py)
        _{name}() {{
          local word="${{COMP_WORDS[COMP_CWORD]}}" words
          if [ "$COMP_CWORD" -eq 1 ]; then
            COMPREPLY=($(compgen -W "{' '.join(whole.commands() + whole.options())}" -- "$word"))
            return
          fi
          case "${{COMP_WORDS[1]}}" in
        @CASES@  *) words="" ;;
          esac
          case "$word" in
            -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
            *) COMPREPLY=($(compgen -f -- "$word")) ;;
          esac
        }}
        complete -F _{name} -o filenames {name}
        """).replace("@CASES@", cases + "  ")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = text.encode()
    with open(path, "wb") as file:
        file.write(gzip.compress(data, mtime=0) if path.endswith(".gz") else data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM:SECTION")
    asked = parser.parse_args()
    for given in asked.programs:
        program, section = given.rsplit(":", 1)
        name = os.path.basename(program)
        write(f"{asked.out}/{name}.{section}.gz", program_page(program, section, asked.version))
        write(f"{asked.out}/completions/{name}", completion(program))
        if name == "cachesvc":
            write(f"{asked.out}/cachesvc.toml.5.gz", settings_page(program, asked.version))


if __name__ == "__main__":
    main()
