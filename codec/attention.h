// Attention of a group of queries over the stored rows of one kv head: scores and weighted sums are
// taken straight from the codes (codec/TURBOQUANT.md, "Attention").
//
// The result depends on the rows and the queries only: not on how rows are cut into planes, how
// many queries are computed together, how chunks are split over threads, or the kernel set (bit for
// bit). Rows are read by any number of threads; queries, scratch and partials belong to one thread
// each. Nothing here spawns a thread or fails on a hot path: shapes are checked when rows are
// added.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "proto/plane.h"
#include "proto/status.h"

namespace kv {

/// Softmax runs over chunks of this many positions, aligned to it, merged in order.
inline constexpr uint32_t kAttentionChunk = 256;

/// The rows of one part that a step attends to, in ascending order; gaps are rows that nobody sees.
/// Points into the planes: they, or the buffers, must outlive it.
class AttentionRows {
 public:
  AttentionRows(std::shared_ptr<const Codec> codec, uint32_t layer, uint32_t part);

  /// Rows [first, end) of `k` and `v`, each of any mix of exact and code runs.
  /// Returns: invalid_argument if a plane doesn't fit the part, lacks a row, has a stream (whose
  /// rows are to be decoded first), or rows don't ascend.
  Status add(const Plane& k, const Plane& v, uint32_t first, uint32_t end);
  /// `rows` exact rows from the engine's own buffers, K (rows, heads, k_dim), V (rows, heads,
  /// v_dim). Returns: invalid_argument if rows don't ascend; unsupported for a part without
  /// separate K and V.
  Status add_exact(DType dtype, const void* k, const void* v, uint32_t first_row, uint32_t rows);
  /// Forgets rows >= `row`, so that a growing tail can be added again.
  void drop_from(uint32_t row);
  void clear();

  uint32_t end_row() const;      ///< one past the last row, 0 if there are none
  uint32_t codes_end() const;    ///< one past the last row of which a side is coded, or 0
  uint32_t first_chunk() const;  ///< chunks [first_chunk(), end_chunk()) hold all rows
  uint32_t end_chunk() const;
  uint32_t layer() const { return layer_; }
  uint32_t part() const { return part_; }
  const Codec& codec() const { return *codec_; }
  const SideCoding& k_side() const { return *k_side_; }
  const SideCoding& v_side() const { return *v_side_; }

  /// A stretch of one run of one side. For readers of attention.cc.
  struct Run {
    uint32_t first = 0, end = 0;  ///< absolute rows
    RunForm form = RunForm::exact;
    DType dtype = DType::f16;  ///< of an exact run
    /// exact: row `first` of head 0, (rows, heads, dim). codes: the run's codes, (heads, run_rows).
    const uint8_t* data = nullptr;
    const uint8_t* data_end = nullptr;  ///< codes: of what may be read from `data` on
    const uint8_t* scales = nullptr;    ///< codes: (heads, run_rows) f16
    uint32_t run_rows = 0;              ///< codes: rows of the whole run
    uint32_t run_offset = 0;            ///< codes: index of row `first` within the run
  };
  const std::vector<Run>& k_runs() const { return k_runs_; }
  const std::vector<Run>& v_runs() const { return v_runs_; }

 private:
  std::shared_ptr<const Codec> codec_;
  uint32_t layer_, part_;
  const SideCoding* k_side_;  // null for a part without separate K and V: then every add is refused
  const SideCoding* v_side_;
  std::vector<Run> k_runs_, v_runs_;
};

/// Rows that one query sees: row < end and (row >= first or row < keep).
struct RowLimit {
  uint32_t end = std::numeric_limits<uint32_t>::max();
  uint32_t first = 0;
  uint32_t keep = 0;
};

/// Queries of one kv head, rotated once. Reuse it: prepare() allocates only to grow.
class PreparedQueries {
 public:
  /// `queries` is (count, k_dim) f32, all of kv head `kv_head`: a group, or rows x group. `scale`
  /// is the softmax scale (usually 1/sqrt(k_dim)). `limits` is empty (all rows) or one per query.
  /// The part has separate K and V, kv_head < heads: KV_CHECK.
  void prepare(const Codec& codec, uint32_t layer, uint32_t part, uint32_t kv_head,
               std::span<const float> queries, float scale, std::span<const RowLimit> limits = {});
  uint32_t count() const { return count_; }

 private:
  friend class ChunkTask;
  friend class ChunkMerger;
  const Codec* codec_ = nullptr;
  uint32_t count_ = 0, layer_ = 0, part_ = 0, kv_head_ = 0;
  uint32_t k_stride_ = 0;          // k_dim rounded up to 8
  std::vector<float> exact_;       // (count, k_stride): scaled queries for exact rows
  std::vector<int16_t> rotated_;   // (count, query_width): fixed point, for coded rows
  std::vector<float> factor_;      // (count): value of one unit of rotated_ times one code unit
  std::vector<float> mean_score_;  // (count): query times the removed key mean
  std::vector<RowLimit> limits_;   // (count), or empty
  std::vector<float> work_;
  std::vector<int16_t> rounded_;
};

/// Some of the prepared queries: [first, first + count).
struct QueryRange {
  uint32_t first = 0, count = 0;
};

/// Working memory of one thread. Reuse it: it grows to the largest call.
struct AttentionScratch {
  std::vector<float> floats;    // scores, one tile of rows
  std::vector<int16_t> shorts;  // one tile of weights
  std::vector<uint8_t> bytes;   // one tile of codes
  std::vector<float> partial;   // of one chunk
  std::vector<float> merged;    // of the chunks so far
};

/// out (count, v_dim) f32 = softmax(scores) V over all rows. A query that sees no row gets zeros.
/// `queries` were prepared for the codec, layer and part of `rows`: KV_CHECK.
void attend(const PreparedQueries& queries, const AttentionRows& rows, AttentionScratch& scratch,
            std::span<float> out);

/// For splitting one head's rows over threads, and for sequences that share rows: the result is
/// that of attend(), bit for bit, if every chunk of a query's rows was attended to once, by
/// whatever range of queries, over the sequence's own rows or over others that same_chunk() calls
/// the same.
///
/// Whether both, of one part, hold the very same bytes in memory as their rows of `chunk`: then one
/// attend_chunk serves queries of both. False where both hold none.
bool same_chunk(const AttentionRows& a, const AttentionRows& b, uint32_t chunk);
/// Floats that one chunk's partial of so many queries takes.
size_t partial_floats(uint32_t queries, const AttentionRows& rows);
void attend_chunk(const PreparedQueries& queries, QueryRange range, const AttentionRows& rows,
                  uint32_t chunk, AttentionScratch& scratch, std::span<float> partial);

/// … of all queries.
size_t partial_floats(const PreparedQueries& queries, const AttentionRows& rows);
void attend_chunk(const PreparedQueries& queries, const AttentionRows& rows, uint32_t chunk,
                  AttentionScratch& scratch, std::span<float> partial);
/// `partials` holds those of chunks first_chunk() … end_chunk() - 1, one after the other.
void merge_chunks(const PreparedQueries& queries, const AttentionRows& rows,
                  std::span<const float> partials, AttentionScratch& scratch, std::span<float> out);

/// A partial of `queries` queries over values of `v_dim`, for those who write one themselves. Two
/// flags, 0 or 1, say of which kind there are sums, as zeros of no rows need no merging; they have
/// a cache line of their own. Then the largest score and the sum of weights (queries), and per
/// query the weighted sums of coded rows in rotated space and of exact rows, `stride` floats each.
struct PartialView {
  PartialView(float* p, uint32_t queries, uint32_t v_dim);
  static size_t floats(uint32_t queries, uint32_t v_dim);
  static constexpr size_t kHead = 16;

  size_t stride;
  float *any_rotated, *any_exact, *top, *sum, *rotated, *exact;
};

/// The results of attend_chunk for a range of `queries` queries; the merged ones begin at its
/// `first`.
struct ChunkPartial {
  const float* floats = nullptr;
  uint32_t queries = 0, first = 0;
};
/// out (range.count, v_dim) of the partials of all chunks in ascending order; chunks of which no
/// query of the range sees a row may be left out.
void merge_chunks(QueryRange range, const AttentionRows& rows,
                  std::span<const ChunkPartial> partials, AttentionScratch& scratch,
                  std::span<float> out);
/// … where rows are of this side. All kernel sets give the same bits.
void merge_chunks(QueryRange range, const SideCoding& v, const Kernels& kernels,
                  std::span<const ChunkPartial> partials, AttentionScratch& scratch,
                  std::span<float> out);

}  // namespace kv
