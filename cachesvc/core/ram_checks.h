// RamChecks: objects in RAM against the checksum that they were stored with, on a worker: beside
// the first use of each that comes verify_after after its last check, so that what checks take is
// bound by time and no hit waits for them; spills and copies always, by their own jobs. An object
// that is found damaged leaves RAM: its file on the SSD serves instead, or it is a miss. Loop
// thread only.
#pragma once

#include <functional>
#include <vector>

#include "cachesvc/core/recency.h"

namespace kv {

class RamChecks {
 public:
  RamChecks(Env& env, ObjectIndex& index, Recency& recency)
      : env_(env), index_(index), recency_(recency) {}

  /// True if the object is to be checked with a use now.
  bool due(const Record& record, Clock::time_point now) const;
  /// Checks them all, in one job; `done` follows on the loop. Those that are damaged have left RAM
  /// by then.
  void check(const std::vector<Record*>& records, std::function<void()> done);
  /// It was found damaged.
  void damaged(Record& record);

 private:
  Env& env_;
  ObjectIndex& index_;
  Recency& recency_;
};

}  // namespace kv
