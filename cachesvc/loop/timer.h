// Timer: fires its handler once on the loop, unless it is gone or cancelled by then.
//
// The timer's owner also owns what the handler touches: the timer ends first. Arming an armed timer
// moves it. The memory of its wait is taken when the timer is made. Loop thread only.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "cachesvc/loop/post.h"

namespace kv {

class Timer {
 public:
  using Clock = std::chrono::steady_clock;
  Timer(const boost::asio::any_io_executor& loop, std::function<void()> fire)
      : state_(std::make_shared<State>(loop, std::move(fire))) {}
  ~Timer() { end(); }
  Timer(const Timer&) = delete;  // its wait points to one owner
  Timer& operator=(const Timer&) = delete;

  void arm_at(Clock::time_point at) {
    state_->at = at;
    // A wait under way is cut short, and waits again until `at`.
    state_->timer.expires_at(at);
    if (!state_->waiting) wait(state_);
  }
  void arm_in(Clock::duration time) { arm_at(Clock::now() + time); }
  void cancel() noexcept {
    if (!state_->at) return;
    state_->at.reset();
    state_->timer.cancel();
  }
  bool armed() const { return state_->at.has_value(); }
  /// The time at which it fires; none: it is not armed.
  std::optional<Clock::time_point> due() const { return state_->at; }

 private:
  struct State {
    State(const boost::asio::any_io_executor& loop, std::function<void()> f)
        : timer(loop), fire(std::move(f)) {}
    PostMemory memory;  // before the timer, whose wait lies in it
    boost::asio::steady_timer timer;
    std::function<void()> fire;
    std::optional<Clock::time_point> at;  // armed
    bool waiting = false;                 // a wait has not come back
  };

  void end() noexcept {
    cancel();
    state_->fire = nullptr;
  }

  static void wait(const std::shared_ptr<State>& state) {
    state->waiting = true;
    auto come_back = [state](const boost::system::error_code&) {
      state->waiting = false;
      if (!state->at) return;
      if (Clock::now() < *state->at) return wait(state);
      state->at.reset();
      auto fire = state->fire;  // a copy: it may end its owner
      if (fire) fire();
    };
    state->timer.async_wait(
        boost::asio::bind_allocator(PostAllocator<char>(state->memory), std::move(come_back)));
  }

  std::shared_ptr<State> state_;
};

}  // namespace kv
