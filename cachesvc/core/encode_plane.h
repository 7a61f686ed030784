// One plane of a put in the form that is stored. On workers: several may call it on one input.
#pragma once

#include "cachesvc/core/encode_input.h"

namespace kv {

/// The slot's rows, copied and given, cut to what the object keeps, and coded or as they are. In
/// the slot's place where it has one.
/// Returns: invalid_argument naming layer, part, side, expected and given.
Result<Plane> finished_plane(const EncodeInput& in, const PlaneSlot& slot, EncodeCounts& counts);

/// Checks runs and size before any arithmetic on the bytes: a client's may not agree.
Status check_size(const Plane& p);

}  // namespace kv
