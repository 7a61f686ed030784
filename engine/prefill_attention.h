// PrefillAttention: attention of many queries of one layer at once: over rows of their own in fp32,
// and over the rows before those as they are stored.
//
// Rows up to the last coded one are attended to as in decoding, in integers (codec/attention.h);
// those behind them, exact all, in products with bands (bands.h) in fp32. Softmax runs over chunks
// of kAttentionChunk positions, aligned to it, each by itself; where the last coded row lies within
// one, it is two. Their partials are merged in order. So what a query gets is a function of it, its
// position and the rows that it sees, bit for bit, whatever is computed beside it, with every
// kernel set. Unseen rows have weight 0. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
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
  /// Their keys and values in one layer, (end - first, kv_heads, head_dim), for the runs that
  /// follow. A query sees the newest `window` positions, its own included, or all if that is 0.
  /// `before`: the layer's rows, those before `first` of them are seen; null where there are none.
  void begin(const float* k, const float* v, const AttentionRows* before, uint32_t window);
  /// Some positions' queries (positions, heads, head_dim), scaled here. heads: what they get,
  /// `stride` values from one position to the next.
  void run(const float* q, RowRange positions, float* heads, size_t stride);

 private:
  static constexpr uint32_t kRows = kAttentionChunk;
  struct Chunk {          // of one kv head
    const float* keys;    // bands of 32 positions: (8, head_dim, kBandColumns)
    const float* values;  // (kRows, values_stride)
  };
  struct Block {  // positions whose queries share a reading of the rows
    uint32_t first, count;
    size_t begin, end;  // tasks_ of its chunks
    bool coded;         // whether some are of coded rows
  };
  struct Task {
    uint32_t block, chunk;
    bool coded;     // the chunk's coded rows, or its exact ones
    size_t floats;  // where its partials begin: one per kv head
  };
  struct Scratch {  // of one worker
    Floats q, scores, keys, values, rows;
    AttentionScratch attention;
    std::vector<ChunkPartial> partials;
    std::vector<RowLimit> limits;
    std::vector<float> out;
  };
  struct Stretch {  // positions of a chunk, from its first one on: whole bands
    uint32_t from, width;
  };

  void see(const AttentionRows* before);
  void put_band(const float* k, const float* v, uint32_t band);
  void load(uint32_t kv_head, uint32_t chunk, Scratch& s, float* keys, float* values) const;
  static void load_side(const SideCoding& side, const std::vector<AttentionRows::Run>& runs,
                        uint32_t kv_head, RowRange rows, float* out, size_t stride);
  Chunk chunk_of(const Task& task, uint32_t kv_head, Scratch& s) const;
  uint32_t plan(uint32_t at);
  uint32_t block_size(uint32_t at) const;
  uint32_t oldest_seen(uint32_t position) const;
  uint32_t queries_of(const Block& block) const { return block.count * group_; }
  std::span<float> partial(const Task& task, uint32_t kv_head);
  void prepare(uint32_t block, uint32_t kv_head, Scratch& s);
  void attend(const Task& task, uint32_t kv_head, Scratch& s);
  void gather(const Block& block, uint32_t kv_head, float scale, Scratch& s) const;
  void score(const Block& block, const Chunk& chunk, Stretch at, Scratch& s) const;
  void weigh(const Block& block, uint32_t first, uint32_t width, PartialView& out,
             Scratch& s) const;
  void sum_values(const Block& block, const Chunk& chunk, Stretch at, PartialView& out,
                  Scratch& s) const;
  void merge(const Block& block, uint32_t kv_head, float* heads, size_t stride, Scratch& s);

  const ModelShape& shape_;
  Threads& threads_;
  const uint32_t group_;        // queries of a position that share a kv head
  const size_t values_stride_;  // head_dim in whole bands
  SideCoding exact_values_;     // where there are no rows before
  uint32_t first_ = 0, end_ = 0, first_chunk_ = 0;
  size_t chunks_ = 0;  // that have rows of their own
  Floats keys_;        // (kv_heads, chunks, 8, head_dim, kBandColumns)
  Floats values_;      // (kv_heads, chunks, kRows, values_stride)
  // Of the layer at work.
  const float* q_ = nullptr;
  RowRange run_;  // positions of q_
  const AttentionRows* before_ = nullptr;
  std::optional<AttentionRows> coded_;  // of those the ones up to the last coded one …
  uint32_t codes_end_ = 0;              // … which ends here
  uint32_t window_ = 0;
  std::vector<Block> blocks_;
  std::vector<Task> tasks_;
  std::vector<PreparedQueries> queries_;  // (blocks, kv_heads), for coded rows
  Floats partials_;
  std::vector<Scratch> scratch_;
};

}  // namespace kv
