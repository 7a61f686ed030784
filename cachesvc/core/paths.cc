// Paths through a realm's tree.
#include "cachesvc/core/paths.h"

#include <algorithm>

namespace kv {

Status check_lengths(const Query& query) {
  if (query.tokens.size() <= kMaxTokens && query.extras.size() <= kMaxExtras) return {};
  return invalid_argument("query over " + std::to_string(kMaxTokens) + " tokens or " +
                          std::to_string(kMaxExtras) + " extras");
}

uint64_t query_bytes(const Query& query, uint32_t tokens) {
  uint64_t bytes = tokens * sizeof(Token);
  for (const Extra& e : extras_in(query.extras, 0, tokens)) bytes += sizeof(Extra) + e.bytes.size();
  return bytes;
}

Symbols symbols_from(const Query& query, uint32_t first) {
  return {first, std::span(query.tokens).subspan(first),
          extras_in(query.extras, first, UINT32_MAX)};
}

// The walk goes up to the first block of the query: its id stands for everything before its end.
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
  const uint32_t first = realm.tree.first_token(below);
  return first + common_symbols(realm.tree.symbols(below), symbols_from(query, first));
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
