// Index bytes: what an object is charged of the index's share of RAM. Within a tenth of what the
// process grows by. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "proto/plane.h"

namespace kv {

/// One object's: its node, record and map entries, and its tokens as they are kept.
uint64_t index_bytes(ObjectKind kind, std::span<const Token> tokens);
/// The same of any object with so many tokens, at most.
uint64_t most_index_bytes(size_t tokens);
/// The same of one that hangs on no tree.
uint64_t orphan_bytes(size_t tokens);

}  // namespace kv
