// LoopGate: a way to the loop for values that may outlive it, as leases do. Any thread may post;
// after close() handlers are dropped, so nothing touches an executor that is gone.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <utility>

namespace kv {

class LoopGate {
 public:
  explicit LoopGate(boost::asio::any_io_executor loop) : loop_(std::move(loop)) {}
  template <typename Handler>
  void post(Handler handler) {
    std::lock_guard lock(mutex_);
    if (open_) boost::asio::post(loop_, std::move(handler));
  }
  void close() {
    std::lock_guard lock(mutex_);
    open_ = false;
    loop_ = {};
  }

 private:
  std::mutex mutex_;
  bool open_ = true;
  boost::asio::any_io_executor loop_;
};

}  // namespace kv
