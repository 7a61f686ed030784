// Writes of profiles and model records.
#include "cachesvc/core/model_records.h"

namespace kv {
namespace {

// Disk space beside the encoded bytes: whole blocks, extents and folder growth of two files.
constexpr uint64_t kRecordSlackBytes = 128u << 10;

struct PutRecords {
  Status status;
  uint64_t needed = 0;  // upper bound of what they take on the SSD
};

// Runs on a worker.
PutRecords put_both(SsdTier& ssd, const ModelRecord& record, const Profile& profile) {
  PutRecords out;
  out.needed = encoded_bytes(profile) + held_bytes(record.model) + kRecordSlackBytes;
  out.status = ssd.put_profile(profile);
  if (out.status.ok()) out.status = ssd.put_model_record(record);
  return out;
}

}  // namespace

// A full SSD makes room for the records once, as it does for objects; but not after another profile
// came into force: the last record written must name that one.
void ModelRecords::put(ModelRecord record, std::shared_ptr<const Profile> profile,
                       std::shared_ptr<ModelState> model, std::function<void(Status)> done) {
  if (model) model->records_writing = true;
  auto newer = [this, key = Models::Key(record.ns, record.model.fingerprint), own = record.serial] {
    const ModelState* known = models_.find(key);
    return known && known->serial > own;
  };
  auto end = [this, model = std::move(model), done = std::move(done)](Status status) {
    if (model) model->records_writing = false;
    if (!status.ok()) lane_.write_failed(nullptr, status);
    done(std::move(status));
    env_.progress();
  };
  auto both = [ssd = lane_.ssd(), record = std::move(record), profile = std::move(profile)] {
    return put_both(*ssd, record, *profile);
  };
  lane_.run(both, [this, both, newer, end](PutRecords got) {
    if (got.status.code() != StatusCode::resource_exhausted || newer()) return end(got.status);
    lane_.run_with_room(got.needed, both, [end](PutRecords again) { end(again.status); });
  });
}

void ModelRecords::write(ModelState& state) {
  if (state.records_writing || !state.realm) return;
  const uint64_t serial = ++state.serial;
  ModelRecord record{state.ns, *state.spec, state.realm->realm.profile, serial};
  auto model = models_.share({state.ns, state.spec->fingerprint});
  put(std::move(record), state.realm->profile, model, [model, serial](Status status) {
    if (model->serial == serial) model->records_durable = status.ok();
  });
}

void ModelRecords::write_missing() {
  for (const auto& [key, model] : models_.all()) {
    if (!model->records_durable) write(*model);
  }
}

void ModelRecords::rewrite(bool is_profile, const Id& id) {
  for (auto& [key, model] : models_.all()) {
    if (!model->realm || model->records_writing) continue;
    Id own = is_profile ? model->realm->realm.profile : model_id(key.first, key.second);
    if (own != id) continue;
    model->records_durable = false;
    write(*model);
  }
  if (!is_profile) return;
  for (const auto& realm : index_.realms().all()) {  // profiles not in force that objects need
    if (realm->realm.profile != id || realm->in_force) continue;
    lane_.run([ssd = lane_.ssd(), profile = realm->profile] { return ssd->put_profile(*profile); },
              [](Status) {});
    return;
  }
}

// Forgets a namespace's name. An open model's record is written anew with its next object; a record
// being written now belongs to objects to come.
std::vector<Id> ModelRecords::forget(const std::string& ns) {
  if (!models_.may_forget()) return {};
  std::vector<Id> gone = models_.forget_resting(ns);
  for (const auto& [key, model] : models_.all()) {
    if (key.first != ns || model->records_writing) continue;
    model->records_durable = false;
    gone.push_back(model_id(key.first, key.second));
  }
  return gone;
}

}  // namespace kv
