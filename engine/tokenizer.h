// Tokenizer: text <-> token ids for GGUF's vocabularies `gpt2` (byte-level BPE with the
// pre-tokenizer `smollm`) and `llama` (SentencePiece with scores).
//
// Ids equal llama.cpp's: special tokens are cut out first, longest first, and what is left between
// them is for the vocabulary's own rule (tokenizer_pieces.h). Immutable after load: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "proto/plane.h"
#include "proto/status.h"

namespace kv {

inline constexpr uint32_t kMaxVocab = 1u << 20;  ///< tokens of a vocabulary
/// Of one encode call, which takes up to 40 bytes of memory per byte of a text without spaces.
inline constexpr size_t kMaxTextBytes = size_t{16} << 20;

class Tokenizer {
 public:
  /// Returns: unsupported (tokenizer model or pre-tokenizer, by name), corruption (vocabulary).
  /// Keeps the file's bytes.
  static Result<Tokenizer> load(const GgufFile& file);

  /// Token ids of `text`; special tokens that stand in it (such as "<|im_start|>") become their ids
  /// where `parse_special`. With `begin` the model's begin token stands first, if it wants one.
  /// Returns: invalid_argument (text over kMaxTextBytes). Text that is not UTF-8 is split byte by
  /// byte where it is broken, never refused.
  Result<std::vector<Token>> encode(std::string_view text, bool parse_special = true,
                                    bool begin = true) const;
  /// The bytes of `tokens`, special tokens as their text. Returns: invalid_argument naming the
  /// first id outside the vocabulary.
  Result<std::string> decode(std::span<const Token> tokens) const;

  uint32_t vocab_size() const;
  Token eos() const;  ///< -1 if the file names none

 private:
  struct Tables;
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const Tables> tables_;
};

}  // namespace kv
