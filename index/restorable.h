// restorable(n): the one rule that says which prefix lengths of a query may be served, and from
// which objects. For every part group, what a cache of n tokens needs must be present:
//   full, latent: rows [0, n)         window{W, keep}: rows [max(0, n-W+1), n), [0, min(keep, n))
//   chunk{C}: rows [floor(n/C)*C, n)  state, opaque: a snapshot at n
//   pooled{r, overlap}: rows [0, floor(n/r)) and the carry at n (empty, so present, where r divides
//   n and there is no overlap or n < r)
// Servable lengths are no interval. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/client.h"
#include "proto/model.h"

namespace kv {

enum class HoldingKind : uint8_t { rows, carry, snapshot };
/// Where an object stands to the query; also the order of preference (tails: see Plan::served).
enum class HoldingPlace : uint8_t {
  tail,   ///< a tail, on the query's path or diverging from it
  path,   ///< a block that the query matches wholly, its supplements and snapshots
  other,  ///< a block that diverges from the query, its supplements and snapshots
};

/// One thing that one object holds for one part group.
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
  bool round_to_block = false;  ///< only multiples of block_tokens
};

enum class ShortReason : uint8_t {
  none,              ///< n is the common prefix
  query_minus_one,   ///< the last token of a query is always computed
  max_tokens,
  round_to_block,
  min_tokens,
  missing_rows,
  missing_carry,
  missing_snapshot,
};
const char* to_string(ShortReason reason);

/// Why n is shorter than the common prefix. The missing_* reasons name the part group that limits n
/// most, and what it lacks at the length `wanted`.
struct Shortfall {
  ShortReason reason = ShortReason::none;
  uint16_t group = 0;
  uint32_t wanted = 0;         ///< the largest length that the request allowed
  uint32_t first = 0, end = 0; ///< missing_rows: the first gap; else end is the position
  std::string text;            ///< for people; empty if reason is none
};

/// Rows [first, end) of a group (or its carry or snapshot at `end`) come from this holding.
struct Served {
  uint32_t holding = 0;  ///< index into the holdings given
  uint32_t first = 0, end = 0;
};

struct RestorePlan {
  uint32_t tokens = 0;  ///< n
  /// Sorted by group, then by first; the rows of one group don't overlap and are all that it needs.
  /// Each row comes from the shortest tail that matches through n, else from the path's blocks,
  /// else from others (exact before coded, then in the order given). Tiers have no say.
  std::vector<Served> served;
  Tier tier = Tier::none;        ///< of all that is served
  HitForm form = HitForm::none;  ///< exact_tail if the newest row of every group comes from such
  Shortfall shortfall;
};

/// The largest restorable n <= min(L, len - 1, max_tokens), and what serves it. `groups` come from
/// a validated model. O(h log h) for h holdings and O(log h) per length tried. Holdings of an
/// unknown group or with an empty range are ignored.
RestorePlan plan_restore(std::span<const PartGroup> groups, const RestorableQuery& query,
                         std::span<const Holding> holdings);

/// A row range that a cache of exactly n tokens needs (pooled: in rows of `rate` tokens).
struct RowRange {
  uint32_t first = 0, end = 0;
  bool empty() const { return first >= end; }
  bool operator==(const RowRange&) const = default;
};
/// What `part` needs at n: for windows the sinks first, then the newest rows, not overlapping; none
/// for state and opaque. Also what a store at n must cover.
std::vector<RowRange> demanded_rows(const PartSpec& part, uint32_t n);
/// True if `part` needs a carry with bytes at n (pooled only).
bool demands_carry(const PartSpec& part, uint32_t n);
/// True if `part` needs a snapshot at n (state and opaque, n > 0).
bool demands_snapshot(const PartSpec& part, uint32_t n);

}  // namespace kv
