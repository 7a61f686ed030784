// Where entries end, and what goes first because it serves no end: superseded tails with all that
// hangs on them, then supplements far from any end, the farthest first.
#include <algorithm>
#include <unordered_map>

#include "cachesvc/cache_core_index.h"
#include "cachesvc/cache_core_needs.h"

namespace kv {

bool RealmState::has_supplements() const {
  return std::any_of(groups.begin(), groups.end(), [](const PartGroup& g) {
    bool carries = g.spec.kind == PartKind::pooled ||
                   (!g.spec.has_rows() && g.spec.snapshot == SnapshotPlace::block_end);
    return carries || (g.spec.has_rows() && !g.spec.rows_in_block());
  });
}

bool serves_end(const Record& supplement, uint32_t n) {
  const PartSpec& spec = supplement.realm->groups[supplement.name.group].spec;
  uint32_t first = supplement.name.first_row, end = supplement.name.end_row;
  for (EndPosition at : end_positions(supplement.realm->block_tokens(), n, {})) {
    if (first == end && end == at.n) return true;
    for (const RowRange& rows : demanded_rows(spec, at.n)) {
      if (first < end && rows.first < end && first < rows.end) return true;
    }
  }
  return false;
}

namespace {

void serve_end(Record& supplement, const Record& end) {
  supplement.end_distance = 0;
  supplement.end_key = end.key;
  supplement.end_serial = end.serial;
}

}  // namespace

DropUrgency ObjectIndex::urgency(const Record& record) const {
  if (!record.realm || !record.realm->in_force) return kDropFirst;
  if (record.superseded) return kDropSuperseded;
  if (record.name.kind != ObjectKind::supplement) return kDropLast;
  const Record* main = record.realm->nodes.at(record.node).main;
  if (main && main->superseded) return kDropSuperseded;
  return record.end_distance;
}

void ObjectIndex::reorder(const Record& record) {
  DropUrgency now = urgency(record);
  ram_.set_urgency(record.key, now);
  ssd_.set_urgency(record.key, now);
}

void ObjectIndex::supersede(Record& tail) {
  tail.superseded = true;
  reorder(tail);
  for (Record* r : tail.realm->nodes.at(tail.node).attached) reorder(*r);
}

// True if the entry whose end this supplement serves has not grown, and is still there.
bool ObjectIndex::end_lives(const Record& supplement) {
  const Record* end = find_key(supplement.end_key);
  if (!end || end->serial != supplement.end_serial || end->superseded) return false;
  return end->realm->tree.child_count(end->node) == 0;
}

void ObjectIndex::mark_end(RealmState& realm, const std::vector<NodeId>& path, uint32_t n) {
  if (path.empty() || !realm.has_supplements()) return;
  const Record* end = realm.nodes.at(path.back()).main;
  for (size_t i = 0; i < path.size(); ++i) {
    for (Record* r : realm.nodes.at(path[i]).attached) {
      if (r->name.kind != ObjectKind::supplement) continue;
      if (end && serves_end(*r, n)) {
        serve_end(*r, *end);
      } else if (r->end_distance > 0 || !end_lives(*r)) {
        r->end_distance = std::max<uint32_t>(1, static_cast<uint32_t>(path.size() - 1 - i));
      }
      reorder(*r);
    }
  }
}

void ObjectIndex::find_ends() {
  for (auto& realm : realms_) find_ends(*realm);
}

void ObjectIndex::find_ends(RealmState& realm) {
  constexpr uint32_t kNone = UINT32_MAX;  // below it nothing ends that isn't superseded
  std::vector<NodeId> nodes = realm.tree.subtree(kRootNode);  // children before parents
  nodes.push_back(kRootNode);
  for (NodeId node : nodes) {
    // What begins with a tail's tokens stands right behind it.
    std::vector<NodeId> children = realm.tree.children(node);
    for (size_t i = 0; i + 1 < children.size(); ++i) {
      Record* tail = realm.nodes.at(children[i]).main;
      bool longer = realm.tree.is_tail(children[i]) &&
                    realm.tree.begins_with(children[i + 1], children[i]) &&
                    realm.nodes.at(children[i + 1]).main;
      if (tail && longer) supersede(*tail);
    }
  }
  if (!realm.has_supplements()) return;
  std::unordered_map<NodeId, uint32_t> distance;
  for (NodeId node : nodes) {
    if (node == kRootNode) continue;
    uint32_t nearest = kNone;
    for (NodeId child : realm.tree.children(node)) {
      uint32_t d = distance.at(child);
      if (d != kNone) nearest = std::min(nearest, d + 1);
    }
    const Record* main = realm.nodes.at(node).main;
    bool ends_here = nearest == kNone && !(main && main->superseded);
    distance[node] = ends_here ? 0 : nearest;
    for (Record* r : realm.nodes.at(node).attached) {
      if (r->name.kind == ObjectKind::supplement) {
        r->end_distance = nearest == kNone ? 1 : nearest;
        reorder(*r);
      }
    }
  }
  for (NodeId node : nodes) {
    if (node == kRootNode || distance.at(node) != 0) continue;
    const Record* end = realm.nodes.at(node).main;
    for (NodeId at = node; end && at != kRootNode; at = realm.tree.parent(at)) {
      for (Record* r : realm.nodes.at(at).attached) {
        if (r->name.kind != ObjectKind::supplement) continue;
        if (!serves_end(*r, realm.tree.end_token(node))) continue;
        serve_end(*r, *end);
        reorder(*r);
      }
    }
  }
}

}  // namespace kv
