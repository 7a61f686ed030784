// RecoveryScan: what is in the directory, and a catalog that agrees with it. FORMAT.md, "Recovery".
//
// Any mixture of files, rows and leftovers is legal: a kill may come between any two steps. Removes
// temporary files and rows only; damaged files move to quarantine. Internal to storage/; runs once,
// under the tier's writer lock, and charges everything it finds to the ledger.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "storage/catalog_mirror.h"
#include "storage/ssd_tier.h"
#include "storage/store_dir.h"

namespace kv {

class RecoveryScan {
 public:
  /// `reindex`: no row is believed, every header is read and the catalog written anew.
  RecoveryScan(StoreDir& dir, CatalogMirror& catalog, Quarantine& quarantine, bool reindex)
      : dir_(dir), catalog_(catalog), quarantine_(quarantine), reindex_(reindex) {}
  /// Returns: io_error if a folder can't be listed.
  Result<Recovery> run();

 private:
  struct Found {  // a file without a good row
    KnownObject object;
    int64_t modified_ns;
  };
  Result<Recovery> scan();
  Status remove_temps();
  Status scan_folder(uint32_t folder);
  Status scan_top();
  void scan_object(const ParsedName& name, const std::string& path, const FileInfo& info);
  void scan_profile(const ParsedName& name, const std::string& path);
  void scan_model_record(const ParsedName& name, const std::string& path);
  /// Files a failed file by what is wrong with it.
  void reject(const std::string& path, const std::string& name, const Status& status,
              uint64_t allocated_bytes);
  void count_unknown(const std::string& path, int depth);
  void mirror_adopted();

  StoreDir& dir_;
  CatalogMirror& catalog_;
  Quarantine& quarantine_;
  bool reindex_;
  Recovery out_;
  std::unordered_map<ObjectName, KnownObject, ObjectNameHash> rows_;
  std::vector<Found> adopted_;
  uint64_t max_recency_ = 0;
};

}  // namespace kv
