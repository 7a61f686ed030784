// AVX2 kernels. Only functions marked KV_AVX2 may run these instructions. See kernels.h.
#include <immintrin.h>

#include <cstring>

#include "engine/kernels.h"
#include "engine/packed_avx2.h"

namespace kv {
namespace {

using namespace avx2;

template <TensorType type>
KV_AVX2 void rows_packed(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                         const float* x, const float* sums, float* y) {
  constexpr bool offsets = type == TensorType::q4_1 || type == TensorType::q4_k;
  constexpr bool halves = type == TensorType::q6_k;
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc = _mm256_setzero_ps();
    float offset = 0;
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const float* xg = x + g * 32;
      Group group = unpack<type>(w, g);
      __m256 a = _mm256_mul_ps(floats<0>(group.q), _mm256_loadu_ps(xg));
      a = _mm256_fmadd_ps(floats<1>(group.q), _mm256_loadu_ps(xg + 8), a);
      __m256 b = _mm256_mul_ps(floats<2>(group.q), _mm256_loadu_ps(xg + 16));
      b = _mm256_fmadd_ps(floats<3>(group.q), _mm256_loadu_ps(xg + 24), b);
      if constexpr (halves) {
        acc = _mm256_fmadd_ps(_mm256_set1_ps(group.scale[0]), a, acc);
        acc = _mm256_fmadd_ps(_mm256_set1_ps(group.scale[1]), b, acc);
      } else {
        acc = _mm256_fmadd_ps(_mm256_set1_ps(group.scale[0]), _mm256_add_ps(a, b), acc);
      }
      if constexpr (offsets) offset += group.offset * sums[g];
    }
    y[r] = lanes_sum(acc) + offset;
  }
}

template <TensorType type>
KV_AVX2 void widen_packed(const uint8_t* w, uint32_t columns, float* out) {
  for (uint32_t g = 0; g < columns / 32; ++g, out += 32) {
    Group group = unpack<type>(w, g);
    __m256 low = _mm256_set1_ps(group.scale[0]), high = _mm256_set1_ps(group.scale[1]);
    __m256 offset = _mm256_set1_ps(group.offset);
    auto store = [&](float* at, __m256 q, __m256 scale) KV_AVX2 {
      _mm256_storeu_ps(at, _mm256_add_ps(_mm256_mul_ps(q, scale), offset));
    };
    store(out, floats<0>(group.q), low);
    store(out + 8, floats<1>(group.q), low);
    store(out + 16, floats<2>(group.q), high);
    store(out + 24, floats<3>(group.q), high);
  }
}

KV_AVX2 void rows_f32(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                      const float* x, const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc = _mm256_setzero_ps();
    for (uint32_t j = 0; j < columns; j += 8) {
      __m256 v = _mm256_loadu_ps(reinterpret_cast<const float*>(w + j * 4));
      acc = _mm256_fmadd_ps(v, _mm256_loadu_ps(x + j), acc);
    }
    y[r] = lanes_sum(acc);
  }
}

KV_AVX2 void rows_f16(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                      const float* x, const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc = _mm256_setzero_ps();
    for (uint32_t j = 0; j < columns; j += 8) {
      __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + j * 2));
      acc = _mm256_fmadd_ps(_mm256_cvtph_ps(h), _mm256_loadu_ps(x + j), acc);
    }
    y[r] = lanes_sum(acc);
  }
}

KV_AVX2 void sums_of_groups(const float* x, uint32_t columns, float* out) {
  for (uint32_t g = 0; g < columns / 32; ++g, x += 32) {
    __m256 a = _mm256_add_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
    __m256 b = _mm256_add_ps(_mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24));
    out[g] = lanes_sum(_mm256_add_ps(a, b));
  }
}

KV_AVX2 void widen_f16(const uint8_t* w, uint32_t columns, float* out) {
  for (uint32_t j = 0; j < columns; j += 8) {
    __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + j * 2));
    _mm256_storeu_ps(out + j, _mm256_cvtph_ps(h));
  }
}

void widen_f32(const uint8_t* w, uint32_t columns, float* out) {
  std::memcpy(out, w, columns * sizeof(float));
}

template <TensorType type>
constexpr TypeKernels kPacked = {rows_packed<type>, widen_packed<type>};

constexpr EngineKernels kAvx2 = {"avx2",
                                 {rows_f32, widen_f32},
                                 {rows_f16, widen_f16},
                                 kPacked<TensorType::q4_1>,
                                 kPacked<TensorType::q5_0>,
                                 kPacked<TensorType::q8_0>,
                                 kPacked<TensorType::q4_k>,
                                 kPacked<TensorType::q6_k>,
                                 sums_of_groups};

}  // namespace

const EngineKernels* avx2_engine_kernels() {
  static const bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                __builtin_cpu_supports("f16c");
  return supported ? &kAvx2 : nullptr;
}

}  // namespace kv
