// Symbols: compared token by token, then by the first extra that differs.
#include "index/symbols.h"

#include <algorithm>

namespace kv {
namespace {

/// Index of the first extra that differs between two ascending lists.
size_t first_other_extra(std::span<const Extra> a, std::span<const Extra> b) {
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  return i;
}

uint32_t position_or_end(std::span<const Extra> extras, size_t i) {
  return i < extras.size() ? extras[i].position : UINT32_MAX;
}

uint32_t common_tokens(const Symbols& a, const Symbols& b) {
  if (a.run) return b.run ? a.run->common(*b.run) : a.run->common(b.tokens);
  if (b.run) return b.run->common(a.tokens);
  auto [end, other] =
      std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
  return static_cast<uint32_t>(end - a.tokens.begin());
}

}  // namespace

Symbols Symbols::prefix(uint32_t n) const {
  return {first, tokens.first(n), extras_in(extras, first, first + n)};
}

std::span<const Extra> extras_in(std::span<const Extra> extras, uint32_t first, uint32_t end) {
  auto below = [](const Extra& e, uint32_t position) { return e.position < position; };
  auto from = std::lower_bound(extras.begin(), extras.end(), first, below);
  auto to = std::lower_bound(from, extras.end(), end, below);
  return {from, to};
}

uint32_t common_symbols(const Symbols& a, const Symbols& b) {
  const uint32_t tokens = common_tokens(a, b);
  if (a.extras.empty() && b.extras.empty()) return tokens;
  const size_t i = first_other_extra(a.extras, b.extras);
  const uint32_t other = std::min(position_or_end(a.extras, i), position_or_end(b.extras, i));
  return std::min(tokens, other - a.first);
}

bool symbols_less(const Symbols& a, const Symbols& b) {
  const uint32_t c = common_symbols(a, b);
  if (c == a.size() || c == b.size()) return a.size() < b.size();
  if (a.at(c) != b.at(c)) return a.at(c) < b.at(c);
  // The token at c is the same, so the extras differ: fewer of them is less, then their bytes.
  const size_t i = first_other_extra(a.extras, b.extras);
  const uint32_t at_a = position_or_end(a.extras, i), at_b = position_or_end(b.extras, i);
  if (at_a != at_b) return at_a > at_b;
  return a.extras[i].bytes < b.extras[i].bytes;
}

}  // namespace kv
