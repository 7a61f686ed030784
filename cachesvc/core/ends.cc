// Entries' ends, and objects that go first because they serve none.
#include "cachesvc/core/ends.h"

#include <algorithm>

#include "cachesvc/core/needs.h"

namespace kv {

bool demanded_at(const Record& attached, uint32_t n) {
  const bool snapshot = attached.name.kind == ObjectKind::snapshot;
  const uint32_t first = snapshot ? attached.attachment->position : attached.name.first_row;
  const uint32_t end = snapshot ? attached.attachment->position : attached.name.end_row;
  if (first == end) return end == n;
  const auto rows = demanded_rows(attached.realm->groups[attached.name.group].spec, n);
  return std::any_of(rows.begin(), rows.end(),
                     [&](const RowRange& r) { return r.first < end && first < r.end; });
}

bool serves_end(const Record& attached, uint32_t n) {
  const auto ends = end_positions(attached.realm->block_tokens(), n, {});
  return std::any_of(ends.begin(), ends.end(),
                     [&](const EndPosition& at) { return demanded_at(attached, at.n); });
}

void serve_end(Record& attached, const Record& end) {
  attached.attachment->end_distance = 0;
  attached.attachment->end_key = end.key;
  attached.attachment->end_serial = end.serial;
}

namespace {

bool is_snapshot(const Record& r) { return r.name.kind == ObjectKind::snapshot; }

// Supplements of the node, and the snapshots after it that lie on the path to its child `next`.
std::vector<Record*> attached_on(const RealmState& realm, NodeId node, NodeId next) {
  const Attached& attached = realm.nodes.at(node).attached;
  std::vector<Record*> out(attached.supplements().begin(), attached.supplements().end());
  if (attached.snapshots() == 0) return out;
  const PrefixTree& tree = realm.tree;
  std::vector<Token> tokens;
  Symbols rest{tree.end_token(node), {}, {}};
  if (next != kNoNode) {
    tokens = tree.tokens(next).all();
    rest = {tree.first_token(next), tokens, tree.extras(next)};
  }
  const std::vector<Record*> snapshots = attached.snapshots_on(rest);
  out.insert(out.end(), snapshots.begin(), snapshots.end());
  return out;
}

}  // namespace

bool entries_part_at(const Record& snapshot) {
  const RealmState& realm = *snapshot.realm;
  int ways = 0;
  realm.tree.visit_children(
      snapshot.node, snapshot.attachment->tokens, snapshot.attachment->extras, [&](NodeId child) {
        const Record* main = realm.nodes.at(child).main;
        bool ends_there = realm.tree.end_token(child) == snapshot.attachment->position;
        ways += !ends_there && !(main && main->superseded);
        return ways < 2;
      });
  return ways == 2;
}

void Ends::supersede(Record& tail) {
  tail.superseded = true;
  index_.tiers().reorder(tail);
  for (Record* r : tail.realm->nodes.at(tail.node).attached.supplements()) {
    index_.tiers().reorder(*r);
  }
}

bool Ends::end_lives(const Record& attached) {
  const Record* end = index_.find_key(attached.attachment->end_key);
  if (!end || end->serial != attached.attachment->end_serial || end->superseded) return false;
  return end->realm->tree.child_count(end->node) == 0;
}

void Ends::keep(Record& attached) {
  attached.attachment->named = true;
  attached.attachment->end_distance = 0;
  index_.tiers().reorder(attached);
}

std::vector<Ends::Kept> Ends::keep(const RealmState& realm, const std::vector<NodeId>& path,
                                   uint32_t n) {
  std::vector<Kept> kept;
  for (size_t i = 0; i <= path.size(); ++i) {
    const NodeId node = i == 0 ? kRootNode : path[i - 1];
    if (node != kRootNode && realm.tree.first_token(node) >= n) break;
    for (Record* r : attached_on(realm, node, i < path.size() ? path[i] : kNoNode)) {
      if (!demanded_at(*r, n)) continue;
      kept.push_back({r, !r->attachment->named});
      keep(*r);
    }
  }
  return kept;
}

void Ends::mark(RealmState& realm, const std::vector<NodeId>& path, uint32_t n) {
  if (path.empty() || !(realm.has_supplements() || realm.has_snapshots())) return;
  const Record* end = realm.nodes.at(path.back()).main;
  for (size_t i = 0; i <= path.size(); ++i) {  // attached objects of the root, then of each node
    NodeId next = i < path.size() ? path[i] : kNoNode;
    for (Record* r : attached_on(realm, i == 0 ? kRootNode : path[i - 1], next)) {
      size_t behind =
          i + (is_snapshot(*r) && !r->attachment->tokens.empty());  // nodes through its position
      if (end && serves_end(*r, n)) {
        serve_end(*r, *end);
      } else if (is_snapshot(*r) && entries_part_at(*r)) {
        r->attachment->end_distance = 0;
      } else if (!r->attachment->named && (r->attachment->end_distance > 0 || !end_lives(*r))) {
        r->attachment->end_distance =
            std::max<uint32_t>(1, static_cast<uint32_t>(path.size() - behind));
      }
      index_.tiers().reorder(*r);
    }
  }
}

}  // namespace kv
