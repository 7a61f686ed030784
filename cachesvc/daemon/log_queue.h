// LogQueue: lines on their way to a descriptor that may not take them.
//
// push() copies a line into a ring of fixed size and never waits: a thread of its own writes. A
// line that finds no room is dropped and counted, and so are those after it until all before it are
// out; then one line says how many. Any thread. The thread may be stuck in a write for ever: the
// last owner waits a bounded time for it and then lets it go with the process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kv {

class LogQueue {
 public:
  /// `told_of`: the line that says that so many were dropped, with its newline.
  using DroppedLine = std::function<std::string(uint64_t dropped)>;
  LogQueue(int fd, size_t capacity_bytes, DroppedLine told_of);
  /// Waits as flush() does, at most kLastWait.
  ~LogQueue();
  LogQueue(const LogQueue&) = delete;  // the thread works on it
  LogQueue& operator=(const LogQueue&) = delete;

  static constexpr std::chrono::milliseconds kLastWait{500};

  /// False: no room, the line is dropped.
  bool push(std::string_view line);
  /// Waits until all is written. False: not within `limit`.
  bool flush(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< the thread's too
};

}  // namespace kv
