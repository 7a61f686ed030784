// CacheEvent: what an operator should know of while the cache runs: a device that fails, hangs or
// is full, and what had to go and why. Told on the loop; nothing of prompts, tokens or namespaces.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace kv {

enum class EventKind : uint8_t {
  write_failed,  ///< the objects stay in RAM
  read_failed,   ///< a miss; the file stays
  ssd_full,      ///< limit or device, and nothing that may go makes room
  ssd_evicted,   ///< `count` objects made room for others
  index_full,    ///< the index has its share of RAM: `count` objects left both tiers
  quarantined,   ///< a file that does not verify, or does not fit its model
  ram_damaged,   ///< an object in RAM lost its checksum
  erase_failed,  ///< some objects to erase may be left
  hang,          ///< an SSD job has run for io_timeout: nobody waits for it
  hang_over,
  profile_other,      ///< the shared tier has another profile of a model than is in force here
  profile_unheard,    ///< the shared tier did not say which profile it has
  no_memory,          ///< a small allocation failed: the core has ended
  transforms_misfit,  ///< rows of a model take other bytes than its profile promises
};
inline constexpr size_t kEventKinds = 14;

struct CacheEvent {
  EventKind kind = EventKind::write_failed;
  std::string text;    ///< the reason, perhaps with a file's name
  uint64_t count = 1;  ///< number of objects
};
/// Event handler; may not call the cache.
using OnEvent = std::function<void(const CacheEvent&)>;

}  // namespace kv
