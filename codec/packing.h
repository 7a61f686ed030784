// Packing of one vector's code indices into bytes: codec/TURBOQUANT.md, "Code layouts".
//
// Shared by all kernel sets. Eight bytes are handled as one word: an index shifted by at most
// 8 - bits never leaves its byte. Pure functions, any thread; dim is a multiple of 4.
#pragma once

#include <cstdint>
#include <cstring>

namespace kv {

/// Index arrays are read in whole words: this many values follow the last one, zeros where dim is
/// no multiple of 8.
inline constexpr uint32_t kIndexSlack = 16;

/// out[j] = the or of what `word_at(j)` gives for bytes j … j + 7, for j < bytes.
template <typename WordAt>
inline void pack_words(uint32_t bytes, uint8_t* out, WordAt word_at) {
  uint32_t j = 0;
  for (; j + 8 <= bytes; j += 8) {
    const uint64_t packed = word_at(j);
    std::memcpy(out + j, &packed, 8);
  }
  if (j == bytes) return;
  const uint64_t packed = word_at(j);
  std::memcpy(out + j, &packed, bytes - j);
}

inline uint64_t index_word(const uint8_t* index) {
  uint64_t word;
  std::memcpy(&word, index, 8);
  return word;
}

/// Byte j holds dims j, j + dim/4, j + dim/2, j + 3 dim/4 at bits 0, 2, 4, 6: the low two bits of
/// each index. Writes dim / 4 bytes.
inline void pack_two_bits(const uint8_t* index, uint32_t dim, uint8_t* out) {
  const uint32_t slice = dim / 4;
  pack_words(slice, out, [=](uint32_t j) {
    uint64_t packed = 0;
    for (uint32_t s = 0; s < 4; ++s) {
      packed |= (index_word(index + s * slice + j) & 0x0303030303030303ull) << (2 * s);
    }
    return packed;
  });
}

/// Byte j holds bit `bit` of the indices of dims j + b slice at bit b, slice = dim/8 rounded up.
/// Writes `slice` bytes; bits of no dim are 0.
inline void pack_bit(const uint8_t* index, uint32_t dim, int bit, uint8_t* out) {
  const uint32_t slice = (dim + 7) / 8;
  pack_words(slice, out, [=](uint32_t j) {
    uint64_t packed = 0;
    for (uint32_t s = 0; s < 8; ++s) {
      packed |= ((index_word(index + s * slice + j) >> bit) & 0x0101010101010101ull) << s;
    }
    return packed;
  });
}

/// Byte j holds dim j in the low nibble and dim j + dim/2 in the high one. Writes dim / 2 bytes.
inline void pack_nibbles(const uint8_t* index, uint32_t dim, uint8_t* out) {
  const uint32_t slice = dim / 2;
  pack_words(slice, out, [=](uint32_t j) {
    return index_word(index + j) | (index_word(index + slice + j) << 4);
  });
}

/// `bits` is 1, 2, 3 or 4.
inline void pack_indices(const uint8_t* index, uint32_t dim, uint8_t bits, uint8_t* out) {
  if (bits == 4) return pack_nibbles(index, dim, out);
  if (bits == 1) return pack_bit(index, dim, 0, out);
  pack_two_bits(index, dim, out);
  if (bits == 3) pack_bit(index, dim, 2, out + dim / 4);
}

/// Index of dim j in a packed vector: the layouts, read one value at a time.
inline uint32_t index_at(const uint8_t* codes, uint32_t dim, uint8_t bits, uint32_t j) {
  if (bits == 4) {
    uint32_t half = dim / 2;
    return j < half ? codes[j] & 15u : codes[j - half] >> 4;
  }
  uint32_t quarter = dim / 4, eighth = (dim + 7) / 8;
  if (bits == 1) return (codes[j % eighth] >> (j / eighth)) & 1u;
  uint32_t index = (codes[j % quarter] >> (2 * (j / quarter))) & 3u;
  if (bits == 3) index |= ((codes[quarter + j % eighth] >> (j / eighth)) & 1u) << 2;
  return index;
}

}  // namespace kv
