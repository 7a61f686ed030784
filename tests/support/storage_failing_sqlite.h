// SQLite's allocations fail too, where FailingNew::arm says so.
#pragma once

#include <malloc.h>
#include <sqlite3.h>

#include "tests/support/failing_new.h"

namespace kv {

/// Before SQLite's first use. False if it has been used.
inline bool fail_sqlite_too() {
  sqlite3_mem_methods m{};
  m.xMalloc = [](int n) -> void* {
    return FailingNew::should_fail(true) ? nullptr : std::malloc(static_cast<size_t>(n));
  };
  m.xRealloc = [](void* p, int n) -> void* {
    return FailingNew::should_fail(true) ? nullptr : std::realloc(p, static_cast<size_t>(n));
  };
  m.xFree = [](void* p) { std::free(p); };
  m.xSize = [](void* p) { return static_cast<int>(::malloc_usable_size(p)); };
  m.xRoundup = [](int n) { return (n + 7) & ~7; };
  m.xInit = [](void*) { return SQLITE_OK; };
  m.xShutdown = [](void*) {};
  return sqlite3_config(SQLITE_CONFIG_MALLOC, &m) == SQLITE_OK;
}

}  // namespace kv
