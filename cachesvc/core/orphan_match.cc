// A query against orphans, whose tokens are known in part.
#include "cachesvc/core/orphan_match.h"

#include <algorithm>

#include "cachesvc/core/paths.h"

namespace kv {
namespace {

// True if the sequence equals the query, as far as both go.
bool agrees(const Symbols& own, const Query& query) {
  const auto n = static_cast<uint32_t>(query.tokens.size());
  if (own.first >= n) return true;
  return common_symbols(own, symbols_from(query, own.first)) == std::min(own.size(), n - own.first);
}

}  // namespace

bool OrphanMatch::may_begin(const Orphan& orphan) {
  auto n = static_cast<uint32_t>(query_.tokens.size());
  if (n == 0) return true;
  if (orphan.header.end_token() < n) return false;
  // The walk goes up from orphan to orphan until one decides.
  for (const Orphan* at = &orphan; at;) {
    const Object& o = at->header;
    if (!agrees({o.first_token, o.tokens, o.extras}, query_)) return false;
    if (o.first_token == 0) return true;
    if (RealmState* realm = index_.realms().find({o.ns, o.fingerprint, o.profile})) {
      auto node = realm->node_of.find(o.parent);
      if (node) return node_begins(*realm, *node);
      bool ends_above = o.first_token <= n && o.first_token % realm->block_tokens() == 0;
      if (ends_above) return id_at(*realm, o.first_token) == o.parent;
    }
    Record* parent = index_.find(ObjectName{ObjectKind::block, o.parent, 0, 0, 0});
    at = parent ? parent->orphan.get() : nullptr;
  }
  return true;
}

bool OrphanMatch::node_begins(const RealmState& realm, NodeId node) const {
  for (; node != kRootNode; node = realm.tree.parent(node)) {
    if (!agrees(realm.tree.symbols(node), query_)) return false;
  }
  return true;
}

const Id& OrphanMatch::id_at(const RealmState& realm, uint32_t end) {
  std::vector<Id>& ids = ids_[realm.index];
  uint32_t block = realm.block_tokens();
  while (ids.size() < end / block) {
    auto first = static_cast<uint32_t>(ids.size()) * block;
    std::span<const Token> tokens(query_.tokens.data() + first, block);
    ids.push_back(block_id(realm.realm, ids.empty() ? Id{} : ids.back(), tokens,
                           extras_in(query_.extras, first, first + block), ObjectKind::block));
  }
  return ids[end / block - 1];
}

}  // namespace kv
