// Identity: makes the ids of blocks, tails, snapshots and model records.
//
// Every id is SHA-256 over tagged, length-prefixed fields (FORMAT.md, "Ids"), so no two different
// field lists give the same bytes. The id names a computation, not bytes. Pure functions.
#pragma once

#include <span>
#include <string_view>

#include "proto/plane.h"

namespace kv {

/// Fields that all ids of one (namespace, model, profile) share.
struct Realm {
  std::string ns;
  Id fingerprint;
  Id profile;
  bool operator==(const Realm&) const = default;
};

/// `tokens` and `extras` are the block's own (positions absolute); `parent` zero at the root.
Id block_id(const Realm& realm, const Id& parent, std::span<const Token> tokens,
            std::span<const Extra> extras, ObjectKind block_or_tail);
/// `parent`: the last complete block before the position; `tokens`: those after it, perhaps none.
Id snapshot_id(const Realm& realm, const Id& parent, std::span<const Token> tokens,
               std::span<const Extra> extras);
/// Id of a (namespace, model): names its model records.
Id model_id(std::string_view ns, const Id& fingerprint);

/// Fills name.id, ns, fingerprint, profile of a block, tail or snapshot whose parent, tokens and
/// extras are set. Supplements take their block's id.
void stamp(Object& object, const Realm& realm);
/// True if the object's id follows from its own fields.
bool id_matches(const Object& object);

}  // namespace kv
