// The recipe of values by key.
#include "proto/keyed.h"

#include <algorithm>
#include <cstring>

#include "proto/checksum.h"

namespace kv {
namespace {

constexpr std::string_view kFingerprintOf = "cachesvc values 1";
constexpr size_t kAlignment = 64;

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

ModelSpec keyed_model() {
  PartSpec part;
  part.kind = PartKind::opaque;
  part.dtype = DType::f32;
  return {"values", sha256(bytes_of(kFingerprintOf)), {{{part}}}};
}

std::vector<Token> keyed_tokens(std::string_view key) {
  const Id hash = sha256(bytes_of(key));
  std::vector<Token> tokens(kKeyedTokens);
  static_assert(kKeyedTokens * sizeof(Token) == sizeof(hash.bytes));
  std::memcpy(tokens.data(), hash.bytes.data(), sizeof(hash.bytes));
  return tokens;
}

size_t keyed_head_bytes(std::string_view key) {
  return (sizeof(uint32_t) + key.size() + kAlignment - 1) / kAlignment * kAlignment;
}

void write_keyed_head(std::string_view key, std::span<uint8_t> state) {
  const size_t bytes = keyed_head_bytes(key);
  KV_CHECK(key.size() <= kMaxKeyBytes && state.size() >= bytes);
  const auto length = static_cast<uint32_t>(key.size());
  std::fill_n(state.data(), bytes, uint8_t{0});
  std::memcpy(state.data(), &length, sizeof(length));
  if (length > 0) std::memcpy(state.data() + sizeof(length), key.data(), length);
}

std::optional<Bytes> keyed_value(const Bytes& state, std::string_view key) {
  const size_t head = keyed_head_bytes(key);
  ByteReader in(state.span());
  const uint32_t bytes = in.u32();
  const bool its = !in.failed() && bytes == key.size() && state.size() >= head &&
                   std::memcmp(state.data() + sizeof(bytes), key.data(), key.size()) == 0;
  return its ? std::optional(state.slice(head, state.size() - head)) : std::nullopt;
}

}  // namespace kv
