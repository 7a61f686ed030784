// See cache_calls.h.
#include "engine/cache_calls.h"

#include <algorithm>
#include <string>

namespace kv {
namespace {

constexpr double kSlowestBytesPerSecond = 256.0 * 1024 * 1024;
constexpr uint64_t kFewestTokens = 64;  // fewer are computed one by one, which takes longer each
constexpr double kNewest = 0.25;        // weight of the newest prompt's time per token

}  // namespace

Result<Deadline> CacheCalls::begin(const CacheWaits& waits, uint64_t bytes, uint64_t tokens,
                                   Deadline given, Clock::time_point now) {
  using std::chrono::ceil, std::chrono::milliseconds;
  if (now < paused_until_) {
    return Status(StatusCode::unavailable,
                  "cache: did not answer in time; not asked for another " +
                      std::to_string(ceil<milliseconds>(paused_until_ - now).count()) + " ms");
  }
  Seconds wait = waits.most + Seconds(static_cast<double>(bytes) / kSlowestBytesPerSecond);
  if (seconds_per_token_ > Seconds(0)) {
    wait = std::min(wait, waits.share * seconds_per_token_ * static_cast<double>(tokens));
  }
  wait = std::max<Seconds>(wait, waits.least);
  Deadline own = now + std::chrono::duration_cast<Clock::duration>(wait);
  ours_ = own < given;
  return std::min(own, given);
}

void CacheCalls::ended(const Status& status, Clock::time_point now) {
  if (status.code() != StatusCode::deadline_exceeded) {
    pause_ = {};
  } else if (ours_) {
    pause_ = std::clamp<Clock::duration>(2 * pause_, kFirstPause, kLongestPause);
    paused_until_ = now + pause_;
  }
}

void CacheCalls::computed(uint64_t tokens, Clock::duration took) {
  if (tokens < kFewestTokens) return;
  Seconds each = Seconds(took) / static_cast<double>(tokens);
  bool first = seconds_per_token_ == Seconds(0);
  seconds_per_token_ = first ? each : kNewest * each + (1 - kNewest) * seconds_per_token_;
}

}  // namespace kv
