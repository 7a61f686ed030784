// CatalogMirror: keeps a Catalog in step with the files, within the ledger, and survives its loss.
//
// A catalog that is missing, damaged or foreign is moved to quarantine and started anew. No call fails
// for the caller: what the catalog could not follow is counted, and the next recovery repairs it.
// Internal to storage/; called under the tier's writer lock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/catalog.h"
#include "storage/quarantine.h"
#include "storage/store_dir.h"

namespace kv {

class CatalogMirror {
 public:
  CatalogMirror(StoreDir& dir, Quarantine& quarantine) : dir_(dir), quarantine_(quarantine) {}

  /// Opens the catalog and returns its rows; none if it had to be started anew, `why` then says why.
  Catalog::Rows open(std::string& why);

  /// Adds rows. Room for them (row_room each) is already promised by the ledger.
  void upsert(std::span<const KnownObject> objects);
  /// Adds rows as far as the ledger has room: the rest is adopted again next time.
  void adopt(std::span<const KnownObject> objects);
  void remove(std::span<const std::string> files);
  void set_recency(std::span<const std::pair<std::string, uint64_t>> recency);
  /// Returns: io_error and others of Catalog::checkpoint.
  Status checkpoint();

  /// What one object's row may take, log and database together.
  static uint64_t row_room(const Object& header) { return 2 * Catalog::growth_bound(header); }
  uint64_t failures() const { return failures_; }

 private:
  void start_anew();
  void after(const Status& status);
  void measure();

  StoreDir& dir_;
  Quarantine& quarantine_;
  std::unique_ptr<Catalog> catalog_;  // null if not even a new one could be made
  uint64_t failures_ = 0;
  uint64_t measured_bytes_ = 0;  // of database and log, in the ledger
  uint64_t growth_bytes_ = 0;    // promised for the next checkpoint: the log's size
};

}  // namespace kv
