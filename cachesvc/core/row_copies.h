// Row copies: an entry has all window and chunk rows that it needs in supplements of its own blocks
// and tail. Rows that only other entries have are copied before the commit: from superseded tails
// all of them (such tails go first), from others those that the entry's ends need. Codes are copied
// as they are; a tail's exact rows are coded when a block gets them. A block that completes also
// gets the carries and block-end states of the tails before it, so that their lengths outlive them.
// Sources are those of the reserve, which are pinned since. Queries of the index; loop thread only.
#pragma once

#include <vector>

#include "cachesvc/core/reservations.h"

namespace kv {

/// A put that copies from other entries. `states_of`: the object whose carry or states it shares;
/// may be null.
struct CopyPut {
  PutRequest put;
  RamObject states_of;
};
/// Puts of all copies that the reservation's entry can have from others; none without supplements.
std::vector<CopyPut> row_copies(ObjectIndex& index, const Reservation& r);

}  // namespace kv
