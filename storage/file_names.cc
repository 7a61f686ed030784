// File names to object names and back. FORMAT.md, "Names".
#include "storage/file_names.h"

#include <charconv>

namespace kv {
namespace {

constexpr size_t kHexDigits = 64;

// Reads a decimal number without sign or leading zeros from the front of `text`.
bool take_number(std::string_view& text, uint64_t max, uint64_t& out) {
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  size_t digits = static_cast<size_t>(end - text.data());
  if (failed != std::errc() || out > max || (digits > 1 && text.front() == '0')) return false;
  text.remove_prefix(digits);
  return true;
}

bool take_char(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<ParsedName> parse_supplement(ParsedName parsed, std::string_view rest) {
  uint64_t group = 0, first = 0, end = 0;
  if (!take_number(rest, UINT16_MAX, group) || !take_char(rest, '.') ||
      !take_number(rest, UINT32_MAX, first) || !take_char(rest, '-') ||
      !take_number(rest, UINT32_MAX, end) || rest != ".supplement" || first > end) {
    return std::nullopt;
  }
  parsed.kind = FileKind::supplement;
  parsed.object.kind = ObjectKind::supplement;
  parsed.object.group = static_cast<uint16_t>(group);
  parsed.object.first_row = static_cast<uint32_t>(first);
  parsed.object.end_row = static_cast<uint32_t>(end);
  return parsed;
}

}  // namespace

const char* to_string(FileKind kind) {
  switch (kind) {
    case FileKind::block:
      return "block";
    case FileKind::tail:
      return "tail";
    case FileKind::supplement:
      return "supplement";
    case FileKind::snapshot:
      return "snapshot";
    case FileKind::profile:
      return "profile";
    case FileKind::model_record:
      return "model";
  }
  return "unknown";
}

std::string file_name(const ObjectName& name) {
  std::string out = name.id.hex();
  if (name.kind == ObjectKind::supplement) {
    out += "." + std::to_string(name.group) + "." + std::to_string(name.first_row) + "-" +
           std::to_string(name.end_row);
  }
  return out + "." + to_string(name.kind);
}

std::string profile_file_name(const Id& profile) { return profile.hex() + ".profile"; }

std::string model_record_file_name(const Id& model, uint64_t serial) {
  return model.hex() + "." + std::to_string(serial) + ".model";
}

std::optional<ParsedName> parse_file_name(std::string_view name) {
  if (name.size() <= kHexDigits) return std::nullopt;
  auto id = id_from_hex(name.substr(0, kHexDigits));
  std::string_view rest = name.substr(kHexDigits);
  if (!id.ok() || !take_char(rest, '.')) return std::nullopt;
  ParsedName parsed;
  parsed.object.id = *id;
  for (auto kind : {ObjectKind::block, ObjectKind::tail, ObjectKind::snapshot}) {
    if (rest != to_string(kind)) continue;
    parsed.object.kind = kind;
    parsed.kind = static_cast<FileKind>(kind);
    return parsed;
  }
  if (rest == "profile") {
    parsed.kind = FileKind::profile;
    return parsed;
  }
  if (rest.ends_with(".supplement")) return parse_supplement(parsed, rest);
  parsed.kind = FileKind::model_record;
  bool record = take_number(rest, UINT64_MAX, parsed.serial) && rest == ".model";
  return record ? std::optional(parsed) : std::nullopt;
}

uint32_t folder_of(const Id& id) { return id.bytes[0] >> 4; }

std::string folder_name(uint32_t folder) {
  KV_CHECK(folder < kFolders);
  return std::string(1, "0123456789abcdef"[folder]);
}

std::string relative_path(const ObjectName& name) {
  return folder_name(folder_of(name.id)) + "/" + file_name(name);
}

}  // namespace kv
