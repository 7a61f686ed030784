// Values by key: entries whose tokens are their key's hash (FORMAT.md, "Values without tokens").
// Pure functions, any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "proto/bytes.h"
#include "proto/model.h"
#include "proto/plane.h"

namespace kv {

inline constexpr size_t kMaxKeyBytes = 4096;
inline constexpr uint32_t kKeyedTokens = 8;

/// The model that all values of a namespace share.
ModelSpec keyed_model();
/// The entry's kKeyedTokens tokens; a query for it has one more, any.
std::vector<Token> keyed_tokens(std::string_view key);

/// Bytes of the entry's state before the value. `key` has at most kMaxKeyBytes.
size_t keyed_head_bytes(std::string_view key);
/// Writes them to the first of `state`.
void write_keyed_head(std::string_view key, std::span<uint8_t> state);
/// The value in a state, shared; nothing if the state is another key's, or none at all.
std::optional<Bytes> keyed_value(const Bytes& state, std::string_view key);

}  // namespace kv
