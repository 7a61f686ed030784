// Kinds of objects that a realm may have, and their drop urgency.
#include "cachesvc/core/realm_state.h"

#include <algorithm>

namespace kv {

bool RealmState::has_supplements() const {
  return std::any_of(groups.begin(), groups.end(), [](const PartGroup& g) {
    bool carries = g.spec.kind == PartKind::pooled ||
                   (!g.spec.has_rows() && g.spec.snapshot == SnapshotPlace::block_end);
    return carries || (g.spec.has_rows() && !g.spec.rows_in_block());
  });
}

bool RealmState::has_snapshots() const {
  return std::any_of(groups.begin(), groups.end(), [](const PartGroup& g) {
    return !g.spec.has_rows() && g.spec.snapshot == SnapshotPlace::checkpoint;
  });
}

NodeId parent_node(const Record& record) {
  return is_main(record.name.kind) ? record.realm->tree.parent(record.node) : record.node;
}

DropUrgency drop_urgency(const Record& record) {
  if (!record.realm || !record.realm->in_force) return kDropFirst;
  if (record.wishes.retained > 0) return kDropRetained;
  if (record.superseded) return kDropSuperseded;
  if (record.name.kind < ObjectKind::supplement) return kDropLast;
  const Record* main = record.realm->nodes.at(record.node).main;
  if (main && main->superseded) return kDropSuperseded;
  return kDropLast + record.attachment->end_distance;
}

}  // namespace kv
