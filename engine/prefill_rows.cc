// The exact rows that prefill's attention reads: its own, and those stored behind the last coded
// one. See prefill_attention.h.
#include <algorithm>

#include "codec/values.h"
#include "engine/prefill_attention.h"
#include "proto/plane.h"

namespace kv {
namespace {

// Rows [from, to) of an exact run, one kv head of them.
void load_exact(const AttentionRows::Run& run, const SideCoding& side, uint32_t kv_head,
                uint32_t from, uint32_t to, float* out, size_t stride) {
  const size_t value_bytes = dtype_bytes(run.dtype),
               row_bytes = side.heads * side.dim * value_bytes;
  const uint8_t* data =
      run.data + (from - run.first) * row_bytes + kv_head * side.dim * value_bytes;
  const Kernels& kernels = engine_codec_kernels();
  for (uint32_t row = from; row < to; ++row, data += row_bytes, out += stride) {
    read_values(kernels, data, run.dtype, out, side.dim);
  }
}

}  // namespace

// The rows before that are attended to as codes.
void PrefillAttention::see(const AttentionRows* before) {
  before_ = before;
  codes_end_ = before == nullptr ? 0 : std::min(before->codes_end(), first_);
  if (codes_end_ == 0) return;
  coded_ = *before;
  coded_->drop_from(codes_end_);
}

// Own keys and values in chunks, behind the stored rows that begin the first one.
void PrefillAttention::begin(const float* k, const float* v, const AttentionRows* before,
                             uint32_t window) {
  window_ = window;
  see(before);
  if (std::max(codes_end_, first_chunk_ * kRows) < first_) {
    threads_.run(shape_.kv_heads, [&](uint32_t h, uint32_t worker) {
      load(h, first_chunk_, scratch_[worker], keys_.data() + h * chunks_ * kRows * shape_.head_dim,
           values_.data() + h * chunks_ * kRows * values_stride_);
    });
  }
  const uint32_t first_band = first_ / kBandColumns;
  threads_.run((end_ - 1) / kBandColumns + 1 - first_band,
               [&](uint32_t task, uint32_t) { put_band(k, v, first_band + task); });
}

void PrefillAttention::put_band(const float* k, const float* v, uint32_t band) {
  const uint32_t from = std::max(first_, band * kBandColumns);
  const uint32_t to = std::min(end_, (band + 1) * kBandColumns);
  const size_t dim = shape_.head_dim, width = shape_.kv_heads * dim;
  const size_t base = size_t{first_chunk_} * kRows;
  for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
    const size_t in = (from - first_) * width + h * dim;
    float* keys = keys_.data() + (h * chunks_ * kRows + band * kBandColumns - base) * dim;
    if (to - from == kBandColumns) {
      engine_kernels().transpose(k + in, width, kBandColumns, shape_.head_dim, keys);
    } else {
      for (uint32_t p = from; p < to; ++p) {
        const float* key = k + in + (p - from) * width;
        for (size_t j = 0; j < dim; ++j) keys[j * kBandColumns + p % kBandColumns] = key[j];
      }
    }
    for (uint32_t p = from; p < to; ++p) {
      std::copy_n(v + in + (p - from) * width, dim,
                  values_.data() + (h * chunks_ * kRows + p - base) * values_stride_);
    }
  }
}

PrefillAttention::Chunk PrefillAttention::chunk_of(const Task& task, uint32_t kv_head,
                                                   Scratch& s) const {
  if (task.chunk < first_chunk_) {
    s.keys.resize(size_t{kRows} * shape_.head_dim);
    s.values.resize(kRows * values_stride_);
    load(kv_head, task.chunk, s, s.keys.data(), s.values.data());
    return {s.keys.data(), s.values.data()};
  }
  const size_t at = (kv_head * chunks_ + task.chunk - first_chunk_) * kRows;
  return {keys_.data() + at * shape_.head_dim, values_.data() + at * values_stride_};
}

// The stored exact rows of a chunk. What is not held is left as it is, finite.
void PrefillAttention::load(uint32_t kv_head, uint32_t chunk, Scratch& s, float* keys,
                            float* values) const {
  const uint32_t dim = shape_.head_dim, base = chunk * kRows;
  const uint32_t first = std::max(base, codes_end_), end = std::min(base + kRows, first_);
  s.rows.resize(size_t{kBandColumns} * dim);
  for (uint32_t band = first / kBandColumns * kBandColumns; band < end; band += kBandColumns) {
    const uint32_t from = std::max(first, band), to = std::min(band + kBandColumns, end);
    load_side(before_->k_side(), before_->k_runs(), kv_head, {from, to},
              s.rows.data() + (from - band) * dim, dim);
    engine_kernels().transpose(s.rows.data(), dim, kBandColumns, dim,
                               keys + size_t{band - base} * dim);
  }
  load_side(before_->v_side(), before_->v_runs(), kv_head, {first, end},
            values + (first - base) * values_stride_, values_stride_);
}

// Rows of one side.
void PrefillAttention::load_side(const SideCoding& side,
                                 const std::vector<AttentionRows::Run>& runs, uint32_t kv_head,
                                 RowRange rows, float* out, size_t stride) {
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const AttentionRows::Run& r) { return r.end <= rows.first; });
  for (; run != runs.end() && run->first < rows.end; ++run) {
    const uint32_t from = std::max(run->first, rows.first), to = std::min(run->end, rows.end);
    load_exact(*run, side, kv_head, from, to, out + (from - rows.first) * stride, stride);
  }
}

}  // namespace kv
