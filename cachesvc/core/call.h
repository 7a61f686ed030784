// Call: one request under way; its callback runs exactly once, whoever ends it first: the result,
// the deadline, the end of its session, the end of the core, or nobody: the last owner let it drop,
// for lack of memory. Loop thread only.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "cachesvc/loop/task.h"

namespace kv {

class CallBase {
 public:
  virtual ~CallBase() = default;
  bool finished() const { return finished_; }
  /// Ends the call with an error; no effect if it has ended.
  virtual void fail(Status status) = 0;
  /// As fail, with no more than the code where there is no memory for the text.
  void fail(StatusCode code, const char* text) {
    std::string message;
    try {
      message = text;
    } catch (const std::bad_alloc&) {
    }
    fail(Status(code, std::move(message)));
  }

  uint64_t session = 0;
  std::unique_ptr<boost::asio::steady_timer> timer;
  std::function<void(CallBase*)> on_finish;  ///< takes it off the list of calls

 protected:
  bool mark_finished() {
    if (finished_) return false;
    finished_ = true;
    timer.reset();
    if (on_finish) std::exchange(on_finish, nullptr)(this);
    return true;
  }

 private:
  bool finished_ = false;
};

template <typename T>
class Call final : public CallBase {
 public:
  explicit Call(std::function<void(T)> done) : done_(std::move(done)) {}
  ~Call() override { finish(T(out_of_memory())); }
  /// A callback that runs out of memory has said so to whom it may concern.
  void finish(T result) {
    if (!mark_finished()) return;
    (void)if_memory([&] { std::exchange(done_, nullptr)(std::move(result)); });
  }
  using CallBase::fail;
  void fail(Status status) override { finish(T(std::move(status))); }

 private:
  std::function<void(T)> done_;
};

}  // namespace kv
