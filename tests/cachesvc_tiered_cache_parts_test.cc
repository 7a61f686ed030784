// Windows, chunks, pooled rows, states: stored and fetched at exactly the lengths that a simple
// oracle of the demands allows, from RAM and after a restart from SSD.
#include <set>

#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

struct PartsShape {
  const char* name;
  std::vector<LayerSpec> layers;
};
std::vector<PartsShape> part_shapes() {
  return {
      {"window", {LayerSpec{{full_part()}}, LayerSpec{{window_part(10, 3)}}}},
      {"only window", {LayerSpec{{window_part(20, 0)}}}},
      {"chunk", {LayerSpec{{full_part()}}, LayerSpec{{chunk_part(24)}}}},
      {"state at checkpoints",
       {LayerSpec{{full_part()}}, LayerSpec{{state_part(SnapshotPlace::checkpoint)}}}},
      {"state at block ends",
       {LayerSpec{{full_part()}}, LayerSpec{{state_part(SnapshotPlace::block_end)}}}},
      {"pooled", {LayerSpec{{pooled_part(4, false)}}}},
      {"pooled, overlap", {LayerSpec{{pooled_part(8, true)}}}},
      {"all of it",
       {LayerSpec{{window_part(6, 2), pooled_part(4, true), state_part(SnapshotPlace::checkpoint)}},
        LayerSpec{{full_part()}}, LayerSpec{{chunk_part(8)}}}},
  };
}

// Which rows, carries and snapshots of a sequence were put: the oracle's whole memory.
struct Held {
  std::set<std::pair<uint16_t, uint32_t>> rows;    // group, row
  std::set<std::pair<uint16_t, uint32_t>> points;  // group, position
};

void remember(const std::vector<PartGroup>& groups, const Need& need, Held& held) {
  for (size_t g = 0; g < groups.size(); ++g) {
    auto group = static_cast<uint16_t>(g);
    const PartSpec& spec = groups[g].spec;
    if (need.kind == ObjectKind::supplement && need.group != g) continue;
    if (need.kind == ObjectKind::supplement && need.first_row == need.end_row) {
      held.points.insert({group, need.end_row});
    } else if (need.kind == ObjectKind::snapshot) {
      bool checkpoint = !spec.has_rows() && spec.snapshot == SnapshotPlace::checkpoint;
      if (checkpoint) held.points.insert({group, need.end_row});
    } else if (need.kind == ObjectKind::supplement || (spec.has_rows() && spec.rows_in_block())) {
      uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
      for (uint32_t r = need.first_row / rate; r < need.end_row / rate; ++r) {
        held.rows.insert({group, r});
      }
    }
  }
}

// The definition, word by word, tried from the top.
uint32_t oracle(const std::vector<PartGroup>& groups, const Held& held, uint32_t most) {
  for (uint32_t n = most; n > 0; --n) {
    bool all = true;
    for (size_t g = 0; g < groups.size() && all; ++g) {
      const PartSpec& s = groups[g].spec;
      auto row = [&](uint32_t r) { return held.rows.count({static_cast<uint16_t>(g), r}) > 0; };
      auto point = [&] { return held.points.count({static_cast<uint16_t>(g), n}) > 0; };
      auto rows = [&](uint32_t a, uint32_t b) {
        for (uint32_t r = a; r < b; ++r) all = all && row(r);
      };
      if (s.kind == PartKind::full) rows(0, n);
      if (s.kind == PartKind::window) {
        rows(n >= s.window ? n - s.window + 1 : 0, n);
        rows(0, std::min(s.keep, n));
      }
      if (s.kind == PartKind::chunk) rows(n / s.chunk * s.chunk, n);
      if (s.kind == PartKind::pooled) {
        rows(0, n / s.rate);
        if (n % s.rate != 0 || (s.overlap && n >= s.rate)) all = all && point();
      }
      if (!s.has_rows()) all = all && point();
    }
    if (all) return n;
  }
  return 0;
}

TEST(TieredParts, ServedLengthsAreTheOracles) {
  for (const PartsShape& shape : part_shapes()) {
    for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
      for (uint32_t length : {7u, 16u, 45u, 48u, 70u}) {
        for (bool welcome : {true, false}) {
          SCOPED_TRACE(std::string(shape.name) + " bits " + std::to_string(bits) + " length " +
                       std::to_string(length) + (welcome ? " with" : " without") + " welcome rows");
          TempDir dir;
          bool restart = length == 45;  // the others stay in RAM
          CacheOptions options = small_options(restart ? dir.store() : "");
          auto level = restart ? Durability::spilled : Durability::accepted;
          ModelSpec model = model_of(shape.layers);
          auto groups = part_groups(model);
          std::mt19937 rng(length);
          auto tokens = random_tokens(rng, length);
          Held held;
          auto check = [&](Bench& b) {
            for (uint32_t n = 1; n <= length + 1; ++n) {
              std::vector<Token> query(tokens.begin(), tokens.begin() + std::min(n, length));
              if (n > length) query.push_back(-1);
              uint32_t most = std::min<uint32_t>(length, static_cast<uint32_t>(query.size()) - 1);
              auto hit = b.fetch(query);
              ASSERT_TRUE(hit.ok()) << hit.status().to_string();
              ASSERT_EQ(hit->tokens, oracle(groups, held, most)) << "query of " << query.size();
              b.expect_serves(query, *hit);
              if (::testing::Test::HasFailure()) return;
            }
          };
          {
            auto cache = open_cache(options);
            auto b = Bench::open(*cache, model, make_profile(model, bits));
            auto reserved = b.reserve(tokens);
            ASSERT_TRUE(reserved.ok()) << reserved.status().to_string();
            for (const Need& need : reserved->needs) {
              if (need.required || welcome) remember(groups, need, held);
            }
            ASSERT_TRUE(b.client.abort(reserved->reservation, soon()).ok());
            auto stored = b.store(tokens, level, welcome);
            ASSERT_TRUE(stored.ok()) << stored.status().to_string();
            EXPECT_EQ(stored->level, level);
            EXPECT_EQ(oracle(groups, held, length), length) << "a store serves its own end";
            check(b);
          }
          if (!restart || ::testing::Test::HasFailure()) continue;
          auto cache = open_cache(options);
          auto b = Bench::open(*cache, model);
          check(b);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(TieredParts, SecondTurnBringsOnlyWhatIsMissing) {
  auto cache = open_cache(small_options());
  ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(10, 3)}},
                              LayerSpec{{state_part(SnapshotPlace::checkpoint)}}});
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 70);
  std::vector<Token> one(tokens.begin(), tokens.begin() + 40);
  ASSERT_TRUE(b.store(one).ok());
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  for (const Need& n : reserved->needs) {
    EXPECT_FALSE(n.kind == ObjectKind::block && n.block_index < 2);
    EXPECT_FALSE(n.kind == ObjectKind::supplement && n.first_row < 3) << "the sinks are there";
  }
  ASSERT_TRUE(b.client.abort(reserved->reservation, soon()).ok());
  ASSERT_TRUE(b.store(tokens).ok());
  tokens.push_back(1);
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 70u);
  b.expect_serves(tokens, *hit);
  one.push_back(-5);
  auto old = b.fetch(one);  // the first turn's end, off its own tail and snapshot
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(old->tokens, 40u);
  EXPECT_EQ(old->form, HitForm::exact_tail);
  b.expect_serves(one, *old);
  EXPECT_EQ(b.stat("superseded_tails"), 1u);
}

}  // namespace
}  // namespace kv
