// Decoder: one step of one sequence or several through the model, each with a KvCache of its own,
// on the stored form of the rows before it.
//
// Weights are read once for all rows, and so are stored rows that several sequences share
// (batch_attention.h). Own kernels throughout, whose order of summation is fixed: a row's logits
// and cache are a function of its token and of the rows in its cache, bit for bit, whatever rows
// stand beside it and whatever the number of threads. One thread at a time.
#pragma once

#include <span>
#include <vector>

#include "engine/batch_attention.h"
#include "engine/model.h"
#include "engine/network.h"
#include "engine/rounded.h"
#include "engine/threads.h"

namespace kv {

class Decoder {
 public:
  /// Both outlive the decoder.
  Decoder(const Model& model, Threads& threads);

  /// Network::step_rows.
  void step(std::span<StepRow> rows);
  /// Network::step.
  Status step(Token token, KvCache& cache, std::span<float> logits);
  /// logits[i] (vocab) of row i of final hidden rows (width).
  void logits_of(const float* hidden, std::span<const std::span<float>> logits);

 private:
  struct Product {
    const Matrix* weights;
    Floats* out;  // (rows, weights->rows)
  };
  Status check(Token token, const KvCache& cache) const;
  bool start(std::span<StepRow> rows);
  void products(std::initializer_list<Product> list, const Floats& x);
  void norm(std::span<const float> weight, std::span<const float> branch_norm, bool add);
  void append(uint32_t layer);
  void feed_forward(const LayerWeights& layer);
  void finish();
  void logits();
  template <typename Body>
  void each_row(const Body& body);

  const Model& model_;
  Threads& threads_;
  BatchAttention attention_;
  std::vector<StepRow*> rows_;  // of this step, without those that it refused
  Floats x_, norm_, q_, k_, v_, heads_, gate_, up_, inner_, out_;  // (rows, …)
  RoundedRows rounded_;                                            // an input
  Floats rope_[2];  // (rows, head_dim): of full and of windowed layers
  std::vector<BatchAttention::Row> attended_;
  std::vector<Floats> strips_;  // per worker
};

}  // namespace kv
