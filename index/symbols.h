// Symbols: sequences as strings whose letters are a token and the extras at its position, and their
// order. The strings that share most with a query are the neighbours of its upper bound. Pure
// functions, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "index/token_run.h"
#include "proto/plane.h"

namespace kv {

/// Tokens from position `first` on, with their extras (absolute positions, ascending). A view: what
/// it shows must outlive it.
struct Symbols {
  uint32_t first = 0;
  std::span<const Token> tokens;
  std::span<const Extra> extras;
  const TokenRun* run = nullptr;  ///< packed tokens, in place of `tokens`

  uint32_t size() const { return run ? run->size() : static_cast<uint32_t>(tokens.size()); }
  Token at(uint32_t i) const { return run ? (*run)[i] : tokens[i]; }
  /// The first `n` of an unpacked one.
  Symbols prefix(uint32_t n) const;
};

/// Extras in [first, end), of ones that ascend by position.
std::span<const Extra> extras_in(std::span<const Extra> extras, uint32_t first, uint32_t end);

/// Symbols that two sequences with the same `first` begin with.
uint32_t common_symbols(const Symbols& a, const Symbols& b);
/// A strict order of sequences with the same `first`: a prefix comes before what begins with it.
bool symbols_less(const Symbols& a, const Symbols& b);

}  // namespace kv
