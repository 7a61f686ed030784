// Models in use and at rest, and the values that they share.
#include "cachesvc/core/models.h"

#include <algorithm>

namespace kv {
namespace {

constexpr uint64_t kRamShare = 4;   // models take at most budget / 4 bytes
constexpr uint64_t kSsdShare = 16;  // their records take at most limit / 16 bytes

// Ends a model on a worker, wherever its last pointer goes: thousands of small pieces take
// milliseconds, and malloc must give them back before others are promised their bytes.
struct LastOfModel {
  void end() {
    Charge paid = std::move(model->charge);
    model.reset();
    trim_heap();
  }
  std::shared_ptr<CodedModel> model;
  std::shared_ptr<RamPool> pool;
  std::shared_ptr<LoopGate> gate;
  boost::asio::any_io_executor workers;  ///< valid while the gate is open
  PostMemory to_loop, to_worker;
};

}  // namespace

ModelState* Models::find(const Key& key) const {
  auto it = models_.find(key);
  return it == models_.end() ? nullptr : it->second.get();
}

std::shared_ptr<ModelState> Models::share(const Key& key) const {
  auto it = models_.find(key);
  return it == models_.end() ? nullptr : it->second;
}

ModelState* Models::of(const Record& record) const {
  return find({record.realm->realm.ns, record.realm->realm.fingerprint});
}

const RestingModel* Models::resting(const Key& key) const {
  auto it = resting_.find(key);
  return it == resting_.end() ? nullptr : &it->second;
}

void Models::found(ModelRecord record,
                   const std::map<Id, std::shared_ptr<const Profile>>& profiles) {
  auto room = env_.pool->try_charge(ChargeKind::model,
                                    held_bytes(record.model) + groups_bytes(record.model));
  if (!room) return;  // treated as if its record were lost: its objects stay on the SSD
  auto spec = charged(std::make_shared<const ModelSpec>(std::move(record.model)), std::move(*room));
  auto state = std::make_shared<ModelState>();
  state->ns = record.ns;
  state->spec = spec;
  state->serial = record.serial;
  auto profile = profiles.find(record.profile);
  if (profile != profiles.end() && validate(*profile->second, *spec).ok()) {
    Realm realm{record.ns, spec->fingerprint, record.profile};
    state->realm = index_.realm(realm, spec, profile->second);
    state->records_durable = true;
    state->record_bytes = record_bytes(*spec, *profile->second);
  }
  models_[{record.ns, spec->fingerprint}] = std::move(state);
}

// Keeps one copy of each part: those that a start found or other sessions made are dropped.
std::shared_ptr<ModelState> Models::put_in_force(const std::string& ns,
                                                 std::shared_ptr<const CodedModel> coded,
                                                 RecordsOnSsd records) {
  auto spec = part_of(coded, coded->spec);
  auto profile = part_of(coded, coded->profile);
  const Realm realm{ns, spec->fingerprint, coded->profile_id};
  auto state = index_.realm(realm, spec, profile);
  index_.relink(*state, Id{});  // stored before its profile or model record was lost
  for (const auto& other : index_.realms().of(ns, realm.fingerprint)) {
    if (other->in_force == (other == state)) continue;
    index_.set_in_force(*other, other == state);
    reorder(other, kRootNode);
  }
  state->others_lost = index_.orphans().has(ns, realm.fingerprint, realm.profile);
  state->model = spec;
  state->profile = profile;
  state->codec = part_of(coded, coded->codec);
  state->groups = PartGroups(spec, part_of(coded, coded->groups));
  auto& slot = models_[{ns, realm.fingerprint}];
  if (!slot) slot = std::make_shared<ModelState>();
  slot->ns = ns;
  slot->serial = std::max(slot->serial, records.serial);
  slot->records_durable = records.durable.value_or(slot->records_durable);
  slot->record_bytes = record_bytes(*spec, *profile);
  slot->spec = std::move(spec);
  slot->realm = std::move(state);
  slot->coded = std::move(coded);
  resting_.erase({ns, realm.fingerprint});
  return slot;
}

// Goes on in later handlers until the whole realm has its place.
void Models::reorder(const std::shared_ptr<RealmState>& realm, NodeId first) {
  const NodeId next = index_.reorder(*realm, first, kNodesPerStep);
  if (next == kNoNode) return;
  env_.later([this, weak = std::weak_ptr<RealmState>(realm), next] {
    if (auto held = weak.lock()) reorder(held, next);
  });
}

std::shared_ptr<const CodedModel> Models::shared(std::shared_ptr<CodedModel> made) {
  std::erase_if(coded_, [](const auto& entry) { return entry.second.expired(); });
  auto last = std::make_shared<LastOfModel>();
  last->model = std::move(made);
  last->pool = env_.pool;
  last->gate = env_.gate;
  last->workers = env_.workers;
  auto end = [last](const CodedModel*) {
    auto on_worker = [last] { last->end(); };
    auto on_loop = [last, on_worker] { post_surely(last->workers, last->to_worker, on_worker); };
    if (!last->gate->post(last->to_loop, on_loop)) last->end();
  };
  std::shared_ptr<const CodedModel> shared(last->model.get(), std::move(end));
  auto& known = coded_[shared->key];
  if (auto live = known.lock()) return live;
  known = shared;
  return shared;
}

// True if the model has no holders, and no stored objects in any profile.
bool Models::unused(const std::shared_ptr<ModelState>& model) const {
  const Id& fingerprint = model->spec->fingerprint;
  if (model.use_count() > 1 || model->records_writing) return false;
  for (const auto& realm : index_.realms().all()) {
    if (realm->realm.ns != model->ns || realm->realm.fingerprint != fingerprint) continue;
    long own = realm == model->realm ? 2 : 1;  // the index's, and the model's
    if (!realm->empty() || realm.use_count() > own) return false;
  }
  return !index_.orphans().has(model->ns, fingerprint);
}

// A model without records on the SSD is forgotten. None rests while some file is unknown: without
// its model the file could never be served again.
void Models::rest() {
  if (found_.files_unknown()) return;
  std::vector<Id> gone;
  for (auto it = models_.begin(); it != models_.end();) {
    const auto& [key, model] = *it;
    if (!unused(model)) {
      ++it;
      continue;
    }
    if (lane_ && model->records_durable && model->realm) {
      resting_[key] = rested(*model);
    } else {
      gone.push_back(model_id(key.first, key.second));
    }
    it = models_.erase(it);
  }
  release(std::move(gone), {});
}

RestingModel Models::rested(const ModelState& model) {
  RestingModel out;
  out.profile = model.realm->realm.profile;
  out.key = model.coded ? model.coded->key : coded_key(*model.spec, out.profile);
  out.serial = model.serial;
  out.since = ++rests_;
  out.coded_bytes = coded_model_bytes(*model.spec, model.realm->profile.get());
  out.record_bytes = record_bytes(*model.spec, *model.realm->profile);
  return out;
}

// Forgets the model that has rested longest, its records too. Returns: false if none rests.
bool Models::forget_oldest() {
  auto oldest = std::min_element(
      resting_.begin(), resting_.end(),
      [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
  if (oldest == resting_.end()) return false;
  Id model = model_id(oldest->first.first, oldest->first.second), profile = oldest->second.profile;
  resting_.erase(oldest);
  release({model}, {profile});
  return true;
}

std::vector<Id> Models::forget_resting(const std::string& ns) {
  std::vector<Id> gone;
  std::erase_if(resting_, [&](const auto& rests) {
    if (rests.first.first != ns) return false;
    gone.push_back(model_id(rests.first.first, rests.first.second));
    return true;
  });
  return gone;
}

// `gone_profiles` go if nothing else names them.
void Models::release(std::vector<Id> gone_models, std::vector<Id> gone_profiles) {
  if (found_.files_unknown()) return;
  auto profiles = index_.release_realms();
  profiles.insert(profiles.end(), gone_profiles.begin(), gone_profiles.end());
  std::erase_if(profiles, [this](const Id& id) {
    return index_.names_profile(id) ||
           std::any_of(resting_.begin(), resting_.end(),
                       [&](const auto& rests) { return rests.second.profile == id; });
  });
  if (found_.others_may_name_records()) return;
  if (!lane_ || (profiles.empty() && gone_models.empty())) return;
  lane_.run(
      [ssd = lane_.ssd(), models = std::move(gone_models), profiles = std::move(profiles)] {
        for (const Id& id : models) (void)ssd->erase_model_records(id);
        for (const Id& id : profiles) (void)ssd->erase_profile(id);
        return true;
      },
      [](bool) {});
}

void Models::check_invariants() const {
  for (const auto& [key, model] : models_) {
    KV_CHECK(!resting_.contains(key));
    KV_CHECK(Key(model->ns, model->spec->fingerprint) == key);
    if (!model->realm) continue;
    const RealmState& realm = *model->realm;
    KV_CHECK(Key(realm.realm.ns, realm.realm.fingerprint) == key);
    KV_CHECK(index_.realms().find(realm.realm) == &realm);
    KV_CHECK(!model->coded || (realm.in_force && model->coded->profile_id == realm.realm.profile));
  }
  for (const auto& [key, rests] : resting_) KV_CHECK(rests.since <= rests_);
}

uint64_t Models::ram_limit() const { return env_.pool->most_bytes() / kRamShare; }

size_t Models::count_of(const std::string& ns) const {
  return static_cast<size_t>(std::count_if(
      models_.begin(), models_.end(), [&](const auto& entry) { return entry.first.first == ns; }));
}

Status Models::place_for(const std::string& ns) {
  const size_t most = env_.options.max_models, quota = env_.namespaces.quota(ns).models;
  auto full = [&] { return models_.size() + resting_.size() >= most; };
  const bool many = count_of(ns) >=
                    (quota > 0 && quota < kMaxModelsPerNamespace ? quota : kMaxModelsPerNamespace);
  if (full() || many) rest();
  while (full() && forget_oldest()) {
  }
  if (full()) {
    ++env_.count.busy;
    return {StatusCode::busy,
            "max_models " + std::to_string(most) + ": so many are open, or have something stored"};
  }
  KV_RETURN_IF_ERROR(env_.one_more(ns, "models", &NamespaceQuota::models, count_of(ns)));
  if (many && count_of(ns) >= kMaxModelsPerNamespace) {
    ++env_.count.busy;
    return {StatusCode::busy, "namespace " + ns + ": " + std::to_string(count_of(ns)) +
                                  " models are open or have something stored, expected at most " +
                                  std::to_string(kMaxModelsPerNamespace)};
  }
  return {};
}

Status Models::room_for(const std::string& name, uint64_t bytes) {
  const uint64_t limit = ram_limit();
  auto used = [&] { return env_.pool->used_bytes(ChargeKind::model); };
  if (bytes <= limit && used() + bytes > limit) rest();
  if (used() + bytes <= limit) return {};
  ++env_.count.busy;
  return {bytes > limit ? StatusCode::resource_exhausted : StatusCode::busy,
          "model " + name + ": with its profile it takes " + std::to_string(bytes) +
              " bytes of RAM; models may take " + std::to_string(limit) + " of " +
              std::to_string(env_.pool->most_bytes()) +
              ", and those that are open or stored of take " + std::to_string(used())};
}

// Limit of record bytes: a start reads all records, so they must fit the models' share of RAM.
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
  for (const auto& realm : index_.realms().all()) {  // profiles in force, or still named by objects
    auto [at, is_new] = profiles.try_emplace(realm->realm.profile, 0);
    if (is_new) at->second = record_bytes(*realm->model, *realm->profile).profile;
  }
  for (const auto& [name, rests] : resting_) {
    if (name == key) continue;
    bytes += rests.record_bytes.model;
    profiles.try_emplace(rests.profile, rests.record_bytes.profile);
  }
  for (const auto& [id, size] : profiles) bytes += size;
  return bytes;
}

// Records of resting models go first; no objects go for records beyond their share.
Status Models::room_for_records(const std::string& ns, const CodedModel& model) {
  const uint64_t limit = record_limit();
  while (records_on_ssd(ns, model) > limit && forget_oldest()) {
  }
  const uint64_t all = records_on_ssd(ns, model);
  if (all <= limit) return {};
  ++env_.count.busy;
  return {StatusCode::busy,
          "model " + model.spec->name + ": its records would make " + std::to_string(all) +
              " bytes of records on the SSD, they may take " + std::to_string(limit)};
}

}  // namespace kv
