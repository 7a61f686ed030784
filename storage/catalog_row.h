// Rows of the catalog's table of objects, to and from a statement. FORMAT.md, "Catalog". Internal
// to the catalog.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/catalog.h"

namespace kv {

enum class RowState : uint8_t {
  good,
  bad,     ///< contradicts itself
  sealed,  ///< can't be opened: only name and numbers of `out` are set
};

/// `sealed`: null without a key. `file` is set in any case.
RowState read_row(sqlite3_stmt* stmt, SealedRows* sealed, std::string& file, KnownObject& out);
/// Row of a file's name and its note. nullopt: no object has that name, or the note says nothing.
std::optional<NotedName> read_noted(sqlite3_stmt* stmt, SealedRows* sealed);
/// Values that `row` has must outlive the statement's next step. Returns: what sealing finds.
Status bind_row(sqlite3_stmt* stmt, SealedRows* sealed, const std::string& file,
                const KnownObject& row);

/// The column `note`. Returns: what sealing finds.
Result<std::vector<uint8_t>> encode_note(SealedRows* sealed, const std::string& file,
                                         const ObjectNote& note);

}  // namespace kv
