// Adoption: files that no good catalog row describes are read, checked, and given a row.
//
// Such files are the last batch's after a crash, and all files after the loss of the catalog: then
// they are read in the background, some at a time, while puts, reads and erases go on. The ledger
// counts them from the start. Internal to storage/; called under the tier's writer lock.
#pragma once

#include <deque>
#include <string>

#include "storage/catalog_mirror.h"
#include "storage/other_keys.h"
#include "storage/quarantine.h"
#include "storage/recovery.h"
#include "storage/store_dir.h"

namespace kv {

/// A file that is there and not yet known.
struct UnreadFile {
  ObjectName name;
  int64_t modified_ns = 0;
  uint64_t recency = 0;   ///< its bad row's; 0: none, ordered by age
  bool has_row = false;   ///< a row that contradicts it, or can't be opened: goes if the file is
                          ///< neither taken nor another key's
  uint32_t failures = 0;  ///< reads that said nothing about the file: no descriptor, an I/O error
};

inline constexpr uint64_t kAdoptedAtATime = 512;  ///< rows of one transaction

class Adoption {
 public:
  Adoption(StoreDir& dir, CatalogMirror& catalog, Quarantine& quarantine, OtherKeys& others)
      : dir_(dir), catalog_(catalog), quarantine_(quarantine), others_(others) {}

  void add(UnreadFile file) { unread_.push_back(file); }
  /// Call it when all are added: orders them by age and gives those without a row their recency,
  /// above `max_recency`. Files without rows are the newest (their writer died before the row) or
  /// all files: the order of their writing is the best one. Returns: the highest recency.
  uint64_t settle(uint64_t max_recency);
  /// Reads at most `max_files`, the oldest first, and adds what it finds to `out`. A file that
  /// can't be read now stays unread, behind the others, until it has failed kMaxReads times.
  void run(uint64_t max_files, Recovery& out);
  /// Files a failed file by what is wrong with it. Returns: true if it stays as another key's.
  bool reject(const std::string& path, const ParsedName& name, const Status& status,
              const FileInfo& info, Recovery& out);

 private:
  uint64_t whole_ticks(uint64_t max_files) const;
  bool drop_dead(const std::string& path, const FileInfo& info);
  /// False: to be read again.
  bool read(UnreadFile& file, std::vector<KnownObject>& adopted, Recovery& out);

  StoreDir& dir_;
  CatalogMirror& catalog_;
  Quarantine& quarantine_;
  OtherKeys& others_;
  std::deque<UnreadFile> unread_;
};

}  // namespace kv
