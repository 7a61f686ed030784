// RecoveryScan: what is in the directory, and a catalog that agrees with it. FORMAT.md, "Recovery".
//
// Any mixture of files, rows and leftovers is legal: a kill may come between any two steps. Removes
// temporary files and rows only; damaged files move to quarantine. Internal to storage/; runs once,
// under the tier's writer lock, and charges everything it finds to the ledger.
#pragma once

#include <string>
#include <vector>

#include "storage/adoption.h"

namespace kv {

class RecoveryScan {
 public:
  /// Of the options: reindex, adopt_at_start, hour. `adoption` gets the files without a good row.
  RecoveryScan(StoreDir& dir, CatalogMirror& catalog, Quarantine& quarantine, Adoption& adoption,
               const SsdOptions& options)
      : dir_(dir),
        catalog_(catalog),
        quarantine_(quarantine),
        adoption_(adoption),
        reindex_(options.reindex),
        adopt_at_start_(options.adopt_at_start),
        hour_(options.hour) {}
  /// Returns: io_error if a folder can't be listed.
  Result<Recovery> run();
  /// No object, known or unread, has a higher one.
  uint64_t max_recency() const { return max_recency_; }

 private:
  enum class Row : uint8_t { without_file, used, left_out };
  Result<Recovery> scan();
  Status remove_temps();
  Status scan_folder(uint32_t folder);
  Status scan_top();
  void scan_object(const ParsedName& name, const FileInfo& info);
  void scan_profile(const ParsedName& name, const std::string& path);
  void scan_model_record(const ParsedName& name, const std::string& path);
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
  Recovery out_;
  std::vector<KnownObject> rows_;  // the sealed ones last
  size_t good_rows_ = 0;
  std::vector<Row> fate_;  // of each row
  std::vector<uint32_t> row_at_;  // a hash table of the rows by name: number + 1, or 0
  uint64_t max_recency_ = 0;
};

}  // namespace kv
