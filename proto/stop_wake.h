// StopWake: wakes a thread that polls when the stop of its call is asked for.
//
// A call begins and ends on one thread, the stop is asked for on any. proto/socket_connection.h.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>

#include "proto/status.h"

namespace kv {

class StopWake {
 public:
  StopWake() = default;
  ~StopWake();
  StopWake(const StopWake&) = delete;  // owns the descriptor
  StopWake& operator=(const StopWake&) = delete;

  /// Returns: unavailable (no descriptor left).
  Status begin(std::stop_token stop);
  void end();
  bool possible() const { return stop_.stop_possible(); }
  bool asked() const { return stop_.stop_requested(); }
  /// Readable once the stop is asked for; -1 if it can't be, or was seen.
  int fd() const { return callback_ && !seen_ ? fd_ : -1; }
  void see() { seen_ = true; }

 private:
  int fd_ = -1;  // an eventfd, made for the first call that can be stopped
  bool seen_ = false;
  std::stop_token stop_;
  std::optional<std::stop_callback<std::function<void()>>> callback_;
};

}  // namespace kv
