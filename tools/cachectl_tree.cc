// cachectl tree: the prefix tree of a directory, an edge a line: how many tokens, how many bytes,
// how many sequences share it and what that saves. Colour on a terminal only; tokens, and with a
// tokenizer their text, only where somebody asks: they reveal the prompt.
#include "tools/cachectl_tree.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "engine/tokenizer.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_status.h"

namespace kv::cachectl {
namespace {

constexpr size_t kShownTokens = 8;    // of an edge
constexpr size_t kTextTokens = 24;    // of an edge that are shown as text
constexpr size_t kEdgeIdDigits = 16;  // as in ls

struct TreeArguments {
  Given given;
  std::string ns, model, tokenizer;
  bool tokens = false;
};

// A colour of the terminal, or nothing.
std::string in(const char* colour, const std::string& text) {
  static const bool is = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  return is ? std::string("\x1b[") + colour + "m" + text + "\x1b[0m" : text;
}
constexpr const char *kGreen = "32", *kRed = "31", *kDim = "2", *kBold = "1", *kYellow = "33";

class Printer {
 public:
  Printer(const StoreView& store, const TreeArguments& args, const std::optional<Tokenizer>& words)
      : store_(store), args_(args), words_(words) {}

  void print(const RealmTree& tree) const {
    const Object& o = tree.any->header;
    std::printf("%s\n",
                in(kBold, printable(store_.model_name(o)) + " in " + printable(o.ns)).c_str());
    struct Waiting {
      size_t edge;
      std::string before;
      bool last;
    };
    std::vector<Waiting> waiting;
    auto push = [&waiting](const std::vector<size_t>& edges, const std::string& before) {
      for (size_t i = edges.size(); i-- > 0;) {
        waiting.push_back({edges[i], before, i + 1 == edges.size()});
      }
    };
    push(tree.roots, "");
    while (!waiting.empty()) {
      const Waiting at = waiting.back();
      waiting.pop_back();
      const Edge& edge = tree.edges[at.edge];
      std::printf("%s%s%s\n", at.before.c_str(), at.last ? "└─ " : "├─ ", line(edge).c_str());
      push(edge.children, at.before + (at.last ? "   " : "│  "));
    }
    std::printf("%s on disk for %s; sharing saves %s\n", human_bytes(tree.bytes()).c_str(),
                counted(tree.entries(), "sequence").c_str(), human_bytes(tree.saved()).c_str());
  }

 private:
  std::string line(const Edge& edge) const {
    std::string out =
        counted(edge.end_token() - edge.first_token(), "token") + ", " + human_bytes(edge.bytes);
    if (edge.entries > 1) {
      out += ", " + in(kGreen, "shared by " + std::to_string(edge.entries) + ", saves " +
                                   human_bytes(edge.saved()));
    } else {
      out += "  " + in(kDim, edge.steps.back()->name.id.hex().substr(0, kEdgeIdDigits));
    }
    for (const InspectedFile* step : edge.steps) {
      const std::string label = store_.words_of(*step).label;
      if (!label.empty()) out += "  " + in(kYellow, "\"" + printable(label) + "\"");
    }
    if (edge.incomplete && edge.parent == SIZE_MAX) {
      out += "  " + in(kRed, "a block before it is missing: not served");
    }
    if (args_.tokens || words_) out += "  " + tokens(edge);
    return out;
  }
  std::string tokens(const Edge& edge) const {
    std::vector<Token> first;
    const size_t most = words_ ? kTextTokens : kShownTokens;
    for (const InspectedFile* step : edge.steps) {
      for (const Token token : step->header.tokens) {
        if (first.size() < most) first.push_back(token);
      }
      if (first.size() == most) break;
    }
    const bool more = first.size() < edge.end_token() - edge.first_token();
    if (words_) {
      auto text = words_->decode(first);
      if (text.ok()) return in(kDim, "'" + printable(*text) + (more ? "…'" : "'"));
    }
    std::string out;
    for (const Token token : first) out += (out.empty() ? "" : " ") + std::to_string(token);
    return in(kDim, "[" + out + (more ? " …]" : "]"));
  }

  const StoreView& store_;
  const TreeArguments& args_;
  const std::optional<Tokenizer>& words_;
};

Json tree_json(const StoreView& store, const RealmTree& tree, bool tokens) {
  Json edges = Json::array();
  for (const Edge& edge : tree.edges) {
    Json labels = Json::array();
    Json ids = Json::array();
    for (const InspectedFile* step : edge.steps) {
      const std::string label = store.words_of(*step).label;
      if (!label.empty()) labels.push_back(label);
      if (!tokens) continue;
      for (const Token token : step->header.tokens) ids.push_back(token);
    }
    edges.push_back({{"parent", edge.parent == SIZE_MAX ? Json(nullptr) : Json(edge.parent)},
                     {"id", edge.steps.back()->name.id.hex()},
                     {"first_token", edge.first_token()},
                     {"end_token", edge.end_token()},
                     {"bytes", edge.bytes},
                     {"entries", edge.entries},
                     {"saved_bytes", edge.saved()},
                     {"complete", !edge.incomplete},
                     {"labels", labels}});
    if (tokens) edges.back()["tokens"] = ids;
  }
  const Object& o = tree.any->header;
  return {{"namespace", o.ns},
          {"model", store.model_name(o)},
          {"fingerprint", o.fingerprint.hex()},
          {"profile", o.profile.hex()},
          {"entries", tree.entries()},
          {"bytes", tree.bytes()},
          {"saved_bytes", tree.saved()},
          {"edges", edges}};
}

Result<std::optional<Tokenizer>> tokenizer_of(const std::string& file) {
  if (file.empty()) return std::optional<Tokenizer>();
  KV_ASSIGN_OR_RETURN(GgufFile gguf, GgufFile::open(file));
  KV_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(gguf));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Exit run_tree(const TreeArguments& args) {
  auto words = tokenizer_of(args.tokenizer);
  if (!words.ok()) return report_error(words.status());
  auto request = directory_request(args.given, {});
  if (!request.ok()) return report_error(request.status());
  auto store = StoreView::load(*request);
  if (!store.ok()) return report_error(store.status());
  const std::vector<RealmTree> trees = trees_of(*store, args.ns, args.model);
  if (args.given.json) {
    Json out = Json::array();
    for (const RealmTree& tree : trees) out.push_back(tree_json(*store, tree, args.tokens));
    print_json(out);
  } else {
    if (trees.empty()) std::puts("nothing is stored here");
    for (const RealmTree& tree : trees) Printer(*store, args, *words).print(tree);
  }
  remark_sealed(store->inspection());
  return Exit::ok;
}

}  // namespace

void add_tree(CLI::App& app, std::function<Exit()>& chosen) {
  auto args = std::make_shared<TreeArguments>();
  CLI::App* tree =
      app.add_subcommand("tree", "the prefix tree: who shares what, and what it saves");
  add_place(*tree, args->given, "exact values for programs");
  tree->add_option("--namespace", args->ns, "only of this namespace");
  tree->add_option("--model", args->model, "only of a model of this name");
  tree->add_flag("--tokens", args->tokens, "also token ids (they reveal the prompt)");
  tree->add_option("--tokenizer", args->tokenizer,
                   "a GGUF file: also the text that edges begin with (it reveals the prompt)");
  tree->callback([&chosen, args] { chosen = [args] { return run_tree(*args); }; });
}

}  // namespace kv::cachectl
