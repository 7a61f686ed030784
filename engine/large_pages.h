// Memory that is read from end to end again and again: in 2 MiB pages, if the system has some.
#pragma once

#include <sys/mman.h>

#include <boost/align/aligned_allocator.hpp>
#include <cstdint>
#include <vector>

namespace kv {

using LargePages = std::vector<uint8_t, boost::alignment::aligned_allocator<uint8_t, 2u << 20>>;

/// `bytes` zeros. Throws std::bad_alloc.
inline LargePages zeroed_large_pages(uint64_t bytes) {
  LargePages out;
  out.reserve(bytes);
  ::madvise(out.data(), out.capacity(), MADV_HUGEPAGE);  // before the first touch; advice only
  out.resize(bytes);
  return out;
}

}  // namespace kv
