// Recovery: rows first, then every folder; the files decide.
#include "storage/recovery.h"

#include <algorithm>
#include <chrono>

#include "proto/identity.h"
#include "storage/file_reader.h"

namespace kv {
namespace {

constexpr int kMaxUnknownDepth = 16;  // of foreign folders that are measured

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
  Catalog::Rows rows;
  KV_RETURN_IF_ERROR(catalog_.open(rows, out_.catalog_rebuilt));
  if (reindex_) KV_RETURN_IF_ERROR(catalog_.start_empty());
  rows_.reserve(rows.good.size());
  out_.objects.reserve(rows.good.size());
  for (auto& row : rows.good) {
    max_recency_ = std::max(max_recency_, row.recency);
    rows_.emplace(row.header.name, std::move(row));
  }
  for (uint32_t f = 0; f < kFolders; ++f) KV_RETURN_IF_ERROR(scan_folder(f));
  KV_RETURN_IF_ERROR(scan_top());
  KV_RETURN_IF_ERROR(dir_.measure_all());

  std::vector<std::string> gone = std::move(rows.bad);
  for (const auto& [name, row] : rows_) gone.push_back(file_name(name));
  out_.rows_dropped += gone.size();
  catalog_.remove(gone);
  mirror_adopted();
  return std::move(out_);
}

// The lock is ours, so whoever wrote them is dead.
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

Status RecoveryScan::scan_folder(uint32_t folder) {
  KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list(dir_.folder_path(folder)));
  for (const auto& entry : listed) {
    std::string path = dir_.folder_path(folder) + "/" + entry.name;
    auto name = parse_file_name(entry.name);
    auto info = dir_.files().stat(path);
    if (!info.ok()) {
      ++out_.unreadable;
      continue;
    }
    if (!name || folder_of(name->object.id) != folder || !info->is_file) {
      count_unknown(path, 0);
      continue;
    }
    dir_.ledger().add(info->allocated_bytes);
    if (name->kind == FileKind::profile) {
      scan_profile(*name, path);
    } else if (name->kind == FileKind::model_record) {
      scan_model_record(*name, path);
    } else {
      scan_object(*name, path, *info);
    }
  }
  return {};
}

void RecoveryScan::scan_object(const ParsedName& name, const std::string& path,
                               const FileInfo& info) {
  auto row = rows_.find(name.object);
  if (!reindex_ && row != rows_.end() && row->second.file_bytes == info.bytes) {
    row->second.allocated_bytes = info.allocated_bytes;
    out_.objects.push_back(std::move(row->second));
    rows_.erase(row);
    ++out_.rows_used;
    return;
  }
  auto view = read_head(dir_.files(), path);
  Status status = view.ok() ? Status() : view.status();
  if (status.ok() && view->header.name != name.object) {
    status = corruption("the file holds another object than its name says");
  }
  if (!status.ok()) {
    reject(path, file_name(name.object), status, info.allocated_bytes);
    return;  // its row, if any, stays in rows_ and is dropped
  }
  KnownObject object;
  object.header = std::move(view->header);
  object.header.planes.clear();
  object.header.states.clear();
  object.unpacked_bytes = view->unpacked_bytes;
  object.file_bytes = info.bytes;
  object.allocated_bytes = info.allocated_bytes;
  if (row != rows_.end()) {
    object.recency = row->second.recency;
    // Replaced below by one that agrees with the file.
    if (row->second.file_bytes != info.bytes) ++out_.rows_dropped;
    rows_.erase(row);
  }
  adopted_.push_back({std::move(object), info.modified_ns});
}

void RecoveryScan::scan_profile(const ParsedName& name, const std::string& path) {
  auto file = read_file(dir_.files(), path);
  auto profile = file.ok() ? decode_profile_file(*file) : Result<Profile>(file.status());
  Status status = profile.ok() ? Status() : profile.status();
  if (status.ok() && profile->id() != name.object.id) status = corruption("another profile");
  if (status.ok()) {
    out_.profiles.push_back(std::make_shared<const Profile>(std::move(*profile)));
    return;
  }
  auto info = dir_.files().stat(path);
  reject(path, profile_file_name(name.object.id), status, info.ok() ? info->allocated_bytes : 0);
}

void RecoveryScan::scan_model_record(const ParsedName& name, const std::string& path) {
  auto file = read_file(dir_.files(), path);
  auto record = file.ok() ? decode_model_record(*file) : Result<ModelRecord>(file.status());
  Status status = record.ok() ? Status() : record.status();
  if (status.ok() && (model_id(record->ns, record->model.fingerprint) != name.object.id ||
                      record->serial != name.serial)) {
    status = corruption("another model record");
  }
  if (!status.ok()) {
    auto info = dir_.files().stat(path);
    reject(path, model_record_file_name(name.object.id, name.serial), status,
           info.ok() ? info->allocated_bytes : 0);
    return;
  }
  for (auto& known : out_.models) {
    if (known.ns != record->ns || known.model.fingerprint != record->model.fingerprint) continue;
    if (known.serial < record->serial) known = std::move(*record);
    return;
  }
  out_.models.push_back(std::move(*record));
}

void RecoveryScan::reject(const std::string& path, const std::string& name, const Status& status,
                          uint64_t allocated_bytes) {
  if (out_.rejected.size() < kMaxRejectedNames) out_.rejected.push_back({name, status});
  if (status.code() == StatusCode::corruption) {
    Status moved = quarantine_.take(path, name);
    ++(moved.ok() ? out_.quarantined : out_.unreadable);
  } else if (status.code() == StatusCode::unsupported) {
    ++out_.unknown_files;
    out_.unknown_bytes += allocated_bytes;
  } else {
    ++out_.unreadable;
  }
}

// The directory itself: everything but the folders and files that have their own accounts.
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

// Files without rows are the newest (their writer died before the row) or all there is: the order
// in which they were written is the best recency there is. Bad rows still tell theirs.
void RecoveryScan::mirror_adopted() {
  std::sort(adopted_.begin(), adopted_.end(),
            [](const Found& a, const Found& b) { return a.modified_ns < b.modified_ns; });
  std::vector<KnownObject> objects;
  for (auto& found : adopted_) {
    if (found.object.recency == 0) found.object.recency = ++max_recency_;
    out_.adopted_bytes += found.object.file_bytes;
    objects.push_back(std::move(found.object));
  }
  out_.adopted = objects.size();
  catalog_.adopt(objects);
  std::move(objects.begin(), objects.end(), std::back_inserter(out_.objects));
}

}  // namespace kv
