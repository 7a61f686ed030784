// Quarantine: a folder with a bound.
#include "storage/quarantine.h"

#include <algorithm>
#include <charconv>

namespace kv {

uint64_t quarantine_number(const std::string& name) {
  uint64_t number = 0;
  size_t dot = name.rfind('.');
  if (dot == std::string::npos) return 0;
  std::from_chars(name.data() + dot + 1, name.data() + name.size(), number);
  return number;
}

Status Quarantine::load() {
  KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list(dir_.quarantine_folder()));
  for (const auto& entry : listed) {
    auto info = dir_.files().stat(dir_.quarantine_folder() + "/" + entry.name);
    if (!info.ok()) return info.status();
    entries_.push_back({entry.name, info->allocated_bytes});
    bytes_ += info->allocated_bytes;
    ++files_;
    next_ = std::max(next_, quarantine_number(entry.name) + 1);
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return quarantine_number(a.name) < quarantine_number(b.name);
  });
  dir_.ledger().add(bytes());
  trim(0);
  return {};
}

Status Quarantine::take(const std::string& path, const std::string& name) {
  auto info = dir_.files().stat(path);
  if (!info.ok()) return info.status().code() == StatusCode::not_found ? Status() : info.status();
  uint64_t size = info->allocated_bytes;
  if (size > limit_bytes_) {
    KV_RETURN_IF_ERROR(dir_.files().unlink(path));
    dir_.ledger().remove(size);
    return {};
  }
  trim(size);
  std::string kept = name + "." + std::to_string(next_++);
  KV_RETURN_IF_ERROR(dir_.files().rename(path, dir_.quarantine_folder() + "/" + kept));
  entries_.push_back({std::move(kept), size});
  bytes_ += size;
  ++files_;
  return {};
}

void Quarantine::trim(uint64_t incoming_bytes) {
  size_t room = incoming_bytes > 0 ? 1 : 0;
  size_t max_files = limit_bytes_ == 0 ? 0 : kMaxQuarantineFiles;
  while (!entries_.empty() &&
         (bytes_ + incoming_bytes > limit_bytes_ || entries_.size() + room > max_files)) {
    if (!remove_oldest().ok()) return;  // the file stays, and stays counted
  }
}

Status Quarantine::remove_oldest() {
  KV_RETURN_IF_ERROR(remove_file(entries_.front()));
  entries_.pop_front();
  return {};
}

Status Quarantine::remove_file(const Entry& entry) {
  Status status = dir_.files().unlink(dir_.quarantine_folder() + "/" + entry.name);
  if (!status.ok() && status.code() != StatusCode::not_found) return status;
  dir_.ledger().remove(entry.allocated_bytes);
  bytes_ -= entry.allocated_bytes;
  --files_;
  return {};
}

Status Quarantine::clear() {
  Status first;
  for (size_t i = entries_.size(); i > 0; --i) {  // each once; those that stay keep their order
    Status status = remove_file(entries_.front());
    if (!status.ok()) entries_.push_back(std::move(entries_.front()));
    entries_.pop_front();
    if (first.ok()) first = std::move(status);
  }
  Status synced = dir_.files().sync_dir(dir_.quarantine_folder());
  if (first.ok()) return synced;
  return {first.code(),
          std::to_string(entries_.size()) + " quarantined files are left: " + first.message()};
}

}  // namespace kv
