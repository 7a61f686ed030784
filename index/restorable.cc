// restorable(n): each group gives the largest length <= n that it can serve; asking all groups in
// turn until the length stays gives the largest common one. Answers jump over whole gaps, so the
// search is downwards and exact without trying every length.
#include "index/restorable.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "proto/status.h"

namespace kv {
namespace {

/// Rows and positions that all holdings together have for one group, clipped to the query.
class GroupCover {
 public:
  explicit GroupCover(const PartSpec& part) : part_(&part) {}

  void add_rows(RowRange rows) { rows_.push_back(rows); }
  void add_position(uint32_t at) { positions_.push_back(at); }
  /// Call it once, after the last add.
  void finish() {
    std::sort(positions_.begin(), positions_.end());
    std::sort(rows_.begin(), rows_.end(),
              [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
    std::vector<RowRange> merged;
    for (const RowRange& r : rows_) {
      if (!merged.empty() && r.first <= merged.back().end) {
        merged.back().end = std::max(merged.back().end, r.end);
      } else {
        merged.push_back(r);
      }
    }
    rows_ = std::move(merged);
  }

  /// The largest length <= n that this group can serve; 0 always can be.
  uint32_t largest_at_most(uint32_t n) const {
    switch (part_->kind) {
      case PartKind::full:
      case PartKind::latent:
        return std::min(n, reach());
      case PartKind::window:
        return window_at_most(n);
      case PartKind::chunk:
        return chunk_at_most(n);
      case PartKind::pooled:
        return pooled_at_most(n);
      case PartKind::state:
      case PartKind::opaque:
        return position_at_most(n);
    }
    return 0;
  }

  /// The first rows of `wanted` that are absent.
  std::optional<RowRange> first_gap(const RowRange& wanted) const {
    uint32_t at = wanted.first;
    for (auto it = run_after(at); at < wanted.end; ++it) {
      if (it == rows_.end() || it->first > at) {
        return RowRange{at, it == rows_.end() ? wanted.end : std::min(wanted.end, it->first)};
      }
      at = it->end;
    }
    return std::nullopt;
  }

  bool has_position(uint32_t n) const {
    return std::binary_search(positions_.begin(), positions_.end(), n);
  }

 private:
  using Run = std::vector<RowRange>::const_iterator;

  /// The first run that ends beyond `row`: it holds `row`, or else no run does.
  Run run_after(uint32_t row) const {
    return std::upper_bound(rows_.begin(), rows_.end(), row,
                            [](uint32_t value, const RowRange& r) { return value < r.end; });
  }
  /// Rows [0, reach) are present.
  uint32_t reach() const {
    return !rows_.empty() && rows_.front().first == 0 ? rows_.front().end : 0;
  }
  /// The largest position of a carry or snapshot <= n, else 0.
  uint32_t position_at_most(uint32_t n) const {
    auto it = std::upper_bound(positions_.begin(), positions_.end(), n);
    return it == positions_.begin() ? 0 : *std::prev(it);
  }

  /// The largest end of present rows <= n, and the first row of their run: {0, 0} if there is none.
  RowRange newest_run(uint32_t n) const {
    if (n == 0) return {};
    const Run it = run_after(n - 1);
    if (it != rows_.end() && it->first < n) return {it->first, n};
    return it == rows_.begin() ? RowRange{} : *std::prev(it);
  }

  uint32_t window_at_most(uint32_t n) const {
    if (reach() < part_->keep) n = std::min(n, reach());
    if (part_->window <= 1) return n;
    while (n > 0) {
      const RowRange run = newest_run(n);
      const uint32_t from = run.end + 1 > part_->window ? run.end + 1 - part_->window : 0;
      if (run.first <= from) return run.end;
      n = run.first;  // a shorter n in this run demands rows still farther back
    }
    return 0;
  }

  uint32_t chunk_at_most(uint32_t n) const {
    const uint32_t start = n - n % part_->chunk;  // always servable
    while (n > start) {
      const RowRange run = newest_run(n);
      if (run.end <= start) break;
      if (run.first <= start) return run.end;
      n = run.first;
    }
    return start;
  }

  uint32_t pooled_at_most(uint32_t n) const {
    const uint64_t rows_allow = (uint64_t{reach()} + 1) * part_->rate - 1;
    n = static_cast<uint32_t>(std::min<uint64_t>(n, rows_allow));
    const uint32_t multiple = n - n % part_->rate;
    const uint32_t without_carry = !part_->overlap ? multiple : 0;
    return std::max(without_carry, position_at_most(n));
  }

  const PartSpec* part_;
  std::vector<RowRange> rows_;       // disjoint, not adjacent, ascending after finish()
  std::vector<uint32_t> positions_;  // positions of carries or snapshots
};

/// The rows that a holding has of this query.
RowRange clipped_rows(const Holding& h, const PartSpec& part) {
  const uint32_t limit = part.kind == PartKind::pooled ? h.common / part.rate : h.common;
  return {h.first, std::min(h.end, limit)};
}

bool holds_position(const Holding& h) { return h.kind != HoldingKind::rows && h.end <= h.common; }

/// Rows still to be served, as first -> end.
class Wanted {
 public:
  explicit Wanted(const std::vector<RowRange>& ranges) {
    for (const RowRange& r : ranges) open_.emplace(r.first, r.end);
  }
  bool done() const { return open_.empty(); }
  /// Calls take(first, end) for each wanted run inside `rows` and wants it no longer.
  template <typename Take>
  void serve(const RowRange& rows, Take&& take) {
    if (rows.empty()) return;
    auto it = open_.upper_bound(rows.first);
    if (it != open_.begin() && std::prev(it)->second > rows.first) --it;
    while (it != open_.end() && it->first < rows.end) {
      const auto [first, end] = *it;
      const RowRange run{std::max(first, rows.first), std::min(end, rows.end)};
      it = open_.erase(it);
      if (first < run.first) open_.emplace(first, run.first);
      if (run.end < end) it = open_.emplace(run.end, end).first;
      take(run.first, run.end);
    }
  }

 private:
  std::map<uint32_t, uint32_t> open_;
};

/// Smaller goes first. Of a repeat: tails that match through n, the shortest first; the path;
/// others, a tail that diverges before n among them. Of any other hit: the path; other blocks;
/// tails. No tier has a say: what a hit gives does not depend on what lies where.
auto preference(const Holding& h, uint32_t n, bool repeat) {
  enum : int { kTailOfRepeat, kPath, kOther, kTail };
  const bool tail = h.place == HoldingPlace::tail;
  const bool through_n = tail && h.common >= n;
  int place = h.place == HoldingPlace::path ? kPath : kOther;
  if (tail && !repeat) place = kTail;
  if (through_n && repeat) place = kTailOfRepeat;
  return std::tuple(place, through_n ? h.end_token : 0, h.form != HitForm::exact_tail);
}

std::vector<GroupCover> cover_of(std::span<const PartGroup> groups,
                                 std::span<const Holding> holdings) {
  std::vector<GroupCover> covers;
  covers.reserve(groups.size());
  for (const PartGroup& g : groups) covers.emplace_back(g.spec);
  for (const Holding& h : holdings) {
    if (h.group >= groups.size()) continue;
    if (h.kind == HoldingKind::rows) {
      const RowRange rows = clipped_rows(h, groups[h.group].spec);
      if (!rows.empty()) covers[h.group].add_rows(rows);
    } else if (holds_position(h)) {
      covers[h.group].add_position(h.end);
    }
  }
  for (GroupCover& c : covers) c.finish();
  return covers;
}

uint32_t largest_common(const std::vector<GroupCover>& covers, const RestorableQuery& query,
                        uint32_t n) {
  const uint32_t step = query.round_to_block ? query.block_tokens : 1;
  for (bool settled = false; !settled;) {
    n -= n % step;
    const uint32_t before = n;
    for (const GroupCover& c : covers) n = c.largest_at_most(n);
    settled = n == before;
  }
  return n;
}

/// Fills plan.served for plan.tokens.
void choose(std::span<const PartGroup> groups, std::span<const Holding> holdings, bool repeat,
            RestorePlan& plan) {
  const uint32_t n = plan.tokens;
  std::vector<uint32_t> order(holdings.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(holdings[a].group, preference(holdings[a], n, repeat)) <
           std::tuple(holdings[b].group, preference(holdings[b], n, repeat));
  });
  auto at = order.begin();
  for (size_t g = 0; g < groups.size(); ++g) {
    const PartSpec& part = groups[g].spec;
    Wanted wanted(demanded_rows(part, n));
    bool position = demands_carry(part, n) || demands_snapshot(part, n);
    const size_t begin = plan.served.size();
    for (; at != order.end() && holdings[*at].group == g; ++at) {
      const Holding& h = holdings[*at];
      if (h.kind == HoldingKind::rows) {
        if (wanted.done()) continue;
        wanted.serve(clipped_rows(h, part), [&](uint32_t first, uint32_t end) {
          plan.served.push_back({*at, first, end});
        });
      } else if (position && h.end == n && holds_position(h)) {
        plan.served.push_back({*at, n, n});
        position = false;
      }
    }
    KV_CHECK(wanted.done() && !position);  // the covers said that n can be served
    std::sort(plan.served.begin() + static_cast<ptrdiff_t>(begin), plan.served.end(),
              [&](const Served& a, const Served& b) {
                return std::tuple(holdings[a.holding].kind, a.first) <
                       std::tuple(holdings[b.holding].kind, b.first);
              });
  }
}

/// Tier over all that is served; form from each group's newest rows (of models without rows: from
/// their snapshots).
void summarize(std::span<const Holding> holdings, RestorePlan& plan) {
  bool any_rows = false;
  for (const Served& s : plan.served) any_rows |= holdings[s.holding].kind == HoldingKind::rows;
  plan.form = HitForm::exact_tail;
  for (size_t i = 0; i < plan.served.size(); ++i) {
    const Holding& h = holdings[plan.served[i].holding];
    plan.tier = plan.tier == Tier::none || plan.tier == h.tier ? h.tier : Tier::mixed;
    const Holding* next =
        i + 1 < plan.served.size() ? &holdings[plan.served[i + 1].holding] : nullptr;
    const bool newest = next == nullptr || next->group != h.group || next->kind != h.kind;
    const bool counts = !any_rows || (h.kind == HoldingKind::rows && newest);
    if (counts && h.form != HitForm::exact_tail) plan.form = HitForm::coded;
  }
  if (plan.served.empty()) plan.form = HitForm::none;
}

std::string describe(const PartGroup& group, uint16_t index) {
  std::string text = "part group " + std::to_string(index) + " (" + to_string(group.spec.kind);
  if (!group.members.empty()) {
    text += ", layer " + std::to_string(group.members.front().layer);
    const size_t more = group.members.size() - 1;
    if (more > 0) text += " and " + std::to_string(more) + " more";
  }
  return text + ")";
}

/// The group that limits n most, and what it lacks at `wanted`.
Shortfall missing_at(std::span<const PartGroup> groups, const std::vector<GroupCover>& covers,
                     uint32_t wanted) {
  Shortfall s;
  uint32_t least = wanted;
  for (size_t g = 0; g < groups.size(); ++g) {
    const uint32_t can = covers[g].largest_at_most(wanted);
    if (can < least) {
      least = can;
      s.group = static_cast<uint16_t>(g);
    }
  }
  s.wanted = wanted;
  if (least == wanted) return s;
  const PartSpec& part = groups[s.group].spec;
  const std::string who = describe(groups[s.group], s.group) + " lacks ";
  const std::string at = " at length " + std::to_string(wanted);
  for (const RowRange& rows : demanded_rows(part, wanted)) {
    if (auto gap = covers[s.group].first_gap(rows)) {
      s.reason = ShortReason::missing_rows;
      s.first = gap->first;
      s.end = gap->end;
      s.text = who + "rows [" + std::to_string(s.first) + ", " + std::to_string(s.end) + ")" + at;
      return s;
    }
  }
  s.first = s.end = wanted;
  s.reason = part.has_rows() ? ShortReason::missing_carry : ShortReason::missing_snapshot;
  s.text = who + (part.has_rows() ? "the carry" : "a snapshot") + at;
  return s;
}

Shortfall explain(std::span<const PartGroup> groups, const std::vector<GroupCover>& covers,
                  const RestorableQuery& query, uint32_t cap, uint32_t n) {
  Shortfall s;
  s.wanted = cap;
  const std::string block = std::to_string(query.block_tokens);
  if (n < cap && n != 0 && n == cap - cap % query.block_tokens && query.round_to_block) {
    s.reason = ShortReason::round_to_block;
    s.text = "rounded down to a multiple of block_tokens = " + block;
  } else if (n < cap) {
    const uint32_t wanted = query.round_to_block ? cap - cap % query.block_tokens : cap;
    s = missing_at(groups, covers, wanted);
    if (s.reason == ShortReason::none) {
      s.reason = ShortReason::round_to_block;
      s.text = "rounded down to a multiple of block_tokens = " + block;
    }
  } else if (cap < query.common && cap == query.max_tokens) {
    s.reason = ShortReason::max_tokens;
    s.text = "the request allows " + std::to_string(cap) + " tokens";
  } else if (cap < query.common) {
    s.reason = ShortReason::query_minus_one;
    s.text = "the last token of a query is always computed";
  }
  return s;
}

}  // namespace

const char* to_string(ShortReason reason) {
  switch (reason) {
    case ShortReason::none:
      return "none";
    case ShortReason::query_minus_one:
      return "query_minus_one";
    case ShortReason::max_tokens:
      return "max_tokens";
    case ShortReason::round_to_block:
      return "round_to_block";
    case ShortReason::min_tokens:
      return "min_tokens";
    case ShortReason::missing_rows:
      return "missing_rows";
    case ShortReason::missing_carry:
      return "missing_carry";
    case ShortReason::missing_snapshot:
      return "missing_snapshot";
  }
  return "unknown";
}

RestorePlan plan_restore(std::span<const PartGroup> groups, const RestorableQuery& query,
                         std::span<const Holding> holdings) {
  KV_CHECK(query.block_tokens > 0);
  const auto covers = cover_of(groups, holdings);
  const uint32_t longest = query.query_tokens > 0 ? query.query_tokens - 1 : 0;
  const uint32_t cap = std::min({query.common, longest, query.max_tokens});
  RestorePlan plan;
  plan.tokens = largest_common(covers, query, cap);
  plan.shortfall = explain(groups, covers, query, cap, plan.tokens);
  if (plan.tokens > 0 && plan.tokens < query.min_tokens) {
    plan.shortfall.reason = ShortReason::min_tokens;
    plan.shortfall.wanted = cap;
    plan.shortfall.text =
        std::to_string(plan.tokens) +
        " tokens are restorable, fewer than min_tokens = " + std::to_string(query.min_tokens);
    plan.tokens = 0;
  }
  if (plan.tokens > 0) choose(groups, holdings, plan.tokens >= longest, plan);
  summarize(holdings, plan);
  return plan;
}

}  // namespace kv
