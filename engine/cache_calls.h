// CacheCalls: how long a generation waits for its cache, and when it stops asking for a while.
//
// The calls of one stage (look up and fetch; store) share one deadline. A stage that the cache lets
// run out is followed by a pause without calls, which doubles with every further one. So a service
// that hangs costs a generation a part of the prefill that a hit would have saved, now and then.
//
//   answering --a stage ran out--> paused until a time --> trying --a stage ran out--> paused, 2x
//   trying --a stage was answered--> answering
//
// One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>

#include "proto/client.h"

namespace kv {

/// A stage may take `share` of the time that computing the prompt is expected to take, but at least
/// `least` and at most `most` plus the time to read or write its bytes at 256 MiB/s.
struct CacheWaits {
  std::chrono::milliseconds least{200};
  std::chrono::milliseconds most{1000};
  double share = 0.5;
};

class CacheCalls {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kFirstPause{1}, kLongestPause{60};

  /// The deadline of a stage that begins at `now`, moves at most `bytes`, and is about a prompt of
  /// `tokens`; never after `given`. Until a prompt was computed, its expected time is no limit.
  /// Returns: unavailable (paused).
  Result<Deadline> begin(const CacheWaits& waits, uint64_t bytes, uint64_t tokens, Deadline given,
                         Clock::time_point now = Clock::now());
  /// The outcome of the stage that began last.
  void ended(const Status& status, Clock::time_point now = Clock::now());
  /// `tokens` of a prompt were computed in this time; too few are not counted.
  void computed(uint64_t tokens, Clock::duration took);
  /// Milliseconds that computing so many takes, by what was computed so far; 0: not known yet.
  double ms_to_compute(uint64_t tokens) const {
    return seconds_per_token_.count() * 1e3 * static_cast<double>(tokens);
  }

 private:
  using Seconds = std::chrono::duration<double>;

  Seconds seconds_per_token_{0};  // 0: not known yet
  bool ours_ = false;             // the last stage's deadline was not the caller's
  Clock::duration pause_{0};      // the last one; 0: answering
  Clock::time_point paused_until_{};
};

}  // namespace kv
