// PrefixEdges: a store's sequences as the tree that they share: an edge is a run of blocks without
// a branch, with the bytes of all that hangs on it. Plain values, made once.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "tools/cachectl_store.h"

namespace kv::cachectl {

struct Edge {
  std::vector<const InspectedFile*> steps;  ///< blocks, the last one perhaps a tail or a snapshot
  size_t parent = SIZE_MAX;                 ///< SIZE_MAX: it begins at the root
  std::vector<size_t> children;
  uint64_t bytes = 0;       ///< allocated, supplements and snapshots included
  uint64_t entries = 0;     ///< sequences that go through it or end with it
  bool incomplete = false;  ///< a block before it is missing

  uint32_t first_token() const { return steps.front()->header.first_token; }
  uint32_t end_token() const { return steps.back()->header.end_token(); }
  uint64_t saved() const { return (entries - 1) * bytes; }
};

/// The sequences of one namespace, model and profile.
struct RealmTree {
  const InspectedFile* any = nullptr;  ///< says which realm
  std::vector<Edge> edges;             ///< parents before their children
  std::vector<size_t> roots;

  uint64_t bytes() const;
  uint64_t saved() const;
  uint64_t entries() const;
};

/// Those of the namespace and model; of empty names all. Sequences that most share come first.
std::vector<RealmTree> trees_of(const StoreView& store, const std::string& ns,
                                const std::string& model);

}  // namespace kv::cachectl
