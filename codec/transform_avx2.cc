// The AVX2 kernels of transform coding: eight states a register, 4 x 16 values of a product.
//
// Everything after the pragma must only run after avx2_kernels() has asked the machine. Pure
// functions, any thread.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>

#include "codec/kernels_avx2.h"
#include "codec/transform_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace kv {
namespace {

// For every mask of lanes that take a word: which of the next eight each takes, a byte a lane.
constexpr std::array<uint64_t, 256> kTakes = [] {
  std::array<uint64_t, 256> takes{};
  for (uint32_t mask = 0; mask < 256; ++mask) {
    uint64_t next = 0;
    for (uint32_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) takes[mask] |= next++ << (8 * lane);
    }
  }
  return takes;
}();

// Eight states one step on; their values.
KV_INLINE __m256i step_eight(__m256i& x, const uint16_t*& words, const uint32_t* table) {
  const __m256i low = _mm256_set1_epi32(4095);
  const __m256i entry =
      _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), _mm256_and_si256(x, low), 4);
  const __m256i offset = _mm256_and_si256(_mm256_srli_epi32(entry, 12), low);
  x = _mm256_add_epi32(_mm256_mullo_epi32(_mm256_and_si256(entry, low), _mm256_srli_epi32(x, 12)),
                       offset);
  const __m256i needs = _mm256_cmpeq_epi32(_mm256_srli_epi32(x, 16), _mm256_setzero_si256());
  const auto mask = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(needs)));
  const __m256i takes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(kTakes[mask])));
  const __m256i next =
      _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(avx2::load_half(words)), takes);
  x = _mm256_blendv_epi8(x, _mm256_or_si256(_mm256_slli_epi32(x, 16), next), needs);
  words += std::popcount(mask);
  return _mm256_srai_epi32(entry, 24);
}

KV_INLINE __m256i join(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
}

size_t decode_integers(uint32_t* states, const uint16_t* words, size_t word_count,
                       const uint32_t* table, size_t count, int16_t* out) {
  const uint16_t *at = words, *end = words + word_count;
  size_t i = 0;
  __m256i a = avx2::load(states), b = avx2::load(states + 8), c = avx2::load(states + 16),
          d = avx2::load(states + 24);
  // A step takes up to 32 words and reads 8 of them at a time.
  for (; i + kLanes <= count && end - at >= kLanes + 8; i += kLanes) {
    const __m256i va = step_eight(a, at, table), vb = step_eight(b, at, table);
    avx2::store(out + i, join(va, vb));
    const __m256i vc = step_eight(c, at, table), vd = step_eight(d, at, table);
    avx2::store(out + i + 16, join(vc, vd));
  }
  avx2::store(states, a), avx2::store(states + 8, b);
  avx2::store(states + 16, c), avx2::store(states + 24, d);
  for (; i < count; i += kLanes) {
    const size_t some = std::min<size_t>(kLanes, count - i);
    if (!step_states(states, at, end, table, some, out + i)) return kNoWords;
  }
  return static_cast<size_t>(at - words);
}

void make_tiles(const int16_t* integers, size_t stride, size_t count, size_t tiles,
                ProductTile* out) {
  for (size_t t = 0; t < tiles; t += 4, integers += 16, out += 4) {
    uint32_t counts[4] = {};
    for (size_t k = 0; k < count; ++k) {
      const int16_t* row = integers + k * stride;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m128i four = _mm_cvtepi16_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + i * kProductRows)));
        _mm_storeu_ps(out[i].values[counts[i]], _mm_cvtepi32_ps(four));
        out[i].which[counts[i]] = static_cast<uint16_t>(k);
        counts[i] += _mm_testz_si128(four, four) == 0;
      }
    }
    for (int i = 0; i < 4; ++i) out[i].count = counts[i];
  }
}

// A tile's rows times sixteen columns of `stride`.
[[gnu::noinline]] void add_tile(const ProductTile& tile, const float* panel, size_t stride,
                                const float* from, size_t from_stride, float* to,
                                size_t to_stride) {
  __m256 sums[kProductRows][2];
#pragma GCC unroll 4  // so that arrays are registers
  for (uint32_t r = 0; r < kProductRows; ++r) {
    sums[r][0] = _mm256_loadu_ps(from + r * from_stride);
    sums[r][1] = _mm256_loadu_ps(from + r * from_stride + 8);
  }
  auto step = [&](size_t k) KV_LAMBDA_INLINE {
    const float* values = panel + tile.which[k] * stride;
    const __m256 m0 = _mm256_loadu_ps(values), m1 = _mm256_loadu_ps(values + 8);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kProductRows; ++r) {
      const __m256 x = _mm256_broadcast_ss(&tile.values[k][r]);
      sums[r][0] = _mm256_fmadd_ps(x, m0, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(x, m1, sums[r][1]);
    }
  };
  size_t k = 0;
  for (; k + 4 <= tile.count; k += 4) {
    step(k), step(k + 1), step(k + 2), step(k + 3);
  }
  for (; k < tile.count; ++k) step(k);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kProductRows; ++r) {
    _mm256_storeu_ps(to + r * to_stride, sums[r][0]);
    _mm256_storeu_ps(to + r * to_stride + 8, sums[r][1]);
  }
}

void add_product(const ProductTile* in, size_t tiles, const float* panel, size_t columns,
                 const float* from, size_t from_stride, float* to, size_t to_stride,
                 IntegerRun&) {  // eight lanes have no units to spare
  for (size_t t = 0; t < tiles; ++t) {
    for (size_t j = 0; j < columns; j += 16) {
      add_tile(in[t], panel + j, columns, from + j, from_stride, to + j, to_stride);
    }
    from += kProductRows * from_stride;
    to += kProductRows * to_stride;
  }
}

}  // namespace

const TransformKernels& avx2_transform_kernels() {
  static constexpr TransformKernels kAvx2 = {decode_integers, make_tiles, add_product};
  return kAvx2;
}

}  // namespace kv

#pragma GCC pop_options
