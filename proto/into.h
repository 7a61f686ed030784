// Into: pieces of a caller's memory that the payload of a fetch fills, one after another.
//
// Its order is that of the reply's objects: of each every plane's bytes, then every state's,
// without gaps. Pure functions, any thread.
#pragma once

#include <optional>

#include "proto/client.h"
#include "proto/memory_message.h"

namespace kv {

class OwnMemory;

/// Bytes of all pieces together.
uint64_t bytes_of(const Pieces& pieces);
/// Bytes of planes and states, by their shapes.
uint64_t payload_bytes_of(const Object& object);
uint64_t payload_bytes_of(const Prefix& prefix);
/// Places of pieces that lie in the memory whole, those at equal steps as one run; none: some lie
/// elsewhere, or there are too many for one request. Touches their pages: who has not is refused.
std::optional<std::vector<MemoryRun>> runs_of(OwnMemory& memory, const Pieces& pieces);
/// The prefix with planes and states that point into the pieces; one that lies in several has no
/// bytes. `copy`: its bytes are copied there first, else they are there. Returns:
/// resource_exhausted (the pieces are too short).
Status place(Prefix& prefix, const Pieces& pieces, bool copy);
/// A fetch's reply with its payload copied into the pieces, and no lease. Returns: also busy (the
/// service took the memory of its lease back meanwhile).
Result<FetchReply> copied_into(FetchReply reply, const Pieces& pieces);

}  // namespace kv
