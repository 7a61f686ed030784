// PrefillAttention: attention of many queries of one layer at once: over rows of their own in fp32,
// and over the rows before those as they are stored.
//
// Softmax runs over chunks of kAttentionChunk positions, aligned to it, each by itself, and chunks
// are merged in order; scores and weighted sums are products with bands (bands.h), of coded rows in
// rotated space (codec/TURBOQUANT.md), in fp32. So what a query gets is a function of it, its
// position and the rows that it sees, bit for bit, whatever is computed beside it, with every
// kernel set. Unseen rows have weight 0. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/attention.h"
#include "engine/kernels.h"
#include "engine/model.h"
#include "engine/threads.h"
#include "proto/demand.h"

namespace kv {

class PrefillAttention {
 public:
  /// Both outlive it.
  PrefillAttention(const ModelShape& shape, Threads& threads);

  /// Positions [first, end) are to be computed in every layer.
  void reserve(uint32_t first, uint32_t end);
  /// Their queries, keys and values in one layer: q (end - first, heads, head_dim), scaled here, k
  /// and v (end - first, kv_heads, head_dim).
  struct Rows {
    const float *q, *k, *v;
  };
  /// heads: what the queries get, `stride` values from one position to the next. Each sees the
  /// newest `window` positions, itself included, or all if that is 0. `before`: the layer's rows,
  /// those before `first` of them are seen; null where there are none.
  void run(const Rows& own, const AttentionRows* before, uint32_t window, float* heads,
           size_t stride);

 private:
  static constexpr uint32_t kRows = kAttentionChunk;
  struct Form {                         // how a chunk's rows of one side are held
    bool exact = false, coded = false;  // whether some are
    std::array<float, kRows> scale{};   // of a coded row, else 0
    std::array<bool, kRows> is_coded{};
  };
  struct Chunk {          // of one kv head
    const float* keys;    // bands of 32 positions: (8, head_dim, kBandColumns)
    const float* values;  // (kRows, values_stride)
    const Form *k, *v;
  };
  struct Block {  // positions whose queries share a reading of the rows
    uint32_t first, count;
    size_t begin, end;  // tasks_ of its chunks
  };
  struct Task {
    Block block;
    uint32_t chunk;
    size_t floats;  // where its partials begin: one per kv head
  };
  struct Partial {  // of one chunk, one kv head
    float *top, *sum, *exact, *coded;
  };
  struct Scratch {  // of one worker
    Floats q, scores, other, keys, values, rows;
    std::vector<int16_t> codes;
    Form k, v;
  };
  struct Stretch {  // positions of a chunk, from its first one on: whole bands
    uint32_t from, width;
  };

  void prepare(const float* q);
  void rotate_queries(uint32_t row);
  void put(const Rows& own);
  void put_band(const Rows& own, uint32_t band);
  void load(uint32_t kv_head, uint32_t chunk, Scratch& s, float* keys, float* values, Form& k,
            Form& v) const;
  void load_side(const SideCoding& side, const std::vector<AttentionRows::Run>& runs,
                 uint32_t kv_head, RowRange rows, Scratch& s, float* out, size_t stride,
                 Form& form) const;
  Chunk chunk_of(const Task& task, uint32_t kv_head, Scratch& s) const;
  uint32_t plan(uint32_t at);
  uint32_t oldest_seen(uint32_t position) const;
  size_t partial_floats(uint32_t queries) const;
  Partial partial(const Task& task, uint32_t kv_head);
  void attend(const Task& task, uint32_t kv_head, Scratch& s);
  void gather(const Task& task, uint32_t kv_head, const Floats& from, Scratch& s) const;
  void score(const Task& task, uint32_t kv_head, const Chunk& chunk, Stretch at, Scratch& s) const;
  void weigh(const Task& task, Stretch at, const Partial& out, Scratch& s) const;
  void sum_values(const Task& task, const Chunk& chunk, Stretch at, const Partial& out,
                  Scratch& s) const;
  static void split_weights(uint32_t queries, Stretch at, const Form& form, Scratch& s);
  void merge(const Block& block, uint32_t kv_head, float* heads, size_t stride);
  void finish(float sum, const float* exact, float* coded, float* out) const;

  const ModelShape& shape_;
  Threads& threads_;
  const uint32_t group_;        // queries of a position that share a kv head
  const size_t values_stride_;  // head_dim in whole bands
  uint32_t first_ = 0, end_ = 0, first_chunk_ = 0;
  size_t chunks_ = 0;  // that have rows of their own
  Floats keys_;        // (kv_heads, chunks, 8, head_dim, kBandColumns)
  Floats values_;      // (kv_heads, chunks, kRows, values_stride)
  // Of the layer at work.
  const AttentionRows* before_ = nullptr;
  bool coded_keys_ = false, coded_values_ = false;
  uint32_t window_ = 0;
  Floats q_, rotated_;        // scaled queries (end - first, heads, head_dim), and rotated
  std::vector<float> means_;  // (end - first, heads): what the removed key means add
  std::vector<Form> k_forms_, v_forms_;  // (kv_heads): of the first chunk, which rows before share
  std::vector<Block> blocks_;
  std::vector<Task> tasks_;
  Floats partials_;
  std::vector<Scratch> scratch_;
};

}  // namespace kv
