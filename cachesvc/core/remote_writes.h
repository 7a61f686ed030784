// RemoteWrites: copies objects from the SSD to the shared tier, and takes from there what is
// erased here. REMOTE.md, "What is written".
//
//   an object's file is there ──> queue ──its turn, memory, bandwidth──> read (disk) ──> put
//                                   ▲                                                     │
//                                   └── once more, after a pause ──── not reached ────────┘
//
// Nobody waits for a write. An erase waits for the puts under way, none begins meanwhile, and what
// it names is not read from the tier before it ends. Bounded: names that wait, puts at a time,
// bytes a second. Loop thread only.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/core/remote_names.h"
#include "cachesvc/core/ssd_lane.h"
#include "cachesvc/remote/shared_tier.h"

namespace kv {

class RemoteWrites {
 public:
  RemoteWrites(Env& env, ObjectIndex& index, SsdLane& lane);
  RemoteWrites(const RemoteWrites&) = delete;  // handlers point here
  RemoteWrites& operator=(const RemoteWrites&) = delete;

  explicit operator bool() const { return tier_ != nullptr; }
  SharedTier& tier() const { return *tier_; }
  /// The object has just been written to the SSD.
  void stored(const Record& record);

  /// An erase of the namespace begins here; end_erase() follows.
  void begin_erase(const std::string& ns);
  /// Takes these from the tier, of the whole namespace all. `done` gets: unavailable, with what
  /// could not be reached, `unnamed` more included.
  void erase(std::vector<RemoteName> names, uint64_t unnamed, std::function<void(Status)> done);
  void erase_all(const std::string& ns, std::function<void(Status)> done);
  void end_erase(const std::string& ns);
  /// Changes with each erase of the namespace: what was found before may be gone.
  uint64_t erases(const std::string& ns) const { return erases_[place_of(ns)]; }
  bool erasing(const std::string& ns) const { return erasing_.contains(ns); }

  struct Counts {
    uint64_t queued = 0, written = 0, existed = 0, bytes = 0;
    uint64_t dropped = 0;  ///< the queue was full
    uint64_t failed = 0;   ///< not reached, refused, or not readable
    uint64_t erased = 0, unreached = 0;
  };
  const Counts& counts() const { return counts_; }
  size_t waiting() const { return queue_.size(); }
  void check_invariants() const;

 private:
  struct Waiting {
    PinnedName which;
    bool again = false;  ///< was not reached once
  };
  static size_t place_of(const std::string& ns) { return std::hash<std::string>()(ns) % 64; }
  void pump();
  Waiting take_next();
  bool begin(const Waiting& next);
  void put(const Waiting& next, const RemoteName& name, FileImage image, std::shared_ptr<Charge>);
  void ended(const Waiting& next, const Result<RemotePut>& result, uint64_t bytes);
  void pause(Clock::duration time);
  void when_quiet(std::function<void()> step);
  void one_ended();
  struct Erasing;
  void erase_some(const std::shared_ptr<Erasing>& erasing);
  void answer(const RemoteErased& erased, const char* what,
              const std::function<void(Status)>& done);

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  const std::shared_ptr<SharedTier> tier_;
  Charge queue_charge_;  // none: nothing is queued
  std::deque<Waiting> queue_;
  size_t under_way_ = 0;
  Clock::duration failed_pause_{};
  Clock::time_point next_at_{};  // no put begins before
  Timer timer_;
  std::multiset<std::string> erasing_;
  std::array<uint64_t, 64> erases_{};         // begun and ended, by place_of()
  std::vector<std::function<void()>> quiet_;  // steps that wait for the puts under way
  Counts counts_;
};

}  // namespace kv
