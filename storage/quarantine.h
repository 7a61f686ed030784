// Quarantine: damaged files, kept for a while so that a person can look at them.
//
// Bounded in bytes and number: the oldest go first. Its bytes stay in the ledger. Internal to
// storage/; called under the tier's writer lock, bytes() and files() from any thread.
#pragma once

#include <atomic>
#include <deque>
#include <string>

#include "storage/store_dir.h"

namespace kv {

inline constexpr size_t kMaxQuarantineFiles = 256;
/// The number at the end of a quarantined file's name: higher is newer. 0 for foreign names.
uint64_t quarantine_number(const std::string& name);

class Quarantine {
 public:
  Quarantine(StoreDir& dir, uint64_t limit_bytes) : dir_(dir), limit_bytes_(limit_bytes) {}

  /// Counts what an earlier owner left, into the ledger too. Returns: io_error (also if the size of
  /// one can't be told).
  Status load();
  /// Moves the file at `path` here under a new name, or removes it if it is larger than the whole
  /// quarantine. Its bytes are in the ledger already. Returns: io_error (it is still there).
  Status take(const std::string& path, const std::string& name);

  /// Removes every file that it can. Returns: io_error (how many are left, still counted, and why
  /// the first of them).
  Status clear();

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t files() const { return files_.load(std::memory_order_relaxed); }

 private:
  void trim(uint64_t incoming_bytes);
  struct Entry {
    std::string name;
    uint64_t allocated_bytes;
  };
  Status remove_oldest();
  Status remove_file(const Entry& entry);

  StoreDir& dir_;
  uint64_t limit_bytes_;
  std::deque<Entry> entries_;                  // oldest first
  std::atomic<uint64_t> bytes_{0}, files_{0};  // sums of entries_
  uint64_t next_ = 0;
};

}  // namespace kv
