// restorable(n) against simulated caches. Each toy cache is fed token by token, as an engine does
// it; what it holds when it has seen n tokens is what a hit at n must bring back. A value is the
// hash of all tokens that it was computed from, so another sequence's row can't pass for the right
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>

#include "index/restorable.h"

namespace kv {
namespace {

using Rng = std::mt19937_64;
using Tokens = std::vector<uint8_t>;
uint32_t random_below(Rng& rng, uint32_t n) { return static_cast<uint32_t>(rng() % n); }

/// Hash of the first n tokens: the value of whatever depends on exactly these.
uint64_t history(const Tokens& t, uint32_t n) {
  uint64_t h = 1469598103934665603ull + n;
  for (uint32_t i = 0; i < n; ++i) h = (h ^ (t[i] + 1u)) * 1099511628211ull;
  return h;
}

struct Item {
  HoldingKind kind;
  uint32_t at;  // row, or position of a carry or snapshot
  uint64_t value;
  auto operator<=>(const Item&) const = default;
};
using Items = std::set<Item>;

/// mlx-lm's RotatingKVCache(max_size, keep) in decode: grows to max_size, then overwrites the
/// oldest slot that is not a sink. The newest query sees all that is in the ring, its own row
/// included.
std::vector<uint32_t> rotating_ring(uint32_t max_size, uint32_t keep, uint32_t appended) {
  std::vector<uint32_t> ring;
  uint32_t index = 0;
  for (uint32_t row = 0; row < appended; ++row) {
    if (ring.size() < max_size) {
      ring.push_back(row);
      index = static_cast<uint32_t>(ring.size());
    } else {
      if (index == max_size) index = keep;
      ring[index++] = row;
    }
  }
  return ring;
}

/// What a cache of this part holds after the first n of `t`, as far as token n will ever look at
/// it.
Items simulate(const PartSpec& p, const Tokens& t, uint32_t n) {
  Items out;
  auto row = [&](uint32_t q, uint32_t depends_on) {
    out.insert({HoldingKind::rows, q, history(t, depends_on)});
  };
  switch (p.kind) {
    case PartKind::full:
    case PartKind::latent:
      for (uint32_t q = 0; q < n; ++q) row(q, q + 1);
      break;
    case PartKind::window:
      // Appends n + 1 rows: those left beside row n are what it attends to.
      for (uint32_t q : rotating_ring(p.window + p.keep, p.keep, n + 1)) {
        if (q != n) row(q, q + 1);
      }
      break;
    case PartKind::chunk: {
      std::vector<uint32_t> seen;
      for (uint32_t q = 0; q <= n; ++q) {
        if (q % p.chunk == 0) seen.clear();
        if (q < n) seen.push_back(q);
      }
      for (uint32_t q : seen) row(q, q + 1);
      break;
    }
    case PartKind::pooled: {
      std::vector<uint32_t> inputs, previous;
      for (uint32_t q = 0; q < n; ++q) {
        inputs.push_back(q);
        if (inputs.size() < p.rate) continue;
        row(q / p.rate, q + 1);
        if (p.overlap) previous = inputs;
        inputs.clear();
      }
      if (!inputs.empty() || !previous.empty()) {
        out.insert({HoldingKind::carry, n, history(t, n)});
      }
      break;
    }
    case PartKind::state:
    case PartKind::opaque:
      if (n > 0) out.insert({HoldingKind::snapshot, n, history(t, n)});
  }
  return out;
}

/// An object as stored: a span of some sequence and what it holds, each with its true value.
struct Stored {
  const Tokens* sequence;
  uint32_t end_token;
  std::vector<std::pair<Holding, Items>> holdings;
};

PartGroup random_group(Rng& rng) {
  PartGroup g;
  g.spec.kind = static_cast<PartKind>(1 + random_below(rng, 7));
  g.spec.window = 1 + random_below(rng, 20);
  g.spec.keep = random_below(rng, 2) * random_below(rng, 6);
  g.spec.chunk = 1 + random_below(rng, 12);
  g.spec.rate = 1u << random_below(rng, 4);
  g.spec.overlap = random_below(rng, 2) == 1;
  g.members = {{0, 0}};
  return g;
}

class World {
 public:
  explicit World(uint64_t seed) : rng(seed) {
    for (uint32_t i = 1 + random_below(rng, 4); i > 0; --i) groups.push_back(random_group(rng));
    sequences.reserve(8);
    for (int i = 0; i < 6; ++i) add_sequence();
    query = sequences[random_below(rng, static_cast<uint32_t>(sequences.size()))];
    query.resize(1 + random_below(rng, static_cast<uint32_t>(query.size())));
    for (uint32_t i = random_below(rng, 3); i > 0; --i) query.push_back(random_token());
    keep_percent_ = 60 + random_below(rng, 41);
    for (const Tokens& s : sequences) store(s);
    for (const Stored& o : objects) {
      for (const auto& [h, items] : o.holdings) {
        holdings.push_back(h);
        contents.push_back(&items);
      }
    }
  }

  static constexpr uint32_t kBlock = 16;
  Rng rng;
  std::vector<PartGroup> groups;
  std::vector<Tokens> sequences;
  Tokens query;
  std::vector<Stored> objects;
  std::vector<Holding> holdings;       // what the rule is given
  std::vector<const Items*> contents;  // [i]: what holdings[i] really has
  uint32_t longest = 0;

 private:
  void add_sequence() {
    Tokens s;
    if (!sequences.empty()) {  // branches off an earlier one, also inside a block
      s = sequences[random_below(rng, static_cast<uint32_t>(sequences.size()))];
      s.resize(random_below(rng, static_cast<uint32_t>(s.size()) + 1));
    }
    for (uint32_t i = 1 + random_below(rng, 70); i > 0; --i) s.push_back(random_token());
    sequences.push_back(std::move(s));
  }
  uint8_t random_token() { return static_cast<uint8_t>(random_below(rng, 2)); }
  bool kept() { return random_below(rng, 100) < keep_percent_; }

  void store(const Tokens& s) {
    const auto n = static_cast<uint32_t>(s.size());
    for (uint32_t first = 0; first < n; first += kBlock) {
      if (kept() || kept()) store_object(s, first, std::min(n, first + kBlock));
    }
  }

  void store_object(const Tokens& s, uint32_t first, uint32_t end) {
    Stored o{&s, end, {}};
    const auto shared = static_cast<uint32_t>(
        std::mismatch(s.begin(), s.begin() + end, query.begin(), query.end()).first - s.begin());
    longest = std::max(longest, shared > first ? shared : 0);
    const bool tail = end - first < kBlock;
    const Tier tier = random_below(rng, 2) == 0 ? Tier::ram : Tier::ssd;
    for (uint16_t g = 0; g < groups.size(); ++g) {
      Holding h;
      h.object = objects.size();
      h.group = g;
      h.common = shared;
      h.end_token = end;
      h.tier = tier;
      h.form = tail ? HitForm::exact_tail : HitForm::coded;
      h.place =
          tail ? HoldingPlace::tail : (shared == end ? HoldingPlace::path : HoldingPlace::other);
      hold_rows(o, h, s, first, end);
      if (groups[g].spec.kind == PartKind::pooled && kept()) {
        hold_position(o, h, s, HoldingKind::carry);
      }
      if (!groups[g].spec.has_rows()) {
        for (uint32_t at = first + 1; at <= end; ++at) {
          h.end_token = at;
          if (random_below(rng, 6) == 0) hold_position(o, h, s, HoldingKind::snapshot);
        }
      }
    }
    objects.push_back(std::move(o));
  }

  void hold_position(Stored& o, Holding h, const Tokens& s, HoldingKind kind) {
    h.kind = kind;
    h.first = h.end = h.end_token;
    o.holdings.push_back({h, {{kind, h.end, history(s, h.end)}}});
  }

  void hold_rows(Stored& o, Holding h, const Tokens& s, uint32_t first, uint32_t end) {
    const PartSpec& p = groups[h.group].spec;
    if (!p.has_rows()) return;
    const uint32_t unit = p.kind == PartKind::pooled ? p.rate : 1;
    h.first = first / unit;
    h.end = end / unit;
    if (!p.rows_in_block()) {  // a supplement: only a part of the block's rows, or none
      if (!kept()) return;
      if (random_below(rng, 3) == 0) h.first += random_below(rng, h.end - h.first + 1);
      if (random_below(rng, 5) == 0) h.end -= random_below(rng, h.end - h.first + 1);
    }
    Items items;
    for (uint32_t q = h.first; q < h.end; ++q) {
      items.insert({HoldingKind::rows, q, history(s, (q + 1) * unit)});
    }
    o.holdings.push_back({h, items});
  }

  uint32_t keep_percent_ = 100;
};

struct Counts {
  size_t lengths = 0, servable = 0, wrong = 0, missed = 0;
};

/// All that is served is what the simulated cache holds: nothing else, nothing twice, nothing
/// absent.
void check_served(const World& w, const RestorePlan& plan) {
  for (uint16_t g = 0; g < w.groups.size(); ++g) {
    Items served;
    size_t count = 0;
    for (const Served& s : plan.served) {
      const Holding& h = w.holdings[s.holding];
      if (h.group != g) continue;
      const Items& items = *w.contents[s.holding];
      const uint32_t end = h.kind == HoldingKind::rows ? s.end : s.first + 1;
      for (uint32_t at = s.first; at < end; ++at, ++count) {
        auto it = items.lower_bound({h.kind, at, 0});
        ASSERT_TRUE(it != items.end() && it->at == at) << "served a row that the object lacks";
        served.insert(*it);
      }
    }
    ASSERT_EQ(count, served.size());
    ASSERT_EQ(served, simulate(w.groups[g].spec, w.query, plan.tokens)) << "group " << g;
  }
}

/// A hit is served by the same objects, whichever of them lie in RAM.
void check_no_tier_decides(const World& w, const RestorableQuery& q, const RestorePlan& plan) {
  std::vector<Holding> elsewhere = w.holdings;
  for (Holding& h : elsewhere) h.tier = h.object % 3 == 0 ? Tier::ssd : Tier::ram;
  const RestorePlan other = plan_restore(w.groups, q, elsewhere);
  auto chosen = [](const RestorePlan& p) {
    std::vector<std::array<uint32_t, 3>> out;
    for (const Served& s : p.served) out.push_back({s.holding, s.first, s.end});
    return out;
  };
  ASSERT_EQ(chosen(plan), chosen(other));
}

void check_world(const World& w, Counts& counts) {
  std::vector<Items> all(w.groups.size());
  for (size_t i = 0; i < w.holdings.size(); ++i) {
    all[w.holdings[i].group].insert(w.contents[i]->begin(), w.contents[i]->end());
  }
  const auto len = static_cast<uint32_t>(w.query.size());
  uint32_t best = 0, best_at_block_end = 0;
  for (uint32_t n = 0; n <= std::min(w.longest, len - 1); ++n) {
    bool truth = true;
    for (size_t g = 0; truth && g < w.groups.size(); ++g) {
      const Items need = simulate(w.groups[g].spec, w.query, n);
      truth = std::includes(all[g].begin(), all[g].end(), need.begin(), need.end());
    }
    if (truth) best = n;
    if (truth && n % World::kBlock == 0) best_at_block_end = n;
    RestorableQuery q{World::kBlock, len, w.longest, n, 0, false};
    const RestorePlan plan = plan_restore(w.groups, q, w.holdings);
    ++counts.lengths;
    counts.servable += truth;
    counts.wrong += plan.tokens == n && !truth;
    counts.missed += plan.tokens != n && truth;
    ASSERT_EQ(plan.tokens, best) << "at most " << n << " " << plan.shortfall.text;
    ASSERT_NO_FATAL_FAILURE(check_served(w, plan));
    ASSERT_NO_FATAL_FAILURE(check_no_tier_decides(w, q, plan));
    const bool missing = plan.shortfall.reason >= ShortReason::missing_rows;
    ASSERT_EQ(missing, plan.tokens < n) << to_string(plan.shortfall.reason);
    q.round_to_block = true;
    ASSERT_EQ(plan_restore(w.groups, q, w.holdings).tokens, best_at_block_end);
  }
}

TEST(Restorable, EqualsSimulatedCachesForAllPartKinds) {
  Counts counts;
  uint64_t seed = 1;
  for (; counts.lengths < 60000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(check_world(World(seed), counts));
  }
  std::cout << "seeds 1-" << seed - 1 << ": " << counts.lengths << " lengths, " << counts.servable
            << " servable, " << counts.wrong << " wrong, " << counts.missed << " missed\n";
  EXPECT_EQ(counts.wrong, 0u);
  EXPECT_EQ(counts.missed, 0u);
  EXPECT_GT(counts.servable, counts.lengths / 20);  // both answers occur often
  EXPECT_LT(counts.servable, counts.lengths * 19 / 20);
}

TEST(Restorable, DemandsAreExactlyWhatTheSimulatedCacheHolds) {
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    const PartSpec p = random_group(rng).spec;
    const Tokens t(60, 1);
    for (uint32_t n = 0; n < 60; ++n) {
      std::multiset<std::pair<HoldingKind, uint32_t>> want, got;
      for (const Item& item : simulate(p, t, n)) want.insert({item.kind, item.at});
      for (const RowRange& r : demanded_rows(p, n)) {
        for (uint32_t q = r.first; q < r.end; ++q) got.insert({HoldingKind::rows, q});
      }
      if (demands_carry(p, n)) got.insert({HoldingKind::carry, n});
      if (demands_snapshot(p, n)) got.insert({HoldingKind::snapshot, n});
      ASSERT_EQ(got, want) << to_string(p.kind) << " n " << n << " window " << p.window << " keep "
                           << p.keep << " chunk " << p.chunk << " rate " << p.rate;
    }
  }
}

/// mlx-lm's RotatingKVCache(max_size, keep) in prefill, `step` tokens at a time: it grows beyond
/// max_size, so that the first token of a step sees all that it may.
std::vector<uint32_t> prefill_buffer(uint32_t max_size, uint32_t keep, uint32_t step,
                                     uint32_t steps) {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < step * steps;) {
    const size_t held = rows.size(), least = max_size - 1;
    if (held > least) rows.erase(rows.begin() + keep, rows.end() - (least - keep));
    for (uint32_t i = 0; i < step; ++i) rows.push_back(row++);
  }
  return rows;
}

// A store of all rows that such a buffer holds: the lengths through the last step are restorable,
// its own and `step` before it, and of those that the sinks alone serve, all.
TEST(Restorable, AnOversizedPrefillBufferServesExactlyItsExtraLengths) {
  Rng rng(11);
  for (int i = 0; i < 300; ++i) {
    PartGroup g = random_group(rng);
    g.spec.kind = PartKind::window;
    const uint32_t window = g.spec.window, keep = g.spec.keep, step = 1 + random_below(rng, 30);
    const uint32_t steps = 1 + random_below(rng, 6), n = step * steps;
    const auto rows = prefill_buffer(window + keep, keep, step, steps);
    Items held;
    std::vector<Holding> holdings;
    for (uint32_t q : rows) {
      held.insert({HoldingKind::rows, q, 0});
      Holding& h = holdings.emplace_back();
      h.object = 1;
      h.first = q;
      h.end = q + 1;
      h.common = h.end_token = n;
    }
    uint32_t best = 0, extra = 0;
    for (uint32_t at = 1; at <= n; ++at) {
      bool all = true;
      for (const Item& item : simulate(g.spec, Tokens(n, 1), at)) {
        all &= held.contains({HoldingKind::rows, item.at, 0});
      }
      if (all) best = at;
      extra += all && at + step >= n && at < n;
      const RestorableQuery query{.query_tokens = n + 1, .common = n, .max_tokens = at};
      ASSERT_EQ(plan_restore({&g, 1}, query, holdings).tokens, best)
          << "window " << window << " keep " << keep << " step " << step << " of " << n;
    }
    EXPECT_EQ(best, n);
    EXPECT_EQ(extra, std::min(step, n - 1)) << "window " << window << " step " << step;
  }
}

PartGroup group_of(PartKind kind) {
  PartGroup g;
  g.spec.kind = kind;
  g.members = {{3, 0}, {4, 0}};
  return g;
}
Holding rows_of(uint64_t object, HoldingPlace place, uint32_t first, uint32_t end,
                uint32_t common) {
  Holding h;
  h.object = object;
  h.place = place;
  h.form = place == HoldingPlace::tail ? HitForm::exact_tail : HitForm::coded;
  h.first = first;
  h.end = end;
  h.common = common;
  h.end_token = end;
  return h;
}

TEST(Restorable, ExactHitLeavesOneTokenToCompute) {
  const std::vector<PartGroup> groups{group_of(PartKind::full)};
  const std::vector<Holding> holdings{rows_of(1, HoldingPlace::path, 0, 256, 256)};
  const auto plan = plan_restore(groups, {.query_tokens = 256, .common = 256}, holdings);
  EXPECT_EQ(plan.tokens, 255u);
  EXPECT_EQ(plan.shortfall.reason, ShortReason::query_minus_one);
  EXPECT_EQ(plan_restore(groups, {.query_tokens = 1, .common = 1}, holdings).tokens, 0u);
  EXPECT_EQ(plan_restore(groups, {.query_tokens = 0, .common = 0}, holdings).tokens, 0u);
}

TEST(Restorable, OfARepeatTheShortestTailIsServedWhateverItsTier) {
  const std::vector<PartGroup> groups{group_of(PartKind::full)};
  std::vector<Holding> holdings{
      rows_of(1, HoldingPlace::path, 0, 256, 256), rows_of(2, HoldingPlace::path, 256, 512, 512),
      rows_of(3, HoldingPlace::tail, 256, 400, 400), rows_of(4, HoldingPlace::tail, 256, 300, 300),
      rows_of(5, HoldingPlace::tail, 256, 290, 290)};
  holdings[3].tier = Tier::ssd;
  const RestorableQuery query{.query_tokens = 301, .common = 301};
  auto plan = plan_restore(groups, query, holdings);
  ASSERT_EQ(plan.tokens, 300u);
  ASSERT_EQ(plan.served.size(), 2u);
  EXPECT_EQ(holdings[plan.served[0].holding].object, 1u);
  EXPECT_EQ(holdings[plan.served[1].holding].object, 4u);
  EXPECT_EQ(plan.form, HitForm::exact_tail);
  EXPECT_EQ(plan.tier, Tier::mixed);
  holdings.resize(2);
  plan = plan_restore(groups, query, holdings);
  EXPECT_EQ(plan.tokens, 300u);
  EXPECT_EQ(plan.form, HitForm::coded);
}

// Another conversation on one system prompt: the prompt's own tail and the first conversation's
// block have its last rows. A repeat has the bits that it had; all others use what the first use.
TEST(Restorable, AHitOnAPartIsServedByBlocksWhereTheyHaveItsRows) {
  const std::vector<PartGroup> groups{group_of(PartKind::full)};
  const std::vector<Holding> holdings{rows_of(1, HoldingPlace::path, 0, 256, 256),
                                      rows_of(2, HoldingPlace::tail, 256, 300, 300),
                                      rows_of(3, HoldingPlace::tail, 256, 310, 280),
                                      rows_of(4, HoldingPlace::other, 256, 512, 290)};
  auto served = [&](uint32_t query_tokens) {
    const auto plan = plan_restore(groups, {.query_tokens = query_tokens, .common = 300}, holdings);
    EXPECT_EQ(plan.tokens, 300u);
    std::vector<std::array<uint64_t, 3>> out;
    for (const Served& s : plan.served) out.push_back({holdings[s.holding].object, s.first, s.end});
    return out;
  };
  using testing::ElementsAre;
  EXPECT_THAT(served(301), ElementsAre(std::array<uint64_t, 3>{1, 0, 256},
                                       std::array<uint64_t, 3>{2, 256, 300}));
  EXPECT_THAT(served(302),
              ElementsAre(std::array<uint64_t, 3>{1, 0, 256}, std::array<uint64_t, 3>{4, 256, 290},
                          std::array<uint64_t, 3>{2, 290, 300}));
}

// FORMAT.md, "More than one file for a row": neither the lower first row nor the longer range
// decides between supplements of one block, but the order in which they are given.
TEST(Restorable, OfOverlappingSupplementsTheOneGivenFirstServes) {
  const std::vector<PartGroup> groups{group_of(PartKind::full)};
  const std::vector<Holding> holdings{
      rows_of(1, HoldingPlace::other, 0, 256, 256), rows_of(2, HoldingPlace::path, 100, 160, 256),
      rows_of(3, HoldingPlace::path, 0, 140, 256), rows_of(4, HoldingPlace::path, 120, 256, 256)};
  const auto plan = plan_restore(groups, {.query_tokens = 257, .common = 256}, holdings);
  ASSERT_EQ(plan.tokens, 256u);
  std::vector<std::array<uint64_t, 3>> served;
  for (const Served& s : plan.served) {
    served.push_back({holdings[s.holding].object, s.first, s.end});
  }
  EXPECT_EQ(served,
            (std::vector<std::array<uint64_t, 3>>{{3, 0, 100}, {2, 100, 160}, {4, 160, 256}}));
}

TEST(Restorable, ReasonNamesGroupAndWhatItLacks) {
  std::vector<PartGroup> groups{group_of(PartKind::full), group_of(PartKind::window),
                                group_of(PartKind::state)};
  groups[1].spec.window = 100;
  std::vector<Holding> holdings{rows_of(1, HoldingPlace::path, 0, 512, 512),
                                rows_of(1, HoldingPlace::path, 160, 256, 512),
                                rows_of(1, HoldingPlace::path, 0, 256, 512)};
  holdings[1].group = 1;
  holdings[2].group = 2;
  holdings[2].kind = HoldingKind::snapshot;
  RestorableQuery query{.query_tokens = 600, .common = 512};
  auto plan = plan_restore(groups, query, holdings);
  EXPECT_EQ(plan.tokens, 0u);
  EXPECT_EQ(plan.shortfall.reason, ShortReason::missing_rows);
  EXPECT_EQ(plan.shortfall.group, 1u);
  EXPECT_EQ(plan.shortfall.text,
            "part group 1 (window, layer 3 and 1 more) lacks rows [413, 512) at length 512");
  holdings[1].first = 157;
  plan = plan_restore(groups, query, holdings);
  EXPECT_EQ(plan.tokens, 256u);
  holdings[1].end = 512;
  plan = plan_restore(groups, query, holdings);
  EXPECT_EQ(plan.tokens, 256u);
  EXPECT_EQ(plan.shortfall.reason, ShortReason::missing_snapshot);
  query.min_tokens = 257;
  plan = plan_restore(groups, query, holdings);
  EXPECT_EQ(plan.tokens, 0u);
  EXPECT_EQ(plan.shortfall.reason, ShortReason::min_tokens);
  EXPECT_TRUE(plan.served.empty());
}

TEST(Restorable, UnknownGroupsAndEmptyOrForeignRangesAreIgnored) {
  const std::vector<PartGroup> groups{group_of(PartKind::full)};
  std::vector<Holding> holdings{rows_of(1, HoldingPlace::path, 0, 256, 256),
                                rows_of(2, HoldingPlace::path, 9, 3, 256),
                                rows_of(3, HoldingPlace::other, 300, 500, 256)};
  holdings[0].group = 77;
  EXPECT_EQ(plan_restore(groups, {.query_tokens = 300, .common = 256}, holdings).tokens, 0u);
}

}  // namespace
}  // namespace kv
