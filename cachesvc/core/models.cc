// Models: their records on the SSD, and what becomes of a model that nobody holds and nothing is
// stored of. It rests: its memory goes with its last client, its records stay, so that its profile
// is in force again. Models have shares: of RAM, of the SSD, and each namespace of their number.
#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

constexpr uint64_t kRamShare = 4;   // at most budget / 4 bytes are models'
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

uint64_t CacheCore::Impl::model_limit() const { return pool_->budget_bytes() / kRamShare; }

// A start reads all records: they must fit what models may take of RAM.
uint64_t CacheCore::Impl::record_limit() const {
  return std::min(options_.ssd_limit_bytes / kSsdShare, model_limit());
}

// While records are written each lies in memory once more, encoded; while its id is made, too.
uint64_t CacheCore::Impl::encoding_bytes(const Profile* profile) {
  return profile ? 2 * encoded_bytes(*profile) : 0;
}

RecordBytes CacheCore::Impl::record_bytes(const ModelSpec& spec, const Profile& profile) {
  return {whole_blocks(held_bytes(spec)), whole_blocks(encoded_bytes(profile))};
}

// A model whose records could not be written at open: tried again before anything of it is spilled.
// One attempt at a time, so that the newest record names the profile in force.
void CacheCore::Impl::write_records(ModelState& state) {
  ModelRecord record{state.ns, *state.spec, state.realm->realm.profile, state.serial + 1};
  auto model = models_.at({state.ns, state.spec->fingerprint});
  uint64_t serial = record.serial;
  put_records(std::move(record), state.realm->profile, model, [model, serial](Status status) {
    if (model->serial == serial) model->records_durable = status.ok();
  });
  state.serial = serial;
}

// Records on their way to the SSD. Whatever ends it, `done` is called once and those who wait for
// the model's records go on.
struct CacheCore::Impl::RecordsJob {
  RecordsJob() = default;
  RecordsJob(const RecordsJob&) = delete;  // ends once
  RecordsJob& operator=(const RecordsJob&) = delete;
  ~RecordsJob() {
    auto self = core.lock();
    if (!self || self->closed_) return;
    if (model) model->records_writing = false;
    self->spills_lacked_memory_ |= status.code() == StatusCode::busy;
    if (!status.ok()) self->write_failed(nullptr, status);
    // Moved: a copy that found no memory would leave an open under way for ever.
    (void)if_memory([&] { done(std::move(status)); });
    done = nullptr;
    self->records_written();
  }
  std::weak_ptr<Impl> core;
  std::shared_ptr<ModelState> model;  ///< null: not known yet
  Status status = out_of_memory();
  std::function<void(Status)> done;
};

// A full SSD makes room for them once, as it does for objects.
void CacheCore::Impl::put_records(ModelRecord record, std::shared_ptr<const Profile> profile,
                                  std::shared_ptr<ModelState> model,
                                  std::function<void(Status)> done) {
  // Not again once another profile is in force: the last record that is written names it.
  auto newer = [this, key = std::pair(record.ns, record.model.fingerprint), own = record.serial] {
    auto known = models_.find(key);
    return known != models_.end() && known->second->serial > own;
  };
  auto job = std::make_shared<RecordsJob>();
  auto put = [ssd = ssd_, record = std::move(record), profile] {
    return put_both(*ssd, record, *profile);
  };
  auto first = ssd_task(put, [this, put, newer, job](PutRecords got) {
    job->status = got.status;
    if (got.status.code() != StatusCode::resource_exhausted || newer()) return;
    on_ssd_with_room(got.needed, put,
                     [job](PutRecords again) { job->status = std::move(again.status); });
  });
  job->model = std::move(model);
  job->done = std::move(done);
  if (job->model) job->model->records_writing = true;
  job->core = weak_from_this();
  ssd_lane_->submit(std::move(first));
}

// True if nobody holds the model, and nothing is stored of it in any profile.
bool CacheCore::Impl::unused(const std::shared_ptr<ModelState>& model) const {
  const Id& fingerprint = model->spec->fingerprint;
  if (model.use_count() > 1 || model->records_writing) return false;
  for (const auto& realm : index_.realms()) {
    if (realm->realm.ns != model->ns || realm->realm.fingerprint != fingerprint) continue;
    long own = realm == model->realm ? 2 : 1;  // the index's, and the model's
    if (!realm->empty() || realm.use_count() > own) return false;
  }
  return !index_.has_orphans(model->ns, fingerprint);
}

// What nobody uses rests; without its records on the SSD it is forgotten. None while some file is
// unknown: without its model it could never be served again.
void CacheCore::Impl::rest_unused() {
  if (files_unknown()) return;
  std::vector<Id> gone;
  for (auto it = models_.begin(); it != models_.end();) {
    const auto& [key, model] = *it;
    if (!unused(model)) {
      ++it;
      continue;
    }
    if (ssd_ && model->records_durable && model->realm) {
      resting_[key] = resting(*model);
    } else {
      gone.push_back(model_id(key.first, key.second));
    }
    it = models_.erase(it);
  }
  release_realms(std::move(gone));
}

RestingModel CacheCore::Impl::resting(const ModelState& model) {
  RestingModel out;
  out.profile = model.realm->realm.profile;
  out.key = model.coded ? model.coded->key : coded_key(*model.spec, out.profile);
  out.serial = model.serial;
  out.since = ++rests_;
  out.coded_bytes = coded_model_bytes(*model.spec, model.realm->profile.get());
  out.record_bytes = record_bytes(*model.spec, *model.realm->profile);
  return out;
}

// When somebody went. Not while an open is under way: it waits for what the next one finds.
void CacheCore::Impl::rest_models() noexcept {
  if (!opening_ && !closed_) (void)if_memory([&] { rest_unused(); });
}

// Forgets the one that has rested longest, its records too. Returns: false if none rests.
bool CacheCore::Impl::forget_resting() {
  auto oldest = std::min_element(
      resting_.begin(), resting_.end(),
      [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
  if (oldest == resting_.end()) return false;
  std::vector<Id> gone{model_id(oldest->first.first, oldest->first.second)};
  std::vector<Id> profiles;
  profiles.push_back(oldest->second.profile);
  resting_.erase(oldest);
  release_realms(std::move(gone), std::move(profiles));
  return true;
}

// A place for one more. Those that rest make room.
Status CacheCore::Impl::place_for_model(const std::string& ns) {
  auto full = [&] { return models_.size() + resting_.size() >= options_.max_models; };
  auto of_ns = [&] {
    return std::count_if(models_.begin(), models_.end(),
                         [&](const auto& entry) { return entry.first.first == ns; });
  };
  const bool many = of_ns() >= kMaxModelsPerNamespace;
  if (full() || many) rest_unused();
  while (full() && forget_resting()) {
  }
  if (full()) {
    ++count_.busy;
    return {StatusCode::busy, "max_models " + std::to_string(options_.max_models) +
                                  ": so many are open, or have something stored"};
  }
  if (many && of_ns() >= kMaxModelsPerNamespace) {
    ++count_.busy;
    return {StatusCode::busy, "namespace " + ns + ": " + std::to_string(of_ns()) +
                                  " models are open or have something stored, expected at most " +
                                  std::to_string(kMaxModelsPerNamespace)};
  }
  return {};
}

// The models' share of RAM has room for so many bytes more.
Status CacheCore::Impl::room_for_model(const std::string& name, uint64_t bytes) {
  const uint64_t limit = model_limit();
  auto used = [&] { return pool_->used_bytes(ChargeKind::model); };
  if (bytes <= limit && used() + bytes > limit) rest_unused();
  if (used() + bytes <= limit) return {};
  ++count_.busy;
  return {bytes > limit ? StatusCode::resource_exhausted : StatusCode::busy,
          "model " + name + ": with its profile it takes " + std::to_string(bytes) +
              " bytes of RAM; models may take " + std::to_string(limit) + " of " +
              std::to_string(pool_->budget_bytes()) +
              ", and those that are open or stored of take " + std::to_string(used())};
}

// Of all records, each profile once.
uint64_t CacheCore::Impl::records_on_ssd(const std::string& ns, const CodedModel& with) const {
  std::map<Id, uint64_t> profiles;
  const RecordBytes own = record_bytes(*with.spec, *with.profile);
  const std::pair key(ns, with.spec->fingerprint);
  uint64_t bytes = own.model;
  profiles[with.profile_id] = own.profile;
  for (const auto& [name, model] : models_) {
    if (name != key) bytes += model->record_bytes.model;
  }
  for (const auto& realm : index_.realms()) {  // in force, or still named by objects
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

// Records have a share of the SSD: those of resting models go first, and never anybody's objects
// for more than the share.
Status CacheCore::Impl::room_for_records(const std::string& ns, const CodedModel& model) {
  const uint64_t limit = record_limit();
  while (records_on_ssd(ns, model) > limit && forget_resting()) {
  }
  const uint64_t all = records_on_ssd(ns, model);
  if (all <= limit) return {};
  ++count_.busy;
  return {StatusCode::busy,
          "model " + model.spec->name + ": its records would make " + std::to_string(all) +
              " bytes of records on the SSD, they may take " + std::to_string(limit)};
}

// Ends a model on a worker, wherever the last pointer to it goes: thousands of small pieces take
// milliseconds, and malloc is to give them back before others are promised their bytes.
struct CacheCore::Impl::LastOfModel {
  void end() {
    Charge paid = std::move(model->charge);
    model.reset();
    pool->trim_heap();
  }
  std::shared_ptr<CodedModel> model;
  std::shared_ptr<RamPool> pool;
  std::shared_ptr<LoopGate> gate;
  boost::asio::any_io_executor workers;  ///< there while the gate is open
  PostMemory to_loop, to_worker;
};

// The same model under the same profile that somebody has, or this one.
std::shared_ptr<const CodedModel> CacheCore::Impl::shared_model(std::shared_ptr<CodedModel> made) {
  std::erase_if(coded_, [](const auto& entry) { return entry.second.expired(); });
  auto last = std::make_shared<LastOfModel>();
  last->model = std::move(made);
  last->pool = pool_;
  last->gate = gate_;
  last->workers = workers_;
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

// Realms without objects that no model has in force go, and with them the profiles that nothing
// names any more, `gone_profiles` among them. Not while an open is between its records and its
// realm: nothing names its profile yet.
void CacheCore::Impl::release_realms(std::vector<Id> gone_models,
                                     std::vector<Id> gone_profiles) noexcept {
  if (files_unknown()) return;
  // What fails leaves records of no use, until a later open has written a newer one in their place.
  try {
    auto profiles = index_.release_realms();
    profiles.insert(profiles.end(), gone_profiles.begin(), gone_profiles.end());
    std::erase_if(profiles, [this](const Id& id) {
      return index_.names_profile(id) ||
             std::any_of(resting_.begin(), resting_.end(),
                         [&](const auto& rests) { return rests.second.profile == id; });
    });
    if (others_may_name_records()) return;
    if (!ssd_ || (profiles.empty() && gone_models.empty())) return;
    on_ssd(
        [ssd = ssd_, models = std::move(gone_models), profiles = std::move(profiles)] {
          for (const Id& id : models) (void)ssd->erase_model_records(id);
          for (const Id& id : profiles) (void)ssd->erase_profile(id);
          return true;
        },
        [](bool) {});
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace kv
