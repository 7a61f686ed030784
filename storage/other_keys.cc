// Files of other keys: a list in the order in which they make room.
#include "storage/other_keys.h"

#include "storage/file_names.h"
#include "storage/file_reader.h"

namespace kv {

void OtherKeys::add(uint32_t folder, const std::string& name, const FileInfo& info) {
  forget(name);
  if (order_.size() == kMaxListedOthers) return;
  auto parsed = parse_file_name(name);
  bool record = parsed && is_record(parsed->kind);
  auto at = order_.emplace(std::pair(record, -info.modified_ns),
                           File{folder, name, info.allocated_bytes});
  by_name_.emplace(name, at);
  ++files_;
  bytes_ += info.allocated_bytes;
}

void OtherKeys::take_out(Files::iterator file) {
  --files_;
  bytes_ -= file->second.allocated_bytes;
  by_name_.erase(file->second.name);
  order_.erase(file);
}

void OtherKeys::forget(const std::string& name) {
  auto at = by_name_.find(name);
  if (at != by_name_.end()) take_out(at->second);
}

bool OtherKeys::make_room(uint64_t bytes) {
  uint64_t freed = 0;
  while (freed < bytes && !order_.empty()) {
    File file = order_.begin()->second;
    take_out(order_.begin());
    std::string path = dir_.folder_path(file.folder) + "/" + file.name;
    if (!sealed_by_other(dir_.files(), path, dir_.key())) continue;  // another file than was listed
    if (!dir_.files().unlink(path).ok()) continue;  // stays, and stays counted in the ledger
    dir_.ledger().remove(file.allocated_bytes);
    dir_.mark_dirty(file.folder);
    freed += file.allocated_bytes;
    ++dropped_;
  }
  return freed > 0;
}

}  // namespace kv
