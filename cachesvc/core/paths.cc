// Paths through a realm's tree.
#include "cachesvc/core/paths.h"

#include <algorithm>

namespace kv {
namespace {

// The position where tokens and extras from `first` on part from the query's; what is before it is
// the same. At most the end of either.
template <typename Tokens>  // a span or a TokenRun
uint32_t common_until(uint32_t first, const Tokens& tokens, std::span<const Extra> extras,
                      const Query& query) {
  uint32_t end = first + static_cast<uint32_t>(tokens.size()), at = first;
  while (at < end && at < query.tokens.size() && tokens[at - first] == query.tokens[at]) ++at;
  // The first position at which the two lists of extras differ cuts the common prefix.
  auto own = extras.begin();
  auto its = std::lower_bound(query.extras.begin(), query.extras.end(), first,
                              [](const Extra& e, uint32_t p) { return e.position < p; });
  for (; own != extras.end() || its != query.extras.end(); ++own, ++its) {
    uint32_t a = own != extras.end() ? own->position : UINT32_MAX;
    uint32_t b = its != query.extras.end() ? its->position : UINT32_MAX;
    if (std::min(a, b) >= at) break;
    if (a == b && *own == *its) continue;
    return std::min(a, b);
  }
  return at;
}

}  // namespace

uint32_t snapshot_common(const Record& r, const Query& query) {
  return common_until(r.attachment->position - static_cast<uint32_t>(r.attachment->tokens.size()),
                      r.attachment->tokens, r.attachment->extras, query);
}

// Up to the first block that is the query's own: its id stands for everything before its end.
uint32_t common_with(const Record& record, const Query& query, std::span<const Id> blocks) {
  const RealmState& realm = *record.realm;
  const uint32_t block = realm.block_tokens();
  auto is_the_querys = [&](NodeId node) {
    size_t index = realm.tree.first_token(node) / block;
    return index < blocks.size() && realm.nodes.at(node).id == blocks[index];
  };
  NodeId at = record.node, below = kNoNode;
  for (; at != kRootNode && !is_the_querys(at); at = realm.tree.parent(at)) below = at;
  if (below == kNoNode) return realm.tree.end_token(at);
  return common_until(realm.tree.first_token(below), realm.tree.tokens(below),
                      realm.tree.extras(below), query);
}

Record* parent_of(const Record& record) {
  if (!record.realm) return nullptr;
  const NodeId node = parent_node(record);
  return node == kRootNode ? nullptr : record.realm->nodes.at(node).main;
}

std::vector<Record*> path_to(Record& record) {
  std::vector<Record*> path{&record};
  if (!record.realm) return path;
  RealmState& realm = *record.realm;
  for (NodeId at = parent_node(record); at != kRootNode; at = realm.tree.parent(at)) {
    if (Record* r = realm.nodes.at(at).main) path.push_back(r);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace kv
