// The arithmetic of the tiny models: plain float code over one token's vectors.
//
// Every function's order of summation is fixed by its sizes, so a token's values are a function of
// the token and of the rows and states before it, bit for bit. Pure, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/tiny/formula.h"

namespace kv::tiny {

/// y (rows) = W x, x (columns); columns is a multiple of 8.
struct Linear {
  uint32_t rows = 0, columns = 0;
  std::vector<float> weights;

  Linear() = default;
  Linear(const Formula& formula, const std::string& name, uint32_t outputs, uint32_t inputs)
      : rows(outputs), columns(inputs), weights(formula.tensor(name, {outputs, inputs})) {}
  void apply(const float* x, float* y) const;
};

/// out[r] = row r . x, for `count` rows of `width` values, a multiple of 8, that lie in sequence.
void dots(const float* rows, uint32_t count, uint32_t width, const float* x, float* out);
/// out (width) += the sum of weights[r] * row r over `count` such rows, in order.
void add_rows(const float* rows, uint32_t count, uint32_t width, const float* weights, float* out);

/// In place: x / rms(x), times weight (empty: ones) or, zero-centred, times 1 + weight.
void rms_norm(std::span<float> x, std::span<const float> weight, bool zero_centred = false);
/// In place: weights that sum to 1. With `sink`, one more score takes part and is left out.
void softmax(std::span<float> scores, const float* sink = nullptr);
float silu(float x);
float sigmoid(float x);
float softplus(float x);
/// Indices of the `count` largest, best first, of equal ones the lowest.
std::vector<uint32_t> largest(std::span<const float> values, uint32_t count);

/// Rotations of `dims` channels at every position below `positions`.
class Rope {
 public:
  Rope() = default;
  Rope(float base, uint32_t dims, uint32_t positions);
  uint32_t dims() const { return 2 * half_; }
  /// In place: pairs (i, i + dims/2).
  void halves(uint32_t position, float* x) const;
  /// In place: pairs (2i, 2i + 1); `backward` undoes it.
  void pairs(uint32_t position, float* x, bool backward = false) const;

 private:
  const float* at(uint32_t position) const {
    return cos_sin_.data() + size_t{2} * half_ * position;
  }
  uint32_t half_ = 0;
  std::vector<float> cos_sin_;  // (positions, half, 2)
};

}  // namespace kv::tiny
