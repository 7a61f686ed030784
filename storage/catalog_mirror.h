// CatalogMirror: keeps a Catalog in step with the files, within the ledger, and survives its loss.
//
// A catalog that is missing, damaged or foreign is moved to quarantine and started anew; one that
// another process has open is left alone. No call fails for the caller: a failed change is counted,
// and the next recovery repairs it. Internal to storage/; called under the tier's writer lock,
// failures() from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "storage/catalog.h"
#include "storage/quarantine.h"
#include "storage/store_dir.h"

namespace kv {

class CatalogMirror {
 public:
  CatalogMirror(StoreDir& dir, Quarantine& quarantine) : dir_(dir), quarantine_(quarantine) {}

  /// Opens the catalog and gives its rows and the state kept in it; none if it had to be started
  /// anew, `why` then says why. Returns: io_error if its size can't be told.
  Status open(Catalog::Rows& rows, std::optional<KeptState>& state, std::string& why);
  /// Throws all rows away, with the file. Returns: io_error.
  Status start_empty();
  /// Keeps state to be written with the next checkpoint, or by write_state(). Any thread; waits for
  /// no I/O.
  void keep(const KeptState& state);
  void write_state();

  /// Adds rows. Room for them (row_room each) is already promised by the ledger.
  void upsert(std::span<const KnownObject> objects);
  /// Adds rows as far as ledger and file system have room: the rest is adopted again next time.
  void adopt(std::span<const KnownObject> objects);
  void remove(std::span<const std::string> files);

  /// Recency is a counter: of all objects that are known, or may be read later, the highest is
  /// `highest`. Told once, by a start.
  void start_recency(uint64_t highest) { recency_ = highest; }
  uint64_t next_recency() { return ++recency_; }
  /// Used now, the last one latest. Reaches the catalog in batches.
  void touch(std::span<const ObjectName> names);
  void flush_touches();
  /// Sets the note of objects that have a row.
  void note(std::span<const NotedName> notes);

  /// Returns: io_error and others of Catalog::checkpoint.
  Status checkpoint();
  /// Removes every byte of removed rows from database and log. Returns: resource_exhausted (no room
  /// for the log), busy (another process has the catalog open, no memory), io_error (some row could
  /// not be removed since the start: the next one drops it), and others of Catalog::compact.
  Status compact();
  /// Bytes of the limit that compact() takes while it runs.
  uint64_t room_to_compact() const;

  /// Upper bound of one object's row, log and database together.
  static uint64_t row_room(const Object& header) { return 2 * Catalog::growth_bound(header); }
  uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }
  /// Bytes written by the catalog in use. Any thread.
  uint64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }

 private:
  void start_anew();
  void set_recency(std::span<const std::pair<std::string, uint64_t>> recency);
  void drop_left_rows();
  /// Applies one change of the catalog and its consequences. False: it failed, and is counted.
  template <typename Change>
  bool apply(Change change, uint64_t growth_bound);
  /// Measures database and log. Their possible growth is charged where they can't be measured.
  Status measure(uint64_t database_growth, uint64_t log_growth);

  StoreDir& dir_;
  Quarantine& quarantine_;
  std::unique_ptr<Catalog> catalog_;  // null if not even a new one could be made
  std::atomic<uint64_t> failures_{0}, bytes_written_{0};
  uint64_t recency_ = 0;
  std::map<std::string, uint64_t> touches_;  // recency by file name, not yet in the catalog
  bool left_rows_ = false;                   // rows that could not be removed are left
  bool left_old_ = false;                    // an unusable catalog could not be moved away
  std::mutex kept_mutex_;
  std::optional<KeptState> kept_;                // state not in the catalog yet
  uint64_t database_bytes_ = 0, log_bytes_ = 0;  // as in the ledger, which promises the log's size
                                                 // once more, for the next checkpoint
};

}  // namespace kv
