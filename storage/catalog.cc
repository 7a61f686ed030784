// The catalog's schema and statements. Columns: FORMAT.md, "Catalog".
#include "storage/catalog.h"

#include <sqlite3.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "storage/catalog_columns.h"
#include "storage/catalog_row.h"
#include "storage/file_names.h"

namespace kv {
namespace {

constexpr int kApplicationId = 0x6b766373;  // "kvcs"
constexpr int kUserVersion = 3;
// Earlier versions are read as they are, and become kUserVersion with the first row, state or note.
constexpr int kFirstWithState = 2;
constexpr int kFirstWithNotes = 3;
constexpr uint64_t kPageBytes = 4096;

constexpr const char* kSchema = R"(
CREATE TABLE objects (
  file TEXT NOT NULL UNIQUE,
  kind INTEGER NOT NULL,
  id BLOB NOT NULL,
  part_group INTEGER NOT NULL,
  first_row INTEGER NOT NULL,
  end_row INTEGER NOT NULL,
  parent BLOB NOT NULL,
  profile BLOB NOT NULL,
  namespace TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  first_token INTEGER NOT NULL,
  tokens BLOB NOT NULL,
  extras BLOB NOT NULL,
  unpacked_bytes INTEGER NOT NULL,
  file_bytes INTEGER NOT NULL,
  allocated_bytes INTEGER NOT NULL,
  recency INTEGER NOT NULL,
  note BLOB NOT NULL DEFAULT (x'')
) STRICT;
)";
constexpr const char* kAddNotes =
    "ALTER TABLE objects ADD COLUMN note BLOB NOT NULL DEFAULT (x'');";
constexpr const char* kStateSchema = "CREATE TABLE state (value BLOB NOT NULL) STRICT;";

// Columns in the order of kSchema; read_row() and bind_row() follow it.
constexpr const char* kSelect = R"(
SELECT file, kind, id, part_group, first_row, end_row, parent, profile, namespace, fingerprint,
  first_token, tokens, extras, unpacked_bytes, file_bytes, allocated_bytes, recency, note
  FROM objects)";
constexpr const char* kSelectWithoutNotes = R"(
SELECT file, kind, id, part_group, first_row, end_row, parent, profile, namespace, fingerprint,
  first_token, tokens, extras, unpacked_bytes, file_bytes, allocated_bytes, recency, x''
  FROM objects)";
constexpr const char* kSelectNotes = "SELECT file, note FROM objects WHERE length(note) > 0";
constexpr const char* kUpsert = R"(
INSERT OR REPLACE INTO objects VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?))";
constexpr const char* kRemove = "DELETE FROM objects WHERE file = ?";
constexpr const char* kTouch = "UPDATE objects SET recency = ? WHERE file = ?";
constexpr const char* kNote = "UPDATE objects SET note = ? WHERE file = ?";
constexpr const char* kSelectState = "SELECT value FROM state";
constexpr const char* kInsertState = "INSERT INTO state VALUES (?)";

std::string version_pragma() { return "PRAGMA user_version=" + std::to_string(kUserVersion) + ";"; }

StatusCode code_of(int rc) {
  switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return StatusCode::corruption;
    case SQLITE_FULL:
      return StatusCode::resource_exhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return StatusCode::busy;
    default:
      return StatusCode::io_error;
  }
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::open(const std::string& path, Files& files,
                                               const SealKey* key) {
  // SQLite gives its log the mode of the database, so creating that one 0600 settles both.
  auto existing = files.stat(path);
  if (!existing.ok() && existing.status().code() != StatusCode::not_found) return existing.status();
  if (!existing.ok()) {
    KV_ASSIGN_OR_RETURN(Fd fd, files.create(path));
    files.close(fd);
  } else if (!existing->is_file) {
    return unsupported("catalog: " + path + " is no regular file");
  }
  std::unique_ptr<Catalog> catalog(new Catalog());
  KV_RETURN_IF_ERROR(catalog->connect(path, key));
  KV_RETURN_IF_ERROR(catalog->check_pages());
  bool fresh = false;
  KV_RETURN_IF_ERROR(catalog->check_identity(fresh));
  if (fresh) KV_RETURN_IF_ERROR(catalog->create_schema());
  KV_RETURN_IF_ERROR(catalog->prepare(kRemove, &catalog->remove_));
  KV_RETURN_IF_ERROR(catalog->prepare(kTouch, &catalog->touch_));
  if (catalog->version_ == kUserVersion) KV_RETURN_IF_ERROR(catalog->prepare_writes());
  return catalog;
}

Result<std::vector<NotedName>> Catalog::notes_of(const std::string& path, const SealKey* key) {
  std::vector<NotedName> notes;
  std::unique_ptr<Catalog> catalog(new Catalog());
  KV_RETURN_IF_ERROR(catalog->connect(path, key));
  bool fresh = false;
  KV_RETURN_IF_ERROR(catalog->check_identity(fresh));
  if (fresh || catalog->version_ < kFirstWithNotes) return notes;
  sqlite3_stmt* stmt = nullptr;
  KV_RETURN_IF_ERROR(catalog->prepare(kSelectNotes, &stmt));
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owned(stmt, sqlite3_finalize);
  while (sqlite3_step(stmt) == SQLITE_ROW) {
    auto noted = read_noted(stmt, catalog->sealed_ ? &*catalog->sealed_ : nullptr);
    if (noted) notes.push_back(std::move(*noted));
  }
  return notes;
}

Catalog::~Catalog() {
  for (sqlite3_stmt* stmt : {upsert_, remove_, touch_, note_}) sqlite3_finalize(stmt);
  sqlite3_close(db_);
}

Status Catalog::connect(const std::string& path, const SealKey* key) {
  if (key != nullptr) sealed_.emplace(*key);
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(path.c_str(), &db_, flags, nullptr) != SQLITE_OK) return failure("open");
  return configure();
}

Status Catalog::failure(const char* what) const {
  int rc = db_ == nullptr ? SQLITE_NOMEM : sqlite3_extended_errcode(db_);
  // A lack of memory is thrown, as everywhere. A transaction under way ends with the connection.
  if ((rc & 0xff) == SQLITE_NOMEM) throw std::bad_alloc();
  return {code_of(rc), std::string("catalog: ") + what + ": " + sqlite3_errmsg(db_)};
}

Status Catalog::exec(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return failure(sql);
}

Status Catalog::prepare(const char* sql, sqlite3_stmt** out) {
  if (sqlite3_prepare_v2(db_, sql, -1, out, nullptr) == SQLITE_OK) return {};
  // A schema that lacks our columns is as good as a damaged one.
  Status status = failure("prepare");
  return status.code() == StatusCode::io_error ? corruption(status.message()) : status;
}

Status Catalog::configure() {
  sqlite3_extended_result_codes(db_, 1);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, 16 << 20);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  // Exclusive before WAL: the log's index then lives in memory and there is no -shm file.
  return exec(
      "PRAGMA page_size=4096; PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
      "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA mmap_size=0;"
      "PRAGMA temp_store=MEMORY; PRAGMA cell_size_check=ON; PRAGMA secure_delete=ON;");
}

// First column of the first row, as text.
Result<std::string> Catalog::query_one(const char* sql) {
  std::string out;
  auto keep = [](void* to, int columns, char** values, char**) {
    auto& text = *static_cast<std::string*>(to);
    if (columns > 0 && values[0] != nullptr && text.empty()) text = values[0];
    return 0;
  };
  if (sqlite3_exec(db_, sql, keep, &out, nullptr) != SQLITE_OK) return failure(sql);
  return out;
}

Status Catalog::check_pages() {
  KV_ASSIGN_OR_RETURN(std::string check, query_one("PRAGMA quick_check(1)"));
  return check == "ok" ? Status() : corruption("catalog: quick_check: " + check);
}

Status Catalog::check_identity(bool& fresh) {
  KV_ASSIGN_OR_RETURN(std::string application, query_one("PRAGMA application_id"));
  KV_ASSIGN_OR_RETURN(std::string version, query_one("PRAGMA user_version"));
  KV_ASSIGN_OR_RETURN(std::string tables, query_one("SELECT count(*) FROM sqlite_schema"));
  fresh = application == "0" && version == "0" && tables == "0";
  version_ = fresh ? kUserVersion : std::atoi(version.c_str());
  if (fresh) return {};
  if (application != std::to_string(kApplicationId)) {
    return unsupported("catalog: application id " + application + ", expected " +
                       std::to_string(kApplicationId));
  }
  if (version_ < 1 || version_ > kUserVersion) {
    return unsupported("catalog: schema version " + version + ", this program reads " +
                       std::to_string(kUserVersion));
  }
  return {};
}

Status Catalog::create_schema() {
  std::string sql = "BEGIN;" + std::string(kSchema) + kStateSchema +
                    "PRAGMA application_id=" + std::to_string(kApplicationId) + ";" +
                    version_pragma() + "COMMIT;";
  return exec(sql.c_str());
}

// Statements that name every column.
Status Catalog::prepare_writes() {
  KV_RETURN_IF_ERROR(prepare(kUpsert, &upsert_));
  return prepare(kNote, &note_);
}

void Catalog::drop_writes() {
  for (sqlite3_stmt** stmt : {&upsert_, &note_}) sqlite3_finalize(std::exchange(*stmt, nullptr));
}

// Makes a transaction of an earlier version's catalog begin with its change to this version.
Status Catalog::upgrade() {
  if (version_ == kUserVersion) return {};
  std::string sql = kAddNotes;
  if (version_ < kFirstWithState) sql += kStateSchema;
  KV_RETURN_IF_ERROR(exec((sql + version_pragma()).c_str()));
  return prepare_writes();
}

Result<Catalog::Rows> Catalog::load() {
  sqlite3_stmt* stmt = nullptr;
  const bool notes = version_ >= kFirstWithNotes;
  KV_RETURN_IF_ERROR(prepare(notes ? kSelect : kSelectWithoutNotes, &stmt));
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owned(stmt, sqlite3_finalize);
  KV_ASSIGN_OR_RETURN(std::string count, query_one("SELECT count(*) FROM objects"));
  Rows rows;
  rows.good.reserve(std::strtoull(count.c_str(), nullptr, 10));
  int rc;
  std::string file;
  while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
    KnownObject object;
    RowState row = read_row(stmt, sealed_ ? &*sealed_ : nullptr, file, object);
    if (row == RowState::bad) {
      rows.bad.push_back(file);
    } else {
      (row == RowState::good ? rows.good : rows.sealed).push_back(std::move(object));
    }
  }
  if (rc != SQLITE_DONE) return failure("load");
  return rows;
}

Result<std::vector<std::string>> Catalog::files() {
  sqlite3_stmt* stmt = nullptr;
  KV_RETURN_IF_ERROR(prepare("SELECT file FROM objects", &stmt));
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owned(stmt, sqlite3_finalize);
  std::vector<std::string> files;
  int rc;
  while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) Columns(stmt).text(files.emplace_back());
  if (rc != SQLITE_DONE) return failure("files");
  return files;
}

template <typename Body>
Status Catalog::transaction(Body body) {
  KV_RETURN_IF_ERROR(exec("BEGIN IMMEDIATE"));
  // Rolls back at any end before the commit; the first error is the one reported.
  struct End {
    sqlite3* db;
    ~End() {
      if (sqlite3_get_autocommit(db) != 0) return;
      (void)sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
    }
  } end{db_};
  KV_RETURN_IF_ERROR(body());
  return exec("COMMIT");
}

// A transaction that writes what an earlier version has no place for.
template <typename Body>
Status Catalog::change(Body body) {
  Status status = transaction([&]() -> Status {
    KV_RETURN_IF_ERROR(upgrade());
    return body();
  });
  if (status.ok()) version_ = kUserVersion;
  if (version_ != kUserVersion) drop_writes();  // they name columns that are not there
  return status;
}

Status Catalog::upsert(std::span<const KnownObject> objects) {
  if (objects.empty()) return {};
  return change([&]() -> Status {
    for (const auto& object : objects) {
      std::string file = file_name(object.header.name);
      KV_RETURN_IF_ERROR(bind_row(upsert_, sealed_ ? &*sealed_ : nullptr, file, object));
      int rc = sqlite3_step(upsert_);
      sqlite3_reset(upsert_);
      if (rc != SQLITE_DONE) return failure("upsert");
    }
    return {};
  });
}

Status Catalog::remove(std::span<const std::string> files) {
  if (files.empty()) return {};
  return transaction([&]() -> Status {
    for (const auto& file : files) {
      Binder(remove_).text(file);
      int rc = sqlite3_step(remove_);
      sqlite3_reset(remove_);
      if (rc != SQLITE_DONE) return failure("remove");
    }
    return {};
  });
}

Status Catalog::set_recency(std::span<const std::pair<std::string, uint64_t>> recency) {
  if (recency.empty()) return {};
  return transaction([&]() -> Status {
    for (const auto& [file, value] : recency) {
      Binder(touch_).integer(value).text(file);
      int rc = sqlite3_step(touch_);
      sqlite3_reset(touch_);
      if (rc != SQLITE_DONE) return failure("set_recency");
    }
    return {};
  });
}

Status Catalog::set_notes(std::span<const std::pair<std::string, ObjectNote>> notes) {
  if (notes.empty()) return {};
  return change([&]() -> Status {
    for (const auto& [file, note] : notes) {
      KV_ASSIGN_OR_RETURN(auto bytes, encode_note(sealed_ ? &*sealed_ : nullptr, file, note));
      Binder(note_).blob(bytes).text(file);
      int rc = sqlite3_step(note_);
      sqlite3_reset(note_);
      if (rc != SQLITE_DONE) return failure("set_notes");
    }
    return {};
  });
}

Result<std::optional<KeptState>> Catalog::state() {
  std::optional<KeptState> state;
  if (version_ < kFirstWithState) return state;
  sqlite3_stmt* stmt = nullptr;
  KV_RETURN_IF_ERROR(prepare(kSelectState, &stmt));
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owned(stmt, sqlite3_finalize);
  int rc = sqlite3_step(stmt);
  if (rc == SQLITE_ROW) {
    auto read = decode_kept_state(Columns(stmt).blob());
    if (read.ok()) state = std::move(*read);
  } else if (rc != SQLITE_DONE) {
    return failure("state");
  }
  return state;
}

Status Catalog::set_state(const KeptState& state) {
  return change([&]() -> Status {
    KV_RETURN_IF_ERROR(exec("DELETE FROM state"));
    sqlite3_stmt* stmt = nullptr;
    KV_RETURN_IF_ERROR(prepare(kInsertState, &stmt));
    std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owned(stmt, sqlite3_finalize);
    Binder(stmt).blob(encode_kept_state(state));
    return sqlite3_step(stmt) == SQLITE_DONE ? Status() : failure("set_state");
  });
}

Status Catalog::checkpoint() {
  int rc = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  return rc == SQLITE_OK ? Status() : failure("checkpoint");
}

Status Catalog::compact() {
  int rc = sqlite3_exec(db_, "VACUUM", nullptr, nullptr, nullptr);
  if ((rc & 0xff) == SQLITE_NOMEM) {
    return {StatusCode::busy, "catalog: out of memory, of its own size, to compact it"};
  }
  return rc == SQLITE_OK ? checkpoint() : failure("VACUUM");
}

uint64_t Catalog::bytes_written() const {
  int pages = 0, highest = 0;
  sqlite3_db_status(db_, SQLITE_DBSTATUS_CACHE_WRITE, &pages, &highest, 0);
  return 2 * static_cast<uint64_t>(pages) * kPageBytes;
}

uint64_t Catalog::growth_bound(const Object& header) {
  uint64_t row = 1024 + header.tokens.size() * sizeof(Token);
  for (const auto& e : header.extras) row += 8 + e.bytes.size();
  // The row's own pages, and at most ten more of the two trees that splits and merges touch.
  uint64_t pages = row / (kPageBytes - 64) + 1 + 10;
  return pages * (kPageBytes + 24);  // 24: a log frame's header
}

}  // namespace kv
