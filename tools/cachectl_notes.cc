// The copy of the catalog, and its rows.
#include "tools/cachectl_notes.h"

#include <cstdlib>
#include <filesystem>

#include "storage/catalog.h"
#include "storage/file_names.h"

namespace kv::cachectl {
namespace {

namespace fs = std::filesystem;

// A folder that only this user may read, and that goes with this object; empty: there is none.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::error_code none;
    std::string pattern = (fs::temp_directory_path(none) / "cachectl-XXXXXX").string();
    if (!none && ::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~PrivateFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;  // owns the folder
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::map<ObjectName, ObjectNote> read_notes(const Request& request) {
  std::map<ObjectName, ObjectNote> notes;
  PrivateFolder folder;
  const std::string from = request.directory + "/" + kCatalogFile;
  const std::string to = folder.path() + "/" + kCatalogFile;
  std::error_code failed;
  if (folder.path().empty() || !fs::copy_file(from, to, failed)) return notes;
  fs::copy_file(from + "-wal", to + "-wal", failed);  // none after an orderly end
  auto noted = Catalog::notes_of(to, request.key.get());
  if (noted.ok()) notes.insert(noted->begin(), noted->end());
  return notes;
}

}  // namespace kv::cachectl
