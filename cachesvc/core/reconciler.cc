// The start, and the reading of files after it.
#include "cachesvc/core/reconciler.h"

#include <algorithm>

#include "cachesvc/core/index_bytes.h"
#include "storage/read_buffers.h"

namespace kv {
namespace {

constexpr uint64_t kBudgetPerReadBuffer = 64u << 20;
constexpr uint64_t kReadAtATime = 256;    // files per job; the SSD's other work goes in between
constexpr Milliseconds kRetryPause{100};  // pause after a failure, or without room in RAM

}  // namespace

Reconciler::Reconciler(Env& env, ObjectIndex& index, Ends& ends, Records& records, SsdLane& lane,
                       WritePace& pace, Found& found, Placer& placer, RamRoom& room,
                       WarmStart& warm)
    : env_(env),
      index_(index),
      ends_(ends),
      records_(records),
      lane_(lane),
      pace_(pace),
      found_(found),
      placer_(placer),
      room_(room),
      warm_(warm),
      pause_(env.loop, env.handler([this] { next(); })) {}

Status Reconciler::open_tier(Recovery& recovery) {
  const CacheOptions& o = env_.options;
  SsdOptions ssd;
  ssd.limit_bytes = o.ssd_limit_bytes;
  ssd.min_free_bytes = o.ssd_min_free_bytes;
  ssd.quarantine_bytes = o.ssd_quarantine_bytes;
  ssd.adopt_at_start = o.adopt_at_start;
  ssd.key = o.ssd_key;
  ssd.read_buffers =
      std::clamp<uint64_t>(env_.pool->most_bytes() / kBudgetPerReadBuffer, 1, kMostReadBuffers);
  // Read buffers are charged while there is a tier; the first is outside the budget, as the program
  // is.
  auto charge =
      env_.pool->try_charge(ChargeKind::promotion, (ssd.read_buffers - 1) * kReadBufferBytes);
  ssd.files = o.ssd_files;
  ssd.beside = [disk = env_.disk](std::function<void()> job) {
    boost::asio::post(disk, std::move(job));
  };
  ssd.observer = o.ssd_observer;
  ssd.hour = WriteBudget::hour_of(env_.wall_now());
  KV_ASSIGN_OR_RETURN(auto tier, SsdTier::open(o.ssd_dir, std::move(ssd)));
  KV_ASSIGN_OR_RETURN(recovery, tier->recover());
  lane_.open(std::move(tier), charge ? std::move(*charge) : Charge());
  return {};
}

Status Reconciler::open() {
  if (env_.options.ssd_dir.empty()) return {};
  auto start = Clock::now();
  Recovery recovery;
  KV_RETURN_IF_ERROR(open_tier(recovery));
  lane_.keep_place(recovery.state ? recovery.state->scrubbed : 0);
  pace_.restore(recovery);
  placer_.models(recovery);
  placer_.keep_most_recent(recovery.objects);
  index_.expect(recovery.objects.size() + recovery.unread);
  placer_.objects(recovery.objects);
  recovery.objects = {};
  find_all_ends(index_, ends_);
  auto took = std::chrono::duration_cast<Milliseconds>(Clock::now() - start);
  recovery.milliseconds = static_cast<uint64_t>(took.count());
  env_.count.quarantined += recovery.quarantined;
  found_.add(recovery);
  if (env_.options.on_recovered) env_.options.on_recovered(found_.sums());
  if (!all_known()) {
    lane_.lost().remember(true);
    pause_.arm_in({});
  } else {
    placer_.done();
    env_.later([this] { warm_.begin(); });
  }
  return {};
}

void Reconciler::hurry(const std::shared_ptr<CallBase>& call) {
  if (all_known()) return;
  hurried_.push_back(call);
  if (pause_.armed()) pause_.arm_in({});
}

bool Reconciler::in_hurry() {
  std::erase_if(hurried_, [](const std::weak_ptr<CallBase>& waiting) {
    auto call = waiting.lock();
    return !call || call->finished();
  });
  return !hurried_.empty();
}

void Reconciler::check_invariants() const {
  KV_CHECK(unplaced_.size() <= kReadAtATime && unplaced_.size() <= found_.sums().unread);
  KV_CHECK(!reading_ || unplaced_.empty());
  const bool at_work = !unplaced_.empty() || placer_.keeps_profiles();
  KV_CHECK(!at_work || reading_ || pause_.armed() || env_.draining());
  KV_CHECK(!all_known() || !placer_.keeps_profiles());
}

// Reads a part of the unread files, then pauses by the rate. Nothing more is read while read
// objects wait for room in RAM.
void Reconciler::next() {
  if (env_.draining() || reading_ || all_known()) return;
  unplaced_.empty() ? read_files() : place();
}

uint64_t Reconciler::files_at_a_time() const {
  uint64_t rate = env_.options.reconcile_rate;
  return rate == 0 ? kReadAtATime : std::clamp<uint64_t>(rate / 10, 1, kReadAtATime);
}

void Reconciler::read_files() {
  const uint64_t files = files_at_a_time();
  reading_ = true;
  lane_.run([ssd = lane_.ssd(), files]() -> Result<Recovery> { return ssd->adopt_more(files); },
            [this](Result<Recovery> part) {
              reading_ = false;
              if (!part.ok()) return pause_.arm_in(kRetryPause);
              bool stuck =
                  part->unread > 0 && part->unread == found_.sums().unread;  // no read went
              unplaced_ = std::exchange(part->objects, {});
              env_.count.quarantined += part->quarantined;
              found_.add(*part);
              found_.waiting(unplaced_.size());
              stuck ? pause_.arm_in(kRetryPause) : place();
            });
}

// Gives objects that were read their place in the index, or keeps them until RAM has room; those
// over the index's share go. Then the next part is read.
void Reconciler::place() {
  const size_t before = unplaced_.size();
  std::erase_if(unplaced_, [this](const KnownObject& known) {
    const ObjectName& name = known.header.name;
    Record* stored = index_.find(name);  // a client's bytes came first
    if (stored && !stored->on_ssd()) records_.old_file(*stored, known.file_bytes);
    return stored || lane_.lost().contains(name);
  });
  placer_.drop_over_share(unplaced_);
  found_.settled(before - unplaced_.size());
  Room room;
  for (const KnownObject& known : unplaced_) {
    room.index += index_bytes(known.header.name.kind, known.header.tokens);
  }
  // The room is given back at once, for the placer to take.
  if (room.index > 0 && !room_.room_now(room)) return pause_.arm_in(kRetryPause);
  placer_.objects(unplaced_);
  found_.settled(unplaced_.size());
  unplaced_.clear();
  if (all_known()) return done();
  lane_.lost().remember(true);  // anew: without those of files that have their place by now
  const uint64_t rate = env_.options.reconcile_rate;
  if (rate == 0 || in_hurry()) return next();
  pause_.arm_in(std::chrono::microseconds(files_at_a_time() * 1'000'000 / rate));
}

void Reconciler::done() {
  lane_.lost().remember(false);
  placer_.done();
  if (env_.options.on_recovered) env_.options.on_recovered(found_.sums());
  env_.progress();
  ends_search_ = std::make_unique<EndsSearch>(index_, ends_);
  find_ends();
}

void Reconciler::find_ends() {
  if (env_.draining()) return ends_search_.reset();
  if (ends_search_->step(kNodesPerStep)) return env_.later([this] { find_ends(); });
  ends_search_.reset();
  warm_.begin();
}

}  // namespace kv
