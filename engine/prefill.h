// Prefill: exact computation of many tokens at once, after a prefix in its stored form.
//
// Works layer by layer, each over chunks of exactly chunk_tokens() rows at multiples of that
// (padded with zero rows at both ends), by matrix products of fixed shapes: every product runs on
// one thread, so the result depends on the chunk's rows and the rows before it, not on the number
// of threads. Rows of this prefill are attended to exactly in fp32; those of the prefix as they
// decode. One thread at a time. OpenBLAS is told once to use no threads of its own.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/model.h"
#include "engine/threads.h"
#include "proto/client.h"

namespace kv {

/// Gets each layer's rows in order: K and V (rows, kv_heads, head_dim) after rope. What it leaves
/// there is attended to.
using LayerSink = std::function<Status(uint32_t layer, uint32_t rows, float* k, float* v)>;
/// Gets each layer's queries of all computed rows: (rows, heads, head_dim) after rope.
using QueryWatch = std::function<void(uint32_t layer, const float* q)>;
/// Writes rows [from, first) of the prefix, of one side of one layer: (first - from, kv_heads,
/// head_dim). A windowed layer needs no older ones.
using LayerSource = std::function<Status(uint32_t layer, Side side, uint32_t from, float* out)>;

/// Rows of a chunk: a block's, or with exact prefill and short blocks those of several.
uint32_t chunk_tokens(const Profile& profile);

class Prefill {
 public:
  /// Both outlive the prefill. `chunk_tokens`: any number from 1.
  Prefill(const Model& model, Threads& threads, uint32_t chunk_tokens);

  /// Computes tokens[first …] at their positions and appends their rows to `cache`, which holds
  /// exactly the first `first` = cache.tokens(). Returns: deadline_exceeded; what append returns.
  Status extend(std::span<const Token> tokens, KvCache& cache, Deadline deadline);
  /// The general form. Returns: invalid_argument (context, vocabulary), deadline_exceeded, or what
  /// source and sink return. With `keep_hidden` the last layer is computed whole, for hidden().
  Status run(std::span<const Token> tokens, uint32_t first, const LayerSource& source,
             const LayerSink& sink, Deadline deadline, bool keep_hidden = false);
  /// Called by run() for every layer that is computed whole, before its sink.
  void watch_queries(QueryWatch watch) { watch_ = std::move(watch); }
  /// Final hidden row (width) of a position of the last run.
  const float* hidden(uint32_t position) const;

 private:
  struct Weights {  // one layer dequantised: (rows, columns) fp32
    Floats q, k, v, o, gate, up, down;
  };
  struct Scratch {  // of one worker
    Floats scores, heads, work;
    Floats largest, sum;
  };
  void start(std::span<const Token> tokens, uint32_t first);
  void dequantise(const LayerWeights& layer);
  void widen(const Matrix& w, Floats& out);
  void product(const float* in, const Floats& w, uint32_t rows, uint32_t columns, float* out,
               uint32_t count);
  void normalise(std::span<const float> weight);
  Status keys_and_values(uint32_t layer, const LayerSource& source, bool need_queries);
  void rotate(uint32_t layer, bool need_queries);
  void attention(uint32_t layer);
  void attend_tile(uint32_t chunk, uint32_t head, uint32_t tile, Scratch& s);
  void mask(uint32_t first_position, uint32_t tile, Scratch& s) const;
  void attend_head(uint32_t chunk, uint32_t head, Scratch& s);
  void feed_forward(const LayerWeights& layer);
  void add_branches(std::span<const float> norm);

  const Model& model_;
  Threads& threads_;
  uint32_t block_;     // rows of a chunk, and of a tile
  uint32_t stride_;    // from one row of scores to the next: kernels take eight at a time
  uint32_t base_ = 0;  // position of the first chunk's first row
  uint32_t first_ = 0, end_ = 0;  // positions computed
  uint32_t chunks_ = 0;
  uint32_t window_ = 0;  // of the layer at work; 0: all rows are seen
  Weights weights_;
  Floats x_, norm_, q_, gate_, up_, sum_;  // (chunks * block, …)
  Floats rope_[2];                         // (end - first, head_dim): full, windowed
  Floats k_, v_;                           // (base + chunks * block, kv width)
  std::vector<Scratch> scratch_;
  QueryWatch watch_;
};

}  // namespace kv
