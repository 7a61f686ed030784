// Decoder: one token at a time through the model, on the stored form of the rows before it.
//
// Own kernels throughout, whose order of summation is fixed: logits are a function of the token and
// of the rows in the KvCache, bit for bit, whatever the number of threads. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/model.h"
#include "engine/rounded.h"
#include "engine/threads.h"

namespace kv {

class Decoder {
 public:
  /// Both outlive the decoder.
  Decoder(const Model& model, Threads& threads);

  /// Computes `token` at position cache.tokens() and appends its rows. `logits`: (vocab), or empty
  /// where nobody asks. Returns: invalid_argument (context full, token outside the vocabulary,
  /// values beyond the profile's raw dtype).
  Status step(Token token, KvCache& cache, std::span<float> logits);
  /// logits (vocab) of one final hidden row (width).
  void logits_of(const float* hidden, std::span<float> logits);

 private:
  struct Product {
    const Matrix* weights;
    float* out;
  };
  void products(std::initializer_list<Product> list, const Floats& x);
  void attend(const AttentionRows& rows, const RowLimit& limit);
  Status attention(uint32_t layer, KvCache& cache);
  void feed_forward(const LayerWeights& layer);

  const Model& model_;
  Threads& threads_;
  Floats x_, norm_, q_, k_, v_, heads_, gate_, up_, inner_;
  Floats rope_[2];                         // of the step's position: full, windowed layers
  std::vector<PreparedQueries> queries_;   // per kv head
  std::vector<AttentionScratch> scratch_;  // per worker
  std::vector<RowLimit> limits_;
  Floats partials_;
  RoundedRows rounded_;
};

/// What a step refuses: context full, token outside the vocabulary (invalid_argument).
Status check_step(const Model& model, Token token, const KvCache& cache);

}  // namespace kv
