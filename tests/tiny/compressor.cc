// See compressor.h.
#include "tests/tiny/compressor.h"

#include <algorithm>
#include <cmath>

#include "tests/tiny/state.h"

namespace kv::tiny {

Compressor::Compressor(const Formula& f, const std::string& name, uint32_t rate, uint32_t dim,
                       bool overlap)
    : rate_(rate),
      dim_(dim),
      wide_(overlap ? 2 * dim : dim),
      overlap_(overlap),
      values_(f, name + ".kv_proj.weight", wide_, kWidth),
      gates_(f, name + ".gate_proj.weight", wide_, kWidth),
      bias_(f.tensor(name + ".position_bias", {rate, wide_})),
      norm_(f.tensor(name + ".kv_norm.weight", {dim})) {}

PartSpec Compressor::part() const {
  PartSpec p;
  p.kind = PartKind::pooled;
  p.dtype = DType::f32;
  p.heads = 1;
  p.k_dim = dim_;
  p.rate = rate_;
  p.overlap = overlap_;
  return p;
}

// The row of the group that `carry` ends with, before its rotation.
std::vector<float> Compressor::row_of(const std::vector<float>& carry, bool first_group) const {
  const float* before = carry.data();  // values, gates of series A of the group before
  const float* group = carry.data() + (overlap_ && !first_group ? 2 * rate_ * dim_ : 0);
  uint32_t own = wide_ - dim_;  // where series B begins
  std::vector<float> row(dim_), gates, values;
  for (uint32_t c = 0; c < dim_; ++c) {
    gates.clear();
    values.clear();
    for (uint32_t t = 0; overlap_ && !first_group && t < rate_; ++t) {
      values.push_back(before[t * dim_ + c]);
      gates.push_back(before[(rate_ + t) * dim_ + c]);
    }
    for (uint32_t t = 0; t < rate_; ++t) {
      values.push_back(group[2 * t * wide_ + own + c]);
      gates.push_back(group[(2 * t + 1) * wide_ + own + c] + bias_[t * wide_ + own + c]);
    }
    softmax(gates);
    for (size_t i = 0; i < values.size(); ++i) row[c] += gates[i] * values[i];
  }
  rms_norm(row, norm_);
  return row;
}

// Series A of a complete group, for the next one.
std::vector<float> Compressor::next_overlap(const float* group) const {
  std::vector<float> out(size_t{2} * rate_ * dim_);
  for (uint32_t t = 0; t < rate_; ++t) {
    for (uint32_t c = 0; c < dim_; ++c) {
      out[t * dim_ + c] = group[2 * t * wide_ + c];
      out[(rate_ + t) * dim_ + c] = group[(2 * t + 1) * wide_ + c] + bias_[t * wide_ + c];
    }
  }
  return out;
}

Status Compressor::add(uint32_t layer, uint32_t part, const float* x, const Rope& rope,
                       KvCache& cache) const {
  uint32_t n = cache.tokens();
  KV_ASSIGN_OR_RETURN(auto carry, load_state(cache, layer, part));
  size_t held = carry.size(), overlap = overlap_ && n >= rate_ ? size_t{2} * rate_ * dim_ : 0;
  carry.resize(held + 2 * wide_);
  values_.apply(x, carry.data() + held);
  gates_.apply(x, carry.data() + held + wide_);
  if ((n + 1) % rate_ == 0) {
    std::vector<float> row = row_of(carry, n < rate_);
    rope.pairs(n + 1 - rate_, row.data() + dim_ - rope.dims());
    KV_RETURN_IF_ERROR(cache.append_rows(layer, part, 1, row.data()));
    carry = overlap_ ? next_overlap(carry.data() + overlap) : std::vector<float>();
  }
  store_state(cache, layer, part, carry);
  return {};
}

}  // namespace kv::tiny
