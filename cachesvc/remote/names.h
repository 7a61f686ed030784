// Names of objects in the shared tier: tags, keys, parts. REMOTE.md, "Keys". Pure, any thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "proto/checksum.h"
#include "proto/plane.h"

namespace kv {

inline constexpr size_t kMostTagBlocks = 16;  ///< of a path that share a slot
/// Part of the format "kv3". With the engine's own header a part takes 1 MiB of its allocator,
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

/// An object behind a block, as the block's list tells of it to those who can't compute its name: a
/// tail or snapshot by the tokens before its end, a supplement of the block, or of a tail behind
/// it.
struct RemoteEntry {
  ObjectKind kind = ObjectKind::tail;
  uint32_t end =
      0;  ///< of the tail or snapshot; of a supplement its tail's end, 0: the block's own
  uint16_t group = 0;
  uint32_t first_row = 0, end_row = 0;
  auto operator<=>(const RemoteEntry&) const = default;
};
/// A member of a list: "t END", "n END", "s END GROUP FIRST END".
std::string to_text(const RemoteEntry& entry);
std::optional<RemoteEntry> parse_remote_entry(std::string_view text);

/// An object, and what decides its slot.
struct RemoteName {
  RemoteSpace space;
  ObjectName object;
  Id tag;
  Id block{};           ///< in whose list it stands; zero: in none
  RemoteEntry entry{};  ///< as which
};
/// The list of a block.
struct RemoteList {
  RemoteSpace space;
  Id block, tag;
};
/// "kv3:NS:{TAG}:BLOCK:list"
std::string remote_list_key(const RemoteList& list);

/// The depth of the block whose id is the tag of block `depth` of a path, and of its supplements:
/// every block's own at the beginning, where conversations part, then a quarter of what lies
/// before.
constexpr size_t remote_tag_depth(size_t depth) {
  const size_t together = std::clamp<size_t>(std::bit_floor(depth) / 4, 1, kMostTagBlocks);
  return depth - depth % together;
}

/// SUM of REMOTE.md: tells one writer's bytes from another's.
using RemoteSum = std::array<uint8_t, 16>;

/// "kv3:NS:": what all keys of a namespace begin with.
std::string remote_prefix(const RemoteSpace& space);
/// Key of the first part.
std::string remote_key(const RemoteName& name);
/// Key of the profile of the model with this fingerprint. No object's: an erase leaves it.
std::string remote_profile_key(const RemoteSpace& space, const Id& fingerprint);
/// Key of part `index`, from 1, of the value with this first key.
std::string remote_part_key(std::string_view first, const RemoteSum& sum, uint64_t index);

}  // namespace kv
