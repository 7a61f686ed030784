// The store read for its own sake: every file in turn, from the device and not from memory.
#include <algorithm>

#include "storage/directory_tier.h"
#include "storage/record_reader.h"

namespace kv {
namespace {

void drop_cached(Files& files, const std::string& path) {
  auto fd = files.open_read(path);
  if (!fd.ok()) return;
  FdGuard guard(files, *fd);
  files.drop_cached(*fd);
}

}  // namespace

// One folder at a time, of which the first `most` names are kept.
Result<std::vector<ListedFile>> DirectoryTier::files_after(const std::string& name, size_t most) {
  std::vector<ListedFile> out;
  auto after = parse_file_name(name);
  for (uint32_t folder = after ? folder_of(after->object.id) : 0; folder < kFolders; ++folder) {
    KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list(dir_.folder_path(folder)));
    std::erase_if(listed,
                  [&](const DirEntry& e) { return e.name <= name || !parse_file_name(e.name); });
    auto by_name = [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; };
    auto end = listed.begin() + static_cast<ptrdiff_t>(std::min(most, listed.size()));
    std::partial_sort(listed.begin(), end, listed.end(), by_name);
    for (auto e = listed.begin(); e != end; ++e) {
      auto info = dir_.files().stat(dir_.folder_path(folder) + "/" + e->name);
      bool readable = info.ok();
      out.push_back({std::move(e->name), readable ? *info : FileInfo(), readable});
    }
    if (!out.empty()) break;
  }
  return out;
}

Status DirectoryTier::verify(const std::string& name) {
  auto parsed = parse_file_name(name);
  if (!parsed) return invalid_argument(name + ": no file of a store has this name");
  std::string path = dir_.file_path(parsed->object.id, name);
  drop_cached(dir_.files(), path);
  Status status =
      is_record(parsed->kind) ? verify_record(*parsed, path) : read(parsed->object).status();
  drop_cached(dir_.files(), path);  // nobody asked for it
  return status;
}

// As read(): what fails is read once more, as a writer, and then moved away.
Status DirectoryTier::verify_record(const ParsedName& name, const std::string& path) {
  auto read_once = [&]() -> Status {
    const Id& id = name.object.id;
    if (name.kind == FileKind::profile) {
      return kv::read_profile(dir_.files(), path, id, dir_.key()).status();
    }
    return read_model_record(dir_.files(), path, id, name.serial, dir_.key()).status();
  };
  Status status = read_once();
  if (status.code() != StatusCode::corruption) return status;
  std::lock_guard lock(writer_mutex_);
  status = read_once();
  if (status.code() != StatusCode::corruption) return status;
  ++counters_.corruptions;
  Status moved = quarantine_.take(path, path.substr(path.rfind('/') + 1));
  dir_.mark_dirty(folder_of(name.object.id));
  (void)dir_.measure_all();  // charged for if it fails
  if (moved.ok()) return status;
  return corruption(status.message() + "; not quarantined: " + moved.message());
}

}  // namespace kv
