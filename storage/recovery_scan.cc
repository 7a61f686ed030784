// Recovery: rows are read first, then every folder; the files decide.
#include "storage/recovery_scan.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "storage/record_reader.h"

namespace kv {
namespace {

constexpr int kMaxUnknownDepth = 16;  // deepest foreign folders that are measured
constexpr size_t kPlacesPerRow = 2;   // least places of the table per row

int64_t hour_of(const FoundObject& found) {
  std::chrono::nanoseconds modified(found.modified_ns);
  return std::chrono::floor<std::chrono::hours>(modified).count();
}

uint64_t seconds_of(const FoundObject& found) {
  return static_cast<uint64_t>(std::max<int64_t>(0, found.modified_ns / 1'000'000'000));
}

bool is_temp(const DirEntry& entry) { return entry.name.ends_with(kTempSuffix); }

}  // namespace

Result<Recovery> RecoveryScan::run() {
  auto start = std::chrono::steady_clock::now();
  KV_ASSIGN_OR_RETURN(Recovery out, scan());
  auto took = std::chrono::steady_clock::now() - start;
  out.milliseconds =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  return out;
}

Result<Recovery> RecoveryScan::scan() {
  KV_RETURN_IF_ERROR(quarantine_.load());
  KV_RETURN_IF_ERROR(remove_temps());
  using Folders = Result<std::vector<FolderFiles>>;
  Beside<Folders> listing(beside_, [this]() -> Folders { return list_folders(); });
  Catalog::Rows rows;
  KV_RETURN_IF_ERROR(catalog_.open(rows, out_.state, out_.catalog_rebuilt));
  if (reindex_) {
    KV_RETURN_IF_ERROR(catalog_.start_empty());
    if (out_.state) catalog_.keep(*out_.state);
  }
  take_rows(rows);
  {
    KV_ASSIGN_OR_RETURN(auto folders, listing.take());
    for (const FolderFiles& files : folders) scan_folder(files);
  }
  KV_RETURN_IF_ERROR(scan_top());
  KV_RETURN_IF_ERROR(dir_.measure_all());
  give_rows(std::move(rows.bad));
  max_recency_ = adoption_.settle(max_recency_);
  do {
    adoption_.run(adopt_at_start_, out_);
  } while (out_.unread > 0 && adopt_at_start_ == UINT64_MAX);
  return std::move(out_);
}

void RecoveryScan::take_rows(Catalog::Rows& rows) {
  rows_ = std::move(rows.good);
  good_rows_ = rows_.size();
  std::move(rows.sealed.begin(), rows.sealed.end(), std::back_inserter(rows_));
  fate_.assign(rows_.size(), Row::without_file);
  row_at_.assign(std::bit_ceil(kPlacesPerRow * rows_.size() + 1), 0);
  for (uint32_t i = 0; i < rows_.size(); ++i) {
    max_recency_ = std::max(max_recency_, rows_[i].recency);
    uint32_t& place = place_of(rows_[i].header.name);
    if (place == 0) {
      place = i + 1;
    } else {
      fate_[i] = Row::left_out;  // two rows of one name: a damaged catalog, the first one counts
    }
  }
}

uint32_t& RecoveryScan::place_of(const ObjectName& name) {
  size_t at = ObjectNameHash{}(name);
  while (true) {
    uint32_t& place = row_at_[at & (row_at_.size() - 1)];
    if (place == 0 || rows_[place - 1].header.name == name) return place;
    ++at;
  }
}

// The good rows are the objects known so far; the others are dropped.
void RecoveryScan::give_rows(std::vector<std::string> bad) {
  size_t kept = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (fate_[i] == Row::without_file) bad.push_back(file_name(rows_[i].header.name));
    if (fate_[i] != Row::used) continue;
    if (kept < i) rows_[kept] = std::move(rows_[i]);
    ++kept;
  }
  rows_.resize(kept);
  out_.objects = std::move(rows_);
  out_.rows_dropped += bad.size();
  catalog_.remove(bad);
}

// Removes temporary files: the lock is ours, so their writer is dead.
Status RecoveryScan::remove_temps() {
  KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list(dir_.temp_folder()));
  for (const auto& entry : listed) {
    std::string path = dir_.temp_folder() + "/" + entry.name;
    if (is_temp(entry) && dir_.files().unlink(path).ok()) {
      ++out_.temps_removed;
    } else {
      count_unknown(path, 0);
    }
  }
  return {};
}

// Lists the folders; depends on nothing else, and may run on another thread.
Result<std::vector<FolderFiles>> RecoveryScan::list_folders() const {
  std::vector<FolderFiles> folders(kFolders);
  for (uint32_t f = 0; f < kFolders; ++f) {
    KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list_files(dir_.folder_path(f)));
    folders[f].folder = f;
    for (ListedFile& file : listed) {
      auto name = parse_file_name(file.name);
      bool object = name && !is_record(name->kind) && folder_of(name->object.id) == f &&
                    file.readable && file.info.is_file;
      if (object) {
        const FileInfo& info = file.info;
        folders[f].objects.push_back(
            {name->object, info.bytes, info.allocated_bytes, info.modified_ns});
      } else {
        folders[f].others.push_back(std::move(file));
      }
    }
  }
  return folders;
}

void RecoveryScan::scan_folder(const FolderFiles& files) {
  for (const ListedFile& file : files.others) scan_other(files.folder, file);
  for (const FoundObject& found : files.objects) scan_object(found);
}

void RecoveryScan::scan_other(uint32_t folder, const ListedFile& file) {
  std::string path = dir_.folder_path(folder) + "/" + file.name;
  auto name = parse_file_name(file.name);
  if (!file.readable) {
    ++out_.unreadable;
    if (name && !is_record(name->kind)) ++out_.unreadable_objects;
    return;
  }
  if (!name || folder_of(name->object.id) != folder || !file.info.is_file) {
    return count_unknown(path, 0);
  }
  dir_.ledger().add(file.info.allocated_bytes);
  if (name->kind == FileKind::profile) {
    scan_profile(*name, path);
  } else {
    scan_model_record(*name, path);
  }
}

void RecoveryScan::scan_object(const FoundObject& found) {
  dir_.ledger().add(found.allocated_bytes);
  int64_t hour = hour_of(found);
  if (int64_t age = hour_ - hour; age >= 0 && age < int64_t{kKeptHours}) {
    out_.written[hour] += found.bytes;
  }
  uint32_t number = place_of(found.name);
  if (number == 0) return adoption_.add({found.name, found.modified_ns, 0, false});
  KnownObject& row = rows_[number - 1];
  // A sealed row: its file, too, may be another key's, and then both stay.
  bool sealed = number > good_rows_, same_length = row.file_bytes == found.bytes;
  if (!reindex_ && same_length && !sealed) {
    row.allocated_bytes = found.allocated_bytes;
    if (row.note.expires <= seconds_of(found)) row.note.expires = 0;
    fate_[number - 1] = Row::used;
    ++out_.rows_used;
    return;
  }
  fate_[number - 1] = Row::left_out;  // replaced by one that agrees with the file
  if (!same_length && !sealed) ++out_.rows_dropped;
  adoption_.add({found.name, found.modified_ns, row.recency, true});
}

void RecoveryScan::scan_profile(const ParsedName& name, const std::string& path) {
  auto profile = read_profile(dir_.files(), path, name.object.id, dir_.key());
  if (!profile.ok()) return reject(name, path, profile.status());
  out_.profiles.push_back(std::move(*profile));
}

void RecoveryScan::scan_model_record(const ParsedName& name, const std::string& path) {
  auto record = read_model_record(dir_.files(), path, name.object.id, name.serial, dir_.key());
  if (!record.ok()) return reject(name, path, record.status());
  for (auto& known : out_.models) {
    if (known.ns != record->ns || known.model.fingerprint != record->model.fingerprint) continue;
    if (known.serial < record->serial) known = std::move(*record);
    return;
  }
  out_.models.push_back(std::move(*record));
}

void RecoveryScan::reject(const ParsedName& name, const std::string& path, const Status& status) {
  auto info = dir_.files().stat(path);
  adoption_.reject(path, name, status, info.ok() ? *info : FileInfo{}, out_);
}

// Charges the directory itself: all but the folders and files that have their own accounts.
Status RecoveryScan::scan_top() {
  KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list(dir_.path()));
  for (const auto& entry : listed) {
    const std::string& name = entry.name;
    bool folder =
        name.size() == 1 && std::string("0123456789abcdef").find(name) != std::string::npos;
    bool catalog = name == kCatalogFile || name == std::string(kCatalogFile) + "-wal";
    if (folder || catalog || name == kTempFolder || name == kQuarantineFolder ||
        name == kLockFile) {
      continue;
    }
    count_unknown(dir_.path() + "/" + name, 0);
  }
  return {};
}

void RecoveryScan::count_unknown(const std::string& path, int depth) {
  auto info = dir_.files().stat(path);
  if (!info.ok()) {
    ++out_.unreadable;
    return;
  }
  dir_.ledger().add(info->allocated_bytes);
  out_.unknown_bytes += info->allocated_bytes;
  if (!info->is_dir) {
    ++out_.unknown_files;
    return;
  }
  if (depth == kMaxUnknownDepth) return;
  auto listed = dir_.files().list(path);
  if (!listed.ok()) return;
  for (const auto& entry : *listed) count_unknown(path + "/" + entry.name, depth + 1);
}

}  // namespace kv
