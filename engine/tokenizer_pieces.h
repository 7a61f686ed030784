// PieceEncoder: how one kind of vocabulary turns text without special tokens into ids, and back.
//
// Only tokenizer.cc calls it; special tokens have been cut out before. Immutable after load: any
// thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "proto/plane.h"
#include "proto/status.h"

namespace kv {

/// GGUF's token types.
enum class TokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

/// Bytes of the valid UTF-8 character at `at`, 0 if there is none.
size_t valid_character(std::string_view s, size_t at);

class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  /// Appends the ids of `text`, any bytes.
  virtual void encode(std::string_view text, std::vector<Token>& out) const = 0;
  /// The bytes that a token of the vocabulary stands for; not asked for special tokens.
  virtual std::string bytes_of(std::string_view text, TokenType type) const = 0;
};

/// GGUF's `gpt2`: byte-level BPE with the pre-tokenizer `smollm`.
/// Returns: unsupported (pre-tokenizer, by name), corruption.
Result<std::unique_ptr<PieceEncoder>> load_bpe_pieces(const GgufFile& file);
/// GGUF's `llama`: SentencePiece with scores and byte fallback. Returns: corruption.
Result<std::unique_ptr<PieceEncoder>> load_sentencepiece_pieces(const GgufFile& file);

}  // namespace kv
