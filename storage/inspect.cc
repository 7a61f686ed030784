// Inspection of a directory through the tier's own decoders. Read-only.
#include "storage/inspect.h"

#include <algorithm>
#include <array>
#include <set>

#include "storage/file_reader.h"
#include "storage/object_reader.h"
#include "storage/quarantine.h"
#include "storage/record_reader.h"

namespace kv {
namespace {

constexpr int kMaxDepth = 16;  // deepest foreign folders

// `sealed_as`: the file's name in its own folder.
Status read_record(Files& files, const std::string& path, const SealKey* key,
                   std::string_view sealed_as, InspectedFile& f) {
  if (f.kind == FileKind::profile) {
    KV_ASSIGN_OR_RETURN(f.profile, read_profile(files, path, f.name.id, key, sealed_as));
  } else {
    KV_ASSIGN_OR_RETURN(ModelRecord record,
                        read_model_record(files, path, f.name.id, f.serial, key, sealed_as));
    f.model = std::make_shared<const ModelRecord>(std::move(record));
  }
  return {};
}

// The files of one of the 16 folders.
struct Folder {
  Status status;
  std::vector<InspectedFile> files;
  uint64_t allocated_bytes = 0;  // with all that lies in it, and its own
};

class Inspector {
 public:
  Inspector(const std::string& directory, InspectDepth depth, const SealKey* key, Files& files,
            const RunAll& run)
      : directory_(directory), depth_(depth), key_(key), files_(files), run_(run) {}

  Result<Inspection> run() {
    KV_ASSIGN_OR_RETURN(auto top, files_.list(directory_));
    bool store =
        std::any_of(top.begin(), top.end(), [](const DirEntry& e) { return e.name == kLockFile; });
    if (!store) return invalid_argument(directory_ + " holds no store (no " + kLockFile + ")");
    std::array<Folder, kFolders> folders;
    run_(kFolders, [&](uint32_t f) {
      ReadBuffers buffers;
      folder(folder_name(f), buffers, folders[f]);
    });
    auto info = files_.stat(directory_);
    uint64_t& bytes = out_.totals.directory_bytes;
    bytes = info.ok() ? info->allocated_bytes : 0;
    std::set<std::string> own;
    size_t count_all = 0;
    for (const Folder& folder : folders) count_all += folder.files.size();
    out_.files.reserve(count_all);
    for (uint32_t f = 0; f < kFolders; ++f) {  // in the order of their paths
      KV_RETURN_IF_ERROR(folders[f].status);
      own.insert(folder_name(f));
      bytes += folders[f].allocated_bytes;
      for (InspectedFile& file : folders[f].files) {
        count(file);
        out_.files.push_back(std::move(file));
      }
    }
    for (const DirEntry& e : top) {
      if (!own.contains(e.name)) bytes += allocated(directory_ + "/" + e.name, 1);
    }
    list_strays(kTempFolder, out_.temporary);
    list_strays(kQuarantineFolder, out_.quarantined);
    std::stable_sort(out_.quarantined.begin(), out_.quarantined.end(),
                     [](const StrayFile& a, const StrayFile& b) {
                       return quarantine_number(a.path) < quarantine_number(b.path);
                     });
    return std::move(out_);
  }

 private:
  void folder(const std::string& name, ReadBuffers& buffers, Folder& out) {
    const std::string path = directory_ + "/" + name;
    auto info = files_.stat(path);
    if (info.ok()) out.allocated_bytes = info->allocated_bytes;
    auto listed = files_.list(path);
    if (!listed.ok() && listed.status().code() == StatusCode::not_found) return;
    out.status = listed.status();
    if (!listed.ok()) return;
    out.files.reserve(listed->size());
    std::sort(listed->begin(), listed->end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    for (const auto& entry : *listed) file(name, entry.name, buffers, out);
  }

  void file(const std::string& folder, const std::string& name, ReadBuffers& buffers, Folder& out) {
    InspectedFile f;
    f.path = folder + "/" + name;
    std::string path = directory_ + "/" + f.path;
    auto parsed = parse_file_name(name);
    const bool ours = parsed && folder_name(folder_of(parsed->object.id)) == folder;
    Result<FileInfo> info{FileInfo{}};
    if (ours && !is_record(parsed->kind) && depth_ == InspectDepth::headers) {
      f.status = head(path, *parsed, f, *info);
    } else if (!ours) {
      f.status = unsupported("foreign name");
    }
    if (!info->is_file) info = files_.stat(path);  // nothing was opened
    if (!info.ok()) {
      f.status = info.status();
    } else if (ours && (is_record(parsed->kind) || depth_ == InspectDepth::verify)) {
      f.status = read(path, *parsed, buffers, f);
    }
    if (f.status.code() == StatusCode::not_found) return;  // gone since it was listed
    if (info.ok()) out.allocated_bytes += info->is_dir ? allocated(path, 2) : info->allocated_bytes;
    if (ours && f.status.code() == StatusCode::unsupported) {
      auto seal = sealed_by_other(files_, path, key_);
      if (seal) f.other_key = seal->key_id;
    }
    if (info.ok()) {
      f.file_bytes = info->bytes;
      f.allocated_bytes = info->allocated_bytes;
      f.modified_ns = info->modified_ns;
    }
    out.files.push_back(std::move(f));
  }

  // A record, or all of an object.
  Status read(const std::string& path, const ParsedName& parsed, ReadBuffers& buffers,
              InspectedFile& f) {
    f.kind = parsed.kind;
    f.name = parsed.object;
    f.serial = parsed.serial;
    if (is_record(f.kind)) return read_record(files_, path, key_, {}, f);
    KV_ASSIGN_OR_RETURN(FileImage image, read_object(files_, buffers, path, f.name, key_));
    f.unpacked_bytes = image.unpacked_bytes();
    f.header = std::move(image.header);
    for (const auto& piece : image.pieces) {
      f.pieces.push_back(
          {piece.packing, piece.unpacked_bytes, Bytes(nullptr, nullptr, piece.bytes.size())});
    }
    return {};
  }

  // An object's head; `info` is set if the file could be opened.
  Status head(const std::string& path, const ParsedName& parsed, InspectedFile& f, FileInfo& info) {
    f.kind = parsed.kind;
    f.name = parsed.object;
    KV_ASSIGN_OR_RETURN(HeaderView view, read_head(files_, path, key_, &info));
    if (view.header.name != f.name) {
      return corruption("the file holds another object than its name says");
    }
    f.unpacked_bytes = view.unpacked_bytes;
    f.header = std::move(view.header);
    f.pieces = std::move(view.pieces);
    return {};
  }

  void count(const InspectedFile& f) {
    if (f.status.ok()) {
      auto& kind = out_.totals.kinds[to_string(f.kind)];
      ++kind.files;
      kind.file_bytes += f.file_bytes;
      kind.allocated_bytes += f.allocated_bytes;
      kind.unpacked_bytes += f.unpacked_bytes;
    } else if (f.other_key) {
      ++out_.totals.other_key_files;
      out_.totals.other_key_bytes += f.allocated_bytes;
    } else if (f.status.code() == StatusCode::unsupported) {
      ++out_.totals.unknown_files;
    } else {
      ++out_.totals.damaged_files;
    }
  }

  void list_strays(const char* folder, std::vector<StrayFile>& out) {
    auto listed = files_.list(directory_ + "/" + folder);
    if (!listed.ok()) return;
    for (const auto& entry : *listed) {
      std::string path = std::string(folder) + "/" + entry.name;
      auto info = files_.stat(directory_ + "/" + path);
      if (info.ok()) out.push_back({path, info->bytes, info->allocated_bytes});
    }
  }

  uint64_t allocated(const std::string& path, int depth) {
    auto info = files_.stat(path);
    if (!info.ok()) return 0;
    uint64_t bytes = info->allocated_bytes;
    if (!info->is_dir || depth == kMaxDepth) return bytes;
    auto listed = files_.list(path);
    if (!listed.ok()) return bytes;
    for (const auto& entry : *listed) bytes += allocated(path + "/" + entry.name, depth + 1);
    return bytes;
  }

  std::string directory_;
  InspectDepth depth_;
  const SealKey* key_;
  Files& files_;
  const RunAll& run_;
  Inspection out_;
};

}  // namespace

Result<Inspection> inspect_directory(const std::string& directory, InspectDepth depth,
                                     const SealKey* key, Files& files, const RunAll& run) {
  return Inspector(directory, depth, key, files, run).run();
}

void run_in_order(uint32_t count, const std::function<void(uint32_t)>& work) {
  for (uint32_t i = 0; i < count; ++i) work(i);
}

Status inspect_quarantined(const std::string& directory, const StrayFile& file, const SealKey* key,
                           Files& files) {
  std::string name = file.path.substr(file.path.find('/') + 1);
  name = name.substr(0, name.rfind('.'));
  if (name.starts_with(kCatalogFile)) return corruption("a catalog that was replaced by a new one");
  auto parsed = parse_file_name(name);
  if (!parsed) return unsupported("foreign name");
  std::string path = directory + "/" + file.path;
  if (is_record(parsed->kind)) {
    InspectedFile read;
    read.kind = parsed->kind;
    read.name = parsed->object;
    read.serial = parsed->serial;
    return read_record(files, path, key, name, read);
  }
  ReadBuffers buffers;
  return read_object(files, buffers, path, parsed->object, key, name).status();
}

Result<FileImage> inspect_object(const std::string& directory, const ObjectName& name,
                                 const SealKey* key, Files& files) {
  ReadBuffers buffers;
  return read_object(files, buffers, directory + "/" + relative_path(name), name, key);
}

}  // namespace kv
