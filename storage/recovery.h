// Recovery: the findings of a start, or of one part of its background reads. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/catalog.h"
#include "storage/kept_state.h"
#include "storage/record_file.h"

namespace kv {

inline constexpr size_t kMaxRejectedNames = 1000;  ///< named one by one in a Recovery

/// A file that a recovery did not take, and why.
struct RejectedFile {
  std::string file;
  Status reason;
};

struct Recovery {
  std::vector<KnownObject> objects;  ///< unordered; a parent may be missing (orphans are kept)
  std::vector<std::shared_ptr<const Profile>> profiles;
  std::vector<ModelRecord> models;  ///< the highest valid serial of each (namespace, model)
  uint64_t rows_used = 0;           ///< objects whose catalog row was good
  uint64_t adopted = 0;             ///< files that had no good row
  uint64_t adopted_bytes = 0;       ///< length of those files
  uint64_t rows_dropped = 0;        ///< rows without a file, or that contradict their own id
  uint64_t temps_removed = 0;       ///< temporary files of a dead process
  uint64_t quarantined = 0;         ///< damaged files
  uint64_t unreadable = 0;          ///< I/O errors: left alone, not listed (nor counted, if even
                                    ///< their size can't be told)
  uint64_t unreadable_objects = 0;  ///< object files among these: they may be readable again later
  uint64_t unknown_files = 0;       ///< foreign names or other format versions: left alone, counted
  uint64_t unknown_bytes = 0;       ///< allocated by them
  uint64_t newer_files = 0;         ///< unknown files with names of ours
  uint64_t other_key_files = 0;     ///< sealed with another key: left alone, counted, and removed
                                    ///< when a write needs their room
  uint64_t other_key_bytes = 0;     ///< allocated by them
  uint64_t ephemeral_dropped = 0;   ///< sealed with a dead owner's key in memory: removed, if this
                                    ///< owner's key is such a one too
  std::string catalog_rebuilt;      ///< why it was started anew or left out; empty: it was good
  std::vector<RejectedFile> rejected;  ///< the first kMaxRejectedNames of `quarantined`,
                                       ///< `unreadable`, and files of other versions and keys
  uint64_t unread = 0;                 ///< files left to adopt_more(): counted, not yet known
  std::optional<KeptState> state;      ///< state from keep(); none: never written, or lost
  HourBytes written;                   ///< lengths of the object files that are there, by the hour
                                       ///< of their last change: the last kKeptHours of them
  uint64_t milliseconds = 0;           ///< time that it took
};

}  // namespace kv
