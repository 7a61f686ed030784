// The AVX-512 kernels of transform coding: sixteen states a register, 4 x 64 values of a product.
//
// Everything after the pragma must only run after avx512_kernels() has asked the machine. Pure
// functions, any thread.
#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "codec/kernels_avx2.h"
#include "codec/transform_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,popcnt,avx512f,avx512bw,avx512dq,avx512vl")

namespace kv {
namespace {

constexpr size_t kStepsBeside = 8;  // of a product for one of a run

// Sixteen states one step on; their values are stored.
KV_INLINE void step_sixteen(__m512i& x, const uint16_t*& words, const uint32_t* table,
                            int16_t* out) {
  const __m512i low = _mm512_set1_epi32(4095);
  const __m512i entry = _mm512_i32gather_epi32(_mm512_and_si512(x, low), table, 4);
  const __m512i offset = _mm512_and_si512(_mm512_srli_epi32(entry, 12), low);
  x = _mm512_add_epi32(_mm512_mullo_epi32(_mm512_and_si512(entry, low), _mm512_srli_epi32(x, 12)),
                       offset);
  const __mmask16 needs = _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(1 << 16));
  const __m512i next = _mm512_maskz_expand_epi32(needs, _mm512_cvtepu16_epi32(avx2::load(words)));
  x = _mm512_mask_or_epi32(x, needs, _mm512_slli_epi32(x, 16), next);
  words += std::popcount(static_cast<uint32_t>(needs));
  avx2::store(out, _mm512_cvtepi32_epi16(_mm512_srai_epi32(entry, 24)));
}

size_t decode_integers(uint32_t* states, const uint16_t* words, size_t word_count,
                       const uint32_t* table, size_t count, int16_t* out) {
  const uint16_t *at = words, *end = words + word_count;
  size_t i = 0;
  __m512i a = _mm512_loadu_si512(states), b = _mm512_loadu_si512(states + 16);
  // A step takes up to 32 words and reads 16 of them at a time.
  for (; i + kLanes <= count && end - at >= kLanes + 16; i += kLanes) {
    step_sixteen(a, at, table, out + i);
    step_sixteen(b, at, table, out + i + 16);
  }
  _mm512_storeu_si512(states, a), _mm512_storeu_si512(states + 16, b);
  for (; i < count; i += kLanes) {
    const size_t some = std::min<size_t>(kLanes, count - i);
    if (!step_states(states, at, end, table, some, out + i)) return kNoWords;
  }
  return static_cast<size_t>(at - words);
}

// Half of the run's next step.
KV_INLINE void take_beside(IntegerRun& run) {
  if (run.at == run.end) return;
  uint32_t* states = run.states + run.at % kLanes;
  __m512i x = _mm512_loadu_si512(states);
  step_sixteen(x, run.words, run.table, run.out + run.at);
  _mm512_storeu_si512(states, x);
  run.at += 16;
}

// Four rows of one component into the tiles of 16 rows.
void make_tiles(const int16_t* integers, size_t stride, size_t count, size_t tiles,
                ProductTile* out) {
  for (size_t t = 0; t < tiles; t += 4, integers += 16, out += 4) {
    uint32_t counts[4] = {};
    for (size_t k = 0; k < count; ++k) {
      const __m512i row = _mm512_cvtepi16_epi32(avx2::load(integers + k * stride));
      const __m512 values = _mm512_cvtepi32_ps(row);
      const uint32_t any = _mm512_test_epi32_mask(row, row);
      const __m128 parts[4] = {_mm512_castps512_ps128(values), _mm512_extractf32x4_ps(values, 1),
                               _mm512_extractf32x4_ps(values, 2),
                               _mm512_extractf32x4_ps(values, 3)};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        _mm_storeu_ps(out[i].values[counts[i]], parts[i]);
        out[i].which[counts[i]] = static_cast<uint16_t>(k);
        counts[i] += (any >> (4 * i) & 15) != 0;
      }
    }
    for (int i = 0; i < 4; ++i) out[i].count = counts[i];
  }
}

// A tile's rows times 16 * vectors columns.
template <int vectors>
[[gnu::noinline]] void add_tile(const ProductTile& tile, const float* panel, const float* from,
                                size_t from_stride, float* to, size_t to_stride, IntegerRun& run) {
  __m512 sums[kProductRows][vectors];
#pragma GCC unroll 4  // so that arrays are registers
  for (uint32_t r = 0; r < kProductRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_loadu_ps(from + r * from_stride + 16 * v);
  }
  auto step = [&](size_t k) KV_LAMBDA_INLINE {
    const float* values = panel + size_t{tile.which[k]} * 16 * vectors;
    __m512 m[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) m[v] = _mm512_loadu_ps(values + 16 * v);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kProductRows; ++r) {
      const __m512 x = _mm512_set1_ps(tile.values[k][r]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_fmadd_ps(x, m[v], sums[r][v]);
    }
  };
  size_t k = 0;
  for (; k + 2 <= tile.count; k += 2) {
    if (k % kStepsBeside == 0) take_beside(run);
    step(k);
    step(k + 1);
  }
  if (k < tile.count) step(k);
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kProductRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(to + r * to_stride + 16 * v, sums[r][v]);
  }
}

void add_product(const ProductTile* in, size_t tiles, const float* panel, size_t columns,
                 const float* from, size_t from_stride, float* to, size_t to_stride,
                 IntegerRun& beside) {
  for (size_t t = 0; t < tiles; ++t) {
    if (columns == kPanelColumns) {
      add_tile<4>(in[t], panel, from, from_stride, to, to_stride, beside);
    } else {
      add_tile<2>(in[t], panel, from, from_stride, to, to_stride, beside);
    }
    from += kProductRows * from_stride;
    to += kProductRows * to_stride;
  }
}

}  // namespace

const TransformKernels& avx512_transform_kernels() {
  static constexpr TransformKernels kAvx512 = {decode_integers, make_tiles, add_product};
  return kAvx512;
}

}  // namespace kv

#pragma GCC pop_options
