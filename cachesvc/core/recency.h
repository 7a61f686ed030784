// Recency: writes objects' last uses to the SSD, so that a restart keeps roughly the order of
// eviction. A hit writes nothing: use is advice, kept in memory. An object's last use is written
// when its bytes leave RAM, a few a minute, and the most recent uses at an orderly end. Loop thread
// only.
#pragma once

#include <cstddef>

#include "cachesvc/core/ssd_lane.h"

namespace kv {

class Recency {
 public:
  /// Rows per minute. A row is at most two pages of 4 KiB in the catalog's log: 64 KiB.
  static constexpr size_t kRowsPerMinute = 8;
  static constexpr size_t kRowsAtEnd = 512;

  Recency(Env& env, ObjectIndex& index, Records& records, SsdLane& lane)
      : env_(env), index_(index), records_(records), lane_(lane) {}

  /// Drops the object's bytes from RAM. Returns: true if it is gone, as no file of it is on the
  /// SSD.
  bool leave_ram(Record& record, Cause cause = {});
  /// Writes the most recent uses, in their order, at an orderly end.
  void tell_last();
  void check_invariants() const { KV_CHECK(rows_ <= kRowsPerMinute); }

 private:
  bool take(Clock::time_point now);
  void tell(Record& record);
  void touch(std::vector<ObjectName> names);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  Clock::time_point minute_{};
  size_t rows_ = 0;  // rows written in this minute
};

}  // namespace kv
