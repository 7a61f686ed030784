#!/usr/bin/env python3
"""The checker: rules of the house that a compiler doesn't know, as a test.

usage: tidy.py [ROOT]   prints a line per finding, "FILE:LINE: RULE: what"; exit 1 if there are any.

Rules: the floors of README "How it is built" (which room may include which) and those inside
cachesvc/, third-party headers only in the rooms that own them, line, function and file lengths, an
opening comment (of a Python file a docstring), #pragma once, every source in a CMake list, every
test registered, no two types of one name (to the linker they are one), no name that only tests use
(only_tests.py), no large class in cachesvc/ (class_sizes.py), co_await (g++ 12 destroys a lambda's
or a braced temporary's copy twice), no leftover markers, no paths of one machine, no util/ or
common/.
"""
import os
import re
import sys

import class_sizes
import only_tests

ROOMS = {  # room: rooms that it may include besides itself
    "memory": set(),
    "proto": {"memory"},
    "codec": {"proto"},
    "index": {"proto"},
    "storage": {"proto"},
    "engine": {"proto", "codec"},
    "cachesvc": {"memory", "proto", "codec", "index", "storage"},
    "tools": {"proto", "codec", "index", "storage", "engine", "cachesvc"},
    "bench": {"memory", "proto", "codec", "index", "storage", "engine", "cachesvc", "tests"},
    "tests": {"memory", "proto", "codec", "index", "storage", "engine", "cachesvc", "tools"},
}
# Floors inside cachesvc/, lowest first. A floor: owners, divided by commas. An owner: its files'
# stems, which may include each other, or a folder. A file includes its own owner and lower floors.
FLOORS = """
    loop/, ram_object, ram_pool, cache_event cache_options namespace_options
    remote/
    shares
    histogram
    measures
    counters, call, namespaces, metrics, fair_tasks, room_request, write_budget, object_buffer
    row_source
    needs
    reply_object
    env, encode encode_input encode_plane
    departures
    request_ring
    leaving, coded_model part_groups, fit_watch
    record attached realm_state
    entry_record, expiries, ages, disk_lists
    realms, orphans, tiers, paths
    plan
    index_bytes, object_index object_index_relink
    ends, orphan_match, misses
    ends_search
    model_state, pins, found
    records, erase_targets
    hang_watch, lost_names
    ssd_lane, to_loop remote_names
    remote_writes
    recency
    ram_checks
    syncer, models, read_job, write_pace
    spill_batch, spill_retries, open_plan, model_records, remote_profiles
    spill_writer
    spiller
    transit
    ram_room ram_room_index
    promoter
    warm_start, compactor
    placer, scrubber
    reconciler
    calls
    levels
    eraser, holds, reservations
    remote_reads
    put_names, row_copies, coverage, running_fetch
    hit_reads, made_replies, fetch_notes, open_questions
    puts, publications
    commits, fetches fetch_lookups fetch_reply, demotes, sweeps, expirer, opens
    client_memory, drain, stats, why
    owners
    cache_core
    tiered_cache, daemon/
"""
UNWALLED = ()
THIRD_PARTY = {  # header prefix: files or rooms that may include it
    "zstd": ("codec/lossless.cc",),
    "sqlite3.h": ("storage/catalog", "tests/storage", "tests/support/storage", "bench/storage"),
    "boost/asio": ("cachesvc/", "tests/cachesvc", "tests/support/cachesvc", "bench/cachesvc"),
    "boost/beast": ("cachesvc/daemon/http_parser.cc",),
    "boost/crc": ("proto/checksum.cc",),
    "xxhash.h": ("proto/checksum.cc", "bench/"),
    "openssl": ("proto/checksum.cc", "storage/seal_key.cc", "tests/storage_sealed_file"),
    "spdlog": ("cachesvc/", "tools/", "tests/cachesvc"),
    "cblas": ("bench/hit_bench",),
    "pcre2": ("engine/tokenizer",),
    "toml++": ("cachesvc/daemon/config",),
    "CLI/": ("cachesvc/", "tools/"),
    "nlohmann": ("tools/", "tests/", "engine/attention_kinds", "bench/trace"),
}
MAX_COLUMNS, MAX_FILE_LINES, MAX_FUNCTION_LINES = 100, 600, 70
MAX_SERVICE_FILE_LINES = 400  # cachesvc/, python/
SKIPPED = ("__pycache__", "golden", "corpus", "build", ".mypy_cache")
SOURCE = (".h", ".cc")
SCRIPT = (".py", ".sh")
MARKERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
MACHINE = re.compile(r"(?<![\w.])/(work|home|root)/\w")


def source_files(root):
    """Paths relative to root, of the rooms' files only."""
    for room in sorted(os.listdir(root)):
        if room.startswith(".") or room == "build" or not os.path.isdir(os.path.join(root, room)):
            continue
        for folder, dirs, names in os.walk(os.path.join(root, room)):
            dirs[:] = sorted(d for d in dirs if d not in SKIPPED and not d.endswith(".egg-info"))
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), root)


def strip_code(text):
    """The text with comments and literals blanked, line structure kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(pattern, blank, text, flags=re.S)


def check_includes(path, text):
    room = path.split(os.sep)[0]
    for number, line in enumerate(text.splitlines(), 1):
        quoted = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        angled = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if quoted:
            target = quoted.group(1).split("/")[0]
            if "/" not in quoted.group(1):
                yield number, "include", f'"{quoted.group(1)}" is not root-relative'
            elif target in ROOMS and target != room and target not in ROOMS.get(room, set()):
                yield number, "floors", f"{room} may not include {target}"
        name = (quoted or angled).group(1) if quoted or angled else ""
        for prefix, owners in THIRD_PARTY.items():
            if name.startswith(prefix) and not path.startswith(owners):
                yield number, "third-party", f"<{name}> belongs to {', '.join(owners)}"


def floors():
    """Stem or folder -> (floor, owner): the table as it is asked for."""
    places = {}
    for floor, line in enumerate(FLOORS.strip().splitlines()):
        for owner in line.split(","):
            for stem in owner.split():
                places[stem] = (floor, owner)
    return places


def floor_of(path, places):
    """A file of cachesvc/ by its folder or its stem; None: on no floor."""
    parts = path.split("/")
    return places.get(parts[1] + "/") or places.get(os.path.splitext(parts[-1])[0])


def check_floors(path, text, places):
    if not path.startswith("cachesvc/") or path.startswith(UNWALLED):
        return
    own = floor_of(path, places)
    if own is None:
        yield 1, "floors", "on no floor of cachesvc/: give it one in tools/tidy.py"
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s+"(cachesvc/[^"]+)"', line)
        other = floor_of(found.group(1), places) if found else own
        if other is not None and other != own and other[0] >= own[0]:
            yield number, "floors", f"{own[1].strip()} may not include {other[1].strip()}"


def check_functions(code):
    """Bodies that open at column 0 or one namespace level: from the line with '{' to its '}'."""
    lines = code.splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"^\S.*\)\s*(const)?\s*(override)?\s*\{$", line):
            start = number
        elif start is None and re.match(r"^ {4}\S.*\)\s*(const)?\s*\{$", line) and number > 1 \
                and "](" not in line \
                and not line.lstrip().startswith(("if", "for", "while", "switch", "}")):
            start = number
        elif start is not None and re.match(r"^\}", line):
            if number - start > MAX_FUNCTION_LINES:
                yield start, "function", f"{number - start} lines, at most {MAX_FUNCTION_LINES}"
            start = None
        elif start is not None and not line.startswith((" ", "#")) and line.strip():
            start = None


def check_co_await(code):
    for match in re.finditer(r"\bco_await\b", code):
        i, depth, bad = match.end(), 0, None
        while i < len(code) and bad is None:
            c = code[i]
            depth += (c == "(") - (c == ")")
            if depth < 0 or (c == ";" and depth == 0):
                break
            if c == "{":
                bad = "a braced temporary"
            elif c == "[" and depth > 0 and re.search(r"[(,=\s]$", code[:i]):
                bad = "a lambda"
            i += 1
        if bad:
            yield code.count("\n", 0, match.start()) + 1, "co_await", f"{bad} in the expression"


def check_text(path, text):
    lines = text.splitlines()
    service = path.startswith("cachesvc/") and not path.startswith(UNWALLED)
    small = (service and path.endswith(SOURCE)) or path.startswith("python/")
    most = MAX_SERVICE_FILE_LINES if small else MAX_FILE_LINES
    if len(lines) > most:
        yield 1, "file", f"{len(lines)} lines, at most {most}"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS and not path.endswith(".md") and "http" not in line:
            yield number, "columns", f"{len(line)}, at most {MAX_COLUMNS}"
        if MARKERS.search(line) and not path.endswith("tidy.py"):
            yield number, "marker", "a leftover marker: finish it or file an issue"
        if MACHINE.search(line) and not path.endswith("tidy.py"):
            yield number, "machine", "a path of one machine"


def check_source(path, text, places):
    if not text.startswith("//"):
        yield 1, "opening", "no opening comment"
    if path.endswith(".h") and "#pragma once" not in text:
        yield 1, "pragma", "no #pragma once"
    yield from check_includes(path, text)
    yield from check_floors(path, text, places)
    code = strip_code(text)
    yield from check_functions(code)
    yield from check_co_await(code)


def check_types(code):
    """Types that headers of one namespace declare at its level: of each name only one."""
    seen = {}
    for path, text in code.items():
        if not path.endswith(".h") or path.startswith(("tests", "bench")):
            continue
        space = ""
        for number, line in enumerate(text.splitlines(), 1):
            if opened := re.match(r"namespace ([\w:]+) \{", line):
                space = opened.group(1)
            made = re.match(r"(?:struct|class|enum class) (\w+)[^;]*$", line)
            if not made:
                continue
            first = seen.setdefault((space, made.group(1)), path)
            if first != path:
                yield path, number, "type", f"{space}::{made.group(1)} is declared in {first} too"


def check_lists(root, files):
    """Every .cc in its room's CMake list, every test registered."""
    lists = ""
    for path in files:
        if path.endswith(("CMakeLists.txt", ".cmake")):
            with open(os.path.join(root, path), encoding="utf-8") as f:
                lists += f.read()
    for path in files:
        name = os.path.basename(path)
        if not path.endswith(".cc"):
            continue
        stem = name[:-3]
        if not re.search(rf"(?<![\w]){re.escape(stem)}(\.cc)?(?![\w])", lists):
            yield path, 1, "unlisted", "in no CMakeLists.txt or .cmake file: it is never built"


def findings(root):
    files, places, code = list(source_files(root)), floors(), {}
    for path in files:
        if set(path.split(os.sep)[:-1]) & {"util", "common"}:
            yield path, 1, "folder", "no util/ or common/: name the room after what it does"
        script = path.endswith(SCRIPT) or path.split(os.sep)[0] == "tools"
        if not (path.endswith(SOURCE) or script or path.endswith((".md", ".cmake", ".txt"))):
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8") as f:
                text = f.read()
        except UnicodeDecodeError:
            yield path, 1, "encoding", "not UTF-8"
            continue
        for number, rule, what in check_text(path, text):
            yield path, number, rule, what
        if path.endswith(".py") and not re.match(r'(#!.*\n)?"""', text):
            yield path, 1, "opening", "no docstring that says what it is"
        if path.endswith(SOURCE):
            code[path] = strip_code(text)
            for number, rule, what in check_source(path, text, places):
                yield path, number, rule, what
    for path, number, what in only_tests.findings(code):
        yield path, number, "only-tests", what
    for path, number, what in class_sizes.findings(code):
        yield path, number, "class", what
    yield from check_types(code)
    yield from check_lists(root, files)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(
        os.path.abspath(__file__)))
    count = 0
    for path, number, rule, what in findings(root):
        print(f"{path}:{number}: {rule}: {what}")
        count += 1
    print(f"tidy: {count} findings" if count else "tidy: ok")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
