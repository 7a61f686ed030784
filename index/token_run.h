// TokenRun: the tokens of one node, packed: 16 bits each where all are below 2^16, 20 bits below
// 2^20, else 32. Most of a stored block's index memory is these.
//
// Packed in chunks of 64 (the last one may be shorter), compared whole (token_chunks.h). Immutable;
// one allocation. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "index/prefetch.h"
#include "proto/plane.h"

namespace kv {

class TokenRun {
 public:
  TokenRun() = default;
  /// Packs at most 2^32 - 1 tokens.
  explicit TokenRun(std::span<const Token> tokens);

  uint32_t size() const { return size_; }
  Token operator[](uint32_t i) const;
  /// Number of tokens that both begin with.
  uint32_t common(std::span<const Token> other) const;
  uint32_t common(const TokenRun& other) const;
  std::vector<Token> all() const;
  /// Loads the packed tokens into the processor's cache: common() will be asked soon.
  void prefetch() const { prefetch_bytes(bytes_.get(), memory_bytes()); }
  /// Bytes of the packed tokens.
  uint64_t memory_bytes() const { return bytes(form_, size_); }
  /// Bytes of the packed form of these.
  static uint64_t packed_bytes(std::span<const Token> tokens);

 private:
  enum class Form : uint8_t { bits16, bits20, bits32 };
  static Form form_of(std::span<const Token> tokens);
  static uint64_t bytes(Form form, uint32_t size);
  uint32_t equal_in_chunks(uint32_t first, std::span<const Token> other) const;
  uint32_t common_from(uint32_t first, std::span<const Token> other) const;
  void load(uint32_t first, uint32_t count, Token* out) const;

  std::unique_ptr<uint8_t[]> bytes_;
  uint32_t size_ = 0;
  Form form_ = Form::bits16;
};

}  // namespace kv
