// RowSelect: SQLite's bare SELECT of a catalog's rows, the yardstick of whatever reads them all.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "proto/status.h"

namespace kv {

class RowSelect {
 public:
  /// The catalog at `path`, which nobody else writes meanwhile.
  explicit RowSelect(const std::string& path) {
    KV_CHECK(sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr) == SQLITE_OK);
    KV_CHECK(sqlite3_prepare_v2(db_, "SELECT * FROM objects", -1, &rows_, nullptr) == SQLITE_OK);
  }
  ~RowSelect() {
    sqlite3_finalize(rows_);
    sqlite3_close(db_);
  }
  RowSelect(const RowSelect&) = delete;  // owns the connection
  RowSelect& operator=(const RowSelect&) = delete;

  /// Reads every column of every row. Returns: rows; `bytes`: of all columns.
  uint64_t read_all(uint64_t& bytes) {
    bytes = 0;
    return each_row([&](sqlite3_stmt* row) {
      for (int c = 0; c < sqlite3_column_count(row); ++c) {
        bytes += static_cast<uint64_t>(sqlite3_column_bytes(row, c));
      }
    });
  }
  /// Calls `visit` with each row. Returns: rows.
  template <typename Visit>
  uint64_t each_row(Visit visit) {
    uint64_t rows = 0;
    for (; sqlite3_step(rows_) == SQLITE_ROW; ++rows) visit(rows_);
    sqlite3_reset(rows_);
    return rows;
  }

 private:
  sqlite3* db_ = nullptr;
  sqlite3_stmt* rows_ = nullptr;
};

}  // namespace kv
