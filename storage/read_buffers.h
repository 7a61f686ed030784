// ReadBuffers: aligned memory that files are read through, used again and again: first touch of
// fresh memory costs more than the read. Bounded: at most kKeptReadBuffers wait for reuse, and a
// reader holds one at a time. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace kv {

inline constexpr size_t kReadBufferBytes = 4 << 20;  ///< one request; two huge pages
inline constexpr size_t kKeptReadBuffers = 4;        ///< waiting: the usual number of disk threads

class ReadBuffers {
 public:
  ReadBuffers() = default;
  ~ReadBuffers() { clear(); }
  ReadBuffers(const ReadBuffers&) = delete;  // owns what waits
  ReadBuffers& operator=(const ReadBuffers&) = delete;

  /// One buffer, given back at the end of a scope. Its bytes are whatever was read before.
  class Hold {
   public:
    /// Throws std::bad_alloc.
    explicit Hold(ReadBuffers& from) : from_(from), data_(from.take()) {}
    ~Hold() { from_.give(data_); }
    Hold(const Hold&) = delete;  // owns the buffer
    Hold& operator=(const Hold&) = delete;
    /// kReadBufferBytes, aligned to a huge page.
    std::span<uint8_t> span() const { return {data_, kReadBufferBytes}; }

   private:
    ReadBuffers& from_;
    uint8_t* data_;
  };

  /// Until kKeptReadBuffers wait, makes some whose memory is there already: what a system takes to
  /// find and clear it is more than a file's read takes. Without memory: fewer.
  void make_ready() noexcept;
  /// Gives what waits back to the system: nothing that was read stays in it.
  void clear();

 private:
  uint8_t* take();
  void give(uint8_t* data);
  bool all_wait();

  std::mutex mutex_;
  uint8_t* waiting_[kKeptReadBuffers] = {};
  size_t count_ = 0;
};

}  // namespace kv
