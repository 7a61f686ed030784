#!/usr/bin/env python3
"""The checker's own test: each rule broken once in a small tree must be reported, by file and rule.

usage: tools_tidy_check.py PATH_OF_tidy.py
"""
import os
import subprocess
import sys
import tempfile

GOOD_HEADER = "// A value.\n#pragma once\n"
GOOD_SOURCE = "// A value's code.\n#include \"proto/a.h\"\n"
VALUE = GOOD_HEADER + """class Value {
 public:
  explicit Value(int x);
  int one() const { return own(); }%s

 private:
  int own() const;
};
inline int two(const Value& v) {
  return 2 * v.one();
}
"""
CLEAN = {
    "proto/CMakeLists.txt": "kv_library(kv_proto SOURCES a.cc)\n",
    "proto/a.h": GOOD_HEADER,
    "proto/a.cc": GOOD_SOURCE,
    "proto/value.h": VALUE % "",
    "tools/CMakeLists.txt": "kv_program(main SOURCES main.cc)\n",
    "tools/main.cc": "// Prints two.\nint main() {\n  return two(Value(1));\n}\n",
    "cachesvc/core/records.h": GOOD_HEADER + '#include "cachesvc/core/object_index.h"\n'
    '#include "cachesvc/loop/timer.h"\n#include "cachesvc/core/records.h"\n',
    "cachesvc/core/ends.h": GOOD_HEADER + '#include "cachesvc/core/object_index.h"\n',
    "cachesvc/daemon/server.h": GOOD_HEADER + '#include "cachesvc/core/cache_core.h"\n'
    '#include "cachesvc/daemon/log.h"\n',
    "python/cachesvc/a.py": '"""A value."""\nx = 1\n',
    "python/build/a.py": "a built copy\n",
    "tests/proto.cmake": "kv_test(proto_a_test LABELS proto DEPS kv_proto)\n",
    "tests/proto_a_test.cc": "// Tests a.\n#include \"proto/a.h\"\nint x = forgotten(1);\n",
}
SIZED = GOOD_HEADER + """class Sized final : public Value {
 public:
  explicit Sized(int x) : Value(x), f0_(x), f1_{x} {}
  Sized(const Sized&) = delete;
  struct Nested {
    int own() const;
  };
  std::function<void(int)> call_ = [](int x) { two(x); };
%s%s};
"""
LONG_FUNCTION = "int f() {\n" + "  g();\n" * 71 + "}\n"
METHODS = ["  void m%d(int x = {}) const { one(); }\n", "  template <typename T>\n  T m%d() = 0;\n"]
FIELDS = ["  int f%d_{0};\n", "  std::map<int, std::pair<int, int>> f%d_ = two(1);\n"]


def sized(methods, fields):
    """A class of so many methods and fields, as its words may be."""
    return SIZED % ("".join(METHODS[i % 2] % i for i in range(methods)),
                    "".join(FIELDS[i % 2] % i for i in range(fields - 1)))


PLANTED = [  # (rule that must speak, file, its content)
    ("floors", "proto/a.cc", GOOD_SOURCE + '#include "codec/codec.h"\n'),
    ("floors", "codec/a.h", GOOD_HEADER + '#include "index/prefix_tree.h"\n'),
    ("floors", "storage/a.h", GOOD_HEADER + '#include "codec/codec.h"\n'),
    ("floors", "engine/a.h", GOOD_HEADER + '#include "cachesvc/core/cache_core.h"\n'),
    ("floors", "cachesvc/a.h", GOOD_HEADER + '#include "engine/model.h"\n'),
    ("floors", "cachesvc/core/records.h", GOOD_HEADER + '#include "cachesvc/core/spiller.h"\n'),
    ("floors", "cachesvc/core/fetches.cc", GOOD_SOURCE + '#include "cachesvc/core/commits.h"\n'),
    ("floors", "cachesvc/loop/timer.h", GOOD_HEADER + '#include "cachesvc/ram_pool.h"\n'),
    ("floors", "cachesvc/core/cache_core.h", GOOD_HEADER + '#include "cachesvc/daemon/log.h"\n'),
    ("floors", "cachesvc/core/nowhere.h", GOOD_HEADER),
    ("include", "proto/a.cc", GOOD_SOURCE + '#include "a.h"\n'),
    ("third-party", "codec/a.h", GOOD_HEADER + "#include <zstd.h>\n"),
    ("third-party", "storage/a.h", GOOD_HEADER + "#include <sqlite3.h>\n"),
    ("third-party", "tools/a.h", GOOD_HEADER + "#include <boost/asio.hpp>\n"),
    ("third-party", "storage/a.h", GOOD_HEADER + "#include <spdlog/spdlog.h>\n"),
    ("third-party", "codec/a.h", GOOD_HEADER + "#include <cblas.h>\n"),
    ("third-party", "engine/model.h", GOOD_HEADER + "#include <pcre2.h>\n"),
    ("columns", "proto/a.h", GOOD_HEADER + "// " + "x" * 98 + "\n"),
    ("file", "proto/a.h", GOOD_HEADER + "int x;\n" * 599),
    ("file", "cachesvc/core/records.h", GOOD_HEADER + "int x;\n" * 399),
    ("function", "proto/a.cc", GOOD_SOURCE + LONG_FUNCTION),
    ("only-tests", "proto/a.h", GOOD_HEADER + "int forgotten(int x);\n"),
    ("only-tests", "proto/a.h", GOOD_HEADER + "struct Forgotten {\n  int x;\n};\n"),
    ("only-tests", "proto/value.h", VALUE % "\n  int forgotten(int x) const;"),
    ("only-tests", "proto/value.h", VALUE % "\n  int known() const;\n"
     "  int two(int known) const { return known; }"),
    ("file", "python/cachesvc/a.py", '"""A value."""\n' + "x = 1\n" * 400),
    ("opening", "python/cachesvc/a.py", "import b\n"),
    ("opening", "tools/a.py", "#!/usr/bin/env python3\n# A tool.\n"),
    ("pragma", "proto/a.h", "// A value.\n"),
    ("opening", "proto/a.h", "#pragma once\n"),
    ("unlisted", "proto/b.cc", GOOD_SOURCE),
    ("unlisted", "tests/proto_b_test.cc", "// Tests b.\n"),
    ("marker", "proto/a.h", GOOD_HEADER + "// TO" "DO later\n"),
    ("co_await", "cachesvc/a.h", GOOD_HEADER + "auto f() {\n  co_await g([] { h(); });\n}\n"),
    ("co_await", "cachesvc/a.h", GOOD_HEADER + "auto f() {\n  co_await g(Name{1});\n}\n"),
    ("type", "proto/z.h", GOOD_HEADER + "class Value {\n  int x_ = two(1);\n};\n"),
    ("class", "cachesvc/a.h", sized(29, 1)),
    ("class", "cachesvc/a.h", sized(1, 17)),
    ("folder", "proto/util/a.h", GOOD_HEADER),
    ("machine", "proto/a.h", GOOD_HEADER + "// see /ho" "me/me/notes\n"),
]


def run(tidy, changes):
    """Output and exit code of the checker on the clean tree with `changes` put over it."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in (CLEAN | changes).items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        done = subprocess.run([sys.executable, tidy, root], capture_output=True, text=True,
                              check=False)
        return done.stdout, done.returncode


def main():
    tidy, bad = sys.argv[1], 0
    out, code = run(tidy, {})
    if code != 0:
        bad += 1
        print(f"the clean tree is reported:\n{out}")
    out, _ = run(tidy, {"cachesvc/a.h": sized(28, 16)})
    if ": class: " in out:
        bad += 1
        print(f"a class within its limits is reported:\n{out}")
    for rule, path, text in PLANTED:
        out, code = run(tidy, {path: text})
        named = [line for line in out.splitlines()
                 if line.startswith(path + ":") and f": {rule}: " in line]
        if code != 1 or not named:
            bad += 1
            print(f"not reported: {rule} in {path} (exit {code}):\n{out}")
    print(f"{len(PLANTED) + 1 - bad} of {len(PLANTED) + 1} as expected")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
