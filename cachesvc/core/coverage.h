// Coverage: objects that a store needs to serve its tokens, those that are missing, and those that
// its entry consists of. Queries of the index; loop thread only.
#pragma once

#include <optional>
#include <vector>

#include "cachesvc/core/reservations.h"

namespace kv {

/// Finds the first block or tail that was there at reserve and is gone: it and all after it aren't
/// stored; `reply.lost` names it. Returns: the tokens that remain.
uint32_t find_lost(ObjectIndex& index, const Reservation& r, CommitReply& reply);

/// The first thing that a store lacks to serve its tokens.
struct Gap {
  Status status;              ///< ok: no gap
  ObjectName name;            ///< the first object that is wanting
  uint32_t tokens_above = 0;  ///< tokens that can be stored without it
};
/// Checks that every block and the tail was given or is there.
Gap check_blocks(ObjectIndex& index, const Reservation& r);
/// Checks that what will be visible serves exactly the reservation's tokens; the blocks are there.
/// Without a gap `serving` gets the stored objects among what serves them.
Gap check_coverage(const Reservation& r, std::optional<std::vector<PinnedName>>& serving);

/// True if the client was asked for something and has not given it.
bool left_out(const Reservation& r);

/// Says whether the first `tokens` tokens, of what is visible now, are restorable to a query that
/// goes on from them; fewer than `min_tokens` are never served.
NamedEnd named_end(const Reservation& r, uint32_t tokens, uint32_t min_tokens);

/// The stored objects that serve the entry's first `tokens` tokens.
std::vector<PinnedName> serving(const Reservation& r, uint32_t tokens);
/// All objects of the entry, root first; `serving` too.
std::vector<PinnedName> path_of(ObjectIndex& index, const Reservation& r,
                                const std::vector<PinnedName>& serving);

}  // namespace kv
