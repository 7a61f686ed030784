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
  bool records_durable = false;
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
  auto shared = std::make_shared<OpenRequest>(std::move(request));
  opens_.push_back([this, session, shared, call] {
    if (call->finished()) return open_done();
    run_open(session, std::move(*shared), call);
  });
  next_open();
}

void CacheCore::Impl::next_open() {
  if (opening_ || opens_.empty()) return;
  opening_ = true;
  auto run = std::move(opens_.front());
  opens_.pop_front();
  run();
}

void CacheCore::Impl::open_done() {
  opening_ = false;
  if (!opens_.empty()) later([this] { next_open(); });
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
  bool same = in_force && known->realm->realm.profile == plan.profile->id();
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

void CacheCore::Impl::run_open(uint64_t session, OpenRequest request,
                               std::shared_ptr<Call<Result<OpenReply>>> call) {
  auto it = sessions_.find(session);
  Status refused;
  if (it == sessions_.end()) refused = {StatusCode::not_found, "no such session"};
  if (draining_) refused = {StatusCode::unavailable, "the cache is draining"};
  Result<OpenPlan> planned = refused.ok() ? plan_open(it->second.ns, request) : refused;
  if (!planned.ok()) {
    call->fail(planned.status());
    return open_done();
  }
  OpenPlan plan = std::move(*planned);
  std::shared_ptr<ModelState> known;
  if (auto m = models_.find({plan.ns, plan.spec->fingerprint}); m != models_.end()) {
    known = m->second;
  }
  if (known && known->opened && !plan.write_records) {
    call->finish(open_reply(it->second, known));
    return open_done();
  }
  struct Coder {
    Result<std::shared_ptr<const Codec>> codec;
    std::vector<CodingReport> reports;
  };
  on_worker([plan] {
    return Coder{Codec::create(*plan.spec, plan.profile), part_reports(*plan.spec, *plan.profile)};
  }, [this, plan, session, call](Coder coder) mutable {
    if (!coder.codec.ok()) {
      call->fail(coder.codec.status());
      return open_done();
    }
    plan.codec = *coder.codec;
    plan.reports = std::move(coder.reports);
    if (!ssd_ || !plan.write_records || writes_hang()) return finish_open(plan, session, call);
    auto stored = models_.find({plan.ns, plan.spec->fingerprint});
    if (stored != models_.end()) stored->second->records_writing = true;
    ModelRecord record{plan.ns, *plan.spec, plan.profile->id(), plan.serial};
    auto ended = std::make_shared<bool>(false);
    auto end = [this, plan, session, call, ended](Status s) mutable {
      if (std::exchange(*ended, true)) return;
      open_anyway_ = nullptr;
      plan.records_durable = s.ok();
      finish_open(plan, session, call);
      records_written();
    };
    open_anyway_ = [end]() mutable { end(Status(StatusCode::io_error, "the SSD hangs")); };
    put_records(std::move(record), plan.profile, end);
  });
}

void CacheCore::Impl::finish_open(const OpenPlan& plan, uint64_t session,
                                  std::shared_ptr<Call<Result<OpenReply>>> call) {
  auto& slot = models_[{plan.ns, plan.spec->fingerprint}];
  if (!slot) slot = std::make_shared<ModelState>();
  Realm realm{plan.ns, plan.spec->fingerprint, plan.profile->id()};
  auto state = index_.realm(realm, plan.spec, plan.profile);
  index_.relink(*state, Id{});  // stored before its profile or model record was lost
  for (RealmState* other : index_.realms_of(plan.ns, plan.spec->fingerprint)) {
    if (other->in_force != (other == state.get())) {
      index_.set_in_force(*other, other == state.get());
    }
  }
  state->others_lost = index_.has_orphans(plan.ns, realm.fingerprint, realm.profile);
  state->codec = plan.codec;
  slot->ns = plan.ns;
  slot->spec = plan.spec;
  slot->realm = std::move(state);
  slot->serial = std::max(slot->serial, plan.serial);
  slot->opened = true;
  slot->reports = plan.reports;
  slot->records_writing = false;
  if (plan.write_records) slot->records_durable = plan.records_durable;
  auto its = sessions_.find(session);
  if (its != sessions_.end()) call->finish(open_reply(its->second, slot));
  release_realms();  // the profile that is in force no more, if nothing is stored under it
  open_done();
}

// A model whose records could not be written at open: tried again before anything of it is spilled.
// One attempt at a time, so that the newest record names the profile in force.
void CacheCore::Impl::write_records(ModelState& model) {
  ModelRecord record{model.ns, *model.spec, model.realm->realm.profile, ++model.serial};
  auto key = std::pair(model.ns, model.spec->fingerprint);
  model.records_writing = true;
  put_records(std::move(record), model.realm->profile,
              [this, key, serial = model.serial](Status status) {
    auto it = models_.find(key);
    if (it != models_.end()) {
      it->second->records_writing = false;
      if (it->second->serial == serial) it->second->records_durable = status.ok();
    }
    records_written();
  });
}

// A full SSD makes room for them once, as it does for objects.
void CacheCore::Impl::put_records(ModelRecord record, std::shared_ptr<const Profile> profile,
                                  std::function<void(Status)> done) {
  auto newer = [this, key = std::pair(record.ns, record.model.fingerprint), own = record.serial] {
    auto model = models_.find(key);
    return model != models_.end() && model->second->serial > own;
  };
  auto put = [ssd = ssd_, record = std::move(record), profile] {
    return put_both(*ssd, record, *profile);
  };
  on_ssd(put, [this, put, newer, done = std::move(done)](PutRecords first) {
    // Not again once another profile is in force: the last record that is written names it.
    bool full = first.status.code() == StatusCode::resource_exhausted && !newer();
    auto victims = full ? ssd_victims(first.needed) : std::vector<ObjectName>{};
    auto end = [this, done](const Status& status) {
      if (!status.ok()) write_failed("profile and model record", status);
      done(status);
    };
    if (victims.empty()) return end(first.status);
    unlink(victims, [](Status) {});
    on_ssd(put, [end](PutRecords second) { end(second.status); });
  });
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
void CacheCore::Impl::release_realms(std::vector<Id> gone_models) {
  if (files_unknown()) return;
  auto profiles = index_.release_realms();
  if (others_may_name_records()) return;
  if (!ssd_ || (profiles.empty() && gone_models.empty())) return;
  // What fails leaves records of no use, until a later open has written a newer one in their place.
  on_ssd([ssd = ssd_, models = std::move(gone_models), profiles = std::move(profiles)] {
    for (const Id& id : models) (void)ssd->erase_model_records(id);
    for (const Id& id : profiles) (void)ssd->erase_profile(id);
    return true;
  }, [](bool) {});
}

}  // namespace kv
