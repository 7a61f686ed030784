// Which object of a reservation a put brings. Loop thread only.
#pragma once

#include "cachesvc/core/reservations.h"

namespace kv {

/// Checks what the client says of its object and fills in what it may leave out. Returns:
/// invalid_argument naming the field, what was expected and what was given.
Status identify(const Reservation& r, Object& object);

/// Rows that are there already are cut from both ends of a supplement; a duplicate has the name of
/// the one that is there.
void cut_rows(const Reservation& r, Object& object);

}  // namespace kv
