// Prefill: exact computation of many tokens at once, after a prefix in its stored form.
//
// Works layer by layer, in products with bands (bands.h): weights are widened a band at a time, and
// only rows that were asked for are computed. A row is a function of its token, its position and
// the rows before it, bit for bit: whatever is computed beside it, however a prompt was cut, with
// any number of threads and every kernel set. Rows of this prefill are attended to exactly in fp32;
// those of the prefix as they are held. Of each row only its hidden values and, of one layer, its
// keys and values are held; all else of kPieceRows at a time. One thread at a time.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/model.h"
#include "engine/prefill_attention.h"
#include "engine/threads.h"
#include "proto/client.h"

namespace kv {

/// Where a prefill's rows go, and where those before them come from, layer by layer.
class PrefillRows {
 public:
  virtual ~PrefillRows() = default;
  /// Gets K and V (rows, kv_heads, head_dim) after rope; what it leaves there is attended to.
  /// Returns: the layer's rows, of which those before the prefill's first are attended to as they
  /// are held (a windowed layer needs no older ones than the window), until finish(); null if there
  /// are none.
  virtual Result<const AttentionRows*> take(uint32_t layer, uint32_t rows, float* k, float* v) = 0;
  /// After the layer's attention.
  virtual Status finish(uint32_t /*layer*/) { return {}; }
};
/// Gets each layer's queries of all computed rows, some positions at a time, ascending: q
/// (positions, heads, head_dim) after rope.
using QueryWatch = std::function<void(uint32_t layer, RowRange positions, const float* q)>;

class Prefill {
 public:
  /// Both outlive the prefill.
  Prefill(const Model& model, Threads& threads);

  /// Computes tokens[first …] at their positions and appends their rows to `cache`, which holds
  /// exactly the first `first` = cache.tokens(). Rows of parts that are stored raw are attended to
  /// as they are stored. Returns: deadline_exceeded; what append returns.
  Status extend(std::span<const Token> tokens, KvCache& cache, Deadline deadline);
  /// The general form. Returns: invalid_argument (context, vocabulary), deadline_exceeded, or what
  /// `rows` returns. With `keep_hidden` the last layer is computed whole, for hidden().
  Status run(std::span<const Token> tokens, uint32_t first, PrefillRows& rows, Deadline deadline,
             bool keep_hidden = false);
  /// Called by run() for every layer that is computed whole.
  void watch_queries(QueryWatch watch) { watch_ = std::move(watch); }
  /// Called by run() after each piece of a layer, with the threads idle.
  void pause_with(std::function<void()> pause) { pause_ = std::move(pause); }
  /// Final hidden row (width) of a position of the last run; the next position's follows it.
  const float* hidden(uint32_t position) const;

 private:
  struct Product {
    const Matrix* weights;
    float* out;
    size_t stride;  // from one row of outputs to the next
  };
  struct Scratch {  // of one worker
    Floats band;
    std::vector<float> work;
  };
  Status check(std::span<const Token> tokens, uint32_t first) const;
  void start(std::span<const Token> tokens);
  Status layer(uint32_t layer, PrefillRows& rows, bool whole);
  template <typename Body>
  void each_piece(const Body& body);
  template <typename Body>
  void each_row(RowRange rows, const Body& body);
  void products(std::initializer_list<Product> list, const float* in, size_t stride, uint32_t rows);
  static void multiply_band(const Product& p, uint32_t column, const float* in, size_t stride,
                            RowRange rows, Scratch& s);
  void normalise(std::span<const float> weight, RowRange piece);
  void queries_keys_values(uint32_t layer, RowRange piece, bool queries, bool keys_values);
  void attention(uint32_t layer, RowRange piece);
  void feed_forward(const LayerWeights& layer, RowRange piece);
  void add_branches(std::span<const float> norm, RowRange piece);

  const Model& model_;
  Threads& threads_;
  PrefillAttention attention_;
  uint32_t first_ = 0, count_ = 0;  // positions computed
  size_t width_stride_, heads_stride_, ffn_stride_;
  Floats x_, k_, v_;                 // (count, …)
  Floats rope_[2];                   // (count, head_dim): full, windowed
  Floats q_, sum_;                   // (rows of a piece, …)
  Floats norm_, heads_, gate_, up_;  // … by strides: what products read
  std::vector<Scratch> scratch_;
  QueryWatch watch_;
  std::function<void()> pause_;
};

}  // namespace kv
