// The rows of a sequence come about here, as the profile's prefill mode says.
//
// exact: everything that is missing is computed at once, after what the cache holds.
// coded: block by block, each on the codes of the blocks before, the rest after the last block end
// likewise; so a row is a function of the tokens, and of where the prompt ended. One thread at a
// time.
#pragma once

#include <span>

#include "engine/network.h"

namespace kv {

/// Computes tokens[cache.tokens() …). With coded prefill the cache ends at a block end before.
/// Returns: what Network::prefill returns.
Status compute_prompt(Network& network, std::span<const Token> tokens, KvCache& cache,
                      Deadline deadline);

/// After a step. With coded prefill a block that it completed is computed again as one prefill
/// chunk, so that its bytes are those of a run that got these tokens as its prompt. Returns: as
/// compute_prompt.
Status settle_block(Network& network, KvCache& cache, Deadline deadline);

}  // namespace kv
