// ReadJob: one object's file on its way into the pool: read, verified, unpacked, checked against
// its model. Made on the loop, run on the disk's threads; given up if it takes too long.
//
//   waiting ──the reader takes it──> running
//      └──────time is up───────────> given_up
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "cachesvc/core/env.h"
#include "cachesvc/ram_object.h"
#include "proto/profile.h"
#include "storage/ssd_tier.h"

namespace kv {

struct ReadJob {
  enum class State : uint8_t { waiting, running, given_up };
  std::shared_ptr<SsdTier> ssd;
  std::shared_ptr<const ModelSpec> model;
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<RamPool> pool;
  ObjectName name;
  Charge stored, promotion;
  PoolBuffer payload;                 ///< the object's, once the header is known
  std::unique_ptr<uint8_t[]> packed;  ///< paid by `promotion`
  std::shared_ptr<const void> held;   ///< a further reservation, kept until the read returns
  std::atomic<State> state{State::waiting};
  std::atomic<Clock::time_point> began{};  ///< once running
  bool late = false;                       ///< loop only: its promotion has ended without it

  /// On a disk thread. Returns: deadline_exceeded if it was given up; what SsdTier::read returns;
  /// corruption if the object does not fit its model; busy.
  Result<RamObject> run();
  /// True for the first caller: the reader, or the promoter that gives it up before it began.
  bool take(State next);
  void release();

 private:
  Result<RamObject> read();
  Result<std::span<uint8_t>> place(const HeaderView& head);
};

}  // namespace kv
