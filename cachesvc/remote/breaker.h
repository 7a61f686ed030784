// Breaker: whether a node is asked at all. REMOTE.md, "Nodes".
//
//   closed ──failed()──> open ──the pause is over──> probing ──answered()──> closed
//                          ^──────────failed()──────────┘
//
// In `probing` one command is under way, and every command that allow() let through ends with
// answered() or failed(). A value with no clock of its own. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace kv {

enum class BreakerState : uint8_t { closed, open, probing };

class Breaker {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kFirstPause = std::chrono::milliseconds(100);
  static constexpr Clock::duration kLongestPause = std::chrono::seconds(10);

  /// True: the command may go. After an open breaker's pause: one may.
  bool allow(Clock::time_point now) {
    if (state_ == BreakerState::open && now >= until_) {
      state_ = BreakerState::probing;
      return true;
    }
    return state_ == BreakerState::closed;
  }
  void answered() {
    state_ = BreakerState::closed;
    pause_ = kFirstPause;
  }
  void failed(Clock::time_point now) {
    if (state_ == BreakerState::open) return;  // others of the same failure
    state_ = BreakerState::open;
    until_ = now + pause_;
    pause_ = std::min(pause_ * 2, kLongestPause);
  }
  BreakerState state() const { return state_; }

 private:
  BreakerState state_ = BreakerState::closed;
  Clock::duration pause_ = kFirstPause;
  Clock::time_point until_{};
};

}  // namespace kv
