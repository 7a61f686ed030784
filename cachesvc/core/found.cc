// Sums of recoveries.
#include "cachesvc/core/found.h"

namespace kv {

void Found::add(const Recovery& part) {
  Recovery& all = sums_;
  all.rows_used += part.rows_used;
  all.adopted += part.adopted;
  all.adopted_bytes += part.adopted_bytes;
  all.rows_dropped += part.rows_dropped;
  all.temps_removed += part.temps_removed;
  all.quarantined += part.quarantined;
  all.unreadable += part.unreadable;
  all.unreadable_objects += part.unreadable_objects;
  all.unknown_files += part.unknown_files;
  all.unknown_bytes += part.unknown_bytes;
  all.newer_files += part.newer_files;
  all.other_key_files += part.other_key_files;
  all.other_key_bytes += part.other_key_bytes;
  all.ephemeral_dropped += part.ephemeral_dropped;
  all.milliseconds += part.milliseconds;
  all.unread = part.unread;
  if (all.catalog_rebuilt.empty()) all.catalog_rebuilt = part.catalog_rebuilt;
  for (const RejectedFile& file : part.rejected) {
    if (all.rejected.size() < kMaxRejectedNames) all.rejected.push_back(file);
  }
  some_unreadable_ |= part.unreadable > 0 || part.newer_files > 0;
}

}  // namespace kv
