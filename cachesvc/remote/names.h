// Names of objects in the shared tier: tags, keys, parts. REMOTE.md, "Keys". Pure, any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/checksum.h"
#include "proto/plane.h"

namespace kv {

inline constexpr size_t kRemoteTagDepth = 16;  ///< blocks of a path that share a slot
/// Part of the format "kv2". With the engine's own header a part takes 1 MiB of its allocator,
/// whose next size is 1.25 MiB.
inline constexpr uint64_t kRemotePartBytes = (1 << 20) - 64;

/// NS of REMOTE.md: a namespace.
using RemoteSpace = std::array<uint8_t, 8>;
inline RemoteSpace remote_space(std::string_view ns) {
  const Id id = sha256({reinterpret_cast<const uint8_t*>(ns.data()), ns.size()});
  RemoteSpace space;
  std::copy_n(id.bytes.begin(), space.size(), space.begin());
  return space;
}

/// An object, and what decides its slot.
struct RemoteName {
  RemoteSpace space;
  ObjectName object;
  Id tag;
};
/// The depth of the block whose id is the tag of block `depth` of a path, and of its supplements.
constexpr size_t remote_tag_depth(size_t depth) { return depth - depth % kRemoteTagDepth; }

/// SUM of REMOTE.md: tells one writer's bytes from another's.
using RemoteSum = std::array<uint8_t, 16>;

/// "kv2:NS:": what all keys of a namespace begin with.
std::string remote_prefix(const RemoteSpace& space);
/// Key of the first part.
std::string remote_key(const RemoteName& name);
/// Key of part `index`, from 1, of the value with this first key.
std::string remote_part_key(std::string_view first, const RemoteSum& sum, uint64_t index);

}  // namespace kv
