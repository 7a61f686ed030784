// Start: the directory is opened and read, and the index learns what is on the SSD, before anything
// is served. Files that the catalog doesn't know, beyond the first adopt_at_start, are read in the
// background afterwards, at reconcile_rate: until then they are misses, and erases wait for them.
// Nothing valid is deleted here.
#include <algorithm>

#include "cachesvc/core/impl.h"
#include "proto/identity.h"
#include "storage/read_buffers.h"

namespace kv {
namespace {

constexpr uint64_t kBudgetPerReadBuffer = 64u << 20;
constexpr uint64_t kReadAtATime = 256;    // of the background; the SSD's other work goes in between
constexpr Milliseconds kRetryPause{100};  // until what failed, or found no room in RAM, is tried

}  // namespace

Status CacheCore::Impl::open_ssd() {
  if (options_.ssd_dir.empty()) return {};
  SsdOptions ssd;
  ssd.limit_bytes = options_.ssd_limit_bytes;
  ssd.min_free_bytes = options_.ssd_min_free_bytes;
  ssd.quarantine_bytes = options_.ssd_quarantine_bytes;
  ssd.adopt_at_start = options_.adopt_at_start;
  ssd.key = options_.ssd_key;
  ssd.read_buffers =
      std::clamp<uint64_t>(pool_->budget_bytes() / kBudgetPerReadBuffer, 1, kMostReadBuffers);
  // For as long as there is a tier; the first one is beside the budget, as the program is.
  if (auto charge =
          pool_->try_charge(ChargeKind::promotion, (ssd.read_buffers - 1) * kReadBufferBytes)) {
    read_buffers_ = std::move(*charge);
  }
  ssd.files = options_.ssd_files;
  ssd.beside = [disk = disk_](std::function<void()> job) {
    (void)if_memory([&] { boost::asio::post(disk, std::move(job)); });
  };
  ssd.observer = options_.ssd_observer;
  ssd.hour = WriteBudget::hour_of(wall_now());
  auto start = Clock::now();
  KV_ASSIGN_OR_RETURN(auto tier, SsdTier::open(options_.ssd_dir, std::move(ssd)));
  KV_ASSIGN_OR_RETURN(Recovery recovery, tier->recover());
  ssd_ = std::move(tier);
  ssd_end_ = task([ssd = ssd_] { return true; }, [](bool) {});
  restore_state(recovery);
  adopt_models(recovery);
  keep_most_recent(recovery.objects);
  index_.expect(recovery.objects.size() + recovery.unread);
  adopt_objects(recovery.objects);
  recovery.objects = {};
  index_.find_ends();
  auto took = std::chrono::duration_cast<Milliseconds>(Clock::now() - start);
  recovery.milliseconds = static_cast<uint64_t>(took.count());
  add_recovery(recovery);
  if (options_.on_recovered) options_.on_recovered(recovery_);
  if (recovery_.unread > 0) {
    later([this] { reconcile(); });
  } else {
    recovered_profiles_.clear();
    rest_models();
  }
  return {};
}

// Sums up; the catalog's state is as the first part said.
void CacheCore::Impl::add_recovery(const Recovery& part) {
  Recovery& all = recovery_;
  all.rows_used += part.rows_used;
  all.adopted += part.adopted;
  all.adopted_bytes += part.adopted_bytes;
  all.rows_dropped += part.rows_dropped;
  all.temps_removed += part.temps_removed;
  all.quarantined += part.quarantined;
  all.unreadable += part.unreadable;
  all.unreadable_objects += part.unreadable_objects;
  all.unknown_files += part.unknown_files;
  all.unknown_bytes += part.unknown_bytes;
  all.newer_files += part.newer_files;
  all.other_key_files += part.other_key_files;
  all.other_key_bytes += part.other_key_bytes;
  all.ephemeral_dropped += part.ephemeral_dropped;
  all.milliseconds += part.milliseconds;
  all.unread = part.unread;
  (void)if_memory([&] {
    if (all.catalog_rebuilt.empty()) all.catalog_rebuilt = part.catalog_rebuilt;
    for (const RejectedFile& file : part.rejected) {
      if (all.rejected.size() < kMaxRejectedNames) all.rejected.push_back(file);
    }
  });
  count_.quarantined += part.quarantined;
  some_unreadable_ |= part.unreadable > 0 || part.newer_files > 0;
}

void CacheCore::Impl::adopt_models(Recovery& recovery) {
  auto charge = [this](uint64_t bytes) { return pool_->try_charge(ChargeKind::model, bytes); };
  for (auto& p : recovery.profiles) {
    if (auto room = charge(held_bytes(*p)))
      recovered_profiles_[p->id()] = charged(p, std::move(*room));
  }
  recovery.profiles.clear();
  for (auto& record : recovery.models) {
    auto room = charge(held_bytes(record.model) + groups_bytes(record.model));
    if (!room) continue;  // as if its record were lost: what is stored of it stays on the SSD
    auto spec =
        charged(std::make_shared<const ModelSpec>(std::move(record.model)), std::move(*room));
    auto state = std::make_shared<ModelState>();
    state->ns = record.ns;
    state->spec = spec;
    state->serial = record.serial;
    auto profile = recovered_profiles_.find(record.profile);
    if (profile != recovered_profiles_.end() && validate(*profile->second, *spec).ok()) {
      Realm realm{record.ns, spec->fingerprint, record.profile};
      state->realm = index_.realm(realm, spec, profile->second);
      state->records_durable = true;
    }
    if (state->realm) state->record_bytes = record_bytes(*spec, *state->realm->profile);
    models_[{record.ns, spec->fingerprint}] = std::move(state);
  }
}

// The realm of an object that was found; null without its model record or profile.
RealmState* CacheCore::Impl::recovered_realm(const Object& o) {
  Realm realm{o.ns, o.fingerprint, o.profile};
  if (RealmState* known = index_.find_realm(realm)) return known;
  auto model = models_.find({o.ns, o.fingerprint});
  auto profile = recovered_profiles_.find(o.profile);
  if (model == models_.end() || profile == recovered_profiles_.end()) return nullptr;
  const auto& spec = model->second->spec;
  if (!validate(*profile->second, *spec).ok()) return nullptr;
  RealmState* made = index_.realm(realm, spec, profile->second).get();
  made->in_force = false;  // the model record names another profile
  return made;
}

// Most come in the order in which they were written, parents first and near their children. The
// others wait: parents before children, blocks and tails before what hangs on them. The SSD's order
// learns of them afterwards, and of children first. Without memory some have their place in the
// index and on the SSD, and the others have none.
void CacheCore::Impl::adopt_objects(const std::vector<KnownObject>& objects) {
  std::vector<const KnownObject*> others;
  std::vector<Adopted> linked;
  linked.reserve(objects.size());
  Rollback no_place([&] {
    for (const Adopted& adopted : linked) {
      if (!adopted.record->on_ssd()) records_.remove(*adopted.record);
    }
  });
  for (const KnownObject& known : objects) {
    if (!adopt_object(known, false, linked)) others.push_back(&known);
  }
  std::sort(others.begin(), others.end(), [](const KnownObject* a, const KnownObject* b) {
    auto attached = [](const Object& o) { return o.name.kind >= ObjectKind::supplement; };
    return std::tuple(attached(a->header), a->header.first_token) <
           std::tuple(attached(b->header), b->header.first_token);
  });
  for (const KnownObject* known : others) adopt_object(*known, true, linked);
  for (auto it = linked.rbegin(); it != linked.rend(); ++it) {
    const KnownObject& k = *it->known;
    records_.found(*it->record, k.file_bytes, k.allocated_bytes, k.recency);
    ++recovered_objects_;
  }
  no_place.done();
}

// False if it has no place (yet). Then, if it is its `last` chance: without its parent, model or
// profile it serves nothing, but stays on the SSD until that returns or bytes are needed there.
bool CacheCore::Impl::adopt_object(const KnownObject& known, bool last,
                                   std::vector<Adopted>& linked) {
  const Object& o = known.header;
  auto charge =
      pool_->try_charge(ChargeKind::index, ObjectIndex::index_bytes(o.name.kind, o.tokens));
  if (!charge) {
    if (last) drop_files({o.name});  // RAM has less for the index than its share
    return last;
  }
  RealmState* realm = recovered_realm(o);
  Record* r = realm ? index_.add(*realm, o, std::move(*charge)) : nullptr;
  if (r) {
    linked.push_back({r, &known});
    r->payload_bytes = known.unpacked_bytes;
    if (o.name.kind != ObjectKind::snapshot) index_.relink(*realm, o.name.id);
    return true;
  }
  if (!last) return false;
  const uint64_t more = ObjectIndex::orphan_bytes(o.tokens.size()) - charge->bytes();
  auto rest = index_full(more) ? std::nullopt : pool_->try_charge(ChargeKind::index, more);
  if (!rest) {
    drop_files({o.name});
    return false;
  }
  charge->merge(std::move(*rest));
  r = index_.add_orphan(o, std::move(*charge));
  Rollback no_orphan([&] { records_.remove(*r); });
  r->payload_bytes = known.unpacked_bytes;
  records_.found(*r, known.file_bytes, known.allocated_bytes, known.recency);
  no_orphan.done();
  ++recovered_skipped_;
  ++recovered_objects_;
  return false;
}

// A part of the files that are unread, then a pause by the rate; none while an erase waits. Nothing
// more is read while what was read waits for room in RAM. Without memory it stops, until the next
// call comes.
void CacheCore::Impl::reconcile() noexcept {
  if (draining_ || reading_files_ || reconcile_timer_) return;
  try {
    if (!unplaced_.empty()) return place({});
    read_files();
  } catch (const std::bad_alloc&) {
    reconcile_after(kRetryPause);
  }
}

void CacheCore::Impl::read_files() {
  uint64_t rate = options_.reconcile_rate;
  uint64_t files = rate == 0 ? kReadAtATime : std::clamp<uint64_t>(rate / 10, 1, kReadAtATime);
  std::chrono::microseconds pause(rate == 0 ? 0 : files * 1'000'000 / rate);
  on_ssd([ssd = ssd_, files]() -> Result<Recovery> { return ssd->adopt_more(files); },
         [this, pause](Result<Recovery> part) {
           reading_files_ = false;
           if (!part.ok()) return reconcile_after(kRetryPause);
           bool stuck = part->unread > 0 && part->unread == recovery_.unread;  // every read failed
           unplaced_ = std::exchange(part->objects, {});
           add_recovery(*part);
           recovery_.unread += unplaced_.size();
           stuck ? reconcile_after(kRetryPause) : place(pause);
         });
  reading_files_ = true;
}

// Gives what was read its place in the index, or keeps it until RAM has room; what is over the
// index's share goes. Then the next part.
void CacheCore::Impl::place(std::chrono::microseconds pause) noexcept {
  try {
    const size_t before = unplaced_.size();
    std::erase_if(unplaced_, [this](const KnownObject& known) {
      const ObjectName& name = known.header.name;
      Record* stored = index_.find(name);  // a client's bytes came first
      if (stored && !stored->on_ssd()) {
        records_.old_file(*stored, known.file_bytes);
      }
      return stored || lost_meanwhile_.count(name);
    });
    drop_over_share(unplaced_);
    recovery_.unread -= before - unplaced_.size();
    if (!room_in_index(unplaced_)) return reconcile_after(kRetryPause);
    adopt_objects(unplaced_);
  } catch (const std::bad_alloc&) {  // those that have their place are known the next time
    return reconcile_after(kRetryPause);
  }
  recovery_.unread -= unplaced_.size();
  unplaced_.clear();
  lost_meanwhile_.clear();
  if (recovery_.unread == 0) return reconciled();
  if (pause.count() == 0 || !after_reconcile_.empty()) return reconcile();
  reconcile_after(pause);
}

void CacheCore::Impl::reconcile_after(std::chrono::microseconds pause) noexcept {
  try {
    auto timer = std::make_unique<boost::asio::steady_timer>(loop_, pause);
    timer->async_wait([weak = weak_from_this()](boost::system::error_code) {
      auto self = weak.lock();
      if (!self || self->closed_) return;
      self->reconcile_timer_.reset();
      self->reconcile();  // also when an erase has cut the pause short
    });
    reconcile_timer_ = std::move(timer);
  } catch (const std::bad_alloc&) {  // the next call goes on
  }
}

// Makes room for these objects. Returns: false if RAM has none now.
bool CacheCore::Impl::room_in_index(const std::vector<KnownObject>& objects) {
  Room room;
  for (const KnownObject& known : objects) {
    room.index += ObjectIndex::index_bytes(known.header.name.kind, known.header.tokens);
  }
  return room.index == 0 || room_now(room);  // given back at once, for adopt_object to take
}

// What finds no memory here was to speed things up or to be told; a waiting call answers by itself.
void CacheCore::Impl::reconciled() noexcept {
  recovered_profiles_.clear();
  rest_models();
  (void)if_memory([&] { index_.find_ends(); });
  (void)if_memory([&] {
    if (options_.on_recovered) options_.on_recovered(recovery_);
  });
  for (auto& [call, then] : std::exchange(after_reconcile_, {})) {
    if (!call->finished()) (void)if_memory(then);
  }
  (void)if_memory([&] { warm_start(); });
}

void CacheCore::Impl::when_all_known(std::shared_ptr<CallBase> call, std::function<void()> then) {
  if (recovery_.unread == 0) return then();
  after_reconcile_.emplace_back(std::move(call), std::move(then));
  if (reconcile_timer_) reconcile_timer_->cancel();
}

}  // namespace kv
