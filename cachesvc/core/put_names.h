// Names of put objects, derived from their reservation. Loop thread only.
#pragma once

#include "cachesvc/core/reservations.h"

namespace kv {

/// Checks the object's header against the reservation and fills in fields that the client left out.
/// Returns: invalid_argument naming the field, what was expected and what was given.
Status identify(const Reservation& r, Object& object);

/// Cuts rows that are stored already from both ends of a supplement; a duplicate gets the name of
/// the stored one.
void cut_rows(const Reservation& r, Object& object);

}  // namespace kv
