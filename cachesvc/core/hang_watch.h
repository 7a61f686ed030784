// HangWatch: tells when the device hangs under the jobs that change the SSD: none has ended for
// io_timeout, though some are under way. It hangs no more when the next one ends.
//
//   works ──a timeout without an end──> hangs ──a job ends──> works
//
// SsdLane calls; reads have watches of their own (core/promoter.h). Loop thread only.
#pragma once

#include "cachesvc/core/env.h"
#include "cachesvc/loop/timer.h"

namespace kv {

class HangWatch {
 public:
  explicit HangWatch(Env& env) : env_(env), timer_(env.loop, env.handler([this] { look(); })) {}

  void began() {
    ++jobs_;
    watch();
  }
  void ended();
  bool hangs() const { return hangs_; }
  void close() { timer_.cancel(); }
  void check_invariants() const { KV_CHECK(ended_ <= jobs_); }

 private:
  void watch();
  void look();

  Env& env_;
  uint64_t jobs_ = 0, ended_ = 0;
  uint64_t ended_before_ = 0;  // `ended_` when the timer was armed
  bool hangs_ = false;
  Timer timer_;
};

}  // namespace kv
