// SpillRetries: objects whose write failed, and when they are written again.
//
//   failed ──io_backoff──> one is tried, to test the device ──> failed again, or written
//   written meanwhile ──io_backoff──> all are tried
//
// SpillWriter tells what failed and what was written; Spiller arms it and asks for all. Loop thread
// only.
#pragma once

#include <functional>

#include "cachesvc/core/records.h"
#include "cachesvc/loop/timer.h"

namespace kv {

class SpillRetries {
 public:
  SpillRetries(Env& env, Records& records);
  SpillRetries(const SpillRetries&) = delete;  // its timer points here
  SpillRetries& operator=(const SpillRetries&) = delete;

  /// Sets what follows when objects wait for the queue again. Called once, before the first write.
  void begin(std::function<void()> then) { then_ = std::move(then); }
  /// Handles a write that failed. Precondition: the record is being written.
  void failed(Record& record);
  /// An object was written: the device works.
  void wrote() { works_ = true; }
  /// Sets the time of the next try, unless it is set, nothing has failed, or the core drains.
  void arm();
  /// Has all of them wait for the queue now.
  void all() { retry(SIZE_MAX); }

 private:
  void retry(size_t most);

  Env& env_;
  Records& records_;
  std::function<void()> then_;
  bool works_ = false;  // an object was written since failed ones were last tried
  Timer timer_;
};

}  // namespace kv
