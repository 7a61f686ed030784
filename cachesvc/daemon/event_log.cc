// The kinds, and one line a kind and minute.
#include "cachesvc/daemon/event_log.h"

#include <array>

#include "cachesvc/daemon/log.h"

namespace kv {
namespace {

namespace level = spdlog::level;

// Kinds in order of EventKind. A cache's daily work is no warning.
constexpr std::array<LineKind, kEventKinds> kEvents = {{
    {"ssd_write_failed", level::warn, "ssd: a write failed", "writes"},
    {"ssd_read_failed", level::warn, "ssd: a read failed", "reads"},
    {"ssd_full", level::warn, "ssd: full", "times"},
    {"ssd_evicted", level::info, "ssd: evicted to make room", "objects"},
    {"index_full", level::warn, "index: full, the least recently used left both tiers", "objects"},
    {"ssd_quarantined", level::warn, "ssd: quarantined", "files"},
    {"ram_damaged", level::warn, "ram: dropped what is not as it was stored", "objects"},
    {"erase_failed", level::warn, "ssd: an erase is not complete", "times"},
    {"ssd_hangs", level::warn, "ssd: hangs", "times"},
    {"ssd_answers", level::info, "ssd: answers again", "times"},
    {"remote_profile_other", level::warn,
     "shared tier: it has another profile, what others store is not found (open with replace, and "
     "no profile, takes it over)",
     "models"},
    {"remote_profile_unheard", level::warn,
     "shared tier: it did not say which profile it has, this machine's own is in force", "models"},
    {"out_of_memory", level::critical, "out of memory: the core ended", "times"},
    {"transforms_misfit", level::warn, "transforms", "models", 16},
}};

std::string line_of(const LineKind& kind, uint64_t count, const char* more,
                    const std::string& text) {
  std::string out = kind.words;
  if (count != 1 || *more != 0) {
    out += " (" + std::to_string(count) + " " + kind.things + more + ")";
  }
  return text.empty() ? out : out + ": " + text;
}

}  // namespace

const LineKind kRefusedUser{"refused_user", level::warn, "connection refused", "connections"};
const LineKind kRefusedNamespace{"refused_namespace", level::warn, "namespace refused",
                                 "connections"};
const LineKind kRefusedPassword{"refused_password", level::warn, "wrong password", "times"};
const LineKind kRefusedFull{"refused_full", level::warn, "connection refused", "connections"};
const LineKind kAcceptFailed{"accept_failed", level::warn, "accept failed", "times"};
const LineKind kModelOpened{"model", level::info, "model", "models", 32};
const LineKind kRespDropped{"resp_dropped", level::info, "resp: a value was not stored", "values"};

const LineKind& line_kind(EventKind kind) { return kEvents[static_cast<size_t>(kind)]; }

EventLog::EventLog(Line line) : line_(std::move(line)) {
  if (line_) return;
  line_ = [](const LineKind& kind, uint64_t count, const std::string& text) {
    log_line(kind.level, {kind.name, {{"count", count}}}, text);
  };
}

bool EventLog::on(const LineKind& kind, const std::string& text, uint64_t count, Time now) {
  State& state = kinds_[&kind];
  const bool quiet = state.told > 0 && now < state.quiet_until;
  if (quiet && state.told >= kind.at_once) {
    state.held += count;
    state.last = text;
    return false;
  }
  if (state.held > 0) tell(kind, state);
  if (!quiet) {
    state.told = 0;
    state.quiet_until = now + kQuiet;
  }
  ++state.told;
  line_(kind, count, line_of(kind, count, "", text));
  return true;
}

void EventLog::flush(Time now) {
  for (auto& [kind, state] : kinds_) {
    if (state.held == 0 || now < state.quiet_until) continue;
    tell(*kind, state);
    state.told = kind->at_once;
    state.quiet_until = now + kQuiet;
  }
}

void EventLog::flush_all() {
  for (auto& [kind, state] : kinds_) {
    if (state.held > 0) tell(*kind, state);
  }
}

void EventLog::tell(const LineKind& kind, State& state) {
  line_(kind, state.held, line_of(kind, state.held, " more", state.last));
  state.held = 0;
  state.last.clear();
}

}  // namespace kv
