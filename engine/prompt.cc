// See prompt.h.
#include "engine/prompt.h"

#include <vector>

namespace kv {
namespace {

bool coded(const KvCache& cache) { return cache.codec().profile().prefill == PrefillMode::coded; }

}  // namespace

Status compute_prompt(Network& network, std::span<const Token> tokens, KvCache& cache,
                      Deadline deadline) {
  if (coded(cache)) {
    uint32_t block = cache.block_tokens();
    KV_CHECK(cache.tokens() % block == 0);
    while (cache.tokens() + block <= tokens.size()) {
      KV_RETURN_IF_ERROR(network.prefill(tokens.first(cache.tokens() + block), cache, deadline));
    }
  }
  if (tokens.size() == cache.tokens()) return {};
  return network.prefill(tokens, cache, deadline);
}

Status settle_block(Network& network, KvCache& cache, Deadline deadline) {
  if (!coded(cache) || cache.tokens() % cache.block_tokens() != 0) return {};
  std::vector<Token> tokens(cache.sequence().begin(), cache.sequence().end());
  KV_RETURN_IF_ERROR(cache.rewind(cache.tokens() - cache.block_tokens()));
  return network.prefill(tokens, cache, deadline);
}

}  // namespace kv
