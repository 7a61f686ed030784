// Call: one request under way; its callback runs exactly once, whoever ends it first: the result,
// the deadline, the end of its session, or the end of the core. Loop thread only.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "proto/status.h"

namespace kv {

class CallBase {
 public:
  virtual ~CallBase() = default;
  bool finished() const { return finished_; }
  /// Ends the call with an error; no effect if it has ended.
  virtual void fail(Status status) = 0;

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
  void finish(T result) {
    if (mark_finished()) std::exchange(done_, nullptr)(std::move(result));
  }
  void fail(Status status) override { finish(T(std::move(status))); }

 private:
  std::function<void(T)> done_;
};

}  // namespace kv
