// Names of objects in the shared tier: tags, keys, parts. REMOTE.md, "Keys". Pure, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/checksum.h"
#include "proto/plane.h"

namespace kv {

inline constexpr size_t kRemoteTagDepth = 16;          ///< blocks of a path that share a slot
inline constexpr uint64_t kRemotePartBytes = 1 << 20;  ///< part of the format: "kv1"

/// An object, and what decides its slot.
struct RemoteName {
  ObjectName object;
  Id tag;
};
/// Block `depth` of a path whose blocks have these ids, from the root, and its supplements.
const Id& remote_tag(std::span<const Id> path, size_t depth);

/// SUM of REMOTE.md: tells one writer's bytes from another's.
using RemoteSum = std::array<uint8_t, 16>;

/// "kv1:NS:": what all keys of a namespace begin with.
std::string remote_prefix(std::string_view ns);
/// Key of the first part. `prefix`: of remote_prefix().
std::string remote_key(std::string_view prefix, const RemoteName& name);
/// Key of part `index`, from 1, of the value with this first key.
std::string remote_part_key(std::string_view first, const RemoteSum& sum, uint64_t index);

}  // namespace kv
