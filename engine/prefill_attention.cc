// Blocks, chunks, softmax and merging. See prefill_attention.h; reading exact rows:
// prefill_rows.cc.
#include "engine/prefill_attention.h"

#include <algorithm>
#include <limits>

#include "engine/layer_ops.h"

namespace kv {
namespace {

constexpr uint32_t kBlockQueries = 192;                // of a block, over the group
constexpr size_t kMostPartials = 4u << 20;             // floats that wait to be merged
constexpr size_t kScoreStride = kAttentionChunk + 16;  // rows of scores in other lines of a cache
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
static_assert(kAttentionChunk % kBandColumns == 0);

}  // namespace

PrefillAttention::PrefillAttention(const ModelShape& shape, Threads& threads)
    : shape_(shape),
      threads_(threads),
      group_(shape.heads / shape.kv_heads),
      values_stride_(size_t{(shape.head_dim + kBandColumns - 1) / kBandColumns} * kBandColumns),
      scratch_(threads.count()) {
  exact_values_.dim = shape.head_dim;
}

void PrefillAttention::reserve(uint32_t first, uint32_t end) {
  first_ = first;
  end_ = end;
  first_chunk_ = first / kRows;
  chunks_ = (end - 1) / kRows + 1 - first_chunk_;
  keys_.assign(shape_.kv_heads * chunks_ * kRows * shape_.head_dim, 0.0f);
  values_.assign(shape_.kv_heads * chunks_ * kRows * values_stride_, 0.0f);
}

uint32_t PrefillAttention::oldest_seen(uint32_t position) const {
  return window_ != 0 && position >= window_ ? position + 1 - window_ : 0;
}

std::span<float> PrefillAttention::partial(const Task& task, uint32_t kv_head) {
  const size_t floats = PartialView::floats(queries_of(blocks_[task.block]), shape_.head_dim);
  return std::span(partials_).subspan(task.floats + kv_head * floats, floats);
}

// Positions of a block from `at` on: as many as kMostPartials has room for, but at least one.
uint32_t PrefillAttention::block_size(uint32_t at) const {
  const uint32_t most = std::max(kBlockQueries / group_, 1u);
  const size_t chunks = (at + most) / kRows + 2 - oldest_seen(at) / kRows;
  const size_t floats = chunks * shape_.kv_heads * PartialView::floats(group_, shape_.head_dim);
  const size_t room = std::clamp<size_t>(kMostPartials / floats, 1, most);
  return std::min(static_cast<uint32_t>(room), run_.end - at);
}

// Blocks and chunks of positions [at, …), as many as kMostPartials has room for. Returns their end.
uint32_t PrefillAttention::plan(uint32_t at) {
  blocks_.clear();
  tasks_.clear();
  size_t floats = 0;
  while (at < run_.end && floats < kMostPartials) {
    Block block{at, block_size(at), tasks_.size(), 0, oldest_seen(at) < codes_end_};
    const size_t more = PartialView::floats(queries_of(block), shape_.head_dim) * shape_.kv_heads;
    auto add = [&](uint32_t chunk, bool coded) {
      tasks_.push_back({static_cast<uint32_t>(blocks_.size()), chunk, coded, floats});
      floats += more;
    };
    uint32_t chunk = oldest_seen(at) / kRows;
    for (; block.coded && chunk * kRows < codes_end_; ++chunk) add(chunk, true);
    if (block.coded) chunk = codes_end_ / kRows;
    for (; chunk <= (at + block.count - 1) / kRows; ++chunk) add(chunk, false);
    if (block.coded) {  // about what its prepared queries take
      floats += size_t{queries_of(block)} * shape_.kv_heads * query_width(shape_.head_dim);
    }
    block.end = tasks_.size();
    blocks_.push_back(block);
    at += block.count;
  }
  if (partials_.size() < floats) partials_.resize(floats);
  return at;
}

void PrefillAttention::run(const float* q, RowRange positions, float* heads, size_t stride) {
  q_ = q;
  run_ = positions;
  const uint32_t kv_heads = shape_.kv_heads;
  for (uint32_t at = run_.first; at < run_.end;) {
    at = plan(at);
    const auto blocks = static_cast<uint32_t>(blocks_.size());
    if (queries_.size() < size_t{blocks} * kv_heads) queries_.resize(size_t{blocks} * kv_heads);
    if (codes_end_ != 0) {
      threads_.run(blocks * kv_heads, [&](uint32_t i, uint32_t worker) {
        prepare(i / kv_heads, i % kv_heads, scratch_[worker]);
      });
    }
    threads_.run(static_cast<uint32_t>(tasks_.size()) * kv_heads, [&](uint32_t i, uint32_t worker) {
      attend(tasks_[i / kv_heads], i % kv_heads, scratch_[worker]);
    });
    threads_.run(blocks * kv_heads, [&](uint32_t i, uint32_t worker) {
      merge(blocks_[i / kv_heads], i % kv_heads, heads, stride, scratch_[worker]);
    });
  }
}

// The block's queries of one kv head times `scale`, side by side: (positions, group, head_dim).
void PrefillAttention::gather(const Block& block, uint32_t kv_head, float scale, Scratch& s) const {
  const size_t values = size_t{group_} * shape_.head_dim;
  const size_t width = size_t{shape_.heads} * shape_.head_dim;
  s.q.resize(block.count * values);
  const float* in = q_ + (block.first - run_.first) * width + kv_head * values;
  float* out = s.q.data();
  for (uint32_t r = 0; r < block.count; ++r, in += width, out += values) {
    for (size_t j = 0; j < values; ++j) out[j] = in[j] * scale;
  }
}

// A block's queries for coded rows, where it sees any.
void PrefillAttention::prepare(uint32_t block_index, uint32_t kv_head, Scratch& s) {
  const Block& block = blocks_[block_index];
  if (!block.coded) return;
  s.limits.clear();
  for (uint32_t i = 0; window_ != 0 && i < queries_of(block); ++i) {
    s.limits.push_back({.first = oldest_seen(block.first + i / group_)});
  }
  gather(block, kv_head, 1, s);
  queries_[size_t{block_index} * shape_.kv_heads + kv_head].prepare(
      coded_->codec(), coded_->layer(), coded_->part(), kv_head, s.q, attention_scale(shape_),
      s.limits);
}

// The partial of one block's queries over one chunk.
void PrefillAttention::attend(const Task& task, uint32_t kv_head, Scratch& s) {
  const Block& block = blocks_[task.block];
  const std::span<float> floats = partial(task, kv_head);
  if (task.coded) {
    return attend_chunk(queries_[size_t{task.block} * shape_.kv_heads + kv_head],
                        {0, queries_of(block)}, *coded_, task.chunk, s.attention, floats);
  }
  const uint32_t base = task.chunk * kRows, last = block.first + block.count - 1;
  const uint32_t oldest = std::max({oldest_seen(block.first), codes_end_, base}) - base;
  Stretch at;  // whole bands of what any of them sees
  at.from = oldest / kBandColumns * kBandColumns;
  at.width = (std::min(last - base, kRows - 1) / kBandColumns + 1) * kBandColumns - at.from;
  const Chunk chunk = chunk_of(task, kv_head, s);
  PartialView out(floats.data(), queries_of(block), shape_.head_dim);
  *out.any_rotated = 0;
  *out.any_exact = 1;
  if (codes_end_ != 0) std::fill(out.rotated, out.exact, 0.0f);  // else nobody reads them
  gather(block, kv_head, attention_scale(shape_), s);
  score(block, chunk, at, s);
  weigh(block, base + at.from, at.width, out, s);
  sum_values(block, chunk, at, out, s);
}

// Scores from s.scores on, kScoreStride from one query to the next.
void PrefillAttention::score(const Block& block, const Chunk& chunk, Stretch at, Scratch& s) const {
  const uint32_t queries = queries_of(block), dim = shape_.head_dim;
  s.scores.resize(std::max(s.scores.size(), queries * kScoreStride));
  for (uint32_t j = 0; j < at.width; j += kBandColumns) {
    engine_kernels().band_product({s.q.data(), dim, chunk.keys + size_t{at.from + j} * dim,
                                   kBandColumns, s.scores.data() + j, kScoreStride, queries, dim,
                                   kBandColumns});
  }
}

// Turns scores of `width` positions from `first` on into weights.
void PrefillAttention::weigh(const Block& block, uint32_t first, uint32_t width, PartialView& out,
                             Scratch& s) const {
  const Kernels& kernels = engine_codec_kernels();
  for (uint32_t i = 0; i < queries_of(block); ++i) {
    const uint32_t position = block.first + i / group_;
    float* row = s.scores.data() + i * kScoreStride;
    const uint32_t oldest = std::max({oldest_seen(position), codes_end_, first});
    const uint32_t hidden = std::min(width, oldest - first);
    const uint32_t end = position < first ? 0 : std::min(width, position + 1 - first);
    out.top[i] = kMinusInfinity;
    out.sum[i] = 0;
    if (hidden >= end) {
      std::fill_n(row, width, 0.0f);
      continue;
    }
    std::fill_n(row, hidden, kMinusInfinity);
    std::fill(row + end, row + width, kMinusInfinity);
    out.top[i] = kernels.largest(row, width);
    out.sum[i] = kernels.exp_weights(row, width, out.top[i]);
  }
}

void PrefillAttention::sum_values(const Block& block, const Chunk& chunk, Stretch at,
                                  PartialView& out, Scratch& s) const {
  for (uint32_t j = 0; j < out.stride; j += kBandColumns) {
    engine_kernels().band_product({s.scores.data(), kScoreStride,
                                   chunk.values + at.from * values_stride_ + j, values_stride_,
                                   out.exact + j, out.stride, queries_of(block), at.width,
                                   std::min(kBandColumns, static_cast<uint32_t>(out.stride) - j)});
  }
}

// Results of a block's queries: those of all chunks, merged in order.
void PrefillAttention::merge(const Block& block, uint32_t kv_head, float* heads, size_t stride,
                             Scratch& s) {
  const size_t values = size_t{group_} * shape_.head_dim;
  s.partials.clear();
  for (size_t t = block.begin; t < block.end; ++t) {
    s.partials.push_back({partial(tasks_[t], kv_head).data(), queries_of(block), 0});
  }
  s.out.resize(block.count * values);
  merge_chunks({0, queries_of(block)}, before_ == nullptr ? exact_values_ : before_->v_side(),
               engine_codec_kernels(), s.partials, s.attention, s.out);
  float* out = heads + (block.first - run_.first) * stride + kv_head * values;
  for (uint32_t r = 0; r < block.count; ++r, out += stride) {
    std::copy_n(s.out.data() + r * values, values, out);
  }
}

}  // namespace kv
