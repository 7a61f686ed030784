// Keys as text.
#include "cachesvc/remote/names.h"

#include "storage/file_names.h"
#include "storage/seal_key.h"

namespace kv {

const Id& remote_tag(std::span<const Id> path, size_t depth) {
  KV_CHECK(depth < path.size());
  return path[depth - depth % kRemoteTagDepth];
}

std::string remote_prefix(std::string_view ns) {
  const Id id = sha256({reinterpret_cast<const uint8_t*>(ns.data()), ns.size()});
  return "kv1:" + id.hex().substr(0, 16) + ":";
}

std::string remote_key(std::string_view prefix, const RemoteName& name) {
  return std::string(prefix) + "{" + name.tag.hex() + "}:" + file_name(name.object);
}

std::string remote_part_key(std::string_view first, const RemoteSum& sum, uint64_t index) {
  return std::string(first) + ":" + to_hex(sum) + "." + std::to_string(index);
}

}  // namespace kv
