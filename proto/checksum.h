// The hashes of the project, each for one job:
//   sha256      identities (collision-resistant; ids are compared by untrusting parties)
//   xxh3_128    integrity of whole files and payloads (memory speed)
//   crc32c      frame headers (28 bytes)
//   crc16       slots of a Redis cluster
// Pure functions, any thread. sha256 and Xxh128Stream take memory: they may throw std::bad_alloc.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace kv {

/// 32 bytes: the id of a block, snapshot, profile or model.
struct Id {
  std::array<uint8_t, 32> bytes{};
  auto operator<=>(const Id&) const = default;
  bool is_zero() const { return *this == Id{}; }
  std::string hex() const;  ///< 64 lower-case hex digits
};
/// Returns: invalid_argument unless `hex` is exactly 64 lower-case hex digits.
Result<Id> id_from_hex(std::string_view hex);

struct IdHash {
  size_t operator()(const Id& id) const {
    size_t h;
    __builtin_memcpy(&h, id.bytes.data(), sizeof(h));
    return h;  // an id is a SHA-256: its first bytes are uniform
  }
};

Id sha256(std::span<const uint8_t> bytes);

struct Xxh128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Xxh128&) const = default;
};
Xxh128 xxh3_128(std::span<const uint8_t> bytes);

/// Streaming form of xxh3_128, for bytes that arrive in pieces. One thread at a time.
class Xxh128Stream {
 public:
  Xxh128Stream();
  ~Xxh128Stream();
  Xxh128Stream(const Xxh128Stream&) = delete;  // owns the hash's state
  Xxh128Stream& operator=(const Xxh128Stream&) = delete;
  void update(std::span<const uint8_t> bytes);
  Xxh128 digest() const;

 private:
  void* state_;
};

/// CRC-32C (Castagnoli, reflected, init and xorout ~0): "123456789" gives e3069283.
uint32_t crc32c(std::span<const uint8_t> bytes);
/// CRC-16 (XMODEM, as Redis Cluster's specification has it): "123456789" gives 31c3.
uint16_t crc16(std::span<const uint8_t> bytes);

}  // namespace kv
