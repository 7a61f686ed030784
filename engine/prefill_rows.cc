// What prefill's attention reads: its own queries and rows, and stored rows as they are held. See
// prefill_attention.h.
#include <algorithm>
#include <cstring>

#include "codec/turboquant.h"
#include "engine/layer_ops.h"
#include "engine/prefill_attention.h"
#include "proto/plane.h"

namespace kv {
namespace {

constexpr uint32_t kUnpackedRows = 32;  // at a time, for the L1 cache

// Rows [from, to) of an exact run, one kv head of them.
void load_exact(const AttentionRows::Run& run, const SideCoding& side, uint32_t kv_head,
                uint32_t from, uint32_t to, float* out, size_t stride) {
  const size_t value_bytes = dtype_bytes(run.dtype),
               row_bytes = side.heads * side.dim * value_bytes;
  const uint8_t* data =
      run.data + (from - run.first) * row_bytes + kv_head * side.dim * value_bytes;
  const Kernels& kernels = engine_codec_kernels();
  for (uint32_t row = from; row < to; ++row, data += row_bytes, out += stride) {
    switch (run.dtype) {
      case DType::f32:
        std::memcpy(out, data, side.dim * sizeof(float));
        break;
      case DType::f16:
        kernels.f16_to_f32(data, out, side.dim);
        break;
      case DType::bf16:
        kernels.bf16_to_f32(data, out, side.dim);
        break;
    }
  }
}

// The values of `rows` code vectors in rotated space, without scales.
void load_codes(const uint8_t* codes, const SideCoding& side, uint32_t rows,
                std::vector<int16_t>& unpacked, float* out, size_t stride) {
  unpacked.resize(size_t{kUnpackedRows} * side.dim);
  for (uint32_t done = 0; done < rows; done += kUnpackedRows) {
    const uint32_t some = std::min(kUnpackedRows, rows - done);
    engine_codec_kernels().unpack(codes, some, side.dim, side.bits, unpacked.data());
    codes += some * code_bytes(side.dim, side.bits);
    engine_kernels().to_floats(unpacked.data(), some, side.dim, out, stride);
    out += some * stride;
  }
}

}  // namespace

// Queries scaled and, where keys are coded, rotated.
void PrefillAttention::prepare(const float* q) {
  const size_t width = size_t{shape_.heads} * shape_.head_dim;
  const uint32_t count = end_ - first_;
  const float scale = attention_scale(shape_);
  q_.resize(count * width);
  if (coded_keys_) {
    rotated_.resize(count * width);
    means_.resize(size_t{count} * shape_.heads);
  }
  threads_.run(count, [&](uint32_t row, uint32_t) {
    for (size_t j = row * width; j < (row + 1) * width; ++j) q_[j] = q[j] * scale;
    if (coded_keys_) rotate_queries(row);
  });
}

// As PreparedQueries (codec/attention.h), without rounding.
void PrefillAttention::rotate_queries(uint32_t row) {
  const SideCoding& side = before_->k_side();
  const uint32_t dim = shape_.head_dim;
  const float unit = code_unit(side.bits) / rotation_norm(dim);
  for (uint32_t h = 0; h < shape_.heads; ++h) {
    const size_t at = (size_t{row} * shape_.heads + h) * dim, of_head = size_t{h / group_} * dim;
    float* rotated = rotated_.data() + at;
    double mean = 0;
    for (uint32_t j = 0; j < dim; ++j) {
      rotated[j] = q_[at + j] * unit;
      if (side.mean.empty()) continue;
      mean += double{q_[at + j]} * side.mean[of_head + j];
      rotated[j] *= side.inverse_gain[of_head + j];
    }
    engine_codec_kernels().rotate(rotated, dim, side.signs->data());
    means_[size_t{row} * shape_.heads + h] = static_cast<float>(mean);
  }
}

// Own keys and values in chunks, behind the stored rows that begin the first one.
void PrefillAttention::put(const Rows& own) {
  if (before_ != nullptr && first_ % kRows != 0) {
    threads_.run(shape_.kv_heads, [&](uint32_t h, uint32_t worker) {
      load(h, first_chunk_, scratch_[worker], keys_.data() + h * chunks_ * kRows * shape_.head_dim,
           values_.data() + h * chunks_ * kRows * values_stride_, k_forms_[h], v_forms_[h]);
    });
  } else {
    std::ranges::fill(k_forms_, Form());
    std::ranges::fill(v_forms_, Form());
  }
  for (auto* forms : {&k_forms_, &v_forms_}) {
    for (Form& form : *forms) form.exact = true;
  }
  const uint32_t first_band = first_ / kBandColumns;
  threads_.run((end_ - 1) / kBandColumns + 1 - first_band,
               [&](uint32_t task, uint32_t) { put_band(own, first_band + task); });
}

void PrefillAttention::put_band(const Rows& own, uint32_t band) {
  const uint32_t from = std::max(first_, band * kBandColumns);
  const uint32_t to = std::min(end_, (band + 1) * kBandColumns);
  const size_t dim = shape_.head_dim, width = shape_.kv_heads * dim;
  const size_t base = size_t{first_chunk_} * kRows;
  for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
    const size_t in = (from - first_) * width + h * dim;
    float* keys = keys_.data() + (h * chunks_ * kRows + band * kBandColumns - base) * dim;
    if (to - from == kBandColumns) {
      engine_kernels().transpose(own.k + in, width, kBandColumns, shape_.head_dim, keys);
    } else {
      for (uint32_t p = from; p < to; ++p) {
        const float* key = own.k + in + (p - from) * width;
        for (size_t j = 0; j < dim; ++j) keys[j * kBandColumns + p % kBandColumns] = key[j];
      }
    }
    for (uint32_t p = from; p < to; ++p) {
      std::copy_n(own.v + in + (p - from) * width, dim,
                  values_.data() + (h * chunks_ * kRows + p - base) * values_stride_);
    }
  }
}

PrefillAttention::Chunk PrefillAttention::chunk_of(const Task& task, uint32_t kv_head,
                                                   Scratch& s) const {
  static const Form kExact{true};
  if (task.chunk < first_chunk_) {
    s.keys.resize(size_t{kRows} * shape_.head_dim);
    s.values.resize(kRows * values_stride_);
    load(kv_head, task.chunk, s, s.keys.data(), s.values.data(), s.k, s.v);
    return {s.keys.data(), s.values.data(), &s.k, &s.v};
  }
  const size_t at = (kv_head * chunks_ + task.chunk - first_chunk_) * kRows;
  const bool first = task.chunk == first_chunk_;
  return {keys_.data() + at * shape_.head_dim, values_.data() + at * values_stride_,
          first ? &k_forms_[kv_head] : &kExact, first ? &v_forms_[kv_head] : &kExact};
}

// The stored rows of a chunk: codes as their values in rotated space, without scales. Rows that
// are not held are left as they are, finite.
void PrefillAttention::load(uint32_t kv_head, uint32_t chunk, Scratch& s, float* keys,
                            float* values, Form& k, Form& v) const {
  const uint32_t dim = shape_.head_dim, base = chunk * kRows, end = std::min(base + kRows, first_);
  s.rows.resize(size_t{kBandColumns} * dim);
  k = Form();
  v = Form();
  for (uint32_t at = base; at < end; at += kBandColumns, keys += size_t{kBandColumns} * dim) {
    load_side(before_->k_side(), before_->k_runs(), kv_head, {at, std::min(at + kBandColumns, end)},
              s, s.rows.data(), dim, k);
    engine_kernels().transpose(s.rows.data(), dim, kBandColumns, dim, keys);
  }
  load_side(before_->v_side(), before_->v_runs(), kv_head, {base, end}, s, values, values_stride_,
            v);
}

// Rows of one side, within a chunk.
void PrefillAttention::load_side(const SideCoding& side,
                                 const std::vector<AttentionRows::Run>& runs, uint32_t kv_head,
                                 RowRange rows, Scratch& s, float* out, size_t stride,
                                 Form& form) const {
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const AttentionRows::Run& r) { return r.end <= rows.first; });
  for (; run != runs.end() && run->first < rows.end; ++run) {
    const uint32_t from = std::max(run->first, rows.first), to = std::min(run->end, rows.end);
    float* first = out + (from - rows.first) * stride;
    if (run->form == RunForm::exact) {
      form.exact = true;
      load_exact(*run, side, kv_head, from, to, first, stride);
      continue;
    }
    form.coded = true;
    std::fill_n(form.is_coded.begin() + from % kRows, to - from, true);
    const size_t at = size_t{kv_head} * run->run_rows + run->run_offset + (from - run->first);
    engine_codec_kernels().f16_to_f32(run->scales + 2 * at, &form.scale[from % kRows], to - from);
    load_codes(run->data + at * code_bytes(side.dim, side.bits), side, to - from, s.codes, first,
               stride);
  }
}

}  // namespace kv
