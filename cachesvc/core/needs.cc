// Needs of supplements and snapshots, from the same demands that restorable(n) is made of.
#include "cachesvc/core/needs.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cachesvc/cache_options.h"

namespace kv {
namespace {

// Rows and positions that are there, by part group; a query costs logarithmic time.
class Held {
 public:
  explicit Held(const std::vector<Holding>& held) {
    for (const Holding& h : held) {
      const uint32_t end = std::min(h.end, h.common);
      if (h.kind == HoldingKind::rows) {
        add_rows(h.group, {h.first, end});
      } else if (h.common >= h.end) {
        add_point(h.kind, h.group, h.end);
      }
    }
  }
  void add_rows(uint16_t group, RowRange range) {
    if (range.empty()) return;
    auto& runs = rows_[group];  // disjoint, not touching; by first row
    auto at = runs.upper_bound(range.first);
    if (at != runs.begin() && std::prev(at)->second >= range.first) --at;
    while (at != runs.end() && at->first <= range.end) {
      range = {std::min(range.first, at->first), std::max(range.end, at->second)};
      at = runs.erase(at);
    }
    runs[range.first] = range.end;
  }
  void add_point(HoldingKind kind, uint16_t group, uint32_t n) { points_.insert({kind, group, n}); }
  bool has_point(HoldingKind kind, uint16_t group, uint32_t n) const {
    return points_.contains({kind, group, n});
  }
  std::vector<RowRange> missing(uint16_t group, RowRange wanted) const {
    std::vector<RowRange> out;
    auto found = rows_.find(group);
    if (found == rows_.end()) return wanted.empty() ? out : std::vector{wanted};
    const auto& runs = found->second;
    auto at = runs.upper_bound(wanted.first);
    if (at != runs.begin()) --at;
    uint32_t next = wanted.first;
    for (; at != runs.end() && at->first < wanted.end; ++at) {
      if (at->first > next) out.push_back({next, at->first});
      next = std::max(next, at->second);
    }
    if (next < wanted.end) out.push_back({next, wanted.end});
    return out;
  }

 private:
  std::map<uint16_t, std::map<uint32_t, uint32_t>> rows_;
  std::set<std::tuple<HoldingKind, uint16_t, uint32_t>> points_;
};

// Collects needs for one store; a row is asked for once.
class Needs {
 public:
  Needs(uint32_t block_tokens, const std::vector<Holding>& held)
      : block_(block_tokens), held_(held) {}

  void rows(uint16_t group, RowRange range, bool required) {
    for (const RowRange& gap : held_.missing(group, range)) {
      for (uint32_t at = gap.first; at < gap.end;) {
        uint32_t end = std::min(gap.end, (at / block_ + 1) * block_);
        needs_.push_back({ObjectKind::supplement, at / block_, group, at, end, required});
        at = end;
      }
      held_.add_rows(group, gap);
    }
  }
  // A carry or block-end state at position n: a supplement of the block or tail that holds n - 1.
  void at(uint16_t group, HoldingKind kind, uint32_t n, bool required) {
    if (n == 0 || held_.has_point(kind, group, n)) return;
    needs_.push_back({ObjectKind::supplement, (n - 1) / block_, group, n, n, required});
    held_.add_point(kind, group, n);
  }
  // A snapshot has all checkpoint parts: another group may have asked for it already.
  void snapshot(uint16_t group, uint32_t n, bool required) {
    if (held_.has_point(HoldingKind::snapshot, group, n) || !asked_.insert(n).second) return;
    needs_.push_back({ObjectKind::snapshot, n / block_, 0, n, n, required});
  }
  std::vector<Need> take() { return std::move(needs_); }

 private:
  uint32_t block_;
  Held held_;
  std::set<uint32_t> asked_;  // snapshots
  std::vector<Need> needs_;
};

void group_needs(const PartSpec& spec, uint16_t group, uint32_t block, uint32_t n,
                 const EndRules& rules, Needs& needs) {
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
    uint64_t step = rules.checkpoints ? uint64_t{rules.interval} * block : 0;
    needs.snapshot(group, n, true);
    if (rules.branch > 0) needs.snapshot(group, rules.branch, false);
    for (uint64_t at = step; step > 0 && at < n; at += step) {
      needs.snapshot(group, static_cast<uint32_t>(at), false);
    }
    for (uint32_t at : rules.named) needs.snapshot(group, at, false);
    return;
  }
  needs.at(group, HoldingKind::snapshot, n, true);
  for (uint32_t end = block; end <= n; end += block) {
    needs.at(group, HoldingKind::snapshot, end, false);
  }
  for (uint32_t at : rules.named) needs.at(group, HoldingKind::snapshot, at, false);
}

}  // namespace

std::span<const Token> tokens_between(const Query& query, uint32_t first, uint32_t end) {
  return std::span<const Token>(query.tokens).subspan(first, end - first);
}

uint32_t block_end_interval(const ModelSpec& model, const Profile& profile, uint32_t every,
                            uint32_t n) {
  const bool chosen = every != 0 && every != kEndsByPrice;
  if (profile.prefill == PrefillMode::coded && !chosen) return 1;
  return every == kEndsByPrice ? EndPrice(model, profile).interval(n) : every;
}

std::vector<EndPosition> end_positions(uint32_t block_tokens, uint32_t n, const EndRules& rules) {
  std::vector<EndPosition> out{{n, true}};
  // First of those that are welcome: rows are asked for once, and a client that has just those of
  // a named end cannot give the longer runs of others.
  for (uint32_t at : rules.named) out.push_back({at, false});
  uint32_t block_end = n / block_tokens * block_tokens;
  if (n > 1) out.push_back({n - 1, false});
  if (block_end > 0) out.push_back({block_end, false});
  if (rules.branch > 0) out.push_back({rules.branch, false});
  uint64_t step = uint64_t{rules.interval} * block_tokens;
  for (uint64_t at = step == 0 ? 0 : n / step * step; at > 0; at -= step) {
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
                                 uint32_t n, const EndRules& rules,
                                 const std::vector<Holding>& held) {
  Needs needs(block_tokens, held);
  for (size_t g = 0; g < groups.size(); ++g) {
    group_needs(groups[g].spec, static_cast<uint16_t>(g), block_tokens, n, rules, needs);
  }
  return needs.take();
}

namespace {

// Calls `each` for every side of every plane of the need's object, with its rows.
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
              bytes += stored_rows_bytes(profile, profile.coding(l, p), side,
                                         raw_dtype(model.layers[l].parts[p], profile),
                                         coded ? profile.exact_tokens : end, first, end);
            });
  return bytes;
}

uint64_t decoded_bytes(const ModelSpec& model, std::span<const PartGroup> groups, const Need& need,
                       DType out, const Selection& selection) {
  uint64_t bytes = 0, largest_whole = 0;
  each_side(model, groups, need,
            [&](uint16_t l, uint16_t p, const SideSpec& side, uint32_t first, uint32_t end) {
              if (!selection.has(l, p)) return;
              const uint64_t head = uint64_t{end - first} * side.dim * dtype_bytes(out);
              const uint32_t heads = selected_heads(selection, side.heads);
              bytes += heads * head;
              if (heads != side.heads) largest_whole = std::max(largest_whole, side.heads * head);
            });
  return bytes + largest_whole;
}

}  // namespace kv
