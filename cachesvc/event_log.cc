// One line a kind and minute.
#include "cachesvc/event_log.h"

namespace kv {
namespace {

const char* words(EventKind kind) {
  switch (kind) {
    case EventKind::write_failed:
      return "ssd: a write failed";
    case EventKind::read_failed:
      return "ssd: a read failed";
    case EventKind::ssd_full:
      return "ssd: full";
    case EventKind::ssd_evicted:
      return "ssd: evicted to make room";
    case EventKind::quarantined:
      return "ssd: quarantined";
    case EventKind::ram_damaged:
      return "ram: dropped what is not as it was stored";
    case EventKind::erase_failed:
      return "ssd: an erase is not complete";
    case EventKind::hang:
      return "ssd: hangs";
    case EventKind::hang_over:
      return "ssd: answers again";
  }
  return "unknown";
}

std::string line_of(EventKind kind, const std::string& text, uint64_t count, const char* times) {
  std::string out = words(kind);
  if (count != 1 || *times != 0) out += " (" + std::to_string(count) + times + ")";
  return text.empty() ? out : out + ": " + text;
}

}  // namespace

void EventLog::on(const CacheEvent& event, Time now) {
  Kind& state = kinds_[static_cast<size_t>(event.kind)];
  if (state.said && now < state.quiet_until) {
    state.held += event.count;
    state.last = event.text;
    return;
  }
  if (state.held > 0) tell(event.kind, state);
  state.said = true;
  state.quiet_until = now + kQuiet;
  line_(line_of(event.kind, event.text, event.count, ""));
}

void EventLog::flush(Time now) {
  for (size_t i = 0; i < kEventKinds; ++i) {
    Kind& state = kinds_[i];
    if (state.held == 0 || now < state.quiet_until) continue;
    tell(static_cast<EventKind>(i), state);
    state.quiet_until = now + kQuiet;
  }
}

void EventLog::flush_all() {
  for (size_t i = 0; i < kEventKinds; ++i) {
    if (kinds_[i].held > 0) tell(static_cast<EventKind>(i), kinds_[i]);
  }
}

void EventLog::tell(EventKind kind, Kind& state) {
  line_(line_of(kind, state.last, state.held, " more"));
  state.held = 0;
  state.last.clear();
}

}  // namespace kv
