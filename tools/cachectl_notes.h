// Notes: what a store's catalog knows of objects and their files don't: what clients said of
// entries.
//
// Read from a private copy of the catalog, which a running daemon does not notice. The copy may be
// torn; then, as without a catalog, there are none.
#pragma once

#include <map>

#include "proto/plane.h"
#include "storage/object_note.h"
#include "tools/cachectl.h"

namespace kv::cachectl {

std::map<ObjectName, ObjectNote> read_notes(const Request& request);

}  // namespace kv::cachectl
