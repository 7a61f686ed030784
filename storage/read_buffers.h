// ReadBuffers: aligned memory that files are read through, reused: first touch of fresh memory
// costs more than the read. Bounded in number: a reader holds one at a time, and waits while all
// are held. Any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace kv {

inline constexpr size_t kReadBufferBytes = 4 << 20;  ///< bytes of one request; two huge pages
inline constexpr size_t kMostReadBuffers = 4;        ///< the usual number of disk threads

class ReadBuffers {
 public:
  /// 1 <= `most` <= kMostReadBuffers.
  explicit ReadBuffers(size_t most = kMostReadBuffers) : most_(most) {}
  ~ReadBuffers() { clear(); }
  ReadBuffers(const ReadBuffers&) = delete;  // owns what waits
  ReadBuffers& operator=(const ReadBuffers&) = delete;

  /// A buffer, given back at the end of a scope. Its content is undefined.
  class Use {
   public:
    /// Waits for one.
    explicit Use(ReadBuffers& from) : from_(from), data_(from.take()) {}
    ~Use() {
      if (data_ != nullptr) from_.give(data_);
    }
    Use(const Use&) = delete;  // owns the buffer
    Use& operator=(const Use&) = delete;
    /// False: there is no memory for one.
    explicit operator bool() const { return data_ != nullptr; }
    /// kReadBufferBytes, aligned to a huge page.
    std::span<uint8_t> span() const { return {data_, kReadBufferBytes}; }

   private:
    ReadBuffers& from_;
    uint8_t* data_;
  };

  /// Makes the missing buffers, with their memory: the system takes longer to find and clear it
  /// than a file's read takes. Fewer, if there is no memory.
  void make_ready();
  /// Gives waiting buffers back to the system: no read bytes stay in memory.
  void clear();

 private:
  uint8_t* take();
  void give(uint8_t* data);
  void give_up_place();

  const size_t most_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable free_;
  uint8_t* waiting_[kMostReadBuffers] = {};
  size_t count_ = 0;  // waiting ones
  size_t made_ = 0;   // waiting and held ones
};

}  // namespace kv
