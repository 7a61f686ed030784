// Buffers are mappings of their own, so that they are whole huge pages where the system has them:
// the kernel looks up and pins each page that a direct read goes into.
#include "storage/read_buffers.h"

#include <sys/mman.h>

namespace kv {
namespace {

constexpr size_t kHugePageBytes = 2 << 20;
constexpr size_t kLeastPageBytes = 4096;

// Null without memory.
uint8_t* map_buffer() {
  constexpr size_t kMapped = kReadBufferBytes + kHugePageBytes;  // aligned, whatever comes
  void* map = ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
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
    std::unique_lock lock(mutex_);
    free_.wait(lock, [this] { return count_ > 0 || made_ < most_; });
    if (count_ > 0) return waiting_[--count_];
    ++made_;
  }
  uint8_t* data = map_buffer();
  if (data == nullptr) give_up_place();
  return data;
}

void ReadBuffers::give_up_place() {
  std::lock_guard lock(mutex_);
  --made_;
  free_.notify_one();
}

void ReadBuffers::make_ready() {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (made_ == most_) return;
      ++made_;
    }
    uint8_t* data = map_buffer();
    if (data == nullptr) return give_up_place();
    for (size_t at = 0; at < kReadBufferBytes; at += kLeastPageBytes) {
      static_cast<volatile uint8_t*>(data)[at] = 0;
    }
    give(data);
  }
}

void ReadBuffers::give(uint8_t* data) {
  std::lock_guard lock(mutex_);
  waiting_[count_++] = data;
  free_.notify_one();
}

void ReadBuffers::clear() {
  std::lock_guard lock(mutex_);
  for (; count_ > 0; --made_) ::munmap(waiting_[--count_], kReadBufferBytes);
  free_.notify_all();
}

}  // namespace kv
