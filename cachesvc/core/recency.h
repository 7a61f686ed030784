// Recency: how much the SSD is told of what was used when. A hit tells it nothing: use is advice,
// kept in memory. An object's last use is written when its bytes leave RAM, a few a minute, and the
// most recent ones at an orderly end; so that a restart keeps roughly the order of eviction. Loop
// thread only. Called by CacheCore::Impl (core/spill.cc).
#pragma once

#include <chrono>
#include <cstddef>

namespace kv {

class Recency {
 public:
  using Clock = std::chrono::steady_clock;
  /// Rows of one minute. A row is at most two pages of 4 KiB in the catalog's log: 64 KiB.
  static constexpr size_t kRowsPerMinute = 8;
  static constexpr size_t kRowsAtEnd = 512;

  /// True if one more row may be written now; it is counted then.
  bool take(Clock::time_point now) {
    if (now - minute_ >= std::chrono::minutes(1)) {
      minute_ = now;
      rows_ = 0;
    }
    if (rows_ == kRowsPerMinute) return false;
    ++rows_;
    return true;
  }

 private:
  Clock::time_point minute_{};
  size_t rows_ = 0;
};

}  // namespace kv
