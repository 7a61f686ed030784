// Keys as text.
#include "cachesvc/remote/names.h"

#include "storage/file_names.h"
#include "storage/seal_key.h"

namespace kv {

std::string remote_prefix(const RemoteSpace& space) {
  Id id;
  std::copy(space.begin(), space.end(), id.bytes.begin());
  return "kv2:" + id.hex().substr(0, 2 * space.size()) + ":";
}

std::string remote_key(const RemoteName& name) {
  return remote_prefix(name.space) + "{" + name.tag.hex() + "}:" + file_name(name.object);
}

std::string remote_part_key(std::string_view first, const RemoteSum& sum, uint64_t index) {
  return std::string(first) + ":" + to_hex(sum) + "." + std::to_string(index);
}

}  // namespace kv
