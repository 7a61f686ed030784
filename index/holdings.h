// Holdings of objects: what one object has for each part group of its model, as restorable(n) asks
// for it. Pure, any thread.
#pragma once

#include <span>
#include <vector>

#include "index/restorable.h"
#include "proto/plane.h"

namespace kv {

/// Appends what the object holds for the groups, as holdings of `like`'s place, form, tier and
/// common prefix. [first_token, end_token): its own tokens; of a supplement its block's. A
/// snapshot's position is end_token.
void append_holdings(std::span<const PartGroup> groups, const ObjectName& name,
                     uint32_t first_token, uint32_t end_token, const Holding& like,
                     std::vector<Holding>& out);

}  // namespace kv
