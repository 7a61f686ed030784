// ReadBuffers: aligned memory that files are read through, used again and again: first touch of
// fresh memory costs more than the read. Bounded: there are at most so many; a reader holds one at
// a time, and waits for another's where all are held. Any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace kv {

inline constexpr size_t kReadBufferBytes = 4 << 20;  ///< one request; two huge pages
inline constexpr size_t kMostReadBuffers = 4;        ///< the usual number of disk threads

class ReadBuffers {
 public:
  /// 1 <= `most` <= kMostReadBuffers.
  explicit ReadBuffers(size_t most = kMostReadBuffers) : most_(most) {}
  ~ReadBuffers() { clear(); }
  ReadBuffers(const ReadBuffers&) = delete;  // owns what waits
  ReadBuffers& operator=(const ReadBuffers&) = delete;

  /// One buffer, given back at the end of a scope. Its bytes are whatever was read before.
  class Hold {
   public:
    /// Waits for one.
    explicit Hold(ReadBuffers& from) : from_(from), data_(from.take()) {}
    ~Hold() {
      if (data_ != nullptr) from_.give(data_);
    }
    Hold(const Hold&) = delete;  // owns the buffer
    Hold& operator=(const Hold&) = delete;
    /// False: there is no memory for one.
    explicit operator bool() const { return data_ != nullptr; }
    /// kReadBufferBytes, aligned to a huge page.
    std::span<uint8_t> span() const { return {data_, kReadBufferBytes}; }

   private:
    ReadBuffers& from_;
    uint8_t* data_;
  };

  /// Until all wait or are held, makes some whose memory is there already: what a system takes to
  /// find and clear it is more than a file's read takes. Without memory: fewer.
  void make_ready();
  /// Gives what waits back to the system: nothing that was read stays in it.
  void clear();

 private:
  uint8_t* take();
  void give(uint8_t* data);
  void give_up_place();

  const size_t most_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable free_;
  uint8_t* waiting_[kMostReadBuffers] = {};
  size_t count_ = 0;  // that wait
  size_t made_ = 0;   // those, and those held
};

}  // namespace kv
