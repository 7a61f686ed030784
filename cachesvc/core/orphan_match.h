// The orphans that an erase must take. Loop thread only.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/core/object_index.h"
#include "proto/client.h"

namespace kv {

/// The orphans of a model, in any profile, of which it can't be excluded that their entry begins
/// with `query`: tokens are compared as far as they are known, and the id of a lost block with
/// what the query would give it. Those that end inside `query` are not among them.
std::vector<Record*> orphans_beginning_with(ObjectIndex& index, const std::string& ns,
                                            const Id& fingerprint, const Query& query);

}  // namespace kv
