// RecordStore: the profiles and model records of a directory. FORMAT.md, "Record files".
//
// Records are durable on return, before the first block that names them. Those that another key
// sealed stay: so do the files that name them. Internal to storage/; called under the tier's writer
// lock, read_profile() from any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/publisher.h"
#include "storage/record_file.h"
#include "storage/store_dir.h"

namespace kv {

class RecordStore {
 public:
  RecordStore(StoreDir& dir, Publisher& publisher) : dir_(dir), publisher_(publisher) {}

  Status put_profile(const Profile& profile);
  Result<std::shared_ptr<const Profile>> read_profile(const Id& id) const;
  Status erase_profile(const Id& id);
  /// See SsdTier::put_model_record().
  Status put_model_record(const ModelRecord& record);
  Status erase_model_records(const Id& model);

 private:
  using Serials = std::vector<std::pair<uint64_t, std::string>>;  // serials and file names
  /// Serials of a model's records, the lowest first.
  Result<Serials> serials_of(const Id& model) const;
  Status put(const EncodedFile& file, const Id& id, const std::string& name);
  /// Removes the file of that name, unless another key sealed it.
  Status remove(const Id& id, const std::string& name);

  StoreDir& dir_;
  Publisher& publisher_;
};

}  // namespace kv
