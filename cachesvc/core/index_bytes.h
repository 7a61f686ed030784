// Index bytes: the charge of an object to the index's share of RAM, within a tenth of the process's
// growth. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "proto/plane.h"

namespace kv {

/// Bytes of one object: its node, record and map entries, and its tokens as they are kept.
uint64_t index_bytes(ObjectKind kind, std::span<const Token> tokens);
/// Upper bound for any object with `tokens` tokens.
uint64_t most_index_bytes(size_t tokens);
/// Bytes of an orphan, which hangs on no tree.
uint64_t orphan_bytes(size_t tokens);

}  // namespace kv
