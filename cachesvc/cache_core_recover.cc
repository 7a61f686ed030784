// Start: the directory is opened and read, and the index learns what is on the SSD. Runs before the
// loop serves anything; nothing is deleted here.
#include <algorithm>

#include "cachesvc/cache_core_impl.h"

namespace kv {

Status CacheCore::Impl::open_ssd() {
  if (options_.ssd_dir.empty()) return {};
  SsdOptions ssd;
  ssd.limit_bytes = options_.ssd_limit_bytes;
  ssd.min_free_bytes = options_.ssd_min_free_bytes;
  ssd.quarantine_bytes = options_.ssd_quarantine_bytes;
  ssd.files = options_.ssd_files;
  ssd.observer = options_.ssd_observer;
  KV_ASSIGN_OR_RETURN(auto tier, SsdTier::open(options_.ssd_dir, std::move(ssd)));
  KV_ASSIGN_OR_RETURN(Recovery recovery, tier->recover());
  ssd_ = std::move(tier);
  count_.quarantined += recovery.quarantined;
  files_unknown_ = recovery.unreadable + recovery.unread > 0 ||
                   std::any_of(recovery.rejected.begin(), recovery.rejected.end(), [](auto& file) {
                     return file.reason.code() == StatusCode::unsupported;
                   });
  adopt(std::move(recovery));
  return {};
}

void CacheCore::Impl::adopt(Recovery recovery) {
  std::map<Id, std::shared_ptr<const Profile>> profiles;
  for (auto& p : recovery.profiles) profiles[p->id()] = p;
  std::map<std::pair<std::string, Id>, std::shared_ptr<const ModelSpec>> specs;
  for (auto& record : recovery.models) {
    auto spec = std::make_shared<const ModelSpec>(std::move(record.model));
    auto state = std::make_shared<ModelState>();
    state->ns = record.ns;
    state->spec = spec;
    state->serial = record.serial;
    auto profile = profiles.find(record.profile);
    if (profile != profiles.end() && validate(*profile->second, *spec).ok()) {
      Realm realm{record.ns, spec->fingerprint, record.profile};
      state->realm = index_.realm(realm, spec, profile->second);
      state->records_durable = true;
    }
    specs[{record.ns, spec->fingerprint}] = spec;
    models_[{record.ns, spec->fingerprint}] = std::move(state);
  }
  auto& objects = recovery.objects;
  // Parents before children, blocks and tails before what hangs on them.
  std::sort(objects.begin(), objects.end(), [](const KnownObject& a, const KnownObject& b) {
    auto attached = [](const Object& o) { return o.name.kind >= ObjectKind::supplement; };
    return std::tuple(attached(a.header), a.header.first_token) <
           std::tuple(attached(b.header), b.header.first_token);
  });
  auto index_limit = static_cast<uint64_t>(options_.index_fraction *
                                           static_cast<double>(pool_->budget_bytes()));
  for (auto& known : objects) {
    const Object& o = known.header;
    Realm realm{o.ns, o.fingerprint, o.profile};
    uint64_t bytes = ObjectIndex::index_bytes(o.tokens.size());
    std::optional<Charge> charge;
    if (pool_->used_bytes(ChargeKind::index) + bytes <= index_limit) {
      charge = pool_->try_charge(ChargeKind::index, bytes);
    }
    RealmState* state = index_.find_realm(realm);
    auto spec = specs.find({o.ns, o.fingerprint});
    auto profile = profiles.find(o.profile);
    if (!state && spec != specs.end() && profile != profiles.end() &&
        validate(*profile->second, *spec->second).ok()) {
      state = index_.realm(realm, spec->second, profile->second).get();
      state->in_force = false;  // the model record names another profile
    }
    Record* r = nullptr;
    if (state && charge) r = index_.add(*state, o, std::move(*charge));
    // Without its parent, model, profile or room in the index it serves nothing, but stays on the
    // SSD until that returns or bytes are needed there.
    if (!r) {
      ++recovered_skipped_;
      Charge none;
      r = index_.add_orphan(o, charge ? std::move(*charge) : std::move(none));
      if (!r) continue;
    }
    ++recovered_objects_;
    r->payload_bytes = known.unpacked_bytes;
    index_.set_ssd(*r, Durability::spilled, known.file_bytes, known.allocated_bytes,
                   known.recency);
    unsynced_.push_back({r->name, r->serial});
  }
  index_.find_ends();
}

}  // namespace kv
