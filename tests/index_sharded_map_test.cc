// ShardedMap against std::map, step by step.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "index/sharded_map.h"

namespace kv {
namespace {

TEST(ShardedMap, IsAMapWhateverComesAndGoes) {
  constexpr uint64_t kSeed = 12;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 rng(kSeed);
  ShardedMap<uint64_t, uint64_t> map;
  std::map<uint64_t, uint64_t> oracle;
  std::map<uint64_t, const uint64_t*> places;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t key = (rng() % 3000) << (rng() % 2 * 32);
    if (rng() % 3 == 0) {
      map.erase(key);
      oracle.erase(key);
      places.erase(key);
    } else {
      map[key] = oracle[key] = rng();
      const uint64_t* place = map.find(key);
      EXPECT_EQ(places.try_emplace(key, place).first->second, place)
          << "values stay where they are";
    }
    if (step == 5000) map.expect(50000);
    ASSERT_EQ(map.size(), oracle.size());
    const uint64_t* found = map.find(key);
    ASSERT_EQ(found != nullptr, oracle.contains(key));
    ASSERT_TRUE(!found || *found == oracle.at(key));
  }
  std::map<uint64_t, uint64_t> all;
  map.for_each([&](uint64_t key, uint64_t value) { EXPECT_TRUE(all.emplace(key, value).second); });
  EXPECT_EQ(all, oracle);
}

// Keys of one realm's nodes and serials: both count upwards.
TEST(ShardedMap, NeverRehashesMoreThanASmallPart) {
  for (uint64_t first : {uint64_t{3} << 32, uint64_t{1} << 63}) {
    ShardedMap<uint64_t, int> map;
    size_t most = 0;
    for (uint64_t i = 0; i < 200000; ++i) {
      const size_t before = map.bucket_count();
      map[first + i] = 1;
      most = std::max(most, map.bucket_count() - before);
    }
    EXPECT_LE(most, 200000u / 16) << "buckets that one insert adds";
  }
}

}  // namespace
}  // namespace kv
