// unlink: files that are to go: of what was erased, and of what had to make room. The index knows
// them no more, so those that stay (an error, no memory) are remembered and tried again with every
// later erase, and whenever room is made: an erase that says it is done has left none. There are
// never more than files in the directory.
#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {

Status CacheCore::Impl::Unlinks::run(SsdTier& ssd) {
  Status first;
  for (auto part = parts.begin(); part != parts.end();) {
    auto next = std::next(part);
    Status status = part->empty() ? Status() : ssd.erase(*part, behind).status();
    if (status.ok()) gone.splice(gone.end(), parts, part);
    part = next;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// What waits for the names goes on.
void CacheCore::Impl::unlinked(Unlinks& files) noexcept {
  if (files.behind) {
    for (const Parts* all : {&files.parts, &files.gone}) {
      for (const auto& part : *all) {
        for (const ObjectName& name : part) {
          if (auto it = unlinking_.find(name); it != unlinking_.end()) unlinking_.erase(it);
        }
      }
    }
    spill_wake_->ask();
  }
  left_files_.splice(left_files_.end(), files.parts);
}

// What was stored anew is left no longer: its record tells of its file, or a write is under way.
// `own`: about to be erased anyway.
void CacheCore::Impl::sort_out_left_files(const std::set<const Record*>& own) noexcept {
  for (auto& part : left_files_) {
    std::erase_if(part, [&](const ObjectName& name) {
      const Record* r = index_.find(name);
      return r && (r->file_bytes > 0 || r->disk == Disk::queued || r->disk == Disk::writing ||
                   own.contains(r));
    });
  }
  left_files_.remove_if([](const auto& part) { return part.empty(); });
}

}  // namespace kv
