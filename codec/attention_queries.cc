// PreparedQueries: queries scaled, rotated and rounded once, for every row they will meet.
//
// codec/TURBOQUANT.md, "Attention". One thread at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/attention.h"
#include "codec/turboquant.h"

namespace kv {
namespace {

/// Rotated queries are rounded to int16, and scaled so that no sum of their products with code
/// values leaves int32: |sum| <= |query| * sqrt(dim) * largest code value (Cauchy-Schwarz, also for
/// every part of the sum). 2.1e9 leaves room for the rounding.
constexpr float kQueryMax = 32767.0f;
constexpr double kDotMax = 2.1e9;
constexpr int kCodeMax8 = 128;  // of damaged 8-bit codes; sound ones stop at 127

// Rounds a rotated query to int16; returns the value of one step, NaN if the query isn't finite.
float round_query(std::span<const float> query, uint8_t bits, int16_t* out) {
  float top = 0;
  double square = 0;
  std::fill_n(out, query.size(), int16_t{0});
  for (float x : query) {
    top = std::max(top, std::fabs(x));
    square += double{x} * x;
  }
  if (!std::isfinite(square)) return std::numeric_limits<float>::quiet_NaN();
  if (top < 1e-30f) return 0;
  const double code = bits == 8 ? kCodeMax8 : code_max(bits);
  const double norm_max = kDotMax / (std::sqrt(static_cast<double>(query.size())) * code);
  const float to_int = std::min(kQueryMax / top, static_cast<float>(norm_max / std::sqrt(square)));
  for (size_t j = 0; j < query.size(); ++j) {
    out[j] = static_cast<int16_t>(std::min<long>(std::lrint(query[j] * to_int), 32767));
  }
  return 1.0f / to_int;
}

}  // namespace

void PreparedQueries::prepare(const Codec& codec, uint32_t layer, uint32_t part, uint32_t kv_head,
                              std::span<const float> queries, float scale,
                              std::span<const RowLimit> limits) {
  const SideCoding* side = codec.side(layer, part, Side::k);
  KV_CHECK(side != nullptr && kv_head < side->heads && queries.size() % side->dim == 0);
  const uint32_t dim = side->dim;
  codec_ = &codec;
  count_ = static_cast<uint32_t>(queries.size() / dim);
  layer_ = layer;
  part_ = part;
  kv_head_ = kv_head;
  k_stride_ = (dim + 7) / 8 * 8;
  KV_CHECK(limits.empty() || limits.size() == count_);
  limits_.assign(limits.begin(), limits.end());
  exact_.assign(size_t{count_} * k_stride_, 0.0f);
  rotated_.assign(side->bits != 0 ? size_t{count_} * query_width(dim) : 0, 0);
  rounded_.resize(dim);
  factor_.assign(count_, 0.0f);
  mean_score_.assign(count_, 0.0f);
  work_.resize(dim);
  const float unit = code_unit(side->bits) / rotation_norm(dim);
  for (uint32_t i = 0; i < count_; ++i) {
    float* exact = exact_.data() + size_t{i} * k_stride_;
    for (uint32_t j = 0; j < dim; ++j) exact[j] = queries[size_t{i} * dim + j] * scale;
    if (side->bits == 0) continue;
    std::copy_n(exact, dim, work_.begin());
    if (!side->mean.empty()) {
      const float* mean = side->mean.data() + size_t{kv_head} * dim;
      const float* inverse_gain = side->inverse_gain.data() + size_t{kv_head} * dim;
      double mean_score = 0;
      for (uint32_t j = 0; j < dim; ++j) {
        mean_score += double{exact[j]} * mean[j];
        work_[j] *= inverse_gain[j];
      }
      mean_score_[i] = static_cast<float>(mean_score);
    }
    codec.kernels().rotate(work_.data(), dim, side->signs->data());
    factor_[i] = unit * round_query(work_, side->bits, rounded_.data());
    codec.kernels().order_query(rounded_.data(), dim, side->bits,
                                rotated_.data() + size_t{i} * query_width(dim));
  }
}

}  // namespace kv
