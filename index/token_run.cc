// Form bits20: the low 16 bits of all tokens, then the high 4 of each chunk: byte j holds those of
// token j in its low half, and of token j + n in its high half, where n is half of the chunk's
// tokens, rounded up.
#include "index/token_run.h"

#include <algorithm>
#include <cstring>

#include "index/token_chunks.h"

namespace kv {
namespace {

constexpr uint32_t kHalf = kChunkTokens / 2;

constexpr uint32_t half_of(uint32_t tokens) { return (tokens + 1) / 2; }

}  // namespace

TokenRun::Form TokenRun::form_of(std::span<const Token> tokens) {
  uint32_t all = 0;
  for (Token t : tokens) all |= static_cast<uint32_t>(t);
  return all < 1u << 16 ? Form::bits16 : all < 1u << 20 ? Form::bits20 : Form::bits32;
}

uint64_t TokenRun::bytes(Form form, uint32_t size) {
  if (form == Form::bits32) return uint64_t{size} * 4;
  const uint64_t low = uint64_t{size} * 2;
  return form == Form::bits16 ? low
                              : low + size / kChunkTokens * kHalf + half_of(size % kChunkTokens);
}

uint64_t TokenRun::packed_bytes(std::span<const Token> tokens) {
  return bytes(form_of(tokens), static_cast<uint32_t>(tokens.size()));
}

TokenRun::TokenRun(std::span<const Token> tokens)
    : size_(static_cast<uint32_t>(tokens.size())), form_(form_of(tokens)) {
  if (tokens.empty()) return;
  bytes_.reset(new uint8_t[bytes(form_, size_)]);
  if (form_ == Form::bits32) {
    std::memcpy(bytes_.get(), tokens.data(), tokens.size_bytes());
    return;
  }
  for (uint32_t i = 0; i < size_; ++i) {
    const auto low = static_cast<uint16_t>(tokens[i]);
    std::memcpy(&bytes_[size_t{i} * 2], &low, 2);
  }
  if (form_ == Form::bits16) return;
  uint8_t* high = &bytes_[size_t{size_} * 2];
  for (uint32_t first = 0; first < size_; first += kChunkTokens) {
    const uint32_t count = std::min(kChunkTokens, size_ - first), half = half_of(count);
    for (uint32_t j = 0; j < half; ++j) {
      const uint32_t a = static_cast<uint32_t>(tokens[first + j]) >> 16;
      const uint32_t b =
          j + half < count ? static_cast<uint32_t>(tokens[first + j + half]) >> 16 : 0;
      *high++ = static_cast<uint8_t>(a | b << 4);
    }
  }
}

Token TokenRun::operator[](uint32_t i) const {
  Token out;
  const uint32_t first = i / kChunkTokens * kChunkTokens;
  if (form_ == Form::bits32) {
    std::memcpy(&out, &bytes_[size_t{i} * 4], 4);
    return out;
  }
  uint16_t low;
  std::memcpy(&low, &bytes_[size_t{i} * 2], 2);
  if (form_ == Form::bits16) return low;
  const uint32_t half = half_of(std::min(kChunkTokens, size_ - first)), j = i - first;
  const uint8_t both = bytes_[size_t{size_} * 2 + first / 2 + j % half];
  return static_cast<Token>(low | uint32_t{j < half ? both & 15u : both >> 4u} << 16);
}

// Tokens from `first` on, where a chunk begins, that equal in whole chunks.
uint32_t TokenRun::equal_in_chunks(uint32_t first, std::span<const Token> other) const {
  const auto chunks = static_cast<uint32_t>(other.size() / kChunkTokens);
  if (chunks == 0) return 0;
  if (form_ == Form::bits32) {
    const bool all =
        std::memcmp(&bytes_[size_t{first} * 4], other.data(), chunks * kChunkTokens * 4) == 0;
    return all ? chunks * kChunkTokens : 0;
  }
  const uint8_t* low = &bytes_[size_t{first} * 2];
  if (form_ == Form::bits16) return best_chunks().bits16(low, other.data(), chunks) * kChunkTokens;
  const uint8_t* high = &bytes_[size_t{size_} * 2 + first / 2];
  return best_chunks().bits20(low, high, other.data(), chunks) * kChunkTokens;
}

uint32_t TokenRun::common_from(uint32_t first, std::span<const Token> other) const {
  const auto n = static_cast<uint32_t>(std::min<size_t>(size_ - first, other.size()));
  uint32_t i = equal_in_chunks(first, other.first(n));
  while (i < n && (*this)[first + i] == other[i]) ++i;
  return i;
}

uint32_t TokenRun::common(std::span<const Token> other) const { return common_from(0, other); }

uint32_t TokenRun::common(const TokenRun& other) const {
  const uint32_t n = std::min(size_, other.size_);
  Token part[kChunkTokens];
  for (uint32_t first = 0; first < n; first += kChunkTokens) {
    const uint32_t count = std::min(kChunkTokens, n - first);
    other.load(first, count, part);
    const uint32_t equal = common_from(first, std::span(part, count));
    if (equal < count) return first + equal;
  }
  return n;
}

void TokenRun::load(uint32_t first, uint32_t count, Token* out) const {
  for (uint32_t j = 0; j < count; ++j) out[j] = (*this)[first + j];
}

std::vector<Token> TokenRun::all() const {
  std::vector<Token> out(size_);
  load(0, size_, out.data());
  return out;
}

}  // namespace kv
