// Found: sums of what the start, and the reading of files after it, found on the SSD. Written by
// the reconciler; read by owners that must know whether every file is known. Loop thread only.
#pragma once

#include "storage/recovery.h"

namespace kv {

class Found {
 public:
  /// Adds one part of what was found; `unread` replaces the earlier count.
  void add(const Recovery& part);
  /// `files` unread ones now have their place in the index, or will get none.
  void settled(uint64_t files) { sums_.unread -= files; }
  /// `files` more were read and wait for their place; they count as unread.
  void waiting(uint64_t files) { sums_.unread += files; }
  void objects(uint64_t linked, uint64_t skipped) {
    objects_ += linked + skipped;
    skipped_ += skipped;
  }

  const Recovery& sums() const { return sums_; }
  bool all_known() const { return sums_.unread == 0; }
  /// Valid files may belong to a model or profile that seems unused.
  bool files_unknown() const { return sums_.unread > 0 || some_unreadable_; }
  /// Plain records and profiles may be those of files that another key sealed.
  bool others_may_name_records() const { return sums_.other_key_files > 0; }
  uint64_t objects() const { return objects_; }
  uint64_t skipped() const { return skipped_; }  ///< objects that serve nothing
  void check_invariants() const {
    KV_CHECK(skipped_ <= objects_ && sums_.rejected.size() <= kMaxRejectedNames);
  }

 private:
  Recovery sums_;
  bool some_unreadable_ = false;  // valid files may be among what could not be read
  uint64_t objects_ = 0, skipped_ = 0;
};

}  // namespace kv
