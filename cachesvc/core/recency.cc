// Uses that are written to the SSD.
#include "cachesvc/core/recency.h"

#include <algorithm>

namespace kv {

bool Recency::leave_ram(Record& record, Cause cause) {
  tell(record);
  return records_.leave_ram(record, cause);
}

// True if one more row may be written now; it is counted then.
bool Recency::take(Clock::time_point now) {
  if (now - minute_ >= std::chrono::minutes(1)) {
    minute_ = now;
    rows_ = 0;
  }
  if (rows_ == kRowsPerMinute) return false;
  ++rows_;
  return true;
}

// Nothing is written to a device that hangs.
void Recency::tell(Record& record) {
  if (!lane_ || !record.use.untold || !record.on_ssd() || lane_.hangs()) return;
  if (!take(Clock::now())) return;
  index_.tiers().told(record);
  touch({record.name});
}

void Recency::tell_last() {
  if (!lane_ || lane_.hangs()) return;
  std::vector<std::pair<uint64_t, Record*>> uses;
  for (Disk state : {Disk::known, Disk::renamed, Disk::durable}) {
    for (const Record& r : records_.lists().all(state)) {
      if (r.use.untold)
        uses.emplace_back(index_.tiers().ssd_of(r).recency(r.key), index_.find(r.name));
    }
  }
  std::sort(uses.begin(), uses.end());
  if (uses.size() > kRowsAtEnd) uses.erase(uses.begin(), uses.end() - kRowsAtEnd);
  std::vector<ObjectName> names;
  for (auto& [recency, record] : uses) {
    index_.tiers().told(*record);
    names.push_back(record->name);
  }
  if (!names.empty()) touch(std::move(names));
}

void Recency::touch(std::vector<ObjectName> names) {
  lane_.run(
      [ssd = lane_.ssd(), names = std::move(names)] {
        ssd->touch(names);
        return true;
      },
      [](bool) {});
}

}  // namespace kv
