// Needs: objects that a store of n tokens must or may bring beside blocks and tail, and their
// bytes. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "index/restorable.h"
#include "proto/client.h"
#include "proto/end_price.h"

namespace kv {

/// A length that an entry shall be restorable at.
struct EndPosition {
  uint32_t n = 0;
  bool required = false;  ///< a store that can't serve it is refused; else it is only welcome
};
/// Rules that make a block end a restorable one beside an entry's own end.
struct EndRules {
  uint32_t interval = 0;          ///< blocks between such ends, from the root on; 0: none
  uint32_t branch = 0;            ///< the last block end that another entry shares; 0: none
  std::vector<uint32_t> named{};  ///< by the client, at any token of the entry, ascending
  bool checkpoints = true;        ///< at every `interval` too; false: the client sees to them
};
/// Blocks between ends that a store of n tokens is asked for. `every`: the setting
/// block_end_interval, kEndsByPrice included.
uint32_t block_end_interval(const ModelSpec& model, const Profile& profile, uint32_t every,
                            uint32_t n);
/// The entry's end n; the named ones; n - 1 (a repeat of the same prompt) and the newest block end;
/// then the branch, and every `interval` blocks, the newest first.
std::vector<EndPosition> end_positions(uint32_t block_tokens, uint32_t n, const EndRules& rules);

/// Rows of [first, end) that no holding of the group has, ascending.
std::vector<RowRange> missing_rows(RowRange wanted, uint16_t group,
                                   const std::vector<Holding>& held);

/// Supplements and snapshots that a store of `n` tokens lacks, given what is held already: rows and
/// carries that each of its end_positions demands (restorable.h), block-end states at every block
/// end, checkpoints at n and where the rules say; both at named ends.
std::vector<Need> attached_needs(std::span<const PartGroup> groups, uint32_t block_tokens,
                                 uint32_t n, const EndRules& rules,
                                 const std::vector<Holding>& held);

/// Bytes of planes that an object for this need takes when stored (states: 0, their size is
/// unknown).
uint64_t need_bytes(const ModelSpec& model, const Profile& profile,
                    std::span<const PartGroup> groups, const Need& need);

/// Bytes of the selection's planes with every row decoded to `out`, and of the largest of those
/// that are then cut to some heads.
uint64_t decoded_bytes(const ModelSpec& model, std::span<const PartGroup> groups, const Need& need,
                       DType out, const Selection& selection);

std::span<const Token> tokens_between(const Query& query, uint32_t first, uint32_t end);

}  // namespace kv
