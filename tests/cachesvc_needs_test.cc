// Needs against a row-by-row count, and against the rule that serves: what a store is asked for is
// enough, and nothing that is required is too much.
#include <gtest/gtest.h>

#include "cachesvc/core/needs.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

struct Case {
  std::vector<PartGroup> groups;
  uint32_t block = 16, n = 1;
  EndRules rules;
};

Case random_case(std::mt19937& rng) {
  const PartSpec kinds[] = {full_part(),
                            window_part(1 + rng() % 40, rng() % 6),
                            window_part(1 + rng() % 8, 0),
                            chunk_part(1 + rng() % 30),
                            pooled_part(4, rng() % 2 == 0),
                            state_part(SnapshotPlace::checkpoint),
                            state_part(SnapshotPlace::block_end)};
  std::vector<LayerSpec> layers(1 + rng() % 4);
  for (LayerSpec& layer : layers) layer.parts = {kinds[rng() % std::size(kinds)]};
  Case c;
  c.groups = part_groups(model_of(layers));
  c.block = rng() % 2 ? 16 : 8;
  c.n = 1 + rng() % 90;
  c.rules.interval = rng() % 4;
  c.rules.branch = static_cast<uint32_t>(rng() % (c.n / c.block + 1)) * c.block;
  return c;
}

// Blocks' rows are there; of the needs all but `but`.
std::vector<Holding> holdings_of(const Case& c, const std::vector<Need>& needs,
                                 size_t but = SIZE_MAX) {
  std::vector<Holding> out;
  auto add = [&](size_t group, HoldingKind kind, uint32_t first, uint32_t end) {
    Holding h;
    h.group = static_cast<uint16_t>(group);
    h.kind = kind;
    h.first = first;
    h.end = end;
    h.common = h.end_token = c.n;
    out.push_back(h);
  };
  for (size_t g = 0; g < c.groups.size(); ++g) {
    const PartSpec& spec = c.groups[g].spec;
    if (!spec.has_rows() || !spec.rows_in_block()) continue;
    add(g, HoldingKind::rows, 0, spec.kind == PartKind::pooled ? c.n / spec.rate : c.n);
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    const Need& need = needs[i];
    if (i == but) continue;
    if (need.kind == ObjectKind::snapshot) {
      for (size_t g = 0; g < c.groups.size(); ++g) {
        const PartSpec& spec = c.groups[g].spec;
        const bool checkpoint = spec.snapshot == SnapshotPlace::checkpoint;
        if (!spec.has_rows() && checkpoint) add(g, HoldingKind::snapshot, 0, need.end_row);
      }
    } else if (need.first_row < need.end_row) {
      add(need.group, HoldingKind::rows, need.first_row, need.end_row);
    } else {
      const bool carry = c.groups[need.group].spec.kind == PartKind::pooled;
      add(need.group, carry ? HoldingKind::carry : HoldingKind::snapshot, 0, need.end_row);
    }
  }
  return out;
}

uint32_t restorable(const Case& c, uint32_t n, const std::vector<Holding>& held) {
  RestorableQuery query;
  query.block_tokens = c.block;
  query.query_tokens = n + 1;
  query.common = query.max_tokens = n;
  return plan_restore(c.groups, query, held).tokens;
}

class NeedsProperty : public ::testing::TestWithParam<uint32_t> {};

// Rows and carries that the needs have, by the same sizes as the price.
uint64_t bytes_of(const Case& c, const ModelSpec& model, const Profile& profile,
                  const EndRules& rules) {
  uint64_t bytes = 0;
  for (const Need& need : attached_needs(c.groups, c.block, c.n, rules, {})) {
    if (need.kind == ObjectKind::supplement && need.first_row < need.end_row) {
      bytes += need_bytes(model, profile, c.groups, need);
    }
  }
  return bytes;
}

TEST_P(NeedsProperty, EndsByPriceTakeNoMoreThanTheirEntry) {
  std::mt19937 rng(GetParam());
  int kept = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + " round " + std::to_string(round));
    Case c = random_case(rng);
    std::vector<LayerSpec> layers;
    for (const PartGroup& g : c.groups) layers.push_back(LayerSpec{{g.spec}});
    const ModelSpec model = model_of(layers);
    c.groups = part_groups(model);
    Profile profile = *make_profile(model, rng() % 2 ? 4 : 0);
    profile.block_tokens = c.block;
    profile.exact_tokens = 0;
    const EndPrice price(model, profile);
    const uint32_t interval = price.interval(c.n);
    EXPECT_TRUE((interval & (interval - 1)) == 0 && interval * c.block < c.n) << interval;
    const EndRules own, by_price{interval, 0, {}, false};
    const uint64_t more = bytes_of(c, model, profile, by_price) - bytes_of(c, model, profile, own);
    EXPECT_LE(more, price.ends(c.n, interval));
    EXPECT_LE(more, price.entry(c.n));
    kept += more > 0;
    const bool nothing =
        bytes_of(c, model, profile, {1, 0, {}, false}) == bytes_of(c, model, profile, own);
    if (interval == 0 && !nothing) {  // not even one end is cheap enough
      uint32_t most = 1;
      while (most * 2 * c.block < c.n) most *= 2;
      EXPECT_GT(price.ends(c.n, most), price.entry(c.n));
    }
  }
  EXPECT_GT(kept, 20);
}

TEST_P(NeedsProperty, RowsAreThoseThatSomeEndDemandsEachOnce) {
  std::mt19937 rng(GetParam());
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + " round " + std::to_string(round));
    const Case c = random_case(rng);
    const auto ends = end_positions(c.block, c.n, c.rules);
    std::map<std::pair<uint16_t, uint32_t>, bool> wanted;  // group, row: required
    for (uint16_t g = 0; g < c.groups.size(); ++g) {
      const PartSpec& spec = c.groups[g].spec;
      if (!spec.has_rows() || spec.rows_in_block()) continue;
      for (const EndPosition& at : ends) {
        for (const RowRange& rows : demanded_rows(spec, at.n)) {
          for (uint32_t r = rows.first; r < rows.end; ++r) wanted[{g, r}] |= at.required;
        }
      }
    }
    for (const Need& need : attached_needs(c.groups, c.block, c.n, c.rules, {})) {
      if (need.kind != ObjectKind::supplement || need.first_row == need.end_row) continue;
      EXPECT_EQ(need.first_row / c.block, (need.end_row - 1) / c.block) << "rows of one block";
      for (uint32_t r = need.first_row; r < need.end_row; ++r) {
        auto row = wanted.find({need.group, r});
        ASSERT_NE(row, wanted.end()) << "row " << r << ": demanded by no end, or twice";
        EXPECT_EQ(row->second, need.required) << "row " << r;
        wanted.erase(row);
      }
    }
    EXPECT_TRUE(wanted.empty());
  }
}

TEST_P(NeedsProperty, WhatIsAskedForServesEveryEnd) {
  std::mt19937 rng(GetParam());
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + " round " + std::to_string(round));
    const Case c = random_case(rng);
    const auto needs = attached_needs(c.groups, c.block, c.n, c.rules, {});
    const auto all = holdings_of(c, needs);
    for (const EndPosition& at : end_positions(c.block, c.n, c.rules)) {
      bool states = std::any_of(c.groups.begin(), c.groups.end(),
                                [](const PartGroup& g) { return !g.spec.has_rows(); });
      if (at.n < c.n && states) continue;  // states are there at some ends alone
      EXPECT_EQ(restorable(c, at.n, all), at.n);
    }
    EXPECT_TRUE(attached_needs(c.groups, c.block, c.n, c.rules, all).empty())
        << "nothing is asked for twice";
  }
}

TEST_P(NeedsProperty, WithoutAnyRequiredOneTheLengthIsNotServed) {
  std::mt19937 rng(GetParam());
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + " round " + std::to_string(round));
    const Case c = random_case(rng);
    const auto needs = attached_needs(c.groups, c.block, c.n, c.rules, {});
    std::vector<Need> required;
    for (const Need& need : needs) {
      if (need.required) required.push_back(need);
    }
    EXPECT_EQ(restorable(c, c.n, holdings_of(c, required)), c.n);
    for (size_t i = 0; i < required.size(); ++i) {
      EXPECT_LT(restorable(c, c.n, holdings_of(c, required, i)), c.n) << "need " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, NeedsProperty, ::testing::Range(1u, 6u));

TEST(Needs, MissingRowsAreTheGapsOfOneGroup) {
  auto held = [](uint16_t group, uint32_t first, uint32_t end, uint32_t common) {
    Holding h;
    h.group = group;
    h.first = first;
    h.end = end;
    h.common = common;
    return h;
  };
  const std::vector<Holding> all{held(1, 2, 5, 100), held(1, 8, 20, 9), held(2, 0, 20, 100)};
  EXPECT_EQ(missing_rows({0, 12}, 1, all), (std::vector<RowRange>{{0, 2}, {5, 8}, {9, 12}}));
  EXPECT_TRUE(missing_rows({0, 12}, 2, all).empty());
}

// A client that has a window's rows at a named end alone can give none of those behind it.
TEST(Needs, NoRunGoesOnBeyondANamedEnd) {
  const auto groups = part_groups(model_of({LayerSpec{{window_part(20, 0)}}}));
  auto crossing = [&](const EndRules& rules) {
    const auto needs = attached_needs(groups, 16, 100, rules, {});
    return std::count_if(needs.begin(), needs.end(),
                         [](const Need& n) { return n.first_row < 37 && 37 < n.end_row; });
  };
  EXPECT_EQ(crossing({3}), 1) << "of the block end 48";
  EXPECT_EQ(crossing({3, 0, {37}}), 0);
}

TEST(Needs, EndsAreTheEntrysOwnThenTheBranchThenEveryInterval) {
  std::vector<uint32_t> ends;
  for (const EndPosition& at : end_positions(16, 70, {2, 48})) ends.push_back(at.n);
  EXPECT_EQ(ends, (std::vector<uint32_t>{70, 69, 64, 48, 64, 32}));
  EXPECT_EQ(end_positions(16, 70, {0, 0, {21}})[1].n, 21u) << "named ones come before";
}

}  // namespace
}  // namespace kv
