// The rows, carries and states of one object, by part group.
#include "index/holdings.h"

namespace kv {

void append_holdings(std::span<const PartGroup> groups, const ObjectName& name,
                     uint32_t first_token, uint32_t end_token, const Holding& like,
                     std::vector<Holding>& out) {
  Holding h = like;
  h.end_token = end_token;
  if (name.kind == ObjectKind::supplement) {
    const PartSpec& spec = groups[name.group].spec;
    h.group = name.group;
    h.first = name.first_row;
    h.end = name.end_row;
    bool rows = spec.has_rows() && spec.kind != PartKind::pooled;
    h.kind = rows                            ? HoldingKind::rows
             : spec.kind == PartKind::pooled ? HoldingKind::carry
                                             : HoldingKind::snapshot;
    out.push_back(h);
    return;
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const PartSpec& spec = groups[g].spec;
    h.group = static_cast<uint16_t>(g);
    if (name.kind == ObjectKind::snapshot) {
      if (spec.has_rows() || spec.snapshot != SnapshotPlace::checkpoint) continue;
      h.kind = HoldingKind::snapshot;
      h.end = end_token;
    } else {
      if (!spec.has_rows() || !spec.rows_in_block()) continue;
      uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
      h.kind = HoldingKind::rows;
      h.first = first_token / rate;
      h.end = end_token / rate;
    }
    out.push_back(h);
  }
}

}  // namespace kv
