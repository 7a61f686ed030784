// restorable(n): the one rule for prefix lengths of a query that may be served, and the objects
// that serve them: n is restorable if everything that a cache of n tokens holds (proto/demand.h) is
// present. Restorable lengths form no interval. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/client.h"
#include "proto/demand.h"
#include "proto/model.h"

namespace kv {

enum class HoldingKind : uint8_t { rows, carry, snapshot };
/// An object's relation to the query; also the order of preference (tails: see Plan::served).
enum class HoldingPlace : uint8_t {
  tail,   ///< a tail, on the query's path or diverging from it
  path,   ///< a block that the query matches wholly, its supplements and snapshots
  other,  ///< a block that diverges from the query, its supplements and snapshots
};

/// Rows, a carry or a state that one object holds for one part group.
struct Holding {
  uint64_t object = 0;  ///< the caller's reference, handed back untouched
  uint16_t group = 0;   ///< index into part_groups(model)
  HoldingKind kind = HoldingKind::rows;
  HoldingPlace place = HoldingPlace::path;
  HitForm form = HitForm::coded;
  Tier tier = Tier::ram;
  /// rows: [first, end), absolute positions (pooled: in units of rate), as stored: not clipped.
  /// carry, snapshot: its position in `end`; `first` is not read.
  uint32_t first = 0, end = 0;
  /// The object's sequence equals the query's, in tokens and extras, in [0, common). Rows and
  /// positions beyond are another sequence's and count as absent.
  uint32_t common = 0;
  uint32_t end_token = 0;  ///< tails: where the tail's own tokens end
};

struct RestorableQuery {
  uint32_t block_tokens = 256;
  uint32_t query_tokens = 0;  ///< len(query)
  uint32_t common = 0;        ///< L: longest common prefix with anything stored
  uint32_t max_tokens = UINT32_MAX;
  uint32_t min_tokens = 0;      ///< a shorter n is served as 0: not worth a restore
  bool round_to_block = false;  ///< serve multiples of block_tokens only
};

enum class ShortReason : uint8_t {
  none,             ///< n is the common prefix
  query_minus_one,  ///< the last token of a query is always computed
  max_tokens,
  round_to_block,
  min_tokens,
  missing_rows,
  missing_carry,
  missing_snapshot,
};
const char* to_string(ShortReason reason);

/// The reason why n is shorter than the common prefix. The missing_* reasons name the part group
/// that limits n most, and what it lacks at the length `wanted`.
struct Shortfall {
  ShortReason reason = ShortReason::none;
  uint16_t group = 0;
  uint32_t wanted = 0;          ///< the largest length that the request allowed
  uint32_t first = 0, end = 0;  ///< missing_rows: the first gap; else end is the position
  std::string text;             ///< message; empty if reason is none
};

/// Rows [first, end) of a group (or its carry or snapshot at `end`) come from this holding.
struct Served {
  uint32_t holding = 0;  ///< index into the holdings given
  uint32_t first = 0, end = 0;
};

struct RestorePlan {
  uint32_t tokens = 0;  ///< n
  /// Sorted by group, then by first; the rows of one group don't overlap and are all that it needs.
  /// Each row of a repeat, whose n is len - 1, comes from the shortest tail that matches through n,
  /// else from the path's blocks, else from others (exact before coded, then in the order given). A
  /// row of any other hit comes from a tail only where no block has it: every conversation on one
  /// system prompt then uses the blocks of the first, which stay in RAM. Tiers have no say.
  std::vector<Served> served;
  Tier tier = Tier::none;        ///< tier of all that is served
  HitForm form = HitForm::none;  ///< exact_tail if the newest row of every group comes from such
  Shortfall shortfall;
};

/// The largest restorable n <= min(L, len - 1, max_tokens), and what serves it. `groups` come from
/// a validated model. O(h log h) for h holdings and O(log h) per length tried. Holdings of an
/// unknown group or with an empty range are ignored.
RestorePlan plan_restore(std::span<const PartGroup> groups, const RestorableQuery& query,
                         std::span<const Holding> holdings);

}  // namespace kv
