// Adoption: header by header, the oldest file first.
#include "storage/adoption.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "storage/file_reader.h"

namespace kv {
namespace {

constexpr uint32_t kMaxReads = 5;  // reads, each in another run

// Files of one tick of the clock have no order. Rows get one in which each finds its parent before
// it.
void parents_first(std::vector<KnownObject>& objects) {
  std::sort(objects.begin(), objects.end(), [](const KnownObject& a, const KnownObject& b) {
    return std::tuple(a.header.first_token, a.header.name.kind, a.recency) <
           std::tuple(b.header.first_token, b.header.name.kind, b.recency);
  });
}

}  // namespace

uint64_t Adoption::settle(uint64_t max_recency) {
  std::sort(unread_.begin(), unread_.end(),
            [](const UnreadFile& a, const UnreadFile& b) { return a.modified_ns < b.modified_ns; });
  for (UnreadFile& file : unread_) {
    if (file.recency == 0) file.recency = ++max_recency;
  }
  return max_recency;
}

void Adoption::run(uint64_t max_files, Recovery& out) {
  uint64_t left = std::min(max_files, uint64_t{unread_.size()});
  while (left > 0) {
    const uint64_t count = whole_ticks(left);
    left -= count;
    std::vector<UnreadFile> again;
    std::vector<KnownObject> adopted;
    for (uint64_t i = 0; i < count; ++i) {
      if (!read(unread_[i], adopted, out)) again.push_back(unread_[i]);
    }
    parents_first(adopted);
    catalog_.adopt(adopted);
    out.adopted += adopted.size();
    out.objects.insert(out.objects.end(), std::make_move_iterator(adopted.begin()),
                       std::make_move_iterator(adopted.end()));
    unread_.erase(unread_.begin(), unread_.begin() + static_cast<ptrdiff_t>(count));
    unread_.insert(unread_.end(), again.begin(), again.end());
  }
  out.unread = unread_.size();
}

// Number of the next files: kAdoptedAtATime, and those of the last one's time, up to a limit.
uint64_t Adoption::whole_ticks(uint64_t max_files) const {
  uint64_t count = std::min(max_files, kAdoptedAtATime);
  const uint64_t most = std::min(max_files, 2 * kAdoptedAtATime);
  while (count < most && unread_[count].modified_ns == unread_[count - 1].modified_ns) ++count;
  return count;
}

bool Adoption::read(UnreadFile& file, std::vector<KnownObject>& adopted, Recovery& out) {
  std::string name = file_name(file.name), path = dir_.file_path(file.name.id, name);
  auto info = dir_.files().stat(path);
  auto view =
      info.ok() ? read_head(dir_.files(), path, dir_.key()) : Result<HeaderView>(info.status());
  Status status = view.ok() ? Status() : view.status();
  if (status.code() == StatusCode::not_found) {  // erased since it was listed, or moved away before
    if (file.has_row) catalog_.remove(std::span(&name, 1));
    return true;
  }
  if (status.ok() && view->header.name != file.name) {
    status = corruption("the file holds another object than its name says");
  }
  bool about_file =
      status.code() == StatusCode::corruption || status.code() == StatusCode::unsupported;
  if (!status.ok() && !about_file && ++file.failures < kMaxReads) return false;
  if (!status.ok()) {
    uint64_t unreadable = out.unreadable;
    ParsedName parsed{static_cast<FileKind>(file.name.kind), file.name};
    bool stays = reject(path, parsed, status, info.ok() ? *info : FileInfo{}, out);
    out.unreadable_objects += out.unreadable - unreadable;
    if (file.has_row && !stays) catalog_.remove(std::span(&name, 1));
    return true;
  }
  KnownObject object;
  object.header = std::move(view->header);
  object.header.planes.clear();
  object.header.states.clear();
  object.unpacked_bytes = view->unpacked_bytes;
  object.file_bytes = info->bytes;
  object.allocated_bytes = info->allocated_bytes;
  object.recency = file.recency;
  out.adopted_bytes += object.file_bytes;
  adopted.push_back(std::move(object));
  return true;
}

// Removes a file sealed with another process's key in memory: nobody can open it any more.
bool Adoption::drop_dead(const std::string& path, const FileInfo& info) {
  if (!dir_.files().unlink(path).ok()) return false;
  dir_.ledger().remove(info.allocated_bytes);
  return true;
}

bool Adoption::reject(const std::string& path, const ParsedName& name, const Status& status,
                      const FileInfo& info, Recovery& out) {
  std::string file = path.substr(path.rfind('/') + 1);
  bool stays = false;
  if (status.code() == StatusCode::corruption) {
    Status moved = quarantine_.take(path, file);
    ++(moved.ok() ? out.quarantined : out.unreadable);
  } else if (status.code() == StatusCode::unsupported) {
    auto seal = sealed_by_other(dir_.files(), path, dir_.key());
    bool dead = seal && seal->ephemeral && dir_.key() != nullptr && dir_.key()->ephemeral();
    if (dead && drop_dead(path, info)) {
      ++out.ephemeral_dropped;
      dir_.mark_dirty(folder_of(name.object.id));
      return false;
    }
    stays = seal.has_value();
    if (stays) {
      ++out.other_key_files;
      out.other_key_bytes += info.allocated_bytes;
      others_.add(folder_of(name.object.id), file, info);
    } else {
      ++out.unknown_files;
      ++out.newer_files;
      out.unknown_bytes += info.allocated_bytes;
    }
  } else {
    ++out.unreadable;
  }
  if (out.rejected.size() < kMaxRejectedNames) out.rejected.push_back({file, status});
  return stays;
}

}  // namespace kv
