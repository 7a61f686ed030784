// Posting that cannot fail: a handler's memory is taken when the operation that needs it begins.
//
// A result that could not be delivered would leave its operation half done for ever, and
// destructors of leases and charges post too. So an object that must post later owns a PostMemory
// from the start. Asio takes it for an io_context; before another executor, a thread
// that finds no memory waits for some. Any thread.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace kv {

/// Memory for one handler at a time: free again when that begins to run. Outlives the handler.
class PostMemory {
 public:
  PostMemory() = default;
  PostMemory(const PostMemory&) = delete;  // handlers lie in it
  PostMemory& operator=(const PostMemory&) = delete;

  void* take(size_t bytes) {
    bool ours = bytes <= sizeof(bytes_) && !taken_.exchange(true);
    return ours ? bytes_ : ::operator new(bytes);
  }
  void give(void* memory) {
    if (memory == bytes_)
      taken_.store(false);
    else
      ::operator delete(memory);
  }

 private:
  alignas(std::max_align_t) std::byte bytes_[192];
  std::atomic<bool> taken_{false};
};

/// PostMemory as Asio wants it.
template <typename T>
class PostAllocator {
 public:
  using value_type = T;
  explicit PostAllocator(PostMemory& memory) : memory_(&memory) {}
  template <typename U>
  PostAllocator(const PostAllocator<U>& other) : memory_(other.memory()) {}  // NOLINT: rebinding
  T* allocate(size_t n) { return static_cast<T*>(memory_->take(n * sizeof(T))); }
  void deallocate(T* p, size_t) { memory_->give(p); }
  PostMemory* memory() const { return memory_; }
  bool operator==(const PostAllocator&) const = default;

 private:
  PostMemory* memory_;
};

/// `handler` on `to`. It owns what `memory` lies in, and its copies take no memory.
template <typename Handler>
void post_surely(const boost::asio::any_io_executor& to, PostMemory& memory,
                 const Handler& handler) noexcept {
  namespace asio = boost::asio;
  auto paid = asio::bind_allocator(PostAllocator<char>(memory), handler);
  while (true) {
    try {
      if (auto* io = to.target<asio::io_context::executor_type>()) return asio::post(*io, paid);
      return asio::post(to, paid);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

/// A way to the loop for values that may outlive it, as leases do: after close() handlers are
/// dropped, so nothing touches an executor that is gone.
class LoopGate {
 public:
  explicit LoopGate(boost::asio::any_io_executor loop) : loop_(std::move(loop)) {}
  /// False after close().
  template <typename Handler>
  bool post(PostMemory& memory, const Handler& handler) noexcept {
    std::lock_guard lock(mutex_);
    if (open_) post_surely(loop_, memory, handler);
    return open_;
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

/// A handler of the loop that may be asked for again and again: it runs once after the last time.
class Wake : public std::enable_shared_from_this<Wake> {
 public:
  Wake(std::shared_ptr<LoopGate> gate, std::function<void()> handler)
      : gate_(std::move(gate)), handler_(std::move(handler)) {}
  void ask() noexcept {
    if (asked_.exchange(true)) return;
    gate_->post(memory_, [self = shared_from_this()] {
      self->asked_.store(false);
      self->handler_();
    });
  }

 private:
  std::shared_ptr<LoopGate> gate_;
  std::function<void()> handler_;
  std::atomic<bool> asked_{false};
  PostMemory memory_;
};

}  // namespace kv
