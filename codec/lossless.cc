// zstd level 1 over payload bytes: the only file that includes zstd.h.
#include "codec/lossless.h"

#include <zstd.h>

#include "proto/limits.h"

namespace kv {

std::optional<std::vector<uint8_t>> pack(std::span<const uint8_t> bytes) {
  if (bytes.empty() || bytes.size() > kMaxObjectBytes) return std::nullopt;
  const size_t most = bytes.size() - bytes.size() * kMinSavingPercent / 100;
  // zstd needs no more than `most` bytes of room to succeed where the result is worth keeping, and
  // fails early where it isn't.
  std::vector<uint8_t> packed(most);
  const size_t size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 1);
  if (ZSTD_isError(size) || size * 100 > bytes.size() * (100 - kMinSavingPercent)) {
    return std::nullopt;
  }
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
  const size_t out = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(out)) {
    return corruption(std::string("packed bytes: ") + ZSTD_getErrorName(out));
  }
  return out == bytes.size() ? Status() : corruption("packed bytes: short output");
}

}  // namespace kv
