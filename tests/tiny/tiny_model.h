// TinyModel: a small network of a known architecture whose weights are a formula: what stands for
// the models that are too large for any test, with transformers as the reference.
//
// Four layers of width 64 over 256 tokens, at most 1,024 positions. Computes token by token, also
// in prefill, on the stored form of what is before: logits are a function of the tokens and of the
// stored rows, bit for bit. States and carries: tests/tiny/state.h. Immutable: any thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/network.h"
#include "tests/tiny/formula.h"
#include "tests/tiny/math.h"

namespace kv::tiny {

inline constexpr uint32_t kWidth = 64;
inline constexpr uint32_t kVocabulary = 256;
inline constexpr uint32_t kPositions = 1024;

class TinyModel : public Network {
 public:
  const ModelSpec& spec() const override { return spec_; }
  uint32_t vocab() const override { return kVocabulary; }
  uint32_t context() const override { return kPositions; }
  Result<std::vector<Token>> encode(std::string_view text) const override;  ///< its bytes
  Status step(Token token, KvCache& cache, std::span<float> logits) override;
  Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline deadline) override;
  Status check(KvCache& cache) const override;

 protected:
  TinyModel(const std::string& name, uint64_t seed);
  /// Computes `token` at cache.tokens(): appends its rows to every part and updates the states.
  /// `logits`: (kVocabulary), or empty. Returns: as step.
  virtual Status compute(Token token, KvCache& cache, std::span<float> logits) const = 0;
  ModelSpec spec_;
};

/// out (heads, v_dim) = attention of q (heads, k_dim) over what the part's kind lets the token at
/// `position` see; the rows reach through it.
void attend_part(const AttentionRows& rows, uint32_t position, std::span<const float> q,
                 std::span<float> out);

/// What stands before and after the layers.
class Ends {
 public:
  explicit Ends(const Formula& formula, bool zero_centred = false);
  std::vector<float> embed(Token token) const;  ///< (kWidth)
  /// `x` (kWidth) is normalised; nothing happens if `out` is empty.
  void logits(std::vector<float>& x, std::span<float> out) const;

 private:
  std::vector<float> embedding_, norm_;
  Linear head_;
  bool zero_centred_;
};

/// `name`: sinks, chunks, deepseek_v3, deepseek_v4, qwen3_next. Returns: unsupported (name).
Result<std::unique_ptr<Network>> make_tiny(const std::string& name, uint64_t seed);

}  // namespace kv::tiny
