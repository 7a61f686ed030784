// The AVX2 kernels that attend to packed codes: products with queries, weighted sums over a tile.
//
// Codes are unpacked in registers, once for up to four queries, in the order of code_order.h: 16
// values per register, pieces 0, 2 and 1, 3 of 8. Sums are exact integers: the same bits as the
// scalar kernels. Everything after the pragma must only run after avx2_kernels() has asked the
// machine. Pure functions, any thread.
#include <immintrin.h>

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

constexpr uint8_t kPieces[4] = {0, 2, 1, 3};
constexpr uint32_t kPairedBytes = 16;

constexpr bool is_paired(uint32_t dim, uint8_t bits) {
  const CodePlane plane = code_plane(dim, bits);
  return plane.slices > 1 && plane.bytes <= kPairedBytes;
}

// One instance of a kernel: bits and pairing are constants, dims are not.
template <uint8_t bits, bool paired>
struct Codes {
  static constexpr CodePlane kUnit = code_plane(32, bits);
  static constexpr uint32_t kGroups = paired ? kUnit.slices / 2 : kUnit.slices;
  static constexpr int kShift = static_cast<int>(kUnit.shift);

  __m256i low, high;  // tables of the values' bytes
  KV_INLINE Codes() {
    if constexpr (bits != 8) {
      static constexpr ByteTable kLow = value_table<bits>(0), kHigh = value_table<bits>(8);
      low = kLow.load_both();
      high = kHigh.load_both();
    }
  }

  // The chunk at byte `at` of a row's plane.
  static KV_INLINE __m256i chunk(const uint8_t* row, uint32_t at) {
    if constexpr (!paired) return load(row + at);
    return split(_mm256_broadcastsi128_si256(load_half(row)));
  }
  // Both halves hold the same 16 bytes: the upper one's slice is the next.
  static KV_INLINE __m256i split(__m256i both) {
    const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, kShift, kShift, kShift, kShift);
    return _mm256_srlv_epi32(both, shifts);
  }
  // Third bits of a chunk: of slice s at bit 2 s of each byte.
  static KV_INLINE __m256i third_bits(const uint8_t* row, uint32_t dim, uint32_t at) {
    const uint8_t* plane = row + dim / 4;
    const int even_bytes = static_cast<int>(dim / 8) - static_cast<int>(at);
    const __m256i place =
        _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                         21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
    const __m256i is_even =
        _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(even_bytes)), place);
    const __m256i even = load(plane + at);
    const __m256i odd = _mm256_srli_epi16(load(plane + at - dim / 8), 1);
    const __m256i bits_of_slices = _mm256_blendv_epi8(odd, even, is_even);
    if constexpr (!paired) return bits_of_slices;
    return split(_mm256_permute2x128_si256(bits_of_slices, bits_of_slices, 0));
  }

  // Indices of group s of a chunk: bytes and third bits in any order, the same in both.
  template <int s>
  static KV_INLINE __m256i indices(__m256i bytes, __m256i third) {
    constexpr int kGroupShift = kShift * (paired ? 2 : 1) * s;
    const __m256i index = _mm256_and_si256(_mm256_srli_epi16(bytes, kGroupShift),
                                           _mm256_set1_epi8((1 << kShift) - 1));
    if constexpr (bits != 3) return index;
    const __m256i bit = kGroupShift <= 2 ? _mm256_slli_epi16(third, 2 - kGroupShift)
                                         : _mm256_srli_epi16(third, kGroupShift - 2);
    return _mm256_or_si256(index, _mm256_and_si256(bit, _mm256_set1_epi8(4)));
  }
  // The values of 32 indices (8 bit: codes), 16 each.
  KV_INLINE void values(__m256i index, __m256i& first, __m256i& second) const {
    __m256i low_bytes = index, high_bytes;
    if constexpr (bits == 8) {
      high_bytes = _mm256_cmpgt_epi8(_mm256_setzero_si256(), index);
    } else {
      low_bytes = _mm256_shuffle_epi8(low, index);
      high_bytes = _mm256_shuffle_epi8(high, index);
    }
    first = _mm256_unpacklo_epi8(low_bytes, high_bytes);
    second = _mm256_unpackhi_epi8(low_bytes, high_bytes);
  }
};

// Calls f with 0 … n - 1 as constants.
template <uint32_t n, typename F>
KV_INLINE void unrolled(F f) {
  [&]<uint32_t... i>(std::integer_sequence<uint32_t, i...>) KV_LAMBDA_INLINE {
    (f(std::integral_constant<uint32_t, i>()), ...);
  }
  (std::make_integer_sequence<uint32_t, n>());
}

// Keeps a sum in a register, and what is added to it in this order: left alone, the compiler
// reorders integer sums, runs out of registers and spills them in the innermost loops.
KV_INLINE void add_products(__m256i& sum, __m256i a, __m256i b) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  asm("" : "+x"(sum));
}

// For `count` queries i: sums[i][0] += products of `first` and the two weights at weights[i *
// kTileRows], sums[i][1] += of `second`. Four at once are written out, for the same reason.
template <uint32_t count>
KV_INLINE void add_weighted(__m256i (&sums)[count][2], __m256i first, __m256i second,
                            const int16_t* weights) {
  if constexpr (count == 4) {
    static_assert(kTileRows * sizeof(int16_t) == 64);
    __m256i w, product;
#define KV_ADD_WEIGHTED(offset, low, high)                                  \
  "vpbroadcastd " offset                                                    \
  "(%[weights]), %[w]\n\t"                                                  \
  "vpmaddwd %[first], %[w], %[product]\n\tvpaddd %[product], " low ", " low \
  "\n\tvpmaddwd %[second], %[w], %[w]\n\tvpaddd %[w], " high ", " high "\n\t"
    asm(KV_ADD_WEIGHTED("0", "%0", "%1") KV_ADD_WEIGHTED("64", "%2", "%3")
            KV_ADD_WEIGHTED("128", "%4", "%5") KV_ADD_WEIGHTED("192", "%6", "%7")
        : "+&x"(sums[0][0]), "+&x"(sums[0][1]), "+&x"(sums[1][0]), "+&x"(sums[1][1]),
          "+&x"(sums[2][0]), "+&x"(sums[2][1]), "+&x"(sums[3][0]),
          "+&x"(sums[3][1]), [w] "=&x"(w), [product] "=&x"(product)
        : [first] "x"(first), [second] "x"(second), [weights] "r"(weights),
          "m"(*reinterpret_cast<const int16_t(*)[4 * kTileRows]>(weights)));
#undef KV_ADD_WEIGHTED
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      int32_t pair;
      std::memcpy(&pair, weights + i * kTileRows, 4);
      add_products(sums[i][0], _mm256_set1_epi32(pair), first);
      add_products(sums[i][1], _mm256_set1_epi32(pair), second);
    }
  }
}

// ---- scores

// 8 registers of 8 int32 → their 8 sums.
KV_INLINE __m256i sum_eight(const __m256i* s) {
  __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
  __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}

// `rows` rows with `count` queries, rows * count <= 8.
template <uint8_t bits, bool paired, uint32_t rows, uint32_t count>
KV_INLINE void dot_rows(const Codes<bits, paired>& set, const int16_t* queries, uint32_t width,
                        const uint8_t* codes, size_t row_bytes, uint32_t dim, int32_t* dots) {
  __m256i sums[8];
  for (auto& s : sums) s = _mm256_setzero_si256();
  const uint32_t bytes = code_plane(dim, bits).bytes;
  const int16_t* q = queries;
  for (uint32_t at = 0; at < bytes; at += 32) {
    __m256i chunk[rows], third[rows];
    unrolled<rows>([&](auto r) KV_LAMBDA_INLINE {
      chunk[r] = set.chunk(codes + r * row_bytes, at);
      third[r] = bits == 3 ? set.third_bits(codes + r * row_bytes, dim, at) : chunk[r];
    });
    unrolled<Codes<bits, paired>::kGroups>([&](auto s) KV_LAMBDA_INLINE {
      unrolled<rows>([&](auto r) KV_LAMBDA_INLINE {
        __m256i first, second;
        set.values(bits == 8 ? chunk[r] : set.template indices<s()>(chunk[r], third[r]), first,
                   second);
        unrolled<count>([&](auto i) KV_LAMBDA_INLINE {
          __m256i& sum = sums[i * rows + r];
          add_products(sum, first, load(q + i * width));
          add_products(sum, second, load(q + i * width + 16));
        });
      });
      q += 32;
    });
  }
  alignas(32) int32_t out[8];
  store(out, sum_eight(sums));
  unrolled<count>([&](auto i) KV_LAMBDA_INLINE {
    std::memcpy(dots + i * kScoreRows, out + i * rows, rows * sizeof(int32_t));
  });
}

template <uint8_t bits, bool paired, uint32_t count>
void dot_tile(const int16_t* queries, const uint8_t* codes, size_t rows, uint32_t dim,
              int32_t* dots) {
  constexpr uint32_t kRows = count == 1 ? 8 : count == 2 ? 4 : 2;
  const Codes<bits, paired> set;
  const size_t row_bytes = code_bytes(dim, bits);
  const uint32_t width = query_width(dim);
  size_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    dot_rows<bits, paired, kRows, count>(set, queries, width, codes + r * row_bytes, row_bytes, dim,
                                         dots + r);
  }
  for (; r < rows; ++r) {
    dot_rows<bits, paired, 1, count>(set, queries, width, codes + r * row_bytes, row_bytes, dim,
                                     dots + r);
  }
}

// ---- weighted sums

// acc[0 … n) = fma(sums, factor, acc) for up to 8 values: nearly always 8, and some machines take
// ten times as long for a store under a mask.
KV_INLINE void add_sums(__m256i sums, __m256 factor, uint32_t n, float* acc) {
  if (n >= 8) {
    const __m256 old = _mm256_loadu_ps(acc);
    return _mm256_storeu_ps(acc, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), factor, old));
  }
  __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256 old = _mm256_maskload_ps(acc, mask);
  _mm256_maskstore_ps(acc, mask, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), factor, old));
}

// Sums over a tile of 16 of the 32 values of group s of a chunk: pieces 0, 2 (half 0) or 1, 3 of 8.
template <uint8_t bits, bool paired, uint32_t count, int s, int half>
KV_INLINE void sum_half_group(const Codes<bits, paired>& set, const int16_t* weights,
                              const uint8_t* codes, size_t row_bytes, uint32_t at,
                              const uint8_t* third, __m256i (*out)[2]) {
  auto interleave = [](__m256i a, __m256i b) KV_LAMBDA_INLINE {
    return half == 0 ? _mm256_unpacklo_epi8(a, b) : _mm256_unpackhi_epi8(a, b);
  };
  __m256i sums[count][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_si256();
  for (uint32_t r = 0; r < kTileRows; r += 2) {
    __m256i index = interleave(set.chunk(codes + r * row_bytes, at),
                               set.chunk(codes + (r + 1) * row_bytes, at));
    if constexpr (bits != 8) {
      __m256i bit = index;
      if constexpr (bits == 3) bit = interleave(load(third + 32 * r), load(third + 32 * r + 32));
      index = set.template indices<s>(index, bit);
    }
    __m256i first, second;  // pairs of values of two rows: dims 0-3, 16-19 and 4-7, 20-23
    set.values(index, first, second);
    add_weighted<count>(sums, first, second, weights + r);
  }
  for (uint32_t i = 0; i < count; ++i) {
    out[i][0] = _mm256_permute2x128_si256(sums[i][0], sums[i][1], 0x20);
    out[i][1] = _mm256_permute2x128_si256(sums[i][0], sums[i][1], 0x31);
  }
}

template <uint8_t bits, bool paired, uint32_t count>
KV_INLINE void add_tile_of(const int16_t* weights, const float* factors, const uint8_t* codes,
                           uint32_t dim, float* acc, size_t stride) {
  const Codes<bits, paired> set;
  const size_t row_bytes = code_bytes(dim, bits);
  const uint32_t bytes = code_plane(dim, bits).bytes;
  alignas(32) uint8_t third[bits == 3 ? 32 * kTileRows : 32];
  for (uint32_t at = 0; at < bytes; at += 32) {
    if constexpr (bits == 3) {
      for (uint32_t r = 0; r < kTileRows; ++r) {
        store(third + 32 * r, set.third_bits(codes + r * row_bytes, dim, at));
      }
    }
    unrolled<Codes<bits, paired>::kGroups>([&](auto s) KV_LAMBDA_INLINE {
      unrolled<2>([&](auto half) KV_LAMBDA_INLINE {
        __m256i sums[count][2];
        sum_half_group<bits, paired, count, s(), half()>(set, weights, codes, row_bytes, at, third,
                                                         sums);
        unrolled<2>([&](auto piece) KV_LAMBDA_INLINE {
          const uint32_t place = at + 8 * half + (paired ? 0 : 16 * piece);
          if (place >= bytes) return;
          const uint32_t slice = paired ? 2 * s + piece : s;
          unrolled<count>([&](auto i) KV_LAMBDA_INLINE {
            float* to = acc + i * stride + slice * bytes + place;
            add_sums(sums[i][piece], _mm256_set1_ps(factors[i]), bytes - place, to);
          });
        });
      });
    });
  }
}

template <uint8_t bits, bool paired, uint32_t count>
void add_tile(const int16_t* weights, const float* factors, const uint8_t* codes, uint32_t dim,
              float* acc, size_t stride) {
  // Constants: the loops over the tile need few address registers. Under a sanitizer, which has no
  // registers to spare, four copies only take g++ minutes.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  bool done = false;
  unrolled<3>([&](auto i) KV_LAMBDA_INLINE {
    constexpr uint32_t kDim = 64u << i;  // 64, 128, 256, where they are paired so
    if constexpr (is_paired(kDim, bits) == paired) {
      if (dim != kDim) return;
      add_tile_of<bits, paired, count>(weights, factors, codes, kDim, acc, stride);
      done = true;
    }
  });
  if (done) return;
#endif
  add_tile_of<bits, paired, count>(weights, factors, codes, dim, acc, stride);
}

// Calls f with bits, pairing and count as constants.
template <uint8_t bits, bool paired, typename F>
KV_INLINE void with_count(size_t count, F f) {
  using Bits = std::integral_constant<uint8_t, bits>;
  using Paired = std::bool_constant<paired>;
  switch (count) {
    case 1:
      return f(Bits(), Paired(), std::integral_constant<uint32_t, 1>());
    case 2:
      return f(Bits(), Paired(), std::integral_constant<uint32_t, 2>());
    case 3:
      return f(Bits(), Paired(), std::integral_constant<uint32_t, 3>());
    default:
      return f(Bits(), Paired(), std::integral_constant<uint32_t, 4>());
  }
}

template <typename F>
KV_INLINE void with_shape(uint32_t dim, uint8_t bits, size_t count, F f) {
  const bool paired = is_paired(dim, bits);
  switch (bits) {
    case 1:
      return paired ? with_count<1, true>(count, f) : with_count<1, false>(count, f);
    case 2:
      return paired ? with_count<2, true>(count, f) : with_count<2, false>(count, f);
    case 3:
      return paired ? with_count<3, true>(count, f) : with_count<3, false>(count, f);
    case 4:
      return paired ? with_count<4, true>(count, f) : with_count<4, false>(count, f);
    default:
      return with_count<8, false>(count, f);
  }
}

}  // namespace

void order_query(const int16_t* q, uint32_t dim, uint8_t bits, int16_t* out) {
  if (dim % 8 != 0) return scalar_kernels().order_query(q, dim, bits, out);
  order_by_groups(q, dim, bits, is_paired(dim, bits), kPieces, out);
}

void dot_codes(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows,
               uint32_t dim, uint8_t bits, int32_t* dots) {
  if (dim % 8 != 0) return scalar_kernels().dot_codes(queries, count, codes, rows, dim, bits, dots);
  for (size_t i = 0; i < count; i += kQueryGroup) {
    const int16_t* q = queries + i * query_width(dim);
    int32_t* out = dots + i * kScoreRows;
    with_shape(dim, bits, count - i, [=](auto b, auto paired, auto n) {
      dot_tile<b(), paired(), n()>(q, codes, rows, dim, out);
    });
  }
}

void add_codes(const int16_t* weights, const float* factors, size_t count, const uint8_t* codes,
               uint32_t dim, uint8_t bits, float* acc, size_t stride) {
  if (dim % 8 != 0) {
    return scalar_kernels().add_codes(weights, factors, count, codes, dim, bits, acc, stride);
  }
  for (size_t i = 0; i < count; i += kQueryGroup) {
    with_shape(dim, bits, count - i, [=](auto b, auto paired, auto n) {
      add_tile<b(), paired(), n()>(weights + i * kTileRows, factors + i, codes, dim,
                                   acc + i * stride, stride);
    });
  }
}

}  // namespace kv::avx2

#pragma GCC pop_options
