// Keys as text.
#include "cachesvc/remote/names.h"

#include <charconv>

#include "storage/file_names.h"
#include "storage/seal_key.h"

namespace kv {

namespace {

std::string hex_of(const RemoteSpace& space) {
  Id id;
  std::copy(space.begin(), space.end(), id.bytes.begin());
  return id.hex().substr(0, 2 * space.size());
}

}  // namespace

std::string remote_prefix(const RemoteSpace& space) { return "kv3:" + hex_of(space) + ":"; }

std::string remote_profile_key(const RemoteSpace& space, const Id& fingerprint) {
  return "kv3.profile:" + hex_of(space) + ":{" + fingerprint.hex() + "}";
}

std::string remote_key(const RemoteName& name) {
  return remote_prefix(name.space) + "{" + name.tag.hex() + "}:" + file_name(name.object);
}

std::string remote_list_key(const RemoteList& list) {
  return remote_prefix(list.space) + "{" + list.tag.hex() + "}:" + list.block.hex() + ":list";
}

std::string to_text(const RemoteEntry& e) {
  const std::string end = std::to_string(e.end);
  if (e.kind != ObjectKind::supplement) return (e.kind == ObjectKind::tail ? "t " : "n ") + end;
  return "s " + end + " " + std::to_string(e.group) + " " + std::to_string(e.first_row) + " " +
         std::to_string(e.end_row);
}

// Only what to_text() makes is one.
std::optional<RemoteEntry> parse_remote_entry(std::string_view text) {
  RemoteEntry e;
  if (text.size() < 3) return std::nullopt;
  const char kind = text[0];
  std::array<uint32_t, 4> numbers{};
  const size_t count = kind == 's' ? 4 : 1;
  const char *at = text.data() + 1, *const end = text.data() + text.size();
  for (size_t i = 0; i < count; ++i) {
    if (at == end || *at != ' ') return std::nullopt;
    const auto [to, error] = std::from_chars(at + 1, end, numbers[i]);
    if (error != std::errc()) return std::nullopt;
    at = to;
  }
  e.kind = kind == 't'   ? ObjectKind::tail
           : kind == 'n' ? ObjectKind::snapshot
                         : ObjectKind::supplement;
  e.end = numbers[0];
  e.group = static_cast<uint16_t>(numbers[1]);
  e.first_row = numbers[2];
  e.end_row = numbers[3];
  return to_text(e) == text ? std::optional(e) : std::nullopt;
}

std::string remote_part_key(std::string_view first, const RemoteSum& sum, uint64_t index) {
  return std::string(first) + ":" + to_hex(sum) + "." + std::to_string(index);
}

}  // namespace kv
