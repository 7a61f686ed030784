// Blocks, chunks, softmax and merging. See prefill_attention.h; reading stored rows:
// prefill_rows.cc.
#include "engine/prefill_attention.h"

#include <algorithm>
#include <limits>

#include "codec/turboquant.h"
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
      k_forms_(shape.kv_heads),
      v_forms_(shape.kv_heads),
      scratch_(threads.count()) {}

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

size_t PrefillAttention::partial_floats(uint32_t queries) const {
  return queries * (2 + (coded_values_ ? 2 : 1) * values_stride_);
}

PrefillAttention::Partial PrefillAttention::partial(const Task& task, uint32_t kv_head) {
  const size_t queries = size_t{task.block.count} * group_;
  float* at =
      partials_.data() + task.floats + kv_head * partial_floats(static_cast<uint32_t>(queries));
  float* exact = at + 2 * queries;
  return {at, at + queries, exact, coded_values_ ? exact + queries * values_stride_ : nullptr};
}

// Blocks and chunks of positions [at, …), as many as kMostPartials has room for. Returns their end.
uint32_t PrefillAttention::plan(uint32_t at) {
  const uint32_t most = std::max(kBlockQueries / group_, 1u);
  blocks_.clear();
  tasks_.clear();
  size_t floats = 0;
  while (at < end_ && floats < kMostPartials) {
    Block block{at, std::min(most, end_ - at), tasks_.size(), 0};
    const uint32_t last = (at + block.count - 1) / kRows;
    for (uint32_t chunk = oldest_seen(at) / kRows; chunk <= last; ++chunk) {
      tasks_.push_back({block, chunk, floats});
      floats += shape_.kv_heads * partial_floats(block.count * group_);
    }
    block.end = tasks_.size();
    blocks_.push_back(block);
    at += block.count;
  }
  if (partials_.size() < floats) partials_.resize(floats);
  return at;
}

void PrefillAttention::run(const Rows& own, const AttentionRows* before, uint32_t window,
                           float* heads, size_t stride) {
  before_ = before;
  coded_keys_ = before != nullptr && before->k_side().bits != 0;
  coded_values_ = before != nullptr && before->v_side().bits != 0;
  window_ = window;
  prepare(own.q);
  put(own);
  const uint32_t kv_heads = shape_.kv_heads;
  for (uint32_t at = first_; at < end_;) {
    at = plan(at);
    threads_.run(static_cast<uint32_t>(tasks_.size()) * kv_heads, [&](uint32_t i, uint32_t worker) {
      attend(tasks_[i / kv_heads], i % kv_heads, scratch_[worker]);
    });
    threads_.run(static_cast<uint32_t>(blocks_.size()) * kv_heads, [&](uint32_t i, uint32_t) {
      merge(blocks_[i / kv_heads], i % kv_heads, heads, stride);
    });
  }
}

// The partial of one block's queries over one chunk.
void PrefillAttention::attend(const Task& task, uint32_t kv_head, Scratch& s) {
  const uint32_t base = task.chunk * kRows, last = task.block.first + task.block.count - 1;
  const uint32_t oldest = std::max(oldest_seen(task.block.first), base) - base;
  Stretch at;  // whole bands of what any of them sees
  at.from = oldest / kBandColumns * kBandColumns;
  at.width = (std::min(last - base, kRows - 1) / kBandColumns + 1) * kBandColumns - at.from;
  const Chunk chunk = chunk_of(task, kv_head, s);
  const Partial out = partial(task, kv_head);
  score(task, kv_head, chunk, at, s);
  weigh(task, at, out, s);
  sum_values(task, chunk, at, out, s);
}

// The block's queries of one kv head, side by side: (positions, group, head_dim).
void PrefillAttention::gather(const Task& task, uint32_t kv_head, const Floats& from,
                              Scratch& s) const {
  const size_t values = size_t{group_} * shape_.head_dim;
  const size_t width = size_t{shape_.heads} * shape_.head_dim;
  s.q.resize(std::max(s.q.size(), task.block.count * values));
  const float* in = from.data() + (task.block.first - first_) * width + kv_head * values;
  for (uint32_t r = 0; r < task.block.count; ++r, in += width) {
    std::copy_n(in, values, s.q.data() + r * values);
  }
}

void PrefillAttention::score(const Task& task, uint32_t kv_head, const Chunk& chunk, Stretch at,
                             Scratch& s) const {
  const uint32_t queries = task.block.count * group_, dim = shape_.head_dim;
  auto products = [&](const Floats& q, Floats& out) {
    gather(task, kv_head, q, s);
    out.resize(std::max(out.size(), size_t{queries} * kScoreStride));
    for (uint32_t j = at.from; j < at.from + at.width; j += kBandColumns) {
      engine_kernels().band_product({s.q.data(), dim, chunk.keys + size_t{j} * dim, kBandColumns,
                                     out.data() + j, kScoreStride, queries, dim, kBandColumns});
    }
  };
  const Form& form = *chunk.k;
  if (form.exact || !form.coded) products(q_, s.scores);
  if (!form.coded) return;
  Floats& dots = form.exact ? s.other : s.scores;
  products(rotated_, dots);
  for (uint32_t i = 0; i < queries; ++i) {
    const uint32_t position = task.block.first - first_ + i / group_;
    const float mean = means_[size_t{position} * shape_.heads + kv_head * group_ + i % group_];
    float* coded = dots.data() + i * kScoreStride;
    for (uint32_t j = at.from; j < at.from + at.width; ++j) {
      coded[j] = coded[j] * form.scale[j] + mean;
    }
    if (!form.exact) continue;
    float* row = s.scores.data() + i * kScoreStride;
    for (uint32_t j = at.from; j < at.from + at.width; ++j) {
      row[j] = form.is_coded[j] ? coded[j] : row[j];
    }
  }
}

// Turns scores into weights.
void PrefillAttention::weigh(const Task& task, Stretch at, const Partial& out, Scratch& s) const {
  const Kernels& kernels = engine_codec_kernels();
  const uint32_t base = task.chunk * kRows + at.from;
  for (uint32_t i = 0; i < task.block.count * group_; ++i) {
    const uint32_t position = task.block.first + i / group_;
    float* row = s.scores.data() + i * kScoreStride + at.from;
    const uint32_t hidden = std::min(at.width, std::max(oldest_seen(position), base) - base);
    const uint32_t end = position < base ? 0 : std::min(at.width, position + 1 - base);
    out.top[i] = kMinusInfinity;
    out.sum[i] = 0;
    if (hidden >= end) {
      std::fill_n(row, at.width, 0.0f);
      continue;
    }
    std::fill_n(row, hidden, kMinusInfinity);
    std::fill(row + end, row + at.width, kMinusInfinity);
    out.top[i] = kernels.largest(row, at.width);
    out.sum[i] = kernels.exp_weights(row, at.width, out.top[i]);
  }
}

void PrefillAttention::sum_values(const Task& task, const Chunk& chunk, Stretch at,
                                  const Partial& out, Scratch& s) const {
  const uint32_t queries = task.block.count * group_;
  const float* values = chunk.values + at.from * values_stride_;
  auto products = [&](const Floats& weights, float* sums) {
    for (uint32_t j = 0; j < values_stride_; j += kBandColumns) {
      engine_kernels().band_product({weights.data() + at.from, kScoreStride, values + j,
                                     values_stride_, sums + j, values_stride_, queries, at.width,
                                     kBandColumns});
    }
  };
  const Form& form = *chunk.v;
  if (form.exact && form.coded) split_weights(queries, at, form, s);
  if (form.coded) {
    Floats& weights = form.exact ? s.other : s.scores;
    for (size_t i = 0; i < queries; ++i) {
      float* row = weights.data() + i * kScoreStride;
      for (uint32_t j = at.from; j < at.from + at.width; ++j) row[j] *= form.scale[j];
    }
    products(weights, out.coded);
  } else if (coded_values_) {
    std::fill_n(out.coded, queries * values_stride_, 0.0f);
  }
  if (form.exact || !form.coded) {
    products(s.scores, out.exact);
  } else {
    std::fill_n(out.exact, queries * values_stride_, 0.0f);
  }
}

// Weights of coded rows to s.other; in s.scores they become 0.
void PrefillAttention::split_weights(uint32_t queries, Stretch at, const Form& form, Scratch& s) {
  s.other.resize(std::max(s.other.size(), size_t{queries} * kScoreStride));
  for (size_t i = 0; i < queries; ++i) {
    float *row = s.scores.data() + i * kScoreStride, *coded = s.other.data() + i * kScoreStride;
    for (uint32_t j = at.from; j < at.from + at.width; ++j) {
      coded[j] = form.is_coded[j] ? row[j] : 0.0f;
      row[j] = form.is_coded[j] ? 0.0f : row[j];
    }
  }
}

// Results of a block's queries: those of all chunks, merged in order.
void PrefillAttention::merge(const Block& block, uint32_t kv_head, float* heads, size_t stride) {
  const Kernels& kernels = engine_codec_kernels();
  for (uint32_t i = 0; i < block.count * group_; ++i) {
    float top = kMinusInfinity, sum = 0, *exact = nullptr, *coded = nullptr;
    for (size_t t = block.begin; t < block.end; ++t) {
      const Partial p = partial(tasks_[t], kv_head);
      float* more = p.exact + i * values_stride_;
      float* more_coded = coded_values_ ? p.coded + i * values_stride_ : nullptr;
      if (p.sum[i] == 0) continue;
      if (exact == nullptr) {
        top = p.top[i], sum = p.sum[i], exact = more, coded = more_coded;
        continue;
      }
      const float higher = std::max(top, p.top[i]);
      float shrink[8] = {top - higher, p.top[i] - higher};
      kernels.exp_weights(shrink, 8, 0.0f);
      sum = sum * shrink[0] + p.sum[i] * shrink[1];
      kernels.merge(exact, shrink[0], more, shrink[1], values_stride_);
      if (coded != nullptr) kernels.merge(coded, shrink[0], more_coded, shrink[1], values_stride_);
      top = higher;
    }
    finish(sum, exact, coded,
           heads + (block.first - first_ + i / group_) * stride +
               (size_t{kv_head} * group_ + i % group_) * shape_.head_dim);
  }
}

void PrefillAttention::finish(float sum, const float* exact, float* coded, float* out) const {
  const uint32_t dim = shape_.head_dim;
  if (coded == nullptr) {
    for (uint32_t j = 0; j < dim; ++j) out[j] = exact[j] / sum;
    return;
  }
  const SideCoding& v = before_->v_side();
  engine_codec_kernels().unrotate(coded, dim, v.signs->data());
  const float unit = code_unit(v.bits) / rotation_norm(dim);
  for (uint32_t j = 0; j < dim; ++j) out[j] = (coded[j] * unit + exact[j]) / sum;
}

}  // namespace kv
