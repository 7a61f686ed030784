// Catalog: a SQLite mirror of the files, so that a restart knows every object without opening
// files.
//
// The catalog is disposable: losing it costs time, never an object, and no row is believed without
// the id that follows from it. It is the project's only user of SQLite, with one connection in
// exclusive mode (so there is no -shm file and a second opener is refused). Not thread-safe: the
// tier serialises.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/plane.h"
#include "proto/status.h"
#include "storage/files.h"
#include "storage/kept_state.h"
#include "storage/object_note.h"
#include "storage/sealed_rows.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kv {

/// An object as the catalog and a recovery know it: everything but its payload.
struct KnownObject {
  Object header;                 ///< identity and tokens; planes and states are empty
  uint64_t unpacked_bytes = 0;   ///< bytes of its planes and states in memory
  uint64_t file_bytes = 0;       ///< length of its file
  uint64_t allocated_bytes = 0;  ///< freed by erasing it
  uint64_t recency = 0;          ///< higher: used later
  ObjectNote note{};
};

using NotedName = std::pair<ObjectName, ObjectNote>;

class Catalog {
 public:
  /// Opens `path`, or creates it if it does not exist or is empty.
  /// Returns: corruption (damaged), unsupported (another application's or version's: in both cases
  /// move it aside and open again), busy (another process has it open), io_error,
  /// resource_exhausted.
  /// `key`: seals what rows tell about prompts, and outlives the catalog; null: they are plain.
  static Result<std::unique_ptr<Catalog>> open(const std::string& path, Files& files,
                                               const SealKey* key);
  /// Notes and nothing else, of a copy of a catalog, which may be torn and is not checked: what can
  /// be read counts. Returns: as open.
  static Result<std::vector<NotedName>> notes_of(const std::string& path, const SealKey* key);
  ~Catalog();
  Catalog(const Catalog&) = delete;  // owns the connection
  Catalog& operator=(const Catalog&) = delete;

  struct Rows {
    std::vector<KnownObject> good;
    std::vector<std::string> bad;  ///< file names of rows whose id doesn't follow from their
                                   ///< content
    /// Rows that can't be opened, damaged or of another key: of these only the name and the numbers
    /// are set.
    std::vector<KnownObject> sealed;
  };
  /// Loads every row, verified. Returns: corruption, io_error.
  Result<Rows> load();

  /// The file names of all rows. Returns: corruption, io_error.
  Result<std::vector<std::string>> files();

  /// Calls are transactions: all or nothing. Return: io_error, resource_exhausted (disk full),
  /// corruption.
  Status upsert(std::span<const KnownObject> objects);
  Status remove(std::span<const std::string> files);
  Status set_recency(std::span<const std::pair<std::string, uint64_t>> recency);
  Status set_notes(std::span<const std::pair<std::string, ObjectNote>> notes);
  /// State that set_state() wrote last; none if nothing did, or it is damaged. Returns: corruption,
  /// io_error.
  Result<std::optional<KeptState>> state();
  Status set_state(const KeptState& state);
  /// Moves the log into the database and empties it. Returns: as above.
  Status checkpoint();
  /// Writes the database anew, through the log, and empties that: no byte of an earlier row is left
  /// (a page that was split may keep stale ones otherwise). Takes the database's size in memory, in
  /// the log, and in time. Returns: as above; busy (no memory, nothing changed).
  Status compact();

  /// Pages written to the log since open, and as many again for the database.
  uint64_t bytes_written() const;

  /// Upper bound on the growth of the log, and as much again of the database at the next
  /// checkpoint, by an upsert or removal of this object.
  static uint64_t growth_bound(const Object& header);

 private:
  Catalog() = default;
  Status connect(const std::string& path, const SealKey* key);
  Status exec(const char* sql);
  Result<std::string> query_one(const char* sql);
  Status prepare(const char* sql, sqlite3_stmt** out);
  Status configure();
  Status check_identity(bool& fresh);
  Status check_pages();
  Status create_schema();
  Status prepare_writes();
  void drop_writes();
  Status upgrade();
  Status failure(const char* what) const;
  template <typename Body>
  Status transaction(Body body);
  template <typename Body>
  Status change(Body body);

  std::optional<SealedRows> sealed_;  // nullopt without a key
  int version_ = 0;                   // of the schema: an earlier one until the first change
  sqlite3* db_ = nullptr;
  sqlite3_stmt* upsert_ = nullptr;
  sqlite3_stmt* remove_ = nullptr;
  sqlite3_stmt* touch_ = nullptr;
  sqlite3_stmt* note_ = nullptr;
};

}  // namespace kv
