// The records of models on the SSD: profiles and model records, their bytes and their share.
#include <algorithm>

#include "cachesvc/core/models.h"

namespace kv {
namespace {

constexpr uint64_t kSsdShare = 16;  // at most limit / 16 bytes are records'

// Beside their encoded bytes: whole blocks, extents and folder growth of two files.
constexpr uint64_t kRecordSlackBytes = 128u << 10;

struct PutRecords {
  Status status;
  uint64_t needed = 0;  // upper bound of what they take on the SSD
};

// Worker.
PutRecords put_both(SsdTier& ssd, const ModelRecord& record, const Profile& profile) {
  PutRecords out;
  out.needed = encoded_bytes(profile) + held_bytes(record.model) + kRecordSlackBytes;
  out.status = ssd.put_profile(profile);
  if (out.status.ok()) out.status = ssd.put_model_record(record);
  return out;
}

uint64_t whole_blocks(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

RecordBytes record_bytes(const ModelSpec& spec, const Profile& profile) {
  return {whole_blocks(held_bytes(spec)), whole_blocks(encoded_bytes(profile))};
}

uint64_t Models::encoding_bytes(const Profile* profile) {
  return profile ? 2 * encoded_bytes(*profile) : 0;
}

// A full SSD makes room for them once, as it does for objects; not once another profile is in
// force: the last record that is written names it.
void Models::put_records(ModelRecord record, std::shared_ptr<const Profile> profile,
                         std::shared_ptr<ModelState> model, std::function<void(Status)> done) {
  if (model) model->records_writing = true;
  auto newer = [this, key = Key(record.ns, record.model.fingerprint), own = record.serial] {
    const ModelState* known = find(key);
    return known && known->serial > own;
  };
  auto end = [this, model = std::move(model), done = std::move(done)](Status status) {
    if (model) model->records_writing = false;
    if (!status.ok()) lane_.write_failed(nullptr, status);
    done(std::move(status));
    env_.progress();
  };
  auto put = [ssd = lane_.ssd(), record = std::move(record), profile = std::move(profile)] {
    return put_both(*ssd, record, *profile);
  };
  lane_.run(put, [this, put, newer, end](PutRecords got) {
    if (got.status.code() != StatusCode::resource_exhausted || newer()) return end(got.status);
    lane_.run_with_room(got.needed, put, [end](PutRecords again) { end(again.status); });
  });
}

void Models::write_records(ModelState& state) {
  if (state.records_writing || !state.realm) return;
  const uint64_t serial = ++state.serial;
  ModelRecord record{state.ns, *state.spec, state.realm->realm.profile, serial};
  auto model = models_.at({state.ns, state.spec->fingerprint});
  put_records(std::move(record), state.realm->profile, model, [model, serial](Status status) {
    if (model->serial == serial) model->records_durable = status.ok();
  });
}

void Models::write_missing_records() {
  for (const auto& [key, model] : models_) {
    if (!model->records_durable) write_records(*model);
  }
}

void Models::rewrite_record(bool is_profile, const Id& id) {
  for (auto& [key, model] : models_) {
    if (!model->realm || model->records_writing) continue;
    Id own = is_profile ? model->realm->realm.profile : model_id(key.first, key.second);
    if (own != id) continue;
    model->records_durable = false;
    write_records(*model);
  }
  if (!is_profile) return;
  for (const auto& realm : index_.realms().all()) {  // that no model has in force, but objects need
    if (realm->realm.profile != id || realm->in_force) continue;
    lane_.run([ssd = lane_.ssd(), profile = realm->profile] { return ssd->put_profile(*profile); },
              [](Status) {});
    return;
  }
}

// A model that is open has its record written anew with the next object of it; one that is being
// written now is of what comes.
std::vector<Id> Models::forget_records(const std::string& ns) {
  std::vector<Id> gone;
  if (found_.files_unknown() || held_) return gone;
  for (auto& [key, model] : models_) {
    if (key.first != ns || model->records_writing) continue;
    model->records_durable = false;
    gone.push_back(model_id(key.first, key.second));
  }
  std::erase_if(resting_, [&](const auto& rests) {
    if (rests.first.first != ns) return false;
    gone.push_back(model_id(rests.first.first, rests.first.second));
    return true;
  });
  return gone;
}

// A start reads all records: they must fit what models may take of RAM.
uint64_t Models::record_limit() const {
  return std::min(env_.options.ssd_limit_bytes / kSsdShare, ram_limit());
}

// Bytes of all records, each profile once.
uint64_t Models::records_on_ssd(const std::string& ns, const CodedModel& with) const {
  std::map<Id, uint64_t> profiles;
  const RecordBytes own = record_bytes(*with.spec, *with.profile);
  const Key key(ns, with.spec->fingerprint);
  uint64_t bytes = own.model;
  profiles[with.profile_id] = own.profile;
  for (const auto& [name, model] : models_) {
    if (name != key) bytes += model->record_bytes.model;
  }
  for (const auto& realm : index_.realms().all()) {  // in force, or still named by objects
    auto [at, is_new] = profiles.try_emplace(realm->realm.profile, 0);
    if (is_new) at->second = whole_blocks(encoded_bytes(*realm->profile));
  }
  for (const auto& [name, rests] : resting_) {
    if (name == key) continue;
    bytes += rests.record_bytes.model;
    profiles.try_emplace(rests.profile, rests.record_bytes.profile);
  }
  for (const auto& [id, size] : profiles) bytes += size;
  return bytes;
}

// Records of resting models go first, and never anybody's objects for more than the share.
Status Models::room_for_records(const std::string& ns, const CodedModel& model) {
  const uint64_t limit = record_limit();
  while (records_on_ssd(ns, model) > limit && forget_resting()) {
  }
  const uint64_t all = records_on_ssd(ns, model);
  if (all <= limit) return {};
  ++env_.count.busy;
  return {StatusCode::busy,
          "model " + model.spec->name + ": its records would make " + std::to_string(all) +
              " bytes of records on the SSD, they may take " + std::to_string(limit)};
}

}  // namespace kv
