// Bytes that containers take beside the tokens, as measured by tests/cachesvc_index_share_test.cc.
#include "cachesvc/core/index_bytes.h"

#include "index/token_run.h"

namespace kv {
namespace {

// A node or an attachment, a record, and their places in maps and orders.
constexpr uint64_t kIndexBytesPerObject = 648;
constexpr uint64_t kIndexBytesPerOrphan = 944;

}  // namespace

uint64_t index_bytes(ObjectKind kind, std::span<const Token> tokens) {
  if (kind == ObjectKind::snapshot) return most_index_bytes(tokens.size());
  return kIndexBytesPerObject + TokenRun::packed_bytes(tokens);
}

uint64_t most_index_bytes(size_t tokens) { return kIndexBytesPerObject + tokens * sizeof(Token); }

uint64_t orphan_bytes(size_t tokens) { return kIndexBytesPerOrphan + tokens * sizeof(Token); }

}  // namespace kv
