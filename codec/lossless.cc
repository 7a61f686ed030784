// zstd level 1 over payload bytes, as they are or split: the only file that includes zstd.h.
#include "codec/lossless.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "proto/limits.h"

namespace kv {
namespace {

constexpr uint32_t kMostValueBytes = 4;

bool worth_it(size_t packed, size_t bytes) {
  return packed * 100 <= bytes * (100 - kMinSavingPercent);
}

// The contexts of one thread: making one takes longer than a small plane.
struct Contexts {
  ZSTD_CCtx* compress = nullptr;
  ZSTD_DCtx* decompress = nullptr;
  ~Contexts() {
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
  }
};
thread_local Contexts contexts;

// `count` values from their bytes: from[b] holds byte b of each.
template <uint32_t kBytes>
void join(const std::array<const uint8_t*, kMostValueBytes>& from, size_t count,
          uint8_t* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    for (uint32_t b = 0; b < kBytes; ++b) out[i * kBytes + b] = from[b][i];
  }
}

}  // namespace

std::optional<std::vector<uint8_t>> pack(std::span<const uint8_t> bytes) {
  if (bytes.empty() || bytes.size() > kMaxObjectBytes) return std::nullopt;
  const size_t most = bytes.size() - bytes.size() * kMinSavingPercent / 100;
  // zstd needs no more than `most` bytes of room to succeed where the result is worth keeping, and
  // fails early where it isn't.
  std::vector<uint8_t> packed(most);
  if (contexts.compress == nullptr) contexts.compress = ZSTD_createCCtx();
  if (contexts.compress == nullptr) return std::nullopt;
  const size_t size = ZSTD_compressCCtx(contexts.compress, packed.data(), packed.size(),
                                        bytes.data(), bytes.size(), 1);
  if (ZSTD_isError(size) || !worth_it(size, bytes.size())) return std::nullopt;
  packed.resize(size);
  return packed;
}

Status unpack(std::span<const uint8_t> packed, std::span<uint8_t> bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    return corruption("packed bytes: no frame with a content size");
  }
  if (size != bytes.size()) {
    return corruption("packed bytes: expected " + std::to_string(bytes.size()) +
                      " bytes, the frame says " + std::to_string(size));
  }
  if (ZSTD_findFrameCompressedSize(packed.data(), packed.size()) != packed.size()) {
    return corruption("packed bytes: more or less than one frame");
  }
  if (contexts.decompress == nullptr) contexts.decompress = ZSTD_createDCtx();
  if (contexts.decompress == nullptr) return {StatusCode::busy, "packed bytes: no memory"};
  const size_t out = ZSTD_decompressDCtx(contexts.decompress, bytes.data(), bytes.size(),
                                         packed.data(), packed.size());
  if (ZSTD_isError(out)) {
    return corruption(std::string("packed bytes: ") + ZSTD_getErrorName(out));
  }
  return out == bytes.size() ? Status() : corruption("packed bytes: short output");
}

std::optional<std::vector<uint8_t>> pack_split(std::span<const uint8_t> bytes,
                                               uint32_t value_bytes) {
  KV_CHECK(value_bytes == 2 || value_bytes == 4);
  if (bytes.empty() || bytes.size() > kMaxObjectBytes || bytes.size() % value_bytes != 0) {
    return std::nullopt;
  }
  const size_t values = bytes.size() / value_bytes;
  std::vector<uint8_t> packed{static_cast<uint8_t>(value_bytes)}, stretch;
  for (size_t first = 0; first < values; first += kSplitValues) {
    const size_t count = std::min(kSplitValues, values - first), sizes = packed.size();
    packed.resize(sizes + 4 * value_bytes);
    stretch.resize(count);
    for (uint32_t b = 0; b < value_bytes; ++b) {
      for (size_t i = 0; i < count; ++i) stretch[i] = bytes[(first + i) * value_bytes + b];
      const auto frame = pack(stretch);
      const std::vector<uint8_t>& kept = frame ? *frame : stretch;
      const auto size = static_cast<uint32_t>(kept.size());
      std::memcpy(&packed[sizes + 4 * b], &size, 4);
      packed.insert(packed.end(), kept.begin(), kept.end());
    }
  }
  if (!worth_it(packed.size(), bytes.size())) return std::nullopt;
  return packed;
}

Status unpack_split(std::span<const uint8_t> packed, std::span<uint8_t> out) {
  const uint32_t value_bytes = packed.empty() ? 0 : packed[0];
  if ((value_bytes != 2 && value_bytes != 4) || out.size() % value_bytes != 0) {
    return corruption("split bytes: values of " + std::to_string(value_bytes) + " bytes for " +
                      std::to_string(out.size()));
  }
  const size_t values = out.size() / value_bytes;
  std::vector<uint8_t> stretches(std::min(values, kSplitValues) * value_bytes);
  packed = packed.subspan(1);
  for (size_t first = 0; first < values; first += kSplitValues) {
    const size_t count = std::min(kSplitValues, values - first);
    if (packed.size() < 4 * size_t{value_bytes}) return corruption("split bytes: no sizes");
    const auto sizes = packed.first(4 * size_t{value_bytes});
    packed = packed.subspan(sizes.size());
    std::array<const uint8_t*, kMostValueBytes> from{};
    for (uint32_t b = 0; b < value_bytes; ++b) {
      uint32_t size = 0;
      std::memcpy(&size, &sizes[4 * size_t{b}], 4);
      if (size > count || size > packed.size()) return corruption("split bytes: wrong size");
      const std::span<uint8_t> stretch(stretches.data() + b * count, count);
      from[b] = size == count ? packed.data() : stretch.data();
      if (size < count) KV_RETURN_IF_ERROR(unpack(packed.first(size), stretch));
      packed = packed.subspan(size);
    }
    (value_bytes == 2 ? join<2> : join<4>)(from, count, out.data() + first * value_bytes);
  }
  return packed.empty() ? Status() : corruption("split bytes: bytes left over");
}

}  // namespace kv
