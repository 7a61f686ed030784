// StoreTotals: the bytes of a directory by what they serve, each file in one of the sums. A plain
// value.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/cachectl_store.h"

namespace kv::cachectl {

/// Allocated bytes.
struct StoreTotals {
  uint64_t unique = 0;  ///< of files that one entry has
  uint64_t shared = 0;  ///< of files that several entries have, each counted once
  uint64_t others = 0;  ///< of files that no entry has: records, damaged, foreign, temporary
  uint64_t rest = 0;    ///< of the catalog, the lock and the folders
  uint64_t saved = 0;   ///< that sharing saves: what entries have in common, counted again
};

/// The number of entries that have each file.
using FileUsers = std::unordered_map<const InspectedFile*, uint64_t>;
FileUsers users_of(const std::vector<Entry>& entries);
/// Bytes of the entry's files that others have too.
uint64_t shared_bytes(const Entry& entry, const FileUsers& users);

/// `users`: of all entries of the store. The first four add up to what the directory has allocated.
StoreTotals totals_of(const Inspection& all, const FileUsers& users);

}  // namespace kv::cachectl
