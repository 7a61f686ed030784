"""Sizes of the service's classes: the methods and fields that a header of cachesvc/ declares.

Counted are a type's own functions, but no constructors, destructors and deleted or defaulted ones,
and its own variables, but no static ones; what nested types have is not its own. Of structs only
methods are counted: they are values, whose fields are what their users name. Who is over a limit
gives state to an owner of its own, with what changes it. A rule of tools/tidy.py.
"""
import re

MAX_METHODS, MAX_FIELDS = 28, 16
ALLOWED = {  # class: why it may be larger
    "CacheCore": "a method for each verb of a client, and no state of its own",
}


def close_of(text, at):
    """The place behind the brace or parenthesis that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "({") - (text[place] in ")}")
        if depth == 0:
            return place + 1
    return len(text)


def statements(body):
    """Declarations at the level of a type's body, with {} and () in place of what these hold."""
    at, text = 0, ""
    while at < len(body):
        char = body[at]
        if char in "({":
            at = close_of(body, at)
            text += "()" if char == "(" else "{}"
            goes_on = re.match(r"\s*[,;{]", body[at:])  # of a constructor's list, or a variable
            if char == "{" and "()" in text.partition("{")[0] and not goes_on:
                yield text
                text = ""
            continue
        if char == ";":
            yield text
            text = ""
        elif char == ":" and text.strip() in ("public", "protected", "private"):
            text = ""
        else:
            text += char
        at += 1


def counts(name, body):
    """Methods and fields of a type."""
    methods = fields = 0
    for text in statements(body):
        text, before = " ".join(text.split()), None
        while text != before:  # template arguments
            text, before = re.sub(r"<[^<>]*>", "", text), text
        text = re.sub(r"\b(alignas\(\)|template\b)", "", text).strip()
        if re.search(r"= (delete|default)$", text) or \
                re.match(rf"(explicit )?~?{name}\(\)|$", text) or \
                re.match(r"(virtual ~|using|friend|static_assert|enum|struct|class)\b", text):
            continue
        if re.search(r"operator|\w ?\(\)", re.split(r"=|\{", text)[0]):
            methods += 1
        elif not text.startswith("static"):
            fields += 1 + text.replace("{}", "").count(",")
    return methods, fields


def types(code):
    """(line, is it a class, name, body) of each type at the level of a namespace."""
    for found in re.finditer(r"^(class|struct) (\w+)[^;{()]*\{", code, re.M):
        end = close_of(code, found.end() - 1)
        line = code.count("\n", 0, found.start()) + 1
        yield line, found.group(1) == "class", found.group(2), code[found.end():end - 1]


def findings(code):
    """(path, line, what) of each type that is too large; `code`: path -> text as strip_code()'s."""
    for path, text in code.items():
        if not path.endswith(".h") or not path.startswith("cachesvc/"):
            continue
        for line, is_class, name, body in types(re.sub(r"^[ \t]*#.*", "", text, flags=re.M)):
            methods, fields = counts(name, body)
            if name in ALLOWED:
                continue
            if methods > MAX_METHODS:
                yield path, line, f"{name} has {methods} methods, at most {MAX_METHODS}"
            if is_class and fields > MAX_FIELDS:
                yield path, line, f"{name} has {fields} fields, at most {MAX_FIELDS}"
