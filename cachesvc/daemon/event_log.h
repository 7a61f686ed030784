// EventLog: log lines that may come in floods: the first of a kind is told at once, those that
// follow within a minute are counted and told together. Kinds: a cache's events, connections
// and passwords refused, models opened, values of the RESP port dropped. No clock and no log of its
// own; one thread at a time.
#pragma once

#include <spdlog/common.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "cachesvc/cache_event.h"

namespace kv {

/// A kind of line. Static: known by its address.
struct LineKind {
  const char* name;  ///< key for log queries: "ssd_evicted"
  spdlog::level::level_enum level;
  const char* words;     ///< "ssd: evicted to make room"
  const char* things;    ///< the counted things: "objects"
  uint32_t at_once = 1;  ///< lines a minute before the counting begins
};

const LineKind& line_kind(EventKind kind);
extern const LineKind kRefusedUser, kRefusedNamespace, kRefusedPassword, kRefusedFull,
    kAcceptFailed, kModelOpened, kRespDropped;

class EventLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Line = std::function<void(const LineKind&, uint64_t count, const std::string& text)>;
  static constexpr std::chrono::seconds kQuiet{60};

  /// `line` gets each line; none: the service's log.
  explicit EventLog(Line line = nullptr);

  /// True if it was told at once.
  bool on(const LineKind& kind, const std::string& text, uint64_t count, Time now);
  void on(const CacheEvent& event, Time now) {
    on(line_kind(event.kind), event.text, event.count, now);
  }
  /// Tells counts that are due. Call it every now and then.
  void flush(Time now);
  /// Tells all counts that were held back.
  void flush_all();

 private:
  struct State {
    Time quiet_until{};
    uint32_t told = 0;  ///< lines in this minute
    uint64_t held = 0;  ///< things not told yet
    std::string last;   ///< text of the last of them
  };
  void tell(const LineKind& kind, State& state);

  Line line_;
  std::map<const LineKind*, State> kinds_;
};

}  // namespace kv
