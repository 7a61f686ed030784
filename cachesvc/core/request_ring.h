// RequestRing: the last requests for stored tokens and what became of each, for those who ask why
// (why.h). Bounded in requests and bytes, and charged from the start. Loop thread only.
#pragma once

#include <deque>
#include <vector>

#include "cachesvc/core/departures.h"
#include "proto/request_record.h"

namespace kv {

class RequestRing {
 public:
  explicit RequestRing(Env& env);
  RequestRing(const RequestRing&) = delete;  // one memory of a core
  RequestRing& operator=(const RequestRing&) = delete;

  /// Numbers the record and takes it, in the end in place of the oldest; tells it to
  /// whoever wants all (CacheOptions::on_request). The record's own strings become those of the
  /// oldest, so that none is allocated anew.
  /// A record that has the number of a remembered one takes its place: what became of that
  /// request is known now. Returns its number; 0: nothing is remembered.
  uint64_t add(RequestRecord& record);
  /// Null: it is not remembered.
  const RequestRecord* find(uint64_t number) const;
  uint64_t newest() const { return newest_; }
  size_t size() const { return slots_.size(); }
  /// Requests that ended with this missing.
  uint64_t count(Missing missing) const { return counts_[static_cast<size_t>(missing)]; }
  void check_invariants() const;

 private:
  Env& env_;
  size_t most_ = 0;                  // 0: a budget without room for it
  Charge charge_;                    // pays for all
  std::deque<RequestRecord> slots_;  // number n is in (n - 1) % most_
  uint64_t newest_ = 0;
  std::array<uint64_t, kMissings> counts_{};
};

}  // namespace kv
