// prefetch_bytes: loads memory that will soon be read into the processor's cache. A hint that
// changes nothing; any address is legal. Any thread.
#pragma once

#include <cstddef>

namespace kv {

inline void prefetch_bytes(const void* data, size_t bytes) {
  constexpr size_t kCacheLineBytes = 64;
  const char* first = static_cast<const char*>(data);
  // GCC drops calls of functions that only prefetch, as calls without effect.
  asm volatile("");
  for (size_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(first + at);
  if (bytes > 0) __builtin_prefetch(first + bytes - 1);  // a last line begun in its middle
}

}  // namespace kv
