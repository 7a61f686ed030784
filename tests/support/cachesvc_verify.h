// Verify: a small entry whose bits a test may flip, in RAM; for tests of what finds them.
#pragma once

#include "tests/support/cachesvc_stepped.h"

namespace kv {

/// One bit of the payload as it lies in the pool; every reader shares these bytes.
inline void flip(const Object& object, size_t bit = 1000) {
  const Bytes& bytes = object.planes.empty() ? object.states.at(0).bytes : object.planes[0].bytes;
  bit %= bytes.size() * 8;
  const_cast<uint8_t*>(bytes.data())[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
}

class Verify : public ::testing::Test {
 protected:
  static constexpr Milliseconds kBeforeEach{0};
  static constexpr Milliseconds kNever = std::chrono::hours(24);  // longer than the test
  CacheOptions options(Milliseconds verify_after, bool ssd = false) {
    CacheOptions o = small_options(ssd ? dir_.store() : "");
    o.verify_after = verify_after;
    return o;
  }
  // The entry's objects are all in RAM: `index` counts them as a lease does.
  void flip_stored(Bench& b, const Sequence& tokens, size_t index) {
    auto hit = b.fetch(plus_one(tokens));
    ASSERT_TRUE(hit.ok());
    ASSERT_GT(hit->lease.prefix().objects.size(), index);
    flip(*hit->lease.prefix().objects[index].object);
  }
  void expect_served(Bench& b, const Sequence& tokens, uint32_t n) {
    auto hit = b.fetch(plus_one(tokens));
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->tokens, n) << hit->reason;
    b.expect_serves(plus_one(tokens), *hit);
  }

  TempDir dir_;
  ModelSpec model_ = plain_model();
  std::mt19937 rng_{51};
  Sequence tokens_ = random_tokens(rng_, 64);
};

}  // namespace kv
