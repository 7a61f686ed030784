// EvictionOrder against an oracle that scans all entries for the next victim.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "index/eviction.h"

namespace kv {
namespace {

using Rng = std::mt19937_64;

struct Oracle {
  struct Entry {
    EntryKey parent;
    uint64_t charge, recency;
    uint32_t pins;
    bool dirty;
    DropUrgency urgency;
  };
  std::map<EntryKey, Entry> entries;
  uint64_t clock = 0;  // the newest recency given, by an insert or a touch

  bool has_child(EntryKey key) const {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& e) { return e.second.parent == key; });
  }
  /// kNoEntry if nothing may go.
  EntryKey next(bool dirty_too) const {
    EntryKey best = kNoEntry;
    std::tuple<bool, DropUrgency, uint64_t, EntryKey> least;
    for (const auto& [key, e] : entries) {
      if (e.pins > 0 || (e.dirty && !dirty_too) || has_child(key)) continue;
      const std::tuple rank(e.dirty, kDropFirst - e.urgency, e.recency, key);
      if (best == kNoEntry || rank < least) std::tie(best, least) = std::pair(key, rank);
    }
    return best;
  }
  EvictionOrder::Victims victims(uint64_t bytes, bool dirty_too) const {
    Oracle copy = *this;
    EvictionOrder::Victims out;
    while (out.bytes < bytes) {
      const EntryKey key = copy.next(dirty_too);
      if (key == kNoEntry) break;
      out.keys.push_back(key);
      out.bytes += copy.entries.at(key).charge;
      copy.entries.erase(key);
    }
    return out;
  }
};

void check_entries(const EvictionOrder& order, const Oracle& oracle) {
  for (const auto& [key, e] : oracle.entries) {
    ASSERT_EQ(order.charge_bytes(key), e.charge);
    ASSERT_EQ(order.recency(key), e.recency);
    ASSERT_EQ(order.pins(key), e.pins);
    ASSERT_EQ(order.has_children(key), oracle.has_child(key));
    ASSERT_EQ(order.dirty(key), e.dirty);
  }
  ASSERT_EQ(order.size(), oracle.entries.size());
}

DropUrgency random_urgency(Rng& rng) {
  constexpr DropUrgency kSome[] = {kDropLast, kDropLast,       kDropLast, kDropRetained,
                                   2,         kDropSuperseded, kDropFirst};
  return kSome[rng() % std::size(kSome)];
}

void random_step(EvictionOrder& order, Oracle& oracle, Rng& rng) {
  const EntryKey key = rng() % 40;
  auto it = oracle.entries.find(key);
  const bool there = it != oracle.entries.end();
  switch (rng() % 8) {
    case 0:
    case 1:
    case 2: {
      EntryOptions o;
      // A parent has a smaller key (no cycles), and is often not resident.
      o.parent = key == 0 || rng() % 3 == 0 ? kNoEntry : rng() % key;
      o.charge_bytes = rng() % 100;
      o.dirty = rng() % 3 == 0;
      o.urgency = random_urgency(rng);
      if (rng() % 4 == 0) o.recency = rng() % 50;
      ASSERT_EQ(order.insert(key, o), !there);
      if (!there) {
        const uint64_t recency = o.recency.value_or(oracle.clock + 1);
        oracle.clock = std::max(oracle.clock, recency);
        oracle.entries[key] = {o.parent, o.charge_bytes, recency, 0, o.dirty, o.urgency};
      }
      break;
    }
    case 3:
      ASSERT_EQ(order.erase(key), there && it->second.pins == 0);
      if (there && it->second.pins == 0) oracle.entries.erase(it);
      break;
    case 4:
      ASSERT_EQ(order.touch(key), there);
      ++oracle.clock;
      if (there) it->second.recency = oracle.clock;
      break;
    case 5:
      ASSERT_EQ(order.pin(key), there);
      if (there) ++it->second.pins;
      break;
    case 6:
      ASSERT_EQ(order.unpin(key), there && it->second.pins > 0);
      if (there && it->second.pins > 0) --it->second.pins;
      break;
    default: {
      const bool dirty = rng() % 2 == 0;
      ASSERT_EQ(order.set_dirty(key, dirty), there);
      const DropUrgency drop = random_urgency(rng);
      ASSERT_EQ(order.set_urgency(key, drop), there);
      if (there) {
        it->second.dirty = dirty;
        it->second.urgency = drop;
      }
    }
  }
}

TEST(EvictionOrder, EqualsOracle) {
  size_t compared = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    EvictionOrder order;
    Oracle oracle;
    for (int step = 0; step < 1500; ++step) {
      ASSERT_NO_FATAL_FAILURE(random_step(order, oracle, rng));
      if (step % 5 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(check_entries(order, oracle));
      const uint64_t bytes = rng() % 1500;
      const bool dirty_too = rng() % 2 == 0;
      const auto want = oracle.victims(bytes, dirty_too);
      const auto got = order.next_victims(bytes, dirty_too);
      ASSERT_EQ(got.keys, want.keys);
      ASSERT_EQ(got.bytes, want.bytes);
      ++compared;
    }
  }
  std::cout << "seeds 1-20, victim lists compared: " << compared << "\n";
}

TEST(EvictionOrder, PathGoesLeafFirstAndSupplementsBeforeTheirBlock) {
  EvictionOrder order;
  order.insert(1, {.charge_bytes = 10});
  order.insert(2, {.parent = 1, .charge_bytes = 10});
  order.insert(3, {.parent = 2, .charge_bytes = 10});
  order.insert(100, {.parent = 1, .charge_bytes = 5});  // a supplement of block 1
  const std::vector<EntryKey> path{1, 2, 3};
  order.touch_all(path);
  EXPECT_EQ(order.next_victims(100, false).keys, (std::vector<EntryKey>{100, 3, 2, 1}));
  order.pin(3);
  EXPECT_EQ(order.next_victims(100, true).keys, (std::vector<EntryKey>{100}));
}

// Entries 0 to 99 in chains of two, used in turn; even chains are dear, odd ones cheap.
EvictionOrder of_two_costs(Worth dear, Worth cheap) {
  EvictionOrder order;
  for (EntryKey key = 0; key < 100; ++key) {
    EntryOptions options;
    options.parent = key % 2 == 0 ? kNoEntry : key - 1;
    options.charge_bytes = 1;
    order.insert(key, options);
  }
  for (EntryKey key = 0; key < 100; key += 2) {
    const std::vector<EntryKey> path{key, key + 1};
    order.touch_all(path, key % 4 == 0 ? dear : cheap);
  }
  return order;
}

TEST(EvictionOrder, OfEqualOnesTheCheapGoFirst) {
  EvictionOrder plain = of_two_costs(0, 0), priced = of_two_costs(2, -2);
  auto dear_of = [](EvictionOrder& order, uint64_t first) {
    const auto keys = order.next_victims(first, true).keys;
    return std::count_if(keys.begin(), keys.end(), [](EntryKey key) { return key % 4 < 2; });
  };
  EXPECT_EQ(dear_of(plain, 24), 12);
  EXPECT_EQ(dear_of(priced, 24), 2);
  EXPECT_GE(dear_of(priced, 64), 26) << "what nobody uses goes, whatever it cost";
  const auto all = priced.next_victims(100, true).keys;
  std::map<EntryKey, size_t> place;
  for (size_t i = 0; i < all.size(); ++i) place[all[i]] = i;
  for (EntryKey key = 0; key < 100; key += 2) EXPECT_LT(place[key + 1], place[key]) << "leaf first";
}

TEST(EvictionOrder, NoCostOutweighsUrgencyPinsOrBeingClean) {
  EvictionOrder order;
  for (EntryKey key = 0; key < 64; ++key) order.insert(key, {.charge_bytes = 1});
  order.insert(100, {.charge_bytes = 1, .worth = kMostWorth});
  order.set_urgency(100, kDropSuperseded);
  EXPECT_EQ(order.next_victims(1, true).keys, std::vector<EntryKey>{100});
  order.insert(101, {.charge_bytes = 1, .dirty = true, .worth = -kMostWorth});
  order.insert(102, {.charge_bytes = 1, .worth = -kMostWorth});
  order.pin(102);
  order.insert(103, {.charge_bytes = 1, .urgency = kDropRetained});
  const auto all = order.next_victims(200, true).keys;
  EXPECT_EQ(all.back(), 101u);
  EXPECT_EQ(all[all.size() - 2], 103u) << "one that is to stay, before one that would be lost";
  EXPECT_EQ(std::count(all.begin(), all.end(), 102u), 0);
}

TEST(EvictionOrder, ALongPathIsTouchedWhole) {
  EvictionOrder order;
  std::vector<EntryKey> path;
  for (EntryKey key = 0; key < 100; ++key) {
    order.insert(key, {.charge_bytes = 1});
    path.push_back(key);
  }
  order.insert(1000, {.charge_bytes = 1});
  order.touch_all(path);
  EXPECT_EQ(order.next_victims(1, true).keys, (std::vector<EntryKey>{1000}));
}

TEST(EvictionOrder, OnlyTheShortfallIsTaken) {
  EvictionOrder order;
  for (EntryKey key = 0; key < 10; ++key) order.insert(key, {.charge_bytes = 100});
  EXPECT_TRUE(order.next_victims(0, true).keys.empty());
  EXPECT_EQ(order.next_victims(1, true).keys.size(), 1u);
  EXPECT_EQ(order.next_victims(101, true).keys, (std::vector<EntryKey>{0, 1}));
}

TEST(EvictionOrder, RecencySetAtLoadSurvivesAndNewEntriesAreNewer) {
  EvictionOrder order;
  order.insert(1, {.charge_bytes = 1, .recency = 900});
  order.insert(2, {.charge_bytes = 1, .recency = 100});
  order.insert(3, {.charge_bytes = 1});
  EXPECT_EQ(order.next_victims(9, false).keys, (std::vector<EntryKey>{2, 1, 3}));
}

TEST(EvictionOrder, ChildThatCameBeforeItsParentHoldsIt) {
  EvictionOrder order;
  order.insert(2, {.parent = 1, .charge_bytes = 1});
  order.insert(1, {.charge_bytes = 1, .recency = 0});
  EXPECT_EQ(order.next_victims(1, false).keys, std::vector<EntryKey>{2});
  EXPECT_TRUE(order.erase(1));  // a lost interior block
  EXPECT_EQ(order.next_victims(9, false).keys, std::vector<EntryKey>{2});
  EXPECT_TRUE(order.erase(2));
  EXPECT_EQ(order.next_victims(9, true).bytes, 0u);
}

TEST(EvictionOrder, MemoryDoesNotGrowWithTurnover) {
  EvictionOrder order;
  uint64_t at_start = 0;
  for (EntryKey key = 0; key < 200000; ++key) {  // chains of 100, 1,000 resident at a time
    order.insert(key, {.parent = key % 100 == 0 ? kNoEntry : key - 1, .charge_bytes = 1});
    if (key == 1000) at_start = order.memory_bytes();
    if (order.size() > 1000) {
      ASSERT_TRUE(order.erase(order.next_victims(1, false).keys.at(0)));
    }
  }
  EXPECT_LE(order.memory_bytes(), 2 * at_start);
}

}  // namespace
}  // namespace kv
