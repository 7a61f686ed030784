// open: which profile is in force, the model's records on the SSD, the codec. One open that changes
// something at a time, so that two clients can't put two profiles in force.
#include "cachesvc/cache_core_impl.h"
#include "codec/plan.h"

namespace kv {

struct CacheCore::Impl::OpenPlan {
  std::string ns;
  std::shared_ptr<const ModelSpec> spec;
  std::shared_ptr<const Profile> profile;
  uint64_t serial = 0;
  bool write_records = false;
  // Made on the way.
  std::shared_ptr<const Codec> codec;
  std::vector<CodingReport> reports;
  Id profile_id;
  bool records_durable = false;
};

// One open, from the queue to its answer; the next one's turn comes when it is gone.
struct CacheCore::Impl::OpenJob {
  OpenJob() = default;
  OpenJob(const OpenJob&) = delete;  // ends one turn
  OpenJob& operator=(const OpenJob&) = delete;
  ~OpenJob() { end_turn(); }
  void end_turn() {
    auto self = core.lock();
    core.reset();
    if (!self) return;
    self->opening_ = false;
    self->open_wake_->ask();
  }
  std::weak_ptr<Impl> core;  ///< while it is its turn
  bool ended = false;        ///< finished, with its records on the SSD or without
  uint64_t session = 0;
  OpenRequest request;
  std::shared_ptr<Call<Result<OpenReply>>> call;
};

namespace {

const char* to_text(PrefillMode mode) { return mode == PrefillMode::exact ? "exact" : "coded"; }

// The codec reports side by side; clients see one line per part.
std::vector<CodingReport> part_reports(const ModelSpec& model, const Profile& profile) {
  std::vector<CodingReport> out;
  for (const auto& side : report(model, profile)) {
    if (out.empty() || out.back().layer != side.layer || out.back().part != side.part) {
      CodingReport line;
      line.layer = static_cast<uint16_t>(side.layer);
      line.part = static_cast<uint16_t>(side.part);
      line.kind = side.kind;
      out.push_back(line);
    }
    CodingReport& line = out.back();
    bool k = side.side != Side::v, v = side.side != Side::k;
    if (k) line.requested_k_bits = side.requested_bits;
    if (k) line.active_k_bits = side.active_bits;
    if (v) line.requested_v_bits = side.requested_bits;
    if (v) line.active_v_bits = side.active_bits;
    if (line.reason.empty()) line.reason = side.reason;
  }
  return out;
}

bool same_geometry(const ModelSpec& a, const ModelSpec& b) { return a.layers == b.layers; }

// Beside their encoded bytes: whole blocks, extents and folder growth of two files.
constexpr uint64_t kRecordSlackBytes = 128u << 10;

struct PutRecords {
  Status status;
  uint64_t needed = 0;  // upper bound of what they take on the SSD
};

// Worker.
PutRecords put_both(SsdTier& ssd, const ModelRecord& record, const Profile& profile) {
  PutRecords out;
  auto files = {encode_profile_file(profile), encode_model_record(record)};
  for (const auto& file : files) out.needed += file.ok() ? file->bytes() : 0;
  out.needed += kRecordSlackBytes;
  out.status = ssd.put_profile(profile);
  if (out.status.ok()) out.status = ssd.put_model_record(record);
  return out;
}

}  // namespace

void CacheCore::Impl::open(uint64_t session, OpenRequest request, Deadline deadline,
                           Done<Result<OpenReply>> done) {
  auto call = begin<Result<OpenReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  auto job = std::make_shared<OpenJob>();
  job->session = session;
  job->request = std::move(request);
  job->call = call;
  opens_.push_back(std::move(job));
  next_open();
}

void CacheCore::Impl::next_open() {
  if (opening_ || opens_.empty()) return;
  auto job = std::move(opens_.front());
  opens_.pop_front();
  opening_ = true;
  job->core = weak_from_this();
  if (!job->call->finished()) run_open(std::move(job));
}

Result<CacheCore::Impl::OpenPlan> CacheCore::Impl::plan_open(const std::string& ns,
                                                             const OpenRequest& request) {
  OpenPlan plan;
  plan.ns = ns;
  auto it = models_.find({ns, request.model.fingerprint});
  ModelState* known = it == models_.end() ? nullptr : it->second.get();
  if (!known && models_.size() >= options_.max_models) release_models();
  if (!known && models_.size() >= options_.max_models) {
    ++count_.busy;
    return Status(StatusCode::busy, "max_models " + std::to_string(options_.max_models) +
                                        ": so many are open, or have something stored");
  }
  if (known && !same_geometry(*known->spec, request.model)) {
    return invalid_argument("model " + request.model.name +
                            ": other layers than stored under the same fingerprint");
  }
  plan.spec = known ? known->spec : std::make_shared<const ModelSpec>(request.model);
  plan.serial = known ? known->serial : 0;
  bool in_force = known && known->realm;
  if (request.replace && !request.profile) {
    return invalid_argument("replace: the request brings no profile");
  }
  if (in_force && !request.replace) {
    plan.profile = known->realm->profile;
  } else if (request.profile) {
    plan.profile = request.profile;
  } else if (auto made = options_.profiles.find(request.model.fingerprint);
             made != options_.profiles.end()) {
    Profile profile = *made->second;
    profile.block_tokens = options_.coding.block_tokens;
    profile.prefill = request.prefill;
    plan.profile = std::make_shared<const Profile>(std::move(profile));
  } else {
    CodingSettings settings = options_.coding;
    settings.prefill = request.prefill;
    KV_RETURN_IF_ERROR(validate(*plan.spec, settings.block_tokens));
    KV_ASSIGN_OR_RETURN(Profile plain, plain_profile(*plan.spec, settings));
    plan.profile = std::make_shared<const Profile>(std::move(plain));
  }
  if (plan.profile->prefill != request.prefill) {
    return unsupported("model " + request.model.name + " in namespace " + ns +
                       ": the profile in force has prefill = " + to_text(plan.profile->prefill) +
                       ", the engine is set to " + to_text(request.prefill) +
                       "; use another namespace");
  }
  if (plan.profile->block_tokens == 0 || plan.profile->block_tokens > kMaxBlockTokens) {
    return invalid_argument("profile: block_tokens " + std::to_string(plan.profile->block_tokens) +
                            " outside 1.." + std::to_string(kMaxBlockTokens));
  }
  KV_RETURN_IF_ERROR(validate(*plan.spec, plan.profile->block_tokens));
  KV_RETURN_IF_ERROR(validate(*plan.profile, *plan.spec));
  bool same = in_force && (plan.profile == known->realm->profile ||
                           plan.profile->id() == known->realm->realm.profile);
  plan.write_records = !same || (ssd_ && !known->records_durable);
  if (plan.write_records) ++plan.serial;
  return plan;
}

OpenReply CacheCore::Impl::open_reply(SessionState& session,
                                      const std::shared_ptr<ModelState>& model) {
  auto& models = session.models;
  auto at = std::find(models.begin(), models.end(), model);
  auto handle = static_cast<uint32_t>(at - models.begin()) + 1;
  if (at == models.end()) models.push_back(model);
  return {handle, model->realm->realm, model->realm->profile, model->reports};
}

void CacheCore::Impl::run_open(std::shared_ptr<OpenJob> job) {
  const auto& call = job->call;
  auto it = sessions_.find(job->session);
  Status refused;
  if (it == sessions_.end()) refused = {StatusCode::not_found, "no such session"};
  if (draining_) refused = {StatusCode::unavailable, "the cache is draining"};
  Result<OpenPlan> planned = refused.ok() ? plan_open(it->second.ns, job->request) : refused;
  if (!planned.ok()) return call->fail(planned.status());
  OpenPlan plan = std::move(*planned);
  std::shared_ptr<ModelState> known;
  if (auto m = models_.find({plan.ns, plan.spec->fingerprint}); m != models_.end()) {
    known = m->second;
  }
  if (known && known->opened && !plan.write_records) {
    return call->finish(open_reply(it->second, known));
  }
  struct Coder {
    Result<std::shared_ptr<const Codec>> codec;
    std::vector<CodingReport> reports;
    Id profile_id;
  };
  on_worker([plan] {
    return Coder{Codec::create(*plan.spec, plan.profile), part_reports(*plan.spec, *plan.profile),
                 plan.profile->id()};
  }, [this, plan, job](Coder coder) mutable {
    if (!coder.codec.ok()) return job->call->fail(coder.codec.status());
    plan.codec = *coder.codec;
    plan.reports = std::move(coder.reports);
    plan.profile_id = coder.profile_id;
    if (!ssd_ || !plan.write_records || writes_hang()) return finish_open(plan, *job);
    auto stored = models_.find({plan.ns, plan.spec->fingerprint});
    std::shared_ptr<ModelState> model = stored == models_.end() ? nullptr : stored->second;
    ModelRecord record{plan.ns, *plan.spec, plan.profile_id, plan.serial};
    auto end = [this, plan, job](Status s) mutable {
      if (job->ended) return;
      job->ended = true;
      open_anyway_ = nullptr;
      plan.records_durable = s.ok();
      finish_open(plan, *job);
    };
    put_records(std::move(record), plan.profile, model, end);
    open_anyway_ = [end]() mutable { end(Status(StatusCode::io_error, "the SSD hangs")); };
  });
}

void CacheCore::Impl::finish_open(const OpenPlan& plan, OpenJob& job) {
  auto made = std::make_shared<ModelState>();
  std::string ns = plan.ns;
  auto reports = plan.reports;
  Realm realm{plan.ns, plan.spec->fingerprint, plan.profile_id};
  auto state = index_.realm(realm, plan.spec, plan.profile);
  index_.relink(*state, Id{});  // stored before its profile or model record was lost
  for (RealmState* other : index_.realms_of(plan.ns, plan.spec->fingerprint)) {
    if (other->in_force != (other == state.get())) {
      index_.set_in_force(*other, other == state.get());
    }
  }
  state->others_lost = index_.has_orphans(plan.ns, realm.fingerprint, realm.profile);
  auto& slot = models_.try_emplace({plan.ns, plan.spec->fingerprint}, made).first->second;
  state->codec = plan.codec;
  slot->ns = std::move(ns);
  slot->spec = plan.spec;
  slot->realm = std::move(state);
  slot->serial = std::max(slot->serial, plan.serial);
  slot->opened = true;
  slot->reports = std::move(reports);
  if (plan.write_records) slot->records_durable = plan.records_durable;
  auto its = sessions_.find(job.session);
  if (its != sessions_.end()) job.call->finish(open_reply(its->second, slot));
  release_realms();  // the profile that is in force no more, if nothing is stored under it
  job.end_turn();
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
  ssd_queue_->submit(std::move(first));
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

// All unused models make room together. None while some file is unknown: without its record and
// profile it could never be served again.
void CacheCore::Impl::release_models() {
  if (files_unknown()) return;
  std::vector<Id> gone;
  std::erase_if(models_, [&](const auto& entry) {
    if (!unused(entry.second)) return false;
    gone.push_back(model_id(entry.first.first, entry.first.second));
    return true;
  });
  release_realms(std::move(gone));
}

// Realms without objects that no model has in force go, and with them the profiles that nothing
// names any more. Not while an open is between its records and its realm: nothing names its profile
// yet.
void CacheCore::Impl::release_realms(std::vector<Id> gone_models) noexcept {
  if (files_unknown()) return;
  // What fails leaves records of no use, until a later open has written a newer one in their place.
  try {
    auto profiles = index_.release_realms();
    if (others_may_name_records()) return;
    if (!ssd_ || (profiles.empty() && gone_models.empty())) return;
    on_ssd([ssd = ssd_, models = std::move(gone_models), profiles = std::move(profiles)] {
      for (const Id& id : models) (void)ssd->erase_model_records(id);
      for (const Id& id : profiles) (void)ssd->erase_profile(id);
      return true;
    }, [](bool) {});
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace kv
