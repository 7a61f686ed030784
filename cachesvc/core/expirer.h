// Expirer: gives stored objects the time at which they go, and has them erased then (Eraser),
// within a second of the wall clock, which it looks at once a minute at least: a clock that was set
// counts from then on. Times that passed while nothing ran are over at the start.
//
// The answer comes when the catalog has the times of what is on the SSD; an object that comes there
// later takes its own along. Bounds: kMostObjects of a call; each is charged to the index. Loop
// thread only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cachesvc/core/eraser.h"
#include "cachesvc/core/expiries.h"

namespace kv {

class Expirer {
 public:
  static constexpr size_t kMostObjects = 16384;

  Expirer(Env& env, ObjectIndex& index, SsdLane& lane, const Found& found, Expiries& expiries,
          Calls& calls, Eraser& eraser);
  Expirer(const Expirer&) = delete;  // the timer points here
  Expirer& operator=(const Expirer&) = delete;

  void expire(uint64_t session, ExpireRequest request, CallTerms terms,
              std::function<void(Result<ExpireReply>)> done);
  /// Looks at the times that a start has found.
  void begin() { arm(); }
  void close() { timer_.cancel(); }
  /// Ends the process if the next look at the clock is more than a minute away.
  void check_invariants() const;

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  void step(const JobPtr& job);
  void due();
  void arm();

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  const Found& found_;
  Expiries& expiries_;
  Calls& calls_;
  Eraser& eraser_;
  Timer timer_;
};

}  // namespace kv
