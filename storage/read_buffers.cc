// Buffers are mappings of their own, so that they are whole huge pages where the system has them:
// the kernel looks up and pins each page that a direct read goes into.
#include "storage/read_buffers.h"

#include <sys/mman.h>

#include <new>

namespace kv {
namespace {

constexpr size_t kHugePageBytes = 2 << 20;
constexpr size_t kLeastPageBytes = 4096;

uint8_t* map_buffer() {
  constexpr size_t kMapped = kReadBufferBytes + kHugePageBytes;  // aligned, whatever comes
  void* map = ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<uint8_t*>(map);
  size_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(begin)) % kHugePageBytes;
  uint8_t* data = begin + before;
  if (before > 0) ::munmap(begin, before);
  if (before < kHugePageBytes) ::munmap(data + kReadBufferBytes, kHugePageBytes - before);
  (void)::madvise(data, kReadBufferBytes, MADV_HUGEPAGE);  // small pages do too
  return data;
}

}  // namespace

uint8_t* ReadBuffers::take() {
  {
    std::lock_guard lock(mutex_);
    if (count_ > 0) return waiting_[--count_];
  }
  return map_buffer();
}

bool ReadBuffers::all_wait() {
  std::lock_guard lock(mutex_);
  return count_ == kKeptReadBuffers;
}

void ReadBuffers::make_ready() noexcept try {
  for (size_t made = 0; made < kKeptReadBuffers && !all_wait(); ++made) {
    uint8_t* data = map_buffer();
    for (size_t at = 0; at < kReadBufferBytes; at += kLeastPageBytes) {
      static_cast<volatile uint8_t*>(data)[at] = 0;
    }
    give(data);
  }
} catch (const std::bad_alloc&) {  // there are fewer
}

void ReadBuffers::give(uint8_t* data) {
  {
    std::lock_guard lock(mutex_);
    if (count_ < kKeptReadBuffers) {
      waiting_[count_++] = data;
      return;
    }
  }
  ::munmap(data, kReadBufferBytes);
}

void ReadBuffers::clear() {
  std::lock_guard lock(mutex_);
  while (count_ > 0) ::munmap(waiting_[--count_], kReadBufferBytes);
}

}  // namespace kv
