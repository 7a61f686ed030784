// BatchAttention: attention of one layer for several sequences, whose shared rows are read once.
//
// Every chunk of stored rows that several sequences hold as the very same bytes is taken from its
// codes once for the queries of all of them; chunks of their own follow, and each sequence's chunks
// are merged in order. So the results are those of attend() for each sequence alone, bit for bit,
// whatever the sequences beside it, their order or the number of threads. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/attention.h"
#include "engine/threads.h"

namespace kv {

class BatchAttention {
 public:
  /// One sequence: q (heads, k_dim) and out (heads, v_dim), query heads in order of their kv heads.
  struct Row {
    const AttentionRows* rows = nullptr;
    const float* q = nullptr;
    float* out = nullptr;
    RowLimit limit;
  };

  explicit BatchAttention(Threads& threads);

  /// Puts sequences that share rows next to each other: to be called when the batch has changed,
  /// with any layer's rows. It decides how much is shared, never a result.
  void arrange(std::span<const AttentionRows* const> rows);
  /// All rows are of one codec, layer and part; row i is sequence i of arrange(). Row `rows` null:
  /// skipped. `heads`: query heads, a multiple of the kv heads. `scale`: of the softmax.
  void run(std::span<const Row> rows, uint32_t heads, float scale);
  /// Passes over a chunk of stored rows that the last run took, per kv head.
  size_t passes() const { return groups_.size(); }

 private:
  struct Group {  // queries of adjacent places that meet one chunk together
    uint32_t chunk = 0, first = 0, count = 0;  // places
    size_t floats = 0;                         // where its partial begins, per kv head
  };
  bool score(std::span<const Row> rows, uint32_t heads, float scale);
  void prepare(uint32_t kv_head, float scale);
  void compare(uint32_t place);
  void make_groups();
  void attend_group(uint32_t kv_head, const Group& group, uint32_t worker);
  void merge(uint32_t place, uint32_t worker);
  const AttentionRows& rows_at(uint32_t place) const { return *rows_[placed_[place]].rows; }

  Threads& threads_;
  std::vector<uint32_t> order_;  // sequences in the order of arrange()
  std::span<const Row> rows_;
  std::vector<uint32_t> placed_;  // the sequences of this run in that order
  uint32_t group_ = 0;            // query heads per kv head
  uint32_t first_chunk_ = 0, chunks_ = 0;
  std::vector<uint8_t> shared_;  // (places, chunks): with the place before
  std::vector<Group> groups_;
  std::vector<std::vector<uint32_t>> groups_of_;  // [place]: its groups in order of chunks
  size_t floats_ = 0;                             // of all groups, per kv head
  std::vector<float> partials_;
  std::vector<PreparedQueries> queries_;  // per kv head
  struct Scratch {
    AttentionScratch attention;
    std::vector<ChunkPartial> partials;
  };
  std::vector<Scratch> scratch_;               // per worker
  std::vector<std::vector<float>> gathered_;   // per kv head
  std::vector<std::vector<RowLimit>> limits_;  // per kv head
};

}  // namespace kv
