// EventLog: what is logged of a cache's events: the first of a kind at once, those that follow
// within a minute counted and told together. No clock and no log of its own; one thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <string>

#include "cachesvc/cache_event.h"

namespace kv {

class EventLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kQuiet{60};

  /// `line`: gets each line.
  explicit EventLog(std::function<void(const std::string& text)> line) : line_(std::move(line)) {}

  void on(const CacheEvent& event, Time now);
  /// Tells what was held back and is due. Call it every now and then.
  void flush(Time now);
  /// Tells all that was held back.
  void flush_all();

 private:
  struct Kind {
    Time quiet_until{};
    bool said = false;  ///< something, since ever
    uint64_t held = 0;  ///< objects
    std::string last;   ///< reason among these
  };
  void tell(EventKind kind, Kind& state);

  std::function<void(const std::string&)> line_;
  std::array<Kind, kEventKinds> kinds_;
};

}  // namespace kv
