// BatchDecoder: one step of several sequences through the model, each with a KvCache of its own.
//
// Weights are read once for all rows, and so are stored rows that several sequences share
// (batch_attention.h). Every product, norm and sum of one row is that of Decoder::step, in the same
// order: a row's logits and cache are those of a step by itself, bit for bit, whatever rows stand
// beside it. One thread at a time.
#pragma once

#include <span>
#include <vector>

#include "engine/batch_attention.h"
#include "engine/model.h"
#include "engine/network.h"
#include "engine/rounded.h"
#include "engine/threads.h"

namespace kv {

class BatchDecoder {
 public:
  /// Both outlive the decoder.
  BatchDecoder(const Model& model, Threads& threads);

  /// Network::step_rows.
  void step(std::span<StepRow> rows);

 private:
  struct Product {
    const Matrix* weights;
    Floats* out;  // (rows, weights->rows)
  };
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
