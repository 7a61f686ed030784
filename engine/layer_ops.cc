// See layer_ops.h; Gemma-3's particulars: llama.cpp's llm_build_gemma3, transformers' Gemma3.
#include "engine/layer_ops.h"

#include <cmath>

namespace kv {

void embed(const Model& model, Token token, float* x) {
  const ModelShape& s = model.shape();
  dequantise_row(model.embedding(), static_cast<uint32_t>(token), x);
  if (s.architecture != Architecture::gemma3) return;
  float scale = std::sqrt(static_cast<float>(s.width));
  for (uint32_t i = 0; i < s.width; ++i) x[i] *= scale;
}

namespace {

// In eight sums, so that additions need not wait for each other, and then by halves.
double sum_of_squares(const float* x, size_t n) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const double value = x[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < n; ++i) sums[i % 8] += static_cast<double>(x[i]) * x[i];
  for (size_t half = 4; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

}  // namespace

void rms_norm(const float* x, std::span<const float> weight, float eps, float* out) {
  const double mean = sum_of_squares(x, weight.size()) / static_cast<double>(weight.size());
  auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
  for (size_t i = 0; i < weight.size(); ++i) out[i] = x[i] * scale * weight[i];
}

namespace {

// Pairs are neighbours in arch `llama` (2i, 2i + 1), halves apart in `gemma3` (i, i + dim / 2).
void rotate_pairs(bool halves, std::span<const float> cos_sin, float* x) {
  size_t pairs = cos_sin.size() / 2, apart = halves ? pairs : 1, next = halves ? 1 : 2;
  for (size_t i = 0; i < pairs; ++i, x += next) {
    float a = x[0], b = x[apart], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
    x[0] = a * c - b * s;
    x[apart] = a * s + b * c;
  }
}

}  // namespace

void finish_heads(const ModelShape& shape, std::span<const float> norm,
                  std::span<const float> cos_sin, uint32_t heads, float* x) {
  for (uint32_t h = 0; h < heads; ++h, x += cos_sin.size()) {
    if (!norm.empty()) rms_norm(x, norm, shape.rms_eps, x);
    rotate_pairs(shape.architecture == Architecture::gemma3, cos_sin, x);
  }
}

// Both are g / (1 + e^-z): silu with z = g, gelu (tanh) with z = 2 sqrt(2 / pi) (g + .044715 g^3).
// From e^-|z|, so that nothing overflows.
void gate_times(const ModelShape& shape, float* gate, const float* up, float* work,
                const Kernels& kernels) {
  constexpr float kTwice = 1.5957691216057308f;
  const bool gelu = shape.architecture == Architecture::gemma3;
  auto exponent = [gelu](float g) { return gelu ? kTwice * (g + 0.044715f * g * g * g) : g; };
  for (uint32_t i = 0; i < shape.ffn; ++i) work[i] = -std::fabs(exponent(gate[i]));
  kernels.exp_weights(work, shape.ffn, 0.0f);
  for (uint32_t i = 0; i < shape.ffn; ++i) {
    float e = work[i];
    gate[i] = gate[i] * ((gate[i] >= 0 ? 1.0f : e) / (1.0f + e)) * up[i];
  }
}

void add_branch(const ModelShape& shape, std::span<const float> norm, float* branch, float* x) {
  if (!norm.empty()) rms_norm(branch, norm, shape.rms_eps, branch);
  for (uint32_t i = 0; i < shape.width; ++i) x[i] += branch[i];
}

float attention_scale(const ModelShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
}

RowLimit row_limit(const ModelShape& shape, uint32_t layer, uint32_t position) {
  RowLimit limit;
  if (shape.windowed(layer) && position >= shape.window) limit.first = position + 1 - shape.window;
  return limit;
}

}  // namespace kv
