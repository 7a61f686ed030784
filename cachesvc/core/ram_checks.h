// RamChecks: check objects in RAM against their stored checksum, on a worker, beside the first use
// that comes verify_after after the last check: time bounds their cost, and no hit waits for them.
// Spills and copies always check, in their own jobs. A damaged object leaves RAM: its file on the
// SSD serves instead, or it is a miss. Loop thread only.
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
  /// Checks all of them in one job; `done` follows on the loop, after damaged ones have left RAM.
  void check(const std::vector<Record*>& records, std::function<void()> done);
  /// Takes an object out of RAM that was found damaged.
  void damaged(Record& record);

 private:
  Env& env_;
  ObjectIndex& index_;
  Recency& recency_;
};

}  // namespace kv
