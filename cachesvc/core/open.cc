// open: which profile is in force, the model's records on the SSD, the codec. One open that changes
// something at a time, so that two clients can't put two profiles in force.
//
// The loop decides by names and ids; whatever grows with the model (its checks, its codec, ids of
// profiles) is done by a worker, and paid for before.
#include "cachesvc/core/impl.h"
#include "codec/plan.h"

namespace kv {

struct CacheCore::Impl::OpenPlan {
  std::string ns;
  std::shared_ptr<const ModelSpec> spec;
  PrefillMode prefill = PrefillMode::exact;
  CodingSettings settings;
  std::shared_ptr<const Profile> profile;  ///< null: the plain one
  std::optional<RestingModel> resting;     ///< its profile is in force if it can be read
  Id in_force;                             ///< zero: none
  bool records_durable = false;            ///< of the profile in force
  uint64_t serial = 0;
  uint64_t bytes = 0, making_bytes = 0;  ///< that it takes in memory, and beside while it is made
  uint64_t most_put_bytes = 0;
  // Made on the way.
  std::shared_ptr<const CodedModel> coded;
  Charge making;  ///< what else it takes until its records are written
  bool write_records = false, records_written = false;
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
  Deadline deadline;
  OpenPlan plan;
  std::shared_ptr<Call<Result<OpenReply>>> call;
};

namespace {

const char* to_text(PrefillMode mode) { return mode == PrefillMode::exact ? "exact" : "coded"; }

bool same_geometry(const ModelSpec& a, const ModelSpec& b) { return a.layers == b.layers; }

Status check_profile_bytes(const Profile& profile) {
  uint64_t bytes = encoded_bytes(profile);
  if (bytes <= kMaxProfileBytes) return {};
  return invalid_argument("profile: " + std::to_string(bytes) + " bytes, expected at most " +
                          std::to_string(kMaxProfileBytes));
}

// Worker. The profile that rests on the SSD; null if it can't be read, or is for other layers.
std::shared_ptr<const Profile> resting_profile(SsdTier& ssd, const Id& id, const ModelSpec& spec) {
  auto read = ssd.read_profile(id);
  return read.ok() && validate(**read, spec).ok() ? *read : nullptr;
}

}  // namespace

// A block in the least bytes that a client may put it in: its codes, or exact rows if those are
// fewer. One that no put can bring would fail each store of the model.
Status check_block_bytes(const ModelSpec& spec, const Profile& profile, uint64_t most) {
  const uint32_t block = profile.block_tokens;
  Need need;
  need.first_row = (profile.exact_tokens + block - 1) / block * block;
  need.end_row = need.first_row + block;
  const uint64_t bytes = need_bytes(spec, profile, {}, need);
  if (bytes <= most) return {};
  return invalid_argument("model " + spec.name + ": a block of " + std::to_string(block) +
                          " tokens has " + std::to_string(bytes) + " bytes, a put may have " +
                          std::to_string(most) +
                          " (server.max_put, and RAM's staging share): expected fewer tokens a "
                          "block (codec.block_tokens)");
}

// What a worker makes of a plan.
struct CacheCore::Impl::OpenMade {
  std::shared_ptr<CodedModel> coded;
  Charge making;        ///< what was not needed for it
  bool rested = false;  ///< under the profile that rested
};

Result<CacheCore::Impl::OpenMade> CacheCore::Impl::make_open(const OpenPlan& plan, SsdTier* ssd,
                                                             Charge charge) {
  OpenMade made;
  const ModelSpec& spec = *plan.spec;
  std::shared_ptr<const Profile> profile;
  if (plan.resting && ssd) profile = resting_profile(*ssd, plan.resting->profile, spec);
  made.rested = profile != nullptr;
  if (!profile) profile = plan.profile;
  if (!profile) {
    KV_RETURN_IF_ERROR(validate(spec, plan.settings.block_tokens));
    KV_ASSIGN_OR_RETURN(Profile plain, plain_profile(spec, plan.settings));
    profile = std::make_shared<const Profile>(std::move(plain));
  }
  if (profile->prefill != plan.prefill) {
    return unsupported("model " + spec.name + " in namespace " + plan.ns +
                       ": the profile in force has prefill = " + to_text(profile->prefill) +
                       ", the engine is set to " + to_text(plan.prefill) +
                       "; use another namespace");
  }
  if (profile->block_tokens == 0 || profile->block_tokens > kMaxBlockTokens) {
    return invalid_argument("profile: block_tokens " + std::to_string(profile->block_tokens) +
                            " outside 1.." + std::to_string(kMaxBlockTokens));
  }
  KV_RETURN_IF_ERROR(validate(spec, profile->block_tokens));
  KV_RETURN_IF_ERROR(validate(*profile, spec));
  KV_RETURN_IF_ERROR(check_block_bytes(spec, *profile, plan.most_put_bytes));
  KV_ASSIGN_OR_RETURN(made.coded, make_coded_model(spec, *profile, charge));
  made.making = std::move(charge);
  return made;
}

void CacheCore::Impl::open(uint64_t session, OpenRequest request, Deadline deadline,
                           Done<Result<OpenReply>> done) {
  auto call = begin<Result<OpenReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  auto job = std::make_shared<OpenJob>();
  job->session = session;
  job->request = std::move(request);
  job->call = call;
  job->deadline = deadline;
  opens_.push_back(std::move(job));
  next_open();
}

void CacheCore::Impl::next_open() {
  if (opening_) return;
  if (opens_.empty()) return rest_models();  // those that were left while one was opened
  auto job = std::move(opens_.front());
  opens_.pop_front();
  opening_ = true;
  job->core = weak_from_this();
  if (!job->call->finished()) run_open(std::move(job));
}

// What the loop can decide: nothing here grows with the model but a comparison.
Result<CacheCore::Impl::OpenPlan> CacheCore::Impl::plan_open(const std::string& ns,
                                                             OpenRequest& request) {
  OpenPlan plan;
  plan.ns = ns;
  plan.prefill = request.prefill;
  plan.settings = options_.coding;
  plan.settings.prefill = request.prefill;
  const Id fingerprint = request.model.fingerprint;
  auto it = models_.find({ns, fingerprint});
  ModelState* known = it == models_.end() ? nullptr : it->second.get();
  if (known && !same_geometry(*known->spec, request.model)) {
    return invalid_argument("model " + request.model.name +
                            ": other layers than stored under the same fingerprint");
  }
  if (request.replace && !request.profile) {
    return invalid_argument("replace: the request brings no profile");
  }
  if (request.profile) KV_RETURN_IF_ERROR(check_profile_bytes(*request.profile));
  if (known) {
    plan.serial = known->serial;
    plan.records_durable = known->records_durable;
    if (known->realm) plan.in_force = known->realm->realm.profile;
  } else if (auto rests = resting_.find({ns, fingerprint}); rests != resting_.end()) {
    plan.serial = rests->second.serial;
    if (!request.replace) plan.resting = rests->second;
  } else {
    KV_RETURN_IF_ERROR(place_for_model(ns));
  }
  if (known && known->realm && !request.replace) {
    plan.profile = known->realm->profile;
  } else if (request.profile) {
    plan.profile = request.profile;
  } else if (auto made = options_.profiles.find(fingerprint); made != options_.profiles.end()) {
    Profile profile = *made->second;
    profile.block_tokens = options_.coding.block_tokens;
    profile.prefill = request.prefill;
    plan.profile = std::make_shared<const Profile>(std::move(profile));
  }
  plan.spec = known ? known->spec : std::make_shared<const ModelSpec>(std::move(request.model));
  plan.bytes = coded_model_bytes(*plan.spec, plan.profile.get());
  if (plan.resting) plan.bytes += plan.resting->coded_bytes;
  plan.making_bytes = encoding_bytes(plan.profile.get());
  plan.most_put_bytes = std::min(options_.max_put_bytes, pool_->staging_limit_bytes());
  return plan;
}

OpenReply CacheCore::Impl::open_reply(SessionState& session,
                                      const std::shared_ptr<ModelState>& model) {
  auto& models = session.models;
  auto at = std::find(models.begin(), models.end(), model);
  auto handle = static_cast<uint32_t>(at - models.begin()) + 1;
  if (at == models.end()) models.push_back(model);
  session.profiles.resize(models.size());
  session.profiles[handle - 1] = model->realm->realm.profile;
  return {handle, model->realm->realm, model->realm->profile, model->coded->reports};
}

void CacheCore::Impl::run_open(std::shared_ptr<OpenJob> job) {
  const auto& call = job->call;
  auto it = sessions_.find(job->session);
  if (it == sessions_.end()) return call->fail({StatusCode::not_found, "no such session"});
  if (draining_) return call->fail({StatusCode::unavailable, "the cache is draining"});
  auto planned = plan_open(it->second.ns, job->request);
  if (!planned.ok()) return call->fail(planned.status());
  job->plan = std::move(*planned);
  const OpenPlan& plan = job->plan;
  auto known = models_.find({plan.ns, plan.spec->fingerprint});
  bool in_force = known != models_.end() && known->second->coded && !job->request.replace;
  bool written = !ssd_ || plan.records_durable;
  if (in_force && written) {
    if (plan.profile->prefill == plan.prefill) {
      return call->finish(open_reply(it->second, known->second));
    }
  }
  if (Status full = room_for_model(plan.spec->name, plan.bytes); !full.ok()) {
    return call->fail(full);
  }
  Room room;
  room.model = plan.bytes + plan.making_bytes;
  with_room(room, job->deadline, [this, job](Result<std::shared_ptr<RoomCharges>> charges) {
    if (job->call->finished()) return;
    if (!charges.ok()) return job->call->fail(charges.status());
    auto make = [job, ssd = ssd_, charges = *charges] {
      return make_open(job->plan, ssd.get(), std::move(charges->model));
    };
    auto then = [this, job](Result<OpenMade> made) {
      if (!made.ok()) return job->call->fail(made.status());
      records_of_open(job, std::move(*made));
    };
    task(std::move(make), std::move(then))->submit(job->plan.resting ? disk_ : workers_);
  });
}

// What was made, or the same of another session; its records, if the SSD has not got them.
void CacheCore::Impl::records_of_open(std::shared_ptr<OpenJob> job, OpenMade made) {
  OpenPlan& plan = job->plan;
  plan.making = std::move(made.making);
  const Id profile = made.coded->profile_id, fingerprint = plan.spec->fingerprint;
  plan.coded = shared_model(std::move(made.coded));
  if (made.rested) {
    plan.in_force = profile;
    plan.records_durable = plan.coded->key == plan.resting->key;
  }
  plan.write_records = plan.in_force != profile || (ssd_ && !plan.records_durable);
  plan.records_written = !plan.write_records && plan.records_durable;
  if (plan.write_records) ++plan.serial;
  if (!ssd_ || !plan.write_records || writes_hang()) return finish_open(*job);
  if (Status full = room_for_records(plan.ns, *plan.coded); !full.ok()) {
    return job->call->fail(full);
  }
  auto stored = models_.find({plan.ns, fingerprint});
  std::shared_ptr<ModelState> model = stored == models_.end() ? nullptr : stored->second;
  ModelRecord record{plan.ns, *plan.spec, profile, plan.serial};
  auto end = [this, job](Status s) mutable {
    if (job->ended) return;
    job->ended = true;
    open_anyway_ = nullptr;
    job->plan.records_written = s.ok();
    finish_open(*job);
  };
  put_records(std::move(record), plan.coded->profile, model, end);
  open_anyway_ = [end]() mutable { end(Status(StatusCode::io_error, "the SSD hangs")); };
}

void CacheCore::Impl::finish_open(OpenJob& job) {
  OpenPlan& plan = job.plan;
  const auto& coded = plan.coded;
  auto made = std::make_shared<ModelState>();
  std::string ns = plan.ns;
  auto spec = part_of(coded, coded->spec);
  auto profile = part_of(coded, coded->profile);
  Realm realm{plan.ns, plan.spec->fingerprint, coded->profile_id};
  auto state = index_.realm(realm, spec, profile);
  index_.relink(*state, Id{});  // stored before its profile or model record was lost
  for (RealmState* other : index_.realms_of(plan.ns, realm.fingerprint)) {
    if (other->in_force != (other == state.get())) {
      index_.set_in_force(*other, other == state.get());
    }
  }
  state->others_lost = index_.has_orphans(plan.ns, realm.fingerprint, realm.profile);
  auto rested = resting_.find({plan.ns, realm.fingerprint});
  auto [place, is_new] = models_.try_emplace({plan.ns, realm.fingerprint}, made);
  auto& slot = place->second;
  // One copy of each: what a start found, or other sessions made before, goes.
  state->model = spec;
  state->profile = std::move(profile);
  state->codec = part_of(coded, coded->codec);
  state->groups = PartGroups(spec, part_of(coded, coded->groups));
  slot->ns = std::move(ns);
  slot->spec = std::move(spec);
  slot->realm = std::move(state);
  slot->serial = std::max(slot->serial, plan.serial);
  slot->coded = coded;
  if (is_new || plan.write_records) slot->records_durable = plan.records_written;
  slot->record_bytes = record_bytes(*coded->spec, *coded->profile);
  if (rested != resting_.end()) resting_.erase(rested);
  auto its = sessions_.find(job.session);
  if (its != sessions_.end()) job.call->finish(open_reply(its->second, slot));
  release_realms();  // the profile that is in force no more, if nothing is stored under it
  job.end_turn();
}

}  // namespace kv
