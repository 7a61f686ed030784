// Record files: read, decoded, and compared with what their names say.
#include "storage/record_reader.h"

#include "proto/identity.h"
#include "storage/file_reader.h"

namespace kv {

Result<std::shared_ptr<const Profile>> read_profile(Files& files, const std::string& path,
                                                    const Id& id, const SealKey* key,
                                                    std::string_view sealed_as) {
  KV_ASSIGN_OR_RETURN(Bytes file, read_file(files, path, key, sealed_as));
  KV_ASSIGN_OR_RETURN(Profile profile, decode_profile_file(file));
  if (profile.id() != id) return corruption("the file holds another profile than its name says");
  return std::make_shared<const Profile>(std::move(profile));
}

Result<ModelRecord> read_model_record(Files& files, const std::string& path, const Id& model,
                                      uint64_t serial, const SealKey* key,
                                      std::string_view sealed_as) {
  KV_ASSIGN_OR_RETURN(Bytes file, read_file(files, path, key, sealed_as));
  KV_ASSIGN_OR_RETURN(ModelRecord record, decode_model_record(file));
  if (model_id(record.ns, record.model.fingerprint) != model || record.serial != serial) {
    return corruption("the file holds another model record than its name says");
  }
  return record;
}

}  // namespace kv
