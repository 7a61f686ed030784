// Records: written like objects, one at a time, and without rows.
#include "storage/record_store.h"

#include <algorithm>

#include "proto/identity.h"
#include "storage/file_reader.h"
#include "storage/record_reader.h"

namespace kv {

Status RecordStore::put(const EncodedFile& file, const Id& id, const std::string& name) {
  PendingFile pending;
  pending.id = id;
  pending.name = name;
  KV_RETURN_IF_ERROR(publisher_.write_temp(file, 0, pending));
  KV_RETURN_IF_ERROR(publisher_.sync_temp(pending));
  KV_RETURN_IF_ERROR(publisher_.publish(pending));
  publisher_.settle(pending);
  return dir_.sync_folder(folder_of(id));
}

Status RecordStore::remove(const Id& id, const std::string& name) {
  if (sealed_by_other(dir_.files(), dir_.file_path(id, name), dir_.key())) return {};
  Status status = publisher_.remove(id, name).status();
  return status.code() == StatusCode::not_found ? Status() : status;
}

Status RecordStore::put_profile(const Profile& profile) {
  Id id = profile.id();
  if (read_profile(id).ok()) return dir_.sync_folder(folder_of(id));
  KV_ASSIGN_OR_RETURN(EncodedFile file, encode_profile_file(profile));
  return put(file, id, profile_file_name(id));
}

Result<std::shared_ptr<const Profile>> RecordStore::read_profile(const Id& id) const {
  std::string path = dir_.file_path(id, profile_file_name(id));
  return kv::read_profile(dir_.files(), path, id, dir_.key());
}

Status RecordStore::erase_profile(const Id& id) {
  KV_RETURN_IF_ERROR(remove(id, profile_file_name(id)));
  return dir_.sync_folder(folder_of(id));
}

Result<RecordStore::Serials> RecordStore::serials_of(const Id& model) const {
  KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list(dir_.folder_path(folder_of(model))));
  Serials out;
  for (const auto& entry : listed) {
    auto name = parse_file_name(entry.name);
    if (name && name->kind == FileKind::model_record && name->object.id == model) {
      out.emplace_back(name->serial, entry.name);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Status RecordStore::put_model_record(const ModelRecord& record) {
  Id id = model_id(record.ns, record.model.fingerprint);
  KV_ASSIGN_OR_RETURN(Serials serials, serials_of(id));
  ModelRecord newest = record;
  for (const auto& [serial, name] : serials) {
    if (serial == UINT64_MAX) return invalid_argument(name + ": no serial is higher");
    newest.serial = std::max(newest.serial, serial + 1);
  }
  KV_ASSIGN_OR_RETURN(EncodedFile file, encode_model_record(newest));
  KV_RETURN_IF_ERROR(put(file, id, model_record_file_name(id, newest.serial)));
  // The new one is durable and outranks them: whether they go now or later changes nothing.
  for (const auto& [serial, name] : serials) (void)remove(id, name);
  return {};
}

Status RecordStore::erase_model_records(const Id& model) {
  KV_ASSIGN_OR_RETURN(Serials serials, serials_of(model));
  // Lowest first: if this stops half way, the record in force is still the highest.
  for (const auto& [serial, name] : serials) KV_RETURN_IF_ERROR(remove(model, name));
  return dir_.sync_folder(folder_of(model));
}

}  // namespace kv
