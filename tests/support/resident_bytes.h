// Memory of this process that the kernel holds in RAM: what malloc's own figures can't show.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace kv {

inline uint64_t resident_bytes() {
  uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace kv
