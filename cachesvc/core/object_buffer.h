// Objects' payloads in buffers of the RAM pool. On workers.
#pragma once

#include <string_view>

#include "cachesvc/ram_object.h"
#include "cachesvc/ram_pool.h"
#include "proto/profile.h"
#include "storage/block_file.h"

namespace kv {

/// Allocates `bytes` of the pool for `ns`, paid by `charge` (and by the pool, if that is too
/// small). Returns: busy.
Result<PoolBuffer> buffer_in_pool(uint64_t bytes, RamPool& pool, Charge& charge,
                                  std::string_view ns);

/// The object with its payload in `buffer`, of payload_bytes(), and its sum. Bytes that lie there
/// already stay; others are copied. `planes`: the sum of all planes, which lie there; null: it is
/// computed. Not on the loop.
Result<RamObject> into_buffer(Object object, PoolBuffer buffer, Xxh128Stream* planes = nullptr);

/// Unpacks stored pieces, one after the other, into `out`, which has just their unpacked bytes.
/// Returns: their sum; corruption.
Result<Xxh128> unpack_pieces(const std::vector<Piece>& pieces, std::span<uint8_t> out);

/// The verified object of `image`, unpacked, in the pool. Returns: busy; corruption, also if it
/// does not fit its model.
Result<RamObject> into_pool(FileImage image, RamPool& pool, Charge& charge, const ModelSpec& model,
                            const Profile& profile);

}  // namespace kv
