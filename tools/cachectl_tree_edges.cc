// Edges from a store's files: each is walked once, without recursion, so that no chain of files is
// too long.
#include <algorithm>

#include "tools/cachectl_tree.h"

namespace kv::cachectl {
namespace {

using Key = std::tuple<std::string, Id, Id>;
using Steps = std::vector<const InspectedFile*>;

Key key_of(const Object& o) { return {o.ns, o.fingerprint, o.profile}; }

bool is_step(const InspectedFile& file) {
  return file.kind == FileKind::block || file.kind == FileKind::tail;
}

// Blocks and tails that go on from a block.
Steps next_of(const StoreView& store, const InspectedFile& block) {
  Steps out;
  if (block.kind != FileKind::block) return out;
  for (const InspectedFile* child : store.children_of(block.name.id)) {
    if (is_step(*child) && goes_on(block.header, child->header)) out.push_back(child);
  }
  return out;
}

uint64_t bytes_of(const StoreView& store, const InspectedFile& step) {
  uint64_t bytes = 0;
  for (const InspectedFile* file : store.entry_files(step)) bytes += file->allocated_bytes;
  return bytes;
}

class Builder {
 public:
  Builder(const StoreView& store, RealmTree& tree) : store_(store), tree_(tree) {}

  void add_root(const InspectedFile& first) {
    const size_t root = tree_.edges.size();
    tree_.roots.push_back(root);
    std::vector<std::pair<const InspectedFile*, size_t>> waiting{{&first, SIZE_MAX}};
    while (!waiting.empty()) {
      const auto from = waiting.back();
      waiting.pop_back();
      const size_t number = tree_.edges.size();
      Edge edge;
      edge.parent = from.second;
      edge.incomplete = !first.header.parent.is_zero() || first.header.first_token != 0;
      Steps next{from.first};
      while (next.size() == 1) {
        edge.bytes += bytes_of(store_, *next[0]);
        edge.steps.push_back(next[0]);
        next = next_of(store_, *next[0]);
      }
      if (next.empty()) edge.entries = 1;
      for (const InspectedFile* child : next) waiting.push_back({child, number});
      if (edge.parent != SIZE_MAX) tree_.edges[edge.parent].children.push_back(number);
      tree_.edges.push_back(std::move(edge));
    }
    for (size_t i = tree_.edges.size(); i-- > root + 1;) {
      tree_.edges[tree_.edges[i].parent].entries += tree_.edges[i].entries;
    }
  }
  void sort() {
    auto before = [this](size_t a, size_t b) {
      const Edge &x = tree_.edges[a], &y = tree_.edges[b];
      if (x.entries != y.entries) return x.entries > y.entries;
      return x.steps.front()->name.id < y.steps.front()->name.id;
    };
    std::sort(tree_.roots.begin(), tree_.roots.end(), before);
    for (Edge& edge : tree_.edges) std::sort(edge.children.begin(), edge.children.end(), before);
  }

 private:
  const StoreView& store_;
  RealmTree& tree_;
};

}  // namespace

uint64_t RealmTree::bytes() const {
  uint64_t out = 0;
  for (const Edge& edge : edges) out += edge.bytes;
  return out;
}

uint64_t RealmTree::saved() const {
  uint64_t out = 0;
  for (const Edge& edge : edges) out += edge.saved();
  return out;
}

uint64_t RealmTree::entries() const {
  uint64_t out = 0;
  for (const size_t root : roots) out += edges[root].entries;
  return out;
}

std::vector<RealmTree> trees_of(const StoreView& store, const std::string& ns,
                                const std::string& model) {
  std::map<Key, RealmTree> trees;
  for (const InspectedFile& file : store.inspection().files) {
    if (!file.status.ok() || !is_step(file)) continue;
    const Object& o = file.header;
    if ((!ns.empty() && o.ns != ns) || (!model.empty() && store.model_name(o) != model)) continue;
    const InspectedFile* parent = o.parent.is_zero() ? nullptr : store.block(o.parent);
    if (parent != nullptr && goes_on(parent->header, o)) continue;
    RealmTree& tree = trees[key_of(o)];
    tree.any = &file;
    Builder(store, tree).add_root(file);
  }
  std::vector<RealmTree> out;
  for (auto& [key, tree] : trees) {
    Builder(store, tree).sort();
    out.push_back(std::move(tree));
  }
  return out;
}

}  // namespace kv::cachectl
