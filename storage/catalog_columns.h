// Values of the catalog's statements: bound in order, and read in order. For catalog*.cc.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "proto/checksum.h"

namespace kv {

/// Binds values to ?1, ?2, … in order; a failure shows when the statement is stepped.
class Binder {
 public:
  explicit Binder(sqlite3_stmt* stmt) : stmt_(stmt) {
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
  }
  Binder& integer(uint64_t v) {
    sqlite3_bind_int64(stmt_, ++at_, static_cast<sqlite3_int64>(v));
    return *this;
  }
  Binder& text(const std::string& v) {
    sqlite3_bind_text64(stmt_, ++at_, v.data(), v.size(), SQLITE_STATIC, SQLITE_UTF8);
    return *this;
  }
  Binder& blob(std::span<const uint8_t> v) {
    // A null pointer would bind NULL where an empty blob is meant.
    sqlite3_bind_blob64(stmt_, ++at_, v.empty() ? "" : static_cast<const void*>(v.data()), v.size(),
                        SQLITE_TRANSIENT);
    return *this;
  }

 private:
  sqlite3_stmt* stmt_;
  int at_ = 0;
};

/// Reads columns 0, 1, … in order.
class Columns {
 public:
  explicit Columns(sqlite3_stmt* stmt) : stmt_(stmt) {}
  uint64_t integer() { return static_cast<uint64_t>(sqlite3_column_int64(stmt_, at_++)); }
  template <typename T>
  T number() {
    uint64_t v = integer();
    if (v > std::numeric_limits<T>::max()) ok_ = false;
    return static_cast<T>(v);
  }
  std::span<const uint8_t> blob() {
    auto* data = static_cast<const uint8_t*>(sqlite3_column_blob(stmt_, at_));
    auto size = static_cast<size_t>(sqlite3_column_bytes(stmt_, at_++));
    return {data, data == nullptr ? 0 : size};
  }
  void text(std::string& out) {
    auto b = blob();
    out.assign(reinterpret_cast<const char*>(b.data()), b.size());
  }
  Id id() {
    Id out;
    auto b = blob();
    if (b.size() == out.bytes.size()) {
      std::copy(b.begin(), b.end(), out.bytes.begin());
    } else {
      ok_ = false;
    }
    return out;
  }
  void skip(int columns) { at_ += columns; }
  void fail() { ok_ = false; }
  bool ok() const { return ok_; }

 private:
  sqlite3_stmt* stmt_;
  int at_ = 0;
  bool ok_ = true;
};

}  // namespace kv
