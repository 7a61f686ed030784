// The AVX2 kernel that turns packed codes into code values: every layout of TURBOQUANT.md.
//
// Everything after the pragma must only run after avx2_kernels() has asked the machine. Pure
// functions, any thread.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "codec/code_order.h"
#include "codec/kernels.h"
#include "codec/kernels_avx2.h"
#include "codec/turboquant.h"
#include "proto/plane.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace kv::avx2 {
namespace {

// 32 indices in order → 32 code values.
KV_INLINE void look_up(const ValueTables& t, __m256i index, int16_t* out) {
  index = _mm256_permute4x64_epi64(index, 0xD8);  // so that the unpacks give 0-15 and 16-31
  __m256i low = _mm256_shuffle_epi8(t.low, index), high = _mm256_shuffle_epi8(t.high, index);
  store(out, _mm256_unpacklo_epi8(low, high));
  store(out + 16, _mm256_unpackhi_epi8(low, high));
}

template <uint32_t dim>
KV_INLINE void unpack4(const uint8_t* codes, const ValueTables& t, int16_t* out) {
  const __m256i nibble = _mm256_set1_epi8(15);
  if constexpr (dim == 32) {
    __m128i c = load_half(codes);
    __m256i both = _mm256_set_m128i(_mm_srli_epi16(c, 4), c);
    look_up(t, _mm256_and_si256(both, nibble), out);
  } else {
    for (uint32_t j = 0; j < dim / 2; j += 32) {
      __m256i c = load(codes + j);
      look_up(t, _mm256_and_si256(c, nibble), out + j);
      look_up(t, _mm256_and_si256(_mm256_srli_epi16(c, 4), nibble), out + dim / 2 + j);
    }
  }
}

// The low two bits of dims 32 r … 32 r + 31, one per byte.
template <uint32_t dim>
KV_INLINE __m256i two_bits(const uint8_t* codes, uint32_t r) {
  const __m256i mask = _mm256_set1_epi8(3);
  const int shift = static_cast<int>(2 * (32 * r / (dim / 4)));  // of the first dim
  if constexpr (dim >= 128) {
    __m256i c = load(codes + 32 * r % (dim / 4));
    return _mm256_and_si256(_mm256_srl_epi16(c, _mm_cvtsi32_si128(shift)), mask);
  } else if constexpr (dim == 64) {
    __m256i c = _mm256_broadcastsi128_si256(load_half(codes));
    const int next = shift + 2;
    __m256i shifts = _mm256_setr_epi32(shift, shift, shift, shift, next, next, next, next);
    return _mm256_and_si256(_mm256_srlv_epi32(c, shifts), mask);
  } else {
    int64_t word;
    std::memcpy(&word, codes, 8);
    __m256i shifts = _mm256_setr_epi64x(0, 2, 4, 6);
    return _mm256_and_si256(_mm256_srlv_epi64(_mm256_set1_epi64x(word), shifts), mask);
  }
}

// `value` where the bit of a dim is set, of dims 32 r … 32 r + 31, from a plane of one bit each.
template <uint32_t dim>
KV_INLINE __m256i one_bit(const uint8_t* plane, uint32_t r, char value) {
  const int bit = static_cast<int>(32 * r / (dim / 8));  // bit of the first dim
  __m256i bytes, mask;
  if constexpr (dim == 256) {
    bytes = load(plane);
    mask = _mm256_set1_epi8(static_cast<char>(1 << bit));
  } else if constexpr (dim == 128) {
    bytes = _mm256_broadcastsi128_si256(load_half(plane));
    mask = _mm256_set_m128i(_mm_set1_epi8(static_cast<char>(2 << bit)),
                            _mm_set1_epi8(static_cast<char>(1 << bit)));
  } else if constexpr (dim == 64) {
    int64_t word;
    std::memcpy(&word, plane, 8);
    bytes = _mm256_set1_epi64x(word);
    const int64_t one = int64_t{0x0101010101010101} << bit;
    mask = _mm256_setr_epi64x(one, one << 1, one << 2, one << 3);
  } else {
    int32_t word;
    std::memcpy(&word, plane, 4);
    bytes = _mm256_set1_epi32(word);
    mask =
        _mm256_sllv_epi32(_mm256_set1_epi32(0x01010101), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, mask), mask);
  return _mm256_and_si256(set, _mm256_set1_epi8(value));
}

template <uint32_t dim, uint8_t bits>
KV_INLINE void unpack_rows(const uint8_t* codes, size_t rows, int16_t* out) {
  constexpr size_t kBytes = dim * bits / 8;
  if constexpr (bits == 8) {
    for (size_t i = 0; i < rows * dim; i += 16) {
      store(out + i, _mm256_cvtepi8_epi16(load_half(codes + i)));
    }
  } else {
    static constexpr ByteTable kLow = value_table<bits>(0), kHigh = value_table<bits>(8);
    const ValueTables tables{kLow.load_both(), kHigh.load_both()};
    for (size_t row = 0; row < rows; ++row, codes += kBytes, out += dim) {
      // A head's rows are one stream, read tile by tile with other work in between.
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2 * kTileRows * kBytes, _MM_HINT_T0);
      if constexpr (bits == 4) {
        unpack4<dim>(codes, tables, out);
      } else {
        for (uint32_t r = 0; r < dim / 32; ++r) {
          __m256i index;
          if constexpr (bits == 1) {
            index = one_bit<dim>(codes, r, 1);
          } else {
            index = two_bits<dim>(codes, r);
          }
          if constexpr (bits == 3) {
            index = _mm256_or_si256(index, one_bit<dim>(codes + dim / 4, r, 4));
          }
          look_up(tables, index, out + 32 * r);
        }
      }
    }
  }
}

template <uint32_t dim>
KV_INLINE void unpack_dim(const uint8_t* codes, size_t rows, uint8_t bits, int16_t* out) {
  switch (bits) {
    case 1:
      return unpack_rows<dim, 1>(codes, rows, out);
    case 2:
      return unpack_rows<dim, 2>(codes, rows, out);
    case 3:
      return unpack_rows<dim, 3>(codes, rows, out);
    case 4:
      return unpack_rows<dim, 4>(codes, rows, out);
    default:
      return unpack_rows<dim, 8>(codes, rows, out);
  }
}

// Rows of the other lengths, multiples of 8: each slice of dims by itself, through a buffer.
template <uint8_t bits>
KV_INLINE void unpack_slices(const uint8_t* codes, uint32_t dim, int16_t* out) {
  static constexpr ByteTable kLow = value_table<bits>(0), kHigh = value_table<bits>(8);
  const ValueTables tables{kLow.load_both(), kHigh.load_both()};
  constexpr uint32_t kSlices = code_plane(32, bits).slices, kShift = code_plane(32, bits).shift;
  const uint32_t bytes = dim / kSlices, third = dim / 8;
  alignas(32) uint8_t plane[kMaxCodedDim / 2 + 32];
  // Bit 2 s of byte i is the third bit of dim i of slice s: of even and of odd bits of its plane.
  alignas(32) uint8_t even[kMaxCodedDim / 4 + 32] = {}, odd[kMaxCodedDim / 4 + 32] = {};
  std::memcpy(plane, codes, bytes);
  if constexpr (bits == 3) {
    std::memcpy(even, codes + bytes, third);
    std::memcpy(odd + third, codes + bytes, third);
  }
  for (uint32_t s = 0; s < kSlices; ++s) {
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(kShift * s));
    for (uint32_t i = 0; i < bytes; i += 32) {
      __m256i index = _mm256_and_si256(_mm256_srl_epi16(load(plane + i), shift),
                                       _mm256_set1_epi8((1 << kShift) - 1));
      if constexpr (bits == 3) {
        __m256i bit = _mm256_or_si256(load(even + i), _mm256_srli_epi16(load(odd + i), 1));
        bit = _mm256_and_si256(_mm256_srl_epi16(bit, shift), _mm256_set1_epi8(1));
        bit = _mm256_slli_epi16(bit, 2);
        index = _mm256_or_si256(index, bit);
      }
      alignas(32) int16_t values[32];
      look_up(tables, index, values);
      std::memcpy(out + s * bytes + i, values, std::min(32u, bytes - i) * sizeof(int16_t));
    }
  }
}

__attribute__((noinline)) void unpack_other(const uint8_t* codes, size_t rows, uint32_t dim,
                                            uint8_t bits, int16_t* out) {
  if (bits == 8) {
    for (size_t i = 0; i < rows * dim; i += 8) {
      __m128i c = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm_cvtepi8_epi16(c));
    }
    return;
  }
  for (size_t r = 0; r < rows; ++r, codes += code_bytes(dim, bits), out += dim) {
    switch (bits) {
      case 1:
        unpack_slices<1>(codes, dim, out);
        break;
      case 2:
        unpack_slices<2>(codes, dim, out);
        break;
      case 3:
        unpack_slices<3>(codes, dim, out);
        break;
      default:
        unpack_slices<4>(codes, dim, out);
    }
  }
}

}  // namespace

void unpack(const uint8_t* codes, size_t rows, uint32_t dim, uint8_t bits, int16_t* out) {
  if (dim % 8 != 0) return scalar_kernels().unpack(codes, rows, dim, bits, out);
  switch (dim) {
    case 32:
      return unpack_dim<32>(codes, rows, bits, out);
    case 64:
      return unpack_dim<64>(codes, rows, bits, out);
    case 128:
      return unpack_dim<128>(codes, rows, bits, out);
    case 256:
      return unpack_dim<256>(codes, rows, bits, out);
    default:
      return unpack_other(codes, rows, dim, bits, out);
  }
}

}  // namespace kv::avx2

#pragma GCC pop_options
