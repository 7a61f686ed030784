// See batch_attention.h.
#include "engine/batch_attention.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace kv {
namespace {

// The place of a chunk's first run; null if the chunk has no rows. Equal for shared chunks.
const uint8_t* place_of(const AttentionRows& rows, uint32_t chunk) {
  const auto& runs = rows.k_runs();
  const uint32_t first = chunk * kAttentionChunk;
  auto run =
      std::partition_point(runs.begin(), runs.end(), [&](const auto& r) { return r.end <= first; });
  return run == runs.end() ? nullptr : run->data;
}

// Like words in a dictionary whose letters are places: common beginnings stand together.
bool before(const AttentionRows& a, const AttentionRows& b) {
  const uint32_t end = std::min(a.end_chunk(), b.end_chunk());
  for (uint32_t c = std::min(a.first_chunk(), b.first_chunk()); c < end; ++c) {
    const uint8_t *x = place_of(a, c), *y = place_of(b, c);
    if (x != y) return std::less<>()(x, y);
  }
  return a.end_chunk() < b.end_chunk();
}

// True: a query of this limit sees some row of the chunk; a partial of others would count nothing.
bool sees(const RowLimit& limit, uint32_t chunk) {
  const uint32_t first = chunk * kAttentionChunk;
  return first < limit.end && (first + kAttentionChunk > limit.first || first < limit.keep);
}

}  // namespace

BatchAttention::BatchAttention(Threads& threads) : threads_(threads), scratch_(threads.count()) {}

void BatchAttention::arrange(std::span<const AttentionRows* const> rows) {
  order_.resize(rows.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return before(*rows[a], *rows[b]); });
}

// Scaled and rotated queries of one kv head, in order of places.
void BatchAttention::prepare(uint32_t kv_head, float scale) {
  const AttentionRows& any = rows_at(0);
  const size_t values = size_t{group_} * any.k_side().dim;
  auto& gathered = gathered_[kv_head];
  auto& limits = limits_[kv_head];
  gathered.resize(values * placed_.size());
  limits.clear();
  for (size_t place = 0; place < placed_.size(); ++place) {
    const Row& row = rows_[placed_[place]];
    std::copy_n(row.q + kv_head * values, values, gathered.data() + place * values);
    limits.insert(limits.end(), group_, row.limit);
  }
  queries_[kv_head].prepare(any.codec(), any.layer(), any.part(), kv_head, gathered, scale, limits);
}

// The chunks that a place shares with the one before it.
void BatchAttention::compare(uint32_t place) {
  for (uint32_t c = 0; c < chunks_; ++c) {
    shared_[size_t{place} * chunks_ + c] =
        place > 0 && same_chunk(rows_at(place - 1), rows_at(place), first_chunk_ + c);
  }
}

void BatchAttention::make_groups() {
  const size_t floats = partial_floats(group_, rows_at(0));
  groups_.clear();
  groups_of_.resize(placed_.size());
  for (auto& own : groups_of_) own.clear();
  floats_ = 0;
  for (uint32_t c = 0; c < chunks_; ++c) {
    const uint32_t chunk = first_chunk_ + c;
    for (uint32_t place = 0; place < placed_.size(); ++place) {
      const AttentionRows& rows = rows_at(place);
      if (chunk < rows.first_chunk() || chunk >= rows.end_chunk()) continue;
      if (!sees(rows_[placed_[place]].limit, chunk)) continue;
      const Group* last = groups_.empty() ? nullptr : &groups_.back();
      const bool joins = shared_[size_t{place} * chunks_ + c] != 0 && last != nullptr &&
                         last->chunk == chunk && last->first + last->count == place;
      if (!joins) groups_.push_back({chunk, place, 0, floats_});
      ++groups_.back().count;
      floats_ += floats;
      groups_of_[place].push_back(static_cast<uint32_t>(groups_.size() - 1));
    }
  }
}

void BatchAttention::attend_group(uint32_t kv_head, const Group& group, uint32_t worker) {
  const QueryRange range{group.first * group_, group.count * group_};
  const AttentionRows& rows = rows_at(group.first);
  attend_chunk(queries_[kv_head], range, rows, group.chunk, scratch_[worker].attention,
               std::span(partials_).subspan(kv_head * floats_ + group.floats,
                                            partial_floats(range.count, rows)));
}

// Everything up to the partials. Returns whether there is a row to merge.
bool BatchAttention::score(std::span<const Row> rows, uint32_t heads, float scale) {
  KV_CHECK(rows.size() == order_.size());
  rows_ = rows;
  placed_.clear();
  uint32_t end_chunk = 0;
  first_chunk_ = std::numeric_limits<uint32_t>::max();
  for (uint32_t i : order_) {
    if (rows[i].rows == nullptr) continue;
    placed_.push_back(i);
    first_chunk_ = std::min(first_chunk_, rows[i].rows->first_chunk());
    end_chunk = std::max(end_chunk, rows[i].rows->end_chunk());
  }
  if (placed_.empty()) return false;
  const uint32_t kv_heads = rows_at(0).k_side().heads;
  KV_CHECK(heads % kv_heads == 0);
  group_ = heads / kv_heads;
  chunks_ = end_chunk - std::min(first_chunk_, end_chunk);
  queries_.resize(kv_heads);
  gathered_.resize(kv_heads);
  limits_.resize(kv_heads);
  const auto places = static_cast<uint32_t>(placed_.size());
  shared_.resize(size_t{places} * chunks_);
  auto begin = [&](uint32_t task, uint32_t) {
    task < kv_heads ? prepare(task, scale) : compare(task - kv_heads);
  };
  if (places == 1) {  // too little to hand out
    for (uint32_t task = 0; task <= kv_heads; ++task) begin(task, 0);
  } else {
    threads_.run(kv_heads + places, begin);
  }
  make_groups();
  partials_.resize(floats_ * kv_heads);
  threads_.run(static_cast<uint32_t>(groups_.size() * kv_heads), [&](uint32_t i, uint32_t worker) {
    attend_group(i % kv_heads, groups_[i / kv_heads], worker);
  });
  return true;
}

void BatchAttention::run(std::span<const Row> rows, uint32_t heads, float scale) {
  if (!score(rows, heads, scale)) return;
  threads_.run(static_cast<uint32_t>(placed_.size()),
               [&](uint32_t place, uint32_t worker) { merge(place, worker); });
}

void BatchAttention::merge(uint32_t place, uint32_t worker) {
  const Row& row = rows_[placed_[place]];
  const size_t floats = size_t{group_} * row.rows->v_side().dim;
  Scratch& scratch = scratch_[worker];
  for (uint32_t h = 0; h < queries_.size(); ++h) {
    scratch.partials.clear();
    for (uint32_t g : groups_of_[place]) {
      const Group& group = groups_[g];
      scratch.partials.push_back({partials_.data() + h * floats_ + group.floats,
                                  group.count * group_, (place - group.first) * group_});
    }
    merge_chunks({place * group_, group_}, *row.rows, scratch.partials, scratch.attention,
                 {row.out + h * floats, floats});
  }
}

}  // namespace kv
