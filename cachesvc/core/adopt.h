// Adoption: an entry holds the window and chunk rows that it needs by itself. Rows that lie in
// other entries' supplements are copied into supplements of its own blocks and tail, before the
// commit: from the tails that it supersedes all of them (they are the first to go), from others
// those that its ends need. Codes are copied as they are; a tail's exact rows are coded if a block
// adopts them. A block that completes takes the carries and block-end states of the tails before it
// too, so that their lengths outlive them. Questions to the index; loop thread only.
#pragma once

#include <vector>

#include "cachesvc/core/reservations.h"

namespace kv {

/// One put that brings what others have. `states_of`: whose carry or states it shares; may be none.
struct AdoptedPut {
  PutRequest put;
  RamObject states_of;
};
/// Puts of all that the reservation's entry could take over from others; none without supplements.
std::vector<AdoptedPut> adoptions(ObjectIndex& index, const Reservation& r);

}  // namespace kv
