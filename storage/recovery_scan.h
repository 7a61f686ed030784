// RecoveryScan: finds all files of the directory, and makes the catalog agree with them. FORMAT.md,
// "Recovery".
//
// Any mixture of files, rows and leftovers is legal: a kill may come between any two steps. Removes
// temporary files and rows only; damaged files move to quarantine. Internal to storage/; runs once,
// under the tier's writer lock, and charges everything it finds to the ledger.
#pragma once

#include <string>
#include <vector>

#include "storage/adoption.h"
#include "storage/beside.h"
#include "storage/file_names.h"
#include "storage/recovery.h"
#include "storage/ssd_options.h"

namespace kv {

/// An object file as it is listed.
struct FoundObject {
  ObjectName name;
  uint64_t bytes = 0, allocated_bytes = 0;
  int64_t modified_ns = 0;
};

/// A folder's listing: with 10^6 files most of a start's memory, so names are kept only of files
/// that are no objects.
struct FolderFiles {
  uint32_t folder = 0;
  std::vector<FoundObject> objects;
  std::vector<ListedFile> others;
};

class RecoveryScan {
 public:
  /// Options used: reindex, adopt_at_start, hour, beside. `adoption` gets the files without a good
  /// row.
  RecoveryScan(StoreDir& dir, CatalogMirror& catalog, Quarantine& quarantine, Adoption& adoption,
               const SsdOptions& options)
      : dir_(dir),
        catalog_(catalog),
        quarantine_(quarantine),
        adoption_(adoption),
        reindex_(options.reindex),
        adopt_at_start_(options.adopt_at_start),
        hour_(options.hour),
        beside_(options.beside) {}
  /// Returns: io_error if a folder can't be listed.
  Result<Recovery> run();
  /// The highest recency of any object, known or unread.
  uint64_t max_recency() const { return max_recency_; }

 private:
  enum class Row : uint8_t { without_file, used, left_out };
  Result<Recovery> scan();
  Status remove_temps();
  Result<std::vector<FolderFiles>> list_folders() const;
  void scan_folder(const FolderFiles& files);
  void scan_other(uint32_t folder, const ListedFile& file);
  Status scan_top();
  void scan_object(const FoundObject& found);
  void scan_profile(const ParsedName& name, const std::string& path);
  void scan_model_record(const ParsedName& name, const std::string& path);
  void reject(const ParsedName& name, const std::string& path, const Status& status);
  void count_unknown(const std::string& path, int depth);
  void take_rows(Catalog::Rows& rows);
  /// The place of its row's number in row_at_, or where it goes.
  uint32_t& place_of(const ObjectName& name);
  void give_rows(std::vector<std::string> bad);

  StoreDir& dir_;
  CatalogMirror& catalog_;
  Quarantine& quarantine_;
  Adoption& adoption_;
  bool reindex_;
  uint64_t adopt_at_start_;
  int64_t hour_;
  const RunBeside beside_;
  Recovery out_;
  std::vector<KnownObject> rows_;  // sealed ones last
  size_t good_rows_ = 0;
  std::vector<Row> fate_;         // by row
  std::vector<uint32_t> row_at_;  // a hash table of the rows by name: number + 1, or 0
  uint64_t max_recency_ = 0;
};

}  // namespace kv
