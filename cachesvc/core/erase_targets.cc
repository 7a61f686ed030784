// Which objects an erase removes.
#include "cachesvc/core/erase_targets.h"

#include <algorithm>

#include "cachesvc/core/needs.h"
#include "cachesvc/core/orphan_match.h"
#include "cachesvc/core/paths.h"

namespace kv {

// Every object of the model, in any profile, whose entry begins with the query, or may do so.
Result<std::vector<Record*>> objects_beginning_with(ObjectIndex& index, const ModelState& model,
                                                    const Query& query) {
  std::vector<Record*> out =
      orphans_beginning_with(index, model.ns, model.spec->fingerprint, query);
  for (RealmState* realm : index.realms().of(model.ns, model.spec->fingerprint)) {
    KV_ASSIGN_OR_RETURN(auto nodes, realm->tree.beginning_with(query.tokens, query.extras));
    if (query.tokens.empty()) nodes.push_back(kRootNode);
    for (NodeId id : nodes) {
      RealmState::Node& node = realm->nodes.at(id);
      out.insert(out.end(), node.attached.begin(), node.attached.end());
      if (node.main) out.push_back(node.main);
    }
    // Snapshots after the last block that the query matches wholly belong to entries too.
    auto match = realm->tree.match(query.tokens, query.extras);
    if (!match.ok() || query.tokens.empty()) continue;
    NodeId last = match->path.empty() ? kRootNode : match->path.back();
    for (Record* r : realm->nodes.at(last).attached) {
      if (r->name.kind != ObjectKind::snapshot || r->attachment->position < query.tokens.size())
        continue;
      bool begins = snapshot_common(*r, query) == query.tokens.size();
      if (begins && std::find(out.begin(), out.end(), r) == out.end()) out.push_back(r);
    }
  }
  return out;
}

// The entry that ends with the query's last token, with what no other entry has: from its end
// upwards, until another one goes on or ends. Tails and snapshots that the query goes on from, and
// no other entry, are earlier turns of it.
Result<std::vector<Record*>> objects_of_entry(ObjectIndex& index, const ModelState& model,
                                              const Query& query) {
  std::vector<Record*> out;
  const auto n = static_cast<uint32_t>(query.tokens.size());
  for (RealmState* realm : index.realms().of(model.ns, model.spec->fingerprint)) {
    KV_ASSIGN_OR_RETURN(auto match, realm->tree.match(query.tokens, query.extras));
    const PrefixTree& tree = realm->tree;
    // Rows of a child that end here are an earlier turn's.
    auto own_tail = [&](NodeId child) {
      uint32_t first = tree.first_token(child), end = tree.end_token(child);
      return end <= n && end - first < realm->block_tokens() &&
             tree.begins_with(child, tokens_between(query, first, end),
                              extras_in(query.extras, first, end));
    };
    auto own_attached = [&](const Record* r) {
      return r->name.kind != ObjectKind::snapshot ||
             (r->attachment->position <= n &&
              snapshot_common(*r, query) == r->attachment->position);
    };
    NodeId at = match.path.empty() ? kRootNode : match.path.back();
    bool stored = tree.end_token(at) == n;
    for (NodeId child : tree.children(at)) {
      stored |= tree.end_token(child) == n && own_tail(child);
    }
    for (const Record* r : realm->nodes.at(at).attached) {
      stored |=
          r->name.kind == ObjectKind::snapshot && r->attachment->position == n && own_attached(r);
    }
    if (!stored) continue;
    auto take = [&](NodeId node) {
      const RealmState::Node& its = realm->nodes.at(node);
      out.insert(out.end(), its.attached.begin(), its.attached.end());
      if (its.main) out.push_back(its.main);
    };
    for (NodeId below = kNoNode;; below = std::exchange(at, tree.parent(at))) {
      std::vector<NodeId> tails, others;
      for (NodeId child : tree.children(at)) {
        if (child != below) (own_tail(child) ? tails : others).push_back(child);
      }
      auto go_on_from = [&](auto... rows) {
        return std::any_of(others.begin(), others.end(),
                           [&](NodeId other) { return tree.begins_with(other, rows...); });
      };
      for (NodeId tail : tails) {
        if (tree.end_token(tail) == n || !go_on_from(tail)) take(tail);
      }
      const auto& attached = realm->nodes.at(at).attached;
      bool all_own = std::all_of(attached.begin(), attached.end(), own_attached);
      if (others.empty() && all_own && at != kRootNode) {
        take(at);
        continue;
      }
      for (Record* r : attached) {
        bool snapshot = r->name.kind == ObjectKind::snapshot && own_attached(r);
        bool shared = snapshot && go_on_from(std::span<const Token>(r->attachment->tokens),
                                             std::span<const Extra>(r->attachment->extras));
        if (snapshot && (r->attachment->position == n || !shared)) out.push_back(r);
      }
      break;
    }
  }
  return out;
}

}  // namespace kv
