// Histogram: counts of values in buckets of fixed bounds, each twice the one before. To add a value
// costs a few instructions and no memory. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kv {

class Histogram {
 public:
  /// Bounds: 2^first, 2^(first + 1) …; the last bucket has none.
  static constexpr size_t kBuckets = 24;
  explicit constexpr Histogram(unsigned first) : first_(first) {}

  void add(uint64_t value) {
    const size_t bucket = value == 0 ? 0 : std::bit_width((value - 1) >> first_);
    ++counts_[std::min(bucket, kBuckets - 1)];
    sum_ += value;
  }
  uint64_t count(size_t bucket) const { return counts_[bucket]; }
  uint64_t bound(size_t bucket) const { return uint64_t{1} << (first_ + bucket); }
  uint64_t sum() const { return sum_; }
  uint64_t count() const {
    uint64_t all = 0;
    for (uint64_t n : counts_) all += n;
    return all;
  }

 private:
  unsigned first_;
  std::array<uint64_t, kBuckets> counts_{};
  uint64_t sum_ = 0;
};

}  // namespace kv
