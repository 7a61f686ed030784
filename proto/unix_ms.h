// unix_ms: a time of day in milliseconds since 1970, as records, files' notes and people have it.
// Pure, any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace kv {

/// The default is the machine's time; a cache's own is Env::wall_ms.
inline uint64_t unix_ms(
    std::chrono::system_clock::time_point at = std::chrono::system_clock::now()) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count());
}

}  // namespace kv
