// Paths: ancestors of a record, the length it shares with a query, and a query's memory. Functions;
// loop thread only.
#pragma once

#include <vector>

#include "cachesvc/core/realm_state.h"
#include "proto/client.h"

namespace kv {

/// Returns: invalid_argument (kMaxTokens, kMaxExtras).
Status check_lengths(const Query& query);
/// Memory of the query's first `tokens` tokens and their extras.
uint64_t query_bytes(const Query& query, uint32_t tokens);
/// The query after its first `first` tokens, at most all of them. A view.
Symbols symbols_from(const Query& query, uint32_t first);
/// Tokens that the entry of a block, tail or supplement shares with `query`, whose complete
/// blocks have the ids `blocks` in the record's realm.
uint32_t common_with(const Record& record, const Query& query, std::span<const Id> blocks);
/// The record and the blocks above it, root first; missing ones are left out.
std::vector<Record*> path_to(Record& record);
/// The block that must be on the SSD before it; or null.
Record* parent_of(const Record& record);

}  // namespace kv
