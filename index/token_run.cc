// Form bits20: the low 16 bits of all tokens, then the high 4 of each chunk: byte j holds those of
// token j in its low half, and of token j + n in its high half, where n is half of the chunk's
// tokens, rounded up.
#include "index/token_run.h"

#include <algorithm>
#include <cstring>

namespace kv {
namespace {

constexpr uint32_t kChunk = 64, kHalf = kChunk / 2;

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
  return form == Form::bits16 ? low : low + size / kChunk * kHalf + half_of(size % kChunk);
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
  for (uint32_t first = 0; first < size_; first += kChunk) {
    const uint32_t count = std::min(kChunk, size_ - first), half = half_of(count);
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
  const uint32_t first = i / kChunk * kChunk;
  if (form_ == Form::bits32) {
    std::memcpy(&out, &bytes_[size_t{i} * 4], 4);
    return out;
  }
  uint16_t low;
  std::memcpy(&low, &bytes_[size_t{i} * 2], 2);
  if (form_ == Form::bits16) return low;
  const uint32_t half = half_of(std::min(kChunk, size_ - first)), j = i - first;
  const uint8_t both = bytes_[size_t{size_} * 2 + first / 2 + j % half];
  return static_cast<Token>(low | uint32_t{j < half ? both & 15u : both >> 4u} << 16);
}

// A whole chunk from `first` on. Loops without an exit, for the compiler to widen.
bool TokenRun::chunk_is(uint32_t first, const Token* other) const {
  if (form_ == Form::bits32) {
    return std::memcmp(&bytes_[size_t{first} * 4], other, kChunk * sizeof(Token)) == 0;
  }
  uint16_t low[kChunk];
  std::memcpy(low, &bytes_[size_t{first} * 2], sizeof low);
  uint32_t differ = 0;
  if (form_ == Form::bits16) {
    for (uint32_t j = 0; j < kChunk; ++j) differ |= low[j] ^ static_cast<uint32_t>(other[j]);
    return differ == 0;
  }
  const uint8_t* high = &bytes_[size_t{size_} * 2 + first / 2];
  for (uint32_t j = 0; j < kHalf; ++j) {
    const uint32_t a = low[j] | uint32_t{high[j]} << 28 >> 12;
    const uint32_t b = low[j + kHalf] | uint32_t{high[j]} >> 4 << 16;
    differ |= (a ^ static_cast<uint32_t>(other[j])) | (b ^ static_cast<uint32_t>(other[j + kHalf]));
  }
  return differ == 0;
}

uint32_t TokenRun::common(std::span<const Token> other) const {
  const auto n = static_cast<uint32_t>(std::min<size_t>(size_, other.size()));
  uint32_t i = 0;
  while (i + kChunk <= n && chunk_is(i, &other[i])) i += kChunk;
  while (i < n && (*this)[i] == other[i]) ++i;
  return i;
}

uint32_t TokenRun::common(const TokenRun& other) const {
  const uint32_t n = std::min(size_, other.size_);
  Token part[kChunk];
  for (uint32_t first = 0; first < n; first += kChunk) {
    const uint32_t count = std::min(kChunk, n - first);
    other.load(first, count, part);
    if (count == kChunk && chunk_is(first, part)) continue;
    for (uint32_t j = 0; j < count; ++j) {
      if ((*this)[first + j] != part[j]) return first + j;
    }
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
