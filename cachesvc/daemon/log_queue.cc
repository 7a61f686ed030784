// The ring and its thread.
#include "cachesvc/daemon/log_queue.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace kv {
namespace {

constexpr std::chrono::milliseconds kNoMemory{100};  // pause before the notice is tried again

// Writes all bytes, however long that takes. False if the descriptor takes no more for good.
bool write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    ssize_t n = ::write(fd, data, size);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // the descriptor is non-blocking
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct LogQueue::State {
  State(int out, size_t capacity, DroppedLine line)
      : fd(out), ring(capacity), told_of(std::move(line)) {}

  // Bytes from `begin` on that lie side by side.
  size_t contiguous() const { return std::min(used, ring.size() - begin); }
  bool put(std::string_view line) {
    if (line.size() > ring.size() - used) return false;
    size_t at = (begin + used) % ring.size();
    size_t first = std::min(line.size(), ring.size() - at);
    std::memcpy(ring.data() + at, line.data(), first);
    std::memcpy(ring.data(), line.data() + first, line.size() - first);
    used += line.size();
    return true;
  }
  // Puts the notice where lines were lost: nothing was queued since. Call it with the lock held.
  // False: no memory for it now.
  bool tell_dropped() {
    uint64_t count = std::exchange(dropped, 0);
    try {
      (void)put(told_of(count));
      return true;
    } catch (const std::bad_alloc&) {
      dropped = count;
      return false;
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return used > 0 || dropped > 0 || ending; });
      if (used == 0 && dropped > 0 && !tell_dropped() && !ending) changed.wait_for(lock, kNoMemory);
      if (used == 0) {
        if (ending) return;
        continue;
      }
      const char* from = ring.data() + begin;
      size_t size = contiguous();
      lock.unlock();
      (void)write_all(fd, from, size);  // a closed one wants no lines
      lock.lock();
      begin = (begin + size) % ring.size();
      used -= size;
      if (used == 0 && dropped == 0) written.notify_all();
    }
  }

  const int fd;
  std::mutex mutex;
  std::condition_variable changed, written;
  std::vector<char> ring;
  size_t begin = 0, used = 0;
  uint64_t dropped = 0;
  bool ending = false;
  DroppedLine told_of;
};

LogQueue::LogQueue(int fd, size_t capacity_bytes, DroppedLine told_of)
    : state_(std::make_shared<State>(fd, capacity_bytes, std::move(told_of))) {
  std::thread([state = state_] { state->run(); }).detach();
}

LogQueue::~LogQueue() {
  (void)flush(kLastWait);
  {
    std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
}

bool LogQueue::push(std::string_view line) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->dropped > 0 || !state_->put(line)) {
      ++state_->dropped;
      return false;
    }
  }
  state_->changed.notify_one();
  return true;
}

bool LogQueue::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->written.wait_for(lock, limit,
                                  [this] { return state_->used == 0 && state_->dropped == 0; });
}

}  // namespace kv
