// RamChecks: objects in RAM against the checksum that they were stored with, on workers: one in
// verify_hits uses of each before it is served; spills and copies always, by their own jobs. An
// object that is found damaged leaves RAM: its file on the SSD serves instead, or it is a miss.
// Loop thread only.
#pragma once

#include <functional>

#include "cachesvc/core/recency.h"

namespace kv {

class RamChecks {
 public:
  RamChecks(Env& env, ObjectIndex& index, Recency& recency)
      : env_(env), index_(index), recency_(recency) {}

  /// True if the object is to be checked before its next use.
  bool due(const Record& record) const;
  /// Checks it; `done` follows on the loop. One that is damaged has left RAM by then.
  void check(const Record& record, std::function<void()> done);
  /// It was found damaged.
  void damaged(Record& record);

 private:
  Env& env_;
  ObjectIndex& index_;
  Recency& recency_;
};

}  // namespace kv
