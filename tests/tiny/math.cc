// See math.h. Rotations are computed in float as transformers does.
#include "tests/tiny/math.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/kernels.h"

namespace kv::tiny {
namespace {

constexpr float kEpsilon = 1e-6f;

}  // namespace

void dots(const float* rows, uint32_t count, uint32_t width, const float* x, float* out) {
  engine_codec_kernels().dot_exact(x, rows, count, width, out);
}

void add_rows(const float* rows, uint32_t count, uint32_t width, const float* weights, float* out) {
  engine_codec_kernels().add_exact(weights, rows, count, width, out);
}

void Linear::apply(const float* x, float* y) const { dots(weights.data(), rows, columns, x, y); }

void rms_norm(std::span<float> x, std::span<const float> weight, bool zero_centred) {
  double squares = 0;
  for (float v : x) squares += static_cast<double>(v) * v;
  double mean = squares / static_cast<double>(x.size());
  auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(kEpsilon)));
  for (size_t i = 0; i < x.size(); ++i) {
    float by = weight.empty() ? 1.0f : zero_centred ? 1.0f + weight[i] : weight[i];
    x[i] = x[i] * scale * by;
  }
}

void softmax(std::span<float> scores, const float* sink) {
  float most = sink != nullptr ? *sink : -INFINITY, sum = 0;
  for (float s : scores) most = std::max(most, s);
  for (float& s : scores) sum += s = std::exp(s - most);
  if (sink != nullptr) sum += std::exp(*sink - most);
  for (float& s : scores) s /= sum;
}

float silu(float x) { return x * sigmoid(x); }
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

std::vector<uint32_t> largest(std::span<const float> values, uint32_t count) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  count = std::min<uint32_t>(count, static_cast<uint32_t>(order.size()));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](uint32_t a, uint32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  order.resize(count);
  return order;
}

Rope::Rope(float base, uint32_t dims, uint32_t positions) : half_(dims / 2) {
  cos_sin_.reserve(size_t{positions} * dims);
  for (uint32_t p = 0; p < positions; ++p) {
    for (uint32_t i = 0; i < half_; ++i) {
      float exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
      float frequency = 1.0f / static_cast<float>(std::pow(static_cast<double>(base), exponent));
      float angle = static_cast<float>(p) * frequency;
      cos_sin_.push_back(std::cos(angle));
      cos_sin_.push_back(std::sin(angle));
    }
  }
}

void Rope::halves(uint32_t position, float* x) const {
  const float* t = at(position);
  for (uint32_t i = 0; i < half_; ++i) {
    float a = x[i], b = x[i + half_], c = t[2 * i], s = t[2 * i + 1];
    x[i] = a * c - b * s;
    x[i + half_] = b * c + a * s;
  }
}

void Rope::pairs(uint32_t position, float* x, bool backward) const {
  const float* t = at(position);
  for (uint32_t i = 0; i < half_; ++i) {
    float a = x[2 * i], b = x[2 * i + 1], c = t[2 * i], s = t[2 * i + 1];
    if (backward) s = -s;
    x[2 * i] = a * c - b * s;
    x[2 * i + 1] = b * c + a * s;
  }
}

}  // namespace kv::tiny
