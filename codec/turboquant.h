// TurboQuant's constants: codebook 1 in fixed point, thresholds, signs (codec/TURBOQUANT.md).
//
// Everything here is part of the format: a change needs a new codebook or codec version.
// Constants and pure functions, any thread.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kv {

/// Code values of 1 to 4 bit are multiples of 1/512 of a standard deviation.
inline constexpr float kCodeUnit = 1.0f / 512.0f;
/// Rotated values are compared on a grid of 1/8192 of a standard deviation.
inline constexpr float kGrid = 8192.0f;
inline constexpr int32_t kGridMax = 32767;
/// Squares of centroids are summed in units of 1/8192.
inline constexpr float kSquareUnit = 1.0f / 8192.0f;
/// Vectors of a smaller norm are stored as zero: their scale would be 0 in fp16 anyway.
inline constexpr float kNormMin = 1e-12f;
/// Tiles of weights whose largest is smaller than this count as zero (attention).
inline constexpr float kWeightMin = 1e-30f;
/// exp_weights: weights below exp(-87) of the largest are 0.
inline constexpr float kExpMin = -87.0f;

/// The positive half of a symmetric Lloyd-Max quantizer for N(0,1), 2^(bits-1) cells.
struct HalfCodebook {
  int cells = 0;
  std::array<int16_t, 8> value{};      ///< centroid in units of 1/512
  std::array<uint16_t, 8> square{};    ///< centroid squared in units of 1/8192
  std::array<int16_t, 7> threshold{};  ///< cell k + 1 begins above threshold[k], in units of 1/8192
};

namespace codebook_detail {
inline constexpr std::array<double, 1> kCentroids1{0.797884560802865356};
// Lloyd-Max for N(0,1) to 18 decimals (Newton in quad precision); MSE .11748, .034548, .0095010.
inline constexpr std::array<double, 2> kCentroids2{0.452780034636492009, 1.510417608499095402};
inline constexpr std::array<double, 1> kThresholds2{0.981598821567793706};
inline constexpr std::array<double, 4> kCentroids3{0.245094178944221668, 0.756005281205877275,
                                                   1.343909278504999875, 2.151945704536987285};
inline constexpr std::array<double, 3> kThresholds3{0.500549730075049472, 1.049957279855438575,
                                                    1.747927491520993580};
inline constexpr std::array<double, 8> kCentroids4{
    0.128395029851147010, 0.388048299490290197, 0.656759118532463381, 0.942340456486961371,
    1.256231197347177152, 1.618046386021882627, 2.069017226531386580, 2.732589570995163069};
inline constexpr std::array<double, 7> kThresholds4{
    0.258221664670718603, 0.522403709011376789, 0.799549787509712376, 1.099285826917069262,
    1.437138791684529890, 1.843531806276634603, 2.400803398763274824};

template <size_t N>
constexpr HalfCodebook make(const std::array<double, N>& centroids,
                            const std::array<double, N - 1>& thresholds) {
  HalfCodebook book;
  book.cells = N;
  for (size_t i = 0; i < N; ++i) {
    book.value[i] = static_cast<int16_t>(centroids[i] * 512 + 0.5);
    book.square[i] = static_cast<uint16_t>(centroids[i] * centroids[i] * 8192 + 0.5);
  }
  // A value u > floor(t * 8192) on the rounded grid means |z| >= floor(t * 8192) + 1/2: at most
  // half a grid step from t.
  for (size_t i = 0; i + 1 < N; ++i) {
    book.threshold[i] = static_cast<int16_t>(thresholds[i] * 8192);
  }
  return book;
}
}  // namespace codebook_detail

/// The square counts as 1: of one bit the error is least with Lloyd-Max's own scale, a tenth less
/// than with the original's norm.
inline constexpr HalfCodebook kCodebook1 = [] {
  HalfCodebook book = codebook_detail::make(codebook_detail::kCentroids1, {});
  book.square[0] = 8192;
  return book;
}();
inline constexpr HalfCodebook kCodebook2 =
    codebook_detail::make(codebook_detail::kCentroids2, codebook_detail::kThresholds2);
inline constexpr HalfCodebook kCodebook3 =
    codebook_detail::make(codebook_detail::kCentroids3, codebook_detail::kThresholds3);
inline constexpr HalfCodebook kCodebook4 =
    codebook_detail::make(codebook_detail::kCentroids4, codebook_detail::kThresholds4);

/// `bits` is 1, 2, 3 or 4.
constexpr const HalfCodebook& half_codebook(uint8_t bits) {
  return bits == 1 ? kCodebook1 : bits == 2 ? kCodebook2 : bits == 3 ? kCodebook3 : kCodebook4;
}

/// Indices without compares. Thresholds are more than 2,048 grid steps apart, so that among as many
/// from a multiple on the index has at most one step, and that of a grid value u is
/// (u + step[u >> 11]) >> 11 in words of 16 bits that wrap.
inline constexpr int kStepBits = 11;
using IndexSteps = std::array<uint16_t, 32>;
constexpr IndexSteps index_steps(uint8_t bits) {
  const HalfCodebook& book = half_codebook(bits);
  auto index_of = [&](int32_t u) {
    int32_t cell = 0;
    for (int k = 0; k + 1 < book.cells; ++k) cell += (u < 0 ? -u : u) > book.threshold[k];
    return u < 0 ? book.cells - 1 - cell : book.cells + cell;
  };
  IndexSteps steps{};
  for (int32_t bucket = -16; bucket < 16; ++bucket) {
    const int32_t first = bucket * (1 << kStepBits), last = first + (1 << kStepBits) - 1;
    int32_t index = index_of(first), from = first;
    for (int k = 0; k + 1 < book.cells && index_of(last) > index; ++k) {
      const int32_t at = first < 0 ? -book.threshold[k] : book.threshold[k] + 1;
      if (at > first && at <= last) from = at;
    }
    if (from > first) ++index;
    steps[static_cast<uint32_t>(bucket + 32) % 32] =
        static_cast<uint16_t>(index * (1 << kStepBits) - from);
  }
  return steps;
}

/// The value of code `index` in units of 1/512; indices ascend with the value.
constexpr int16_t code_value(uint8_t bits, uint32_t index) {
  const HalfCodebook& book = half_codebook(bits);
  uint32_t half = static_cast<uint32_t>(book.cells);
  return index >= half ? book.value[index - half]
                       : static_cast<int16_t>(-book.value[half - 1 - index]);
}

/// The worth of one unit of an unpacked code before the scale.
constexpr float code_unit(uint8_t bits) { return bits == 8 ? 1.0f : kCodeUnit; }
/// The largest magnitude of an unpacked code.
constexpr int32_t code_max(uint8_t bits) {
  return bits == 8 ? 127 : half_codebook(bits).value[half_codebook(bits).cells - 1];
}

/// Lengths of coded vectors are within these, and a multiple of 4 (codable_dim).
inline constexpr uint32_t kMinCodedDim = 32;
inline constexpr uint32_t kMaxCodedDim = 512;
/// A larger prime factor of the length would mix too little (TURBOQUANT.md, "Rotation").
inline constexpr uint32_t kMaxOddFactor = 7;

/// How the values of a vector are rotated: value (a * odd + g) * stripe + b, with b < stripe, takes
/// part in a Walsh-Hadamard transform over b and a, and in one over g with a small orthogonal
/// matrix for every prime factor of `odd`.
struct RotationShape {
  uint32_t odd;     ///< the odd part of the vector's length; 1: Walsh-Hadamard alone
  uint32_t stripe;  ///< 8, or the length's power of two where that is less
};
constexpr RotationShape rotation_shape(uint32_t dim) {
  const uint32_t power = dim & (0 - dim);
  return {dim / power, power < 8 ? power : 8};
}
/// The matrix of the rotation is integer: |M x| = rotation_norm(dim) * |x|.
inline float rotation_norm(uint32_t dim) {
  return std::sqrt(static_cast<float>(dim * rotation_shape(dim).odd));
}
/// The root mean square of M x over the norm of x: 1 for powers of two.
inline float rotation_spread(uint32_t dim) {
  return std::sqrt(static_cast<float>(rotation_shape(dim).odd));
}
/// Calls step(p, stride) for every prime factor p of `odd`, ascending, with the distance between
/// the values that it mixes.
template <typename Step>
constexpr void for_each_odd_factor(RotationShape shape, Step step) {
  uint32_t rest = shape.odd, stride = shape.stripe;
  for (uint32_t p = 3; rest > 1; p += 2) {
    for (; rest % p == 0; rest /= p, stride *= p) step(p, stride);
  }
}

/// +1 or -1 per dim, from SplitMix64 with state rotation_seed ^ (dim << 32): bits are taken lowest
/// first, a set bit is -1.
std::vector<float> rotation_signs(uint64_t rotation_seed, uint32_t dim);

}  // namespace kv
