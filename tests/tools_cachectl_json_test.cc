// What cachectl prints with --json is what cachesvc/CACHECTL.md says, name by name.
#include "tests/support/cachectl_user.h"

namespace kv {
namespace {

using namespace kv::testing;

// Shapes of the page, by the word after ```json.
std::map<std::string, json> shapes() {
  std::map<std::string, json> out;
  const std::string page = slurp(KV_CACHECTL_PAGE), begin = "```json ";
  for (size_t at = page.find(begin); at != page.npos; at = page.find(begin, at)) {
    at += begin.size();
    const size_t line = page.find('\n', at), end = page.find("\n```", line);
    out[page.substr(at, line - at)] = json::parse(page.substr(line, end - line));
  }
  return out;
}

bool is_id(const json& value) {
  return value.is_string() && value.get<std::string>().size() == 64 &&
         value.get<std::string>().find_first_not_of("0123456789abcdef") == std::string::npos;
}

void compare(const json& shape, const json& value, const std::string& where);

void compare_word(const std::string& shape, const json& value, const std::string& where) {
  if (shape == "any") return;
  if (shape.ends_with('?')) {
    if (!value.is_null()) compare_word(shape.substr(0, shape.size() - 1), value, where);
    return;
  }
  const bool fits = shape == "text"     ? value.is_string()
                    : shape == "number" ? value.is_number()
                    : shape == "bool"   ? value.is_boolean()
                                        : shape == "id" && is_id(value);
  EXPECT_TRUE(fits) << where << ": expected " << shape << ", got " << value;
}

void compare_names(const json& shape, const json& value, const std::string& where) {
  ASSERT_TRUE(value.is_object()) << where;
  for (const auto& [name, item] : value.items()) {
    const std::string at = where + "." + name;
    if (shape.contains(name)) {
      compare(shape[name], item, at);
    } else if (shape.contains(name + "?")) {
      compare(shape[name + "?"], item, at);
    } else if (shape.contains("*")) {
      compare(shape["*"], item, at);
    } else {
      ADD_FAILURE() << at << " is not on the page";
    }
  }
  for (const auto& [name, item] : shape.items()) {
    const bool must = name != "*" && !name.ends_with('?');
    EXPECT_TRUE(!must || value.contains(name)) << where << "." << name << " is missing";
  }
}

void compare(const json& shape, const json& value, const std::string& where) {
  if (shape.is_string()) return compare_word(shape, value, where);
  if (shape.is_object()) return compare_names(shape, value, where);
  ASSERT_TRUE(value.is_array()) << where;
  for (const json& item : value) compare(shape[0], item, where + "[]");
}

class CachectlJson : public CachectlPlace {
 protected:
  void is(const std::string& shape, const std::string& arguments) {
    ASSERT_TRUE(shapes_.contains(shape)) << shape;
    Ran ran = run_changing(arguments);
    const json printed = json::parse(ran.out, nullptr, false);
    ASSERT_FALSE(printed.is_discarded()) << arguments << ": " << ran.out << ran.err;
    EXPECT_FALSE(printed.empty()) << arguments;
    compare(shapes_[shape], printed, shape);
    seen_.insert(shape);
  }
  std::map<std::string, json> shapes_ = shapes();
  std::set<std::string> seen_;
};

TEST_F(CachectlJson, IsAsThePageSays) {
  const std::string at = " --json " + store();
  is("status-dir", "status" + at);
  is("doctor", "doctor" + at);
  is("ls", "ls" + at);
  spew(store() + "/00/foreign", "x");
  is("ls-blocks", "ls --blocks" + at);
  fs::remove(store() + "/00/foreign");
  is("tree", "tree --tokens" + at);
  is("show", "show --tokens" + at + " " + hex(tail_));
  is("verify", "verify" + at);
  is("stats", "stats" + at);
  spew(home_.path() + "/tokens.json", "[1,2,3]");
  is("why", "why --json --dir " + store() + " " + home_.path() + "/tokens.json");
  is("delete", "delete --dry-run" + at + " " + hex(tail_));
  is("purge", "purge --dry-run" + at + " \"$(printf 'tenant\\033[31m')\"");
  tier_.reset();
  fs::remove(path(first_));
  is("gc", "gc --dry-run" + at);
  is("reindex", "reindex" + at);
  auto daemon = serve();
  ASSERT_TRUE(daemon);
  is("ping", "ping --json");
  is("put", "put --json");
  is("get", "get --json");
  ASSERT_EQ(run_changing("get --tokens 700").code, 0);
  is("status", "status --json");
  is("why", "why --json");
  is("counters", "counters --json");
  is("kinds", "kinds --json");
  is("kinds-model", "kinds --json Qwen/Qwen3-8B");
  for (const auto& [name, shape] : shapes_) EXPECT_TRUE(seen_.contains(name)) << name;
}

}  // namespace
}  // namespace kv
