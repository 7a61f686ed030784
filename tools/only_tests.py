"""Names that only tests use: functions and types that a room's header shows and no program needs.

Found by their words, not by a compiler: a name counts as used when it stands anywhere outside
tests/, comments and literals, but in its declaration, its definition or, for a type, its own body;
a member function where it is called, whatever variables have its name. So members of one name hide
each other, as do other names; whatever is reported is used by tests alone, or by nobody. A
rule of tools/tidy.py.
"""
import collections
import os
import re

ALLOWED = {  # name: why it may be there for tests alone
    "check_invariants": "after each step of property and stepped tests",
    "passes": "how often a batch reads shared codes: no answer of it shows that",
    "body_capacity": "memory that a peer's frame may take: no answer shows it",
    "waiting_bytes": "memory that waits for the next reply: no answer shows it",
    "mapped_bytes": "address space of a slab store's regions: the system counts other memory too",
    "trimmed": "a client's own verb on what it fetched",
    "lookup_all": "a client's own verb, as in Python",
    "append_rows": "of networks whose K and V are one storage: tests/tiny has those",
    "row": "how those networks read such rows",
}
PROTOCOL = {  # names that the language or the standard library calls
    "iterator_category", "value_type", "difference_type", "pointer", "reference", "allocate",
    "deallocate", "await_ready", "await_suspend", "await_resume", "promise_type",
}
Name = collections.namedtuple("Name", "line text kind begin end")  # begin, end: of a type's body


def scope_of(head):
    """The kind of scope that opens after `head`: what stands in it is shown, or hidden."""
    head = re.sub(r"template\s*<.*>(?=\s*(struct|class)\b)", "", head, flags=re.S)
    if re.search(r"\b(namespace|struct|union)\b", head) and ")" not in head:
        return "shown"
    return "hidden"  # a class until its `public:`, a body, an initialiser


def name_of(head):
    """(name, "function" or "type") that the statement declares, or nothing."""
    head = re.sub(r"template\s*<[^;{]*?>\s*(?=[\w\[])", "", head.strip(), flags=re.S)
    found = re.match(r"(?:class|struct|union|enum(?: class)?)\s+(?:\[\[\w+\]\]\s*)?(\w+)", head)
    if found or (found := re.match(r"using\s+(\w+)\s*=", head)):
        return found.group(1), "type"
    if re.search(r"^(friend|using|namespace|extern)\b|\b(override|operator)\b", head):
        return None
    found = re.search(r"(~?\w+)\s*\(", head)
    before = head[:found.start()].strip() if found else ""
    if not before or "=" in before or before in ("explicit", "constexpr", "inline"):
        return None  # a constructor, a value
    if found.group(1).startswith("~"):
        return None
    return found.group(1), "function"


def declared(code):
    """All Names that a header shows: of namespaces, of structs, public ones of classes."""
    code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), code,
                  flags=re.M)
    scopes, opened, names, start = [], [], [], 0
    for found in re.finditer(r"[;{}]|\b(public|private|protected)\s*:", code):
        head, at = code[start:found.start()], found.start()
        shown = all(scope == "shown" for scope in scopes)
        start = found.end()
        if found.group(1):
            if scopes:
                scopes[-1] = "shown" if found.group(1) == "public" else "hidden"
            continue
        named = name_of(head) if shown and found.group(0) != "}" else None
        if named and named[1] == "function" and any(of is not None for of in opened):
            named = (named[0], "member")
        if found.group(0) == "{":
            scopes.append(scope_of(head))
            opened.append(len(names) if named and named[1] == "type" else None)
        elif found.group(0) == "}" and scopes:
            scopes.pop()
            of = opened.pop()
            if of is not None:
                names[of] = names[of]._replace(end=at)
        if named:
            line = code.count("\n", 0, at - len(head.lstrip())) + 1
            names.append(Name(line, *named, at, at))
    return names


NO_TYPES = {"return", "co_return", "co_await", "co_yield", "else", "throw", "case", "not", "and"}


def member_uses(code, names):
    """How often each of these is called, or taken as `&Class::name`; behind a type it is declared
    or defined."""
    uses = collections.Counter(re.findall(r"&\w[\w:]*::(\w+)\b(?!\s*\()", code))
    for found in re.finditer(r"\b(\w+)(?:<[^<>()]*>)?\(", code):
        if found.group(1) not in names:
            continue
        before = code[max(0, found.start() - 200):found.start()]
        before = re.sub(r"(\w+(<[^<>]*>)?::)+$", "", before)
        behind = re.search(r"(\w+|\w>|>>)[&*]*\s+[&*]*$", before)
        if not behind or behind.group(1) in NO_TYPES:
            uses[found.group(1)] += 1
    return uses


def definitions(code):
    """Words before the first `(` of a line that begins in column 0: never a call."""
    return re.findall(r"^\w[^\n=;(]*?(\w+)\(", code, re.M)


def findings(files):
    """(path, line, what) for each name; `files`: path -> its code without comments and literals."""
    rooms = {p: code for p, code in files.items() if not p.startswith("tests" + os.sep)}
    shown = {p: declared(code) for p, code in rooms.items()
             if p.endswith(".h") and not p.startswith("bench" + os.sep)}
    words, defined = {}, collections.Counter()
    for path, code in rooms.items():
        words[path] = collections.Counter(re.findall(r"\w+", code))
        defined.update(definitions(code))
    everywhere = sum(words.values(), collections.Counter())
    members = {n.text for names in shown.values() for n in names if n.kind == "member"}
    of_members = sum((member_uses(code, members) for code in rooms.values()), collections.Counter())
    in_class = collections.Counter(n.text for path, names in shown.items() for n in names
                                   if n.text not in set(definitions(rooms[path])))
    for path, names in sorted(shown.items()):
        for name in names:
            if name.text in ALLOWED or name.text in PROTOCOL:
                continue
            if name.kind == "member":
                uses = of_members[name.text]
            elif name.kind == "function":
                uses = everywhere[name.text] - defined[name.text] - in_class[name.text]
            else:
                own = rooms[path][:name.begin] + rooms[path][name.end:]
                source = rooms.get(path[:-2] + ".cc", "")
                uses = everywhere[name.text] - words[path][name.text]
                uses += len(re.findall(rf"\b{name.text}\b", own)) - 1
                uses -= len(re.findall(rf"^[^\s].*?\b{name.text}::", source, re.M))
            if uses <= 0:
                yield path, name.line, f"{name.text}: tests use it, or nobody"
