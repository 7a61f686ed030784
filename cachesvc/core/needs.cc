// Needs of supplements and snapshots, from the same demands that restorable(n) is made of.
#include "cachesvc/core/needs.h"

#include <algorithm>

namespace kv {
namespace {

bool held_at(HoldingKind kind, uint16_t group, uint32_t n, const std::vector<Holding>& held) {
  return std::any_of(held.begin(), held.end(), [&](const Holding& h) {
    return h.kind == kind && h.group == group && h.end == n && h.common >= n;
  });
}

// Collects needs for one store; a row is asked for once.
class Needs {
 public:
  Needs(uint32_t block_tokens, std::vector<Holding> held)
      : block_(block_tokens), held_(std::move(held)) {}

  void rows(uint16_t group, RowRange range, bool required) {
    for (const RowRange& gap : missing_rows(range, group, held_)) {
      for (uint32_t at = gap.first; at < gap.end;) {
        uint32_t end = std::min(gap.end, (at / block_ + 1) * block_);
        add({ObjectKind::supplement, at / block_, group, at, end, required}, HoldingKind::rows);
        at = end;
      }
    }
  }
  // A carry or block-end state at position n: a supplement of the block or tail that holds n - 1.
  void at(uint16_t group, HoldingKind kind, uint32_t n, bool required) {
    if (n == 0 || held_at(kind, group, n, held_)) return;
    add({ObjectKind::supplement, (n - 1) / block_, group, n, n, required}, kind);
  }
  // All checkpoint parts at once: another group may have asked already.
  void snapshot(uint16_t group, uint32_t n, bool required) {
    if (held_at(HoldingKind::snapshot, group, n, held_)) return;
    auto same = [n](const Need& need) {
      return need.kind == ObjectKind::snapshot && need.end_row == n;
    };
    if (std::any_of(needs_.begin(), needs_.end(), same)) return;
    needs_.push_back({ObjectKind::snapshot, n / block_, 0, n, n, required});
  }
  std::vector<Need> take() { return std::move(needs_); }

 private:
  void add(const Need& need, HoldingKind kind) {
    needs_.push_back(need);
    Holding h;
    h.group = need.group;
    h.kind = kind;
    h.first = need.first_row;
    h.end = need.end_row;
    h.common = UINT32_MAX;
    held_.push_back(h);
  }
  uint32_t block_;
  std::vector<Holding> held_;
  std::vector<Need> needs_;
};

void group_needs(const PartSpec& spec, uint16_t group, uint32_t block, uint32_t n, EndRules rules,
                 Needs& needs) {
  for (EndPosition at : end_positions(block, n, rules)) {
    if (spec.has_rows() && !spec.rows_in_block()) {
      for (const RowRange& range : demanded_rows(spec, at.n)) {
        needs.rows(group, range, at.required);
      }
    }
    if (demands_carry(spec, at.n)) needs.at(group, HoldingKind::carry, at.n, at.required);
  }
  if (spec.has_rows()) return;
  if (spec.snapshot == SnapshotPlace::checkpoint) {
    uint64_t step = uint64_t{rules.interval} * block;
    needs.snapshot(group, n, true);
    if (rules.branch > 0) needs.snapshot(group, rules.branch, false);
    for (uint64_t at = step; step > 0 && at < n; at += step) {
      needs.snapshot(group, static_cast<uint32_t>(at), false);
    }
    return;
  }
  needs.at(group, HoldingKind::snapshot, n, true);
  for (uint32_t end = block; end <= n; end += block) {
    needs.at(group, HoldingKind::snapshot, end, false);
  }
}

}  // namespace

std::vector<EndPosition> end_positions(uint32_t block_tokens, uint32_t n, EndRules rules) {
  std::vector<EndPosition> out{{n, true}};
  uint32_t block_end = n / block_tokens * block_tokens;
  if (n > 1) out.push_back({n - 1, false});
  if (block_end > 0) out.push_back({block_end, false});
  if (rules.branch > 0) out.push_back({rules.branch, false});
  uint64_t step = uint64_t{rules.interval} * block_tokens;
  if (step == 0) return out;
  for (uint64_t at = n / step * step; at > 0; at -= step) {
    out.push_back({static_cast<uint32_t>(at), false});
  }
  return out;
}

// Rows of [first, end) that no holding of the group has, ascending.
std::vector<RowRange> missing_rows(RowRange wanted, uint16_t group,
                                   const std::vector<Holding>& held) {
  std::vector<RowRange> have;
  for (const Holding& h : held) {
    uint32_t end = std::min(h.end, h.common);
    if (h.group == group && h.kind == HoldingKind::rows && h.first < end) {
      have.push_back({h.first, end});
    }
  }
  std::sort(have.begin(), have.end(),
            [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
  std::vector<RowRange> out;
  uint32_t at = wanted.first;
  for (const RowRange& h : have) {
    if (h.end <= at || h.first >= wanted.end) continue;
    if (h.first > at) out.push_back({at, h.first});
    at = h.end;
  }
  if (at < wanted.end) out.push_back({at, wanted.end});
  return out;
}

std::vector<Need> attached_needs(std::span<const PartGroup> groups, uint32_t block_tokens,
                                 uint32_t n, EndRules rules, const std::vector<Holding>& held) {
  Needs needs(block_tokens, held);
  for (size_t g = 0; g < groups.size(); ++g) {
    group_needs(groups[g].spec, static_cast<uint16_t>(g), block_tokens, n, rules, needs);
  }
  return needs.take();
}

DType raw_dtype(const PartSpec& part, const Profile& profile) {
  bool codable = part.v_dim > 0 && part.kind != PartKind::latent && part.kind != PartKind::pooled;
  return codable ? profile.raw_dtype : part.dtype;
}

uint64_t stored_rows_bytes(const SideSpec& side, DType raw, uint8_t bits, uint32_t exact_tokens,
                           uint32_t first, uint32_t end) {
  uint64_t exact = bits == 0 ? end - first : std::min(end, std::max(first, exact_tokens)) - first;
  uint64_t coded = end - first - exact;
  uint64_t values = uint64_t{side.heads} * side.dim;
  return exact * values * dtype_bytes(raw) + coded * side.heads * (code_bytes(side.dim, bits) + 2);
}

namespace {

// Each side of each plane of an object for this need, with its rows.
template <typename Each>
void each_side(const ModelSpec& model, std::span<const PartGroup> groups, const Need& need,
               Each each) {
  auto each_of = [&](uint16_t layer, uint16_t index, uint32_t first, uint32_t end) {
    const PartSpec& part = model.layers[layer].parts[index];
    for (const SideSpec& side : sides_of(part)) each(layer, index, side, first, end);
  };
  if (need.kind == ObjectKind::snapshot) return;
  if (need.kind == ObjectKind::supplement) {
    for (auto m : groups[need.group].members) {
      each_of(m.layer, m.part, need.first_row, need.end_row);
    }
    return;
  }
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      if (!part.has_rows() || !part.rows_in_block()) continue;
      uint32_t rate = part.kind == PartKind::pooled ? part.rate : 1;
      each_of(static_cast<uint16_t>(l), static_cast<uint16_t>(p), need.first_row / rate,
              need.end_row / rate);
    }
  }
}

}  // namespace

uint64_t need_bytes(const ModelSpec& model, const Profile& profile,
                    std::span<const PartGroup> groups, const Need& need) {
  uint64_t bytes = 0;
  bool coded = need.kind == ObjectKind::block || need.kind == ObjectKind::supplement;
  each_side(model, groups, need,
            [&](uint16_t l, uint16_t p, const SideSpec& side, uint32_t first, uint32_t end) {
              const PartCoding& coding = profile.coding(l, p);
              uint8_t bits = side.side == Side::k   ? coding.k_bits
                             : side.side == Side::v ? coding.v_bits
                                                    : 0;
              bytes += stored_rows_bytes(side, raw_dtype(model.layers[l].parts[p], profile),
                                         coded ? bits : 0, profile.exact_tokens, first, end);
            });
  return bytes;
}

uint64_t decoded_bytes(const ModelSpec& model, std::span<const PartGroup> groups, const Need& need,
                       DType out) {
  uint64_t bytes = 0;
  each_side(model, groups, need,
            [&](uint16_t, uint16_t, const SideSpec& side, uint32_t first, uint32_t end) {
              bytes += uint64_t{end - first} * side.heads * side.dim * dtype_bytes(out);
            });
  return bytes;
}

}  // namespace kv
