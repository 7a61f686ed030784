// Call: one request under way; its callback runs exactly once, whoever ends it first: the result,
// the deadline, its client that cancels it, the end of its session, the end of the core, or nobody:
// the last owner let it drop. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "cachesvc/loop/timer.h"
#include "proto/client.h"

namespace kv {

/// Terms of a call: when it ends at the latest, and the tag by which its session may cancel it.
struct CallTerms {
  CallTerms(Deadline d = {}, std::optional<uint64_t> t = {})  // NOLINT: implicit on purpose
      : deadline(d), tag(t) {}
  Deadline deadline;
  std::optional<uint64_t> tag;
};

class CallBase {
 public:
  virtual ~CallBase() = default;
  bool finished() const { return finished_; }
  /// Ends the call with an error; no effect if it has ended.
  virtual void fail(Status status) = 0;

  uint64_t session = 0;
  Deadline deadline = Deadline::max();
  std::optional<uint64_t> tag;
  bool cancelled = false;  ///< by its client
  std::unique_ptr<Timer> timer;
  std::function<void(CallBase*)> on_finish;  ///< removes the call from its list
  std::function<void()> on_end;  ///< ends what it waits for; its waiter sets and resets it

 protected:
  bool mark_finished() {
    if (finished_) return false;
    finished_ = true;
    timer.reset();
    if (on_finish) std::exchange(on_finish, nullptr)(this);
    if (on_end) std::exchange(on_end, nullptr)();
    return true;
  }

 private:
  bool finished_ = false;
};

template <typename T>
class Call final : public CallBase {
 public:
  explicit Call(std::function<void(T)> done) : done_(std::move(done)) {}
  ~Call() override {
    try {
      finish(T(Status(StatusCode::unavailable, "ended")));
    } catch (const std::bad_alloc&) {  // the end of a step that found no memory: the core ends
    }
  }
  void finish(T result) {
    if (mark_finished()) std::exchange(done_, nullptr)(std::move(result));
  }
  void fail(Status status) override { finish(T(std::move(status))); }

 private:
  std::function<void(T)> done_;
};

}  // namespace kv
