// erase, stats and drain.
#include <algorithm>

#include "cachesvc/core/impl.h"
#include "cachesvc/loop/loop_watch.h"

namespace kv {
namespace {

constexpr size_t kErasedAtATime = 32;       // objects of one handler
constexpr size_t kUnlinkedAtATime = 256;    // files of one job
constexpr size_t kMaxReportedParts = 1024;  // of all models in one stats reply
static_assert(kUnlinkedAtATime % kErasedAtATime == 0);

uint64_t microseconds(Clock::duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

// Calls `done` with the first error, once as many have ended as are `left`.
struct LastOf {
  void end(Status status) {
    if (first_error.ok()) first_error = std::move(status);
    if (--left == 0) std::exchange(done, nullptr)(std::move(first_error));
  }
  std::function<void(Status)> done;
  int left;
  Status first_error;
};

}  // namespace

// An erase under way: others are served between its steps, but commits and erases of its namespace
// wait for its end, so that nothing is stored on what is about to go, or said to be gone before its
// file is. All of its memory is there before the first step.
struct CacheCore::Impl::EraseJob {
  std::string ns;
  std::vector<PinnedName> targets;
  size_t next = 0;        // of the targets
  Tasks tasks;            // unlinks: of files left before, of each part of the targets; the last
  size_t left_files = 0;  // parts of those before
  std::vector<std::shared_ptr<Unlinks>> unlinks;  // of the tasks, but the last; until submitted
  std::shared_ptr<std::vector<RamObject>> freed;  // by `trim`
  std::shared_ptr<WorkerTask> trim;
  PostMemory memory;
};

// Every object of the model, in any profile, whose entry begins with the query, or may do so.
Result<std::vector<Record*>> CacheCore::Impl::erase_targets(const ModelState& model,
                                                            const Query& query) {
  std::vector<Record*> out =
      index_.orphans_beginning_with(model.ns, model.spec->fingerprint, query);
  for (RealmState* realm : index_.realms_of(model.ns, model.spec->fingerprint)) {
    KV_ASSIGN_OR_RETURN(auto nodes, realm->tree.beginning_with(query.tokens, query.extras));
    if (query.tokens.empty()) nodes.push_back(kRootNode);
    for (NodeId id : nodes) {
      RealmState::Node& node = realm->nodes.at(id);
      out.insert(out.end(), node.attached.begin(), node.attached.end());
      if (node.main) out.push_back(node.main);
    }
    // Snapshots after the last block that the query matches wholly belong to entries too.
    auto match = realm->tree.match(query.tokens, query.extras);
    if (!match.ok() || query.tokens.empty()) continue;
    NodeId last = match->path.empty() ? kRootNode : match->path.back();
    for (Record* r : realm->nodes.at(last).attached) {
      if (r->name.kind != ObjectKind::snapshot || r->position < query.tokens.size()) continue;
      bool begins = snapshot_common(*r, query) == query.tokens.size();
      if (begins && std::find(out.begin(), out.end(), r) == out.end()) out.push_back(r);
    }
  }
  return out;
}

// Handle 0: everything in the session's namespace, orphans and models not opened included.
Result<std::vector<Record*>> CacheCore::Impl::namespace_targets(uint64_t session,
                                                                const Query& query) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return Status(StatusCode::not_found, "no such session");
  if (!query.tokens.empty()) {
    return invalid_argument("erase: model 0 means the whole namespace: expected no tokens, given " +
                            std::to_string(query.tokens.size()));
  }
  return index_.all_of(it->second.ns);
}

void CacheCore::Impl::erase(uint64_t session, uint32_t model, Query query, Deadline deadline,
                            Done<Result<uint64_t>> done) {
  auto call = begin<Result<uint64_t>>(session, deadline, std::move(done));
  if (call->finished()) return;
  when_all_known(call, [this, session, model, query = std::move(query), call] {
    erase_now(session, model, query, call);
  });
}

void CacheCore::Impl::erase_now(uint64_t session, uint32_t model, const Query& query,
                                std::shared_ptr<Call<Result<uint64_t>>> call) {
  auto its = sessions_.find(session);
  if (its != sessions_.end() && erasing(its->second.ns)) {
    return after_erase_.push_back([this, session, model, query, call] {
      if (!call->finished()) erase_now(session, model, query, call);
    });
  }
  Result<std::shared_ptr<ModelState>> state = std::shared_ptr<ModelState>();
  if (model != 0) state = model_of(session, model);
  if (!state.ok()) return call->fail(state.status());
  auto targets = *state ? erase_targets(**state, query) : namespace_targets(session, query);
  if (!targets.ok()) return call->fail(targets.status());
  uint64_t removed = targets->size();
  auto finish = [this, call, removed, whole_namespace = model == 0](Status status) {
    uint64_t unknown = recovery_.other_key_files + recovery_.newer_files;
    if (whole_namespace && unknown > 0) {
      event(EventKind::erase_failed, [&] {
        return std::to_string(unknown) +
               " files of another key or version may hold something of "
               "the namespace";
      });
    }
    if (uint64_t files = recovery_.unreadable_objects; status.ok() && files > 0) {
      status = {StatusCode::io_error, std::to_string(files) +
                                          " files could not be read since the start: what they "
                                          "hold may be there after the next one"};
    }
    // Of an erase that was queued before this one and has failed since, too.
    sort_out_left_files({});
    if (status.ok() && !left_files_.empty()) {
      status = {StatusCode::io_error, "some files could not be removed"};
    }
    if (status.ok()) return call->finish(removed);
    event(EventKind::erase_failed, [&] { return status.message(); });
    call->fail(status);
  };
  // From the first of its steps on nothing fails: what the index forgets is unlinked.
  auto job = std::make_shared<EraseJob>();
  job->ns = sessions_.at(session).ns;
  erases_.reserve(erases_.size() + 1);
  prepare_erase(*job, *targets, query.tokens.empty(), model == 0, std::move(finish));
  erases_.push_back(job.get());
  count_.erased_objects += removed;
  erase_step(job);
}

void CacheCore::Impl::prepare_erase(EraseJob& job, const std::vector<Record*>& targets, bool all,
                                    bool and_scrub, std::function<void(Status)> finish) {
  for (const Record* r : targets) job.targets.push_back({r->name, r->serial});
  // What it frees is freed on a worker. Of a model or namespace the memory goes back to the system,
  // not only to the pool.
  auto last = std::make_shared<LastOf>(LastOf{std::move(finish), ssd_ ? 2 : 1, {}});
  job.freed = std::make_shared<std::vector<RamObject>>();
  job.freed->reserve(targets.size());
  job.trim = task(
      [pool = pool_, freed = job.freed, all]() -> Status {
        freed->clear();
        if (all) pool->trim();
        return {};
      },
      [this, last](Status status) {
        room_wake_->ask();  // not before: others would be evicted for what is about to be free
        last->end(std::move(status));
      });
  if (!ssd_) return;
  Parts parts;
  for (const Record* r : targets) {
    if (parts.empty() || parts.back().size() == kUnlinkedAtATime) parts.emplace_back();
    parts.back().push_back(r->name);
  }
  std::set<const Record*> own;
  if (!left_files_.empty()) own.insert(targets.begin(), targets.end());
  job.tasks = erase_tasks(left_files_.size() + parts.size(), job.unlinks, and_scrub,
                          [last](Status status) { last->end(std::move(status)); });
  // Nothing fails from here on. At once what was left before, so that the next erase finds it done.
  sort_out_left_files(own);
  job.left_files = left_files_.size();
  left_files_.splice(left_files_.end(), parts);
  for (auto& u : job.unlinks) {
    if (!left_files_.empty()) u->parts.splice(u->parts.end(), left_files_, left_files_.begin());
  }
  for (size_t i = 0; i < job.left_files; ++i) submit_part(job, i);
}

// A part that fails is left over as soon as that is known.
void CacheCore::Impl::submit_part(EraseJob& job, size_t part) noexcept {
  job.unlinks[part].reset();
  ssd_queue_->submit(std::move(job.tasks[part]));
}

// The next of its objects leave the index; when all of a part have, their unlinks are queued,
// behind every write under way: nothing comes back.
void CacheCore::Impl::erase_step(const std::shared_ptr<EraseJob>& job) noexcept {
  size_t end = std::min(job->targets.size(), job->next + kErasedAtATime);
  for (; job->next < end; ++job->next) {
    Record* r = find_pinned(job->targets[job->next]);
    if (!r) continue;  // evicted meanwhile
    if (r->ram) job->freed->push_back(r->ram);
    records_.remove(*r);
  }
  bool part_ends = job->next == job->targets.size() || job->next % kUnlinkedAtATime == 0;
  if (ssd_ && job->next > 0 && part_ends) {
    submit_part(*job, job->left_files + (job->next - 1) / kUnlinkedAtATime);
  }
  if (job->next < job->targets.size()) {
    return post_surely(loop_, job->memory, [weak = weak_from_this(), job] {
      if (auto self = weak.lock(); self && !self->closed_) self->erase_step(job);
    });
  }
  job->trim->submit(workers_);
  for (auto& rest : job->tasks) {  // parts of nothing, and the last
    if (rest) ssd_queue_->submit(std::move(rest));
  }
  std::erase(erases_, job.get());
  check_commit_waits();
  for (auto& call : std::exchange(after_erase_, {})) {  // each a step of its own
    bool posted = if_memory([&] { later(call); });
    if (!posted) (void)if_memory(call);  // it answers when it is dropped
  }
  if (!opening_) release_realms();
}

// The core closes: what has begun is done, behind all other work of the SSD.
void CacheCore::Impl::end_erases() noexcept {
  for (EraseJob* job : std::exchange(erases_, {})) {
    for (auto& task : job->tasks) {
      if (task) ssd_queue_->submit(std::move(task));
    }
  }
}

bool CacheCore::Impl::erasing(const std::string& ns) const {
  return std::any_of(erases_.begin(), erases_.end(),
                     [&](const EraseJob* job) { return job->ns == ns; });
}

// One for each part of the files, then the catalog forgets the tokens. In parts, so that what takes
// long is not taken for a device that hangs.
CacheCore::Impl::Tasks CacheCore::Impl::erase_tasks(size_t parts,
                                                    std::vector<std::shared_ptr<Unlinks>>& unlinks,
                                                    bool and_scrub,
                                                    std::function<void(Status)> done) {
  Tasks tasks;
  auto first_error = std::make_shared<Status>();
  auto end = [done = std::move(done), first_error](Status status) {
    done(first_error->ok() ? status : *first_error);
  };
  for (size_t i = 0; i < parts; ++i) {
    auto part = std::make_shared<Unlinks>(weak_from_this());
    tasks.push_back(ssd_task([ssd = ssd_, part] { return part->run(*ssd); },
                             [part, first_error](Status status) {
                               if (first_error->ok()) *first_error = std::move(status);
                             }));
    unlinks.push_back(std::move(part));
  }
  if (and_scrub) {
    tasks.push_back(scrub_task(std::move(end)));
  } else {
    tasks.push_back(ssd_task([ssd = ssd_] { return ssd->checkpoint(); }, std::move(end)));
  }
  return tasks;
}

// A full SSD makes room for the new catalog once, as it does for objects.
std::shared_ptr<WorkerTask> CacheCore::Impl::scrub_task(std::function<void(Status)> done) {
  struct Attempt {
    Status status;
    uint64_t needed = 0;
  };
  return ssd_task(
      [ssd = ssd_]() -> Result<Attempt> {
        Status status = ssd->scrub();
        return Attempt{std::move(status), ssd->scrub_room()};
      },
      [this, done = std::move(done)](Result<Attempt> first) {
        if (!first.ok()) return done(first.status());
        if (first->status.code() != StatusCode::resource_exhausted) return done(first->status);
        on_ssd_with_room(
            first->needed, [ssd = ssd_] { return ssd->scrub(); }, done);
      });
}

StatsReply CacheCore::Impl::stats_now(const SsdStats& ssd) const {
  StatsReply out;
  auto add = [&out](const char* name, uint64_t value) { out.values.emplace_back(name, value); };
#define KV_COUNTER(name) add(#name, count_.name);
  KV_CACHE_COUNTERS(KV_COUNTER)
#undef KV_COUNTER
  add("ram_budget_bytes", pool_->budget_bytes());
  add("ram_used_bytes", pool_->used_bytes());
  add("ram_peak_bytes", pool_->peak_bytes());
  for (size_t i = 0; i < kChargeKinds; ++i) {
    auto kind = static_cast<ChargeKind>(i);
    out.values.emplace_back(std::string("ram_") + to_string(kind) + "_bytes",
                            pool_->used_bytes(kind));
  }
  add("ram_recycled_bytes", pool_->recycled_bytes());
  auto& index = const_cast<ObjectIndex&>(index_);
  add("ram_objects", index.ram().size());
  add("ssd_objects", index.ssd().size());
  add("ssd_limit_bytes", ssd.limit_bytes);
  add("ssd_used_bytes", ssd.used_bytes);
  add("ssd_quarantine_bytes", ssd.quarantine_bytes);
  add("ssd_other_key_files", ssd.other_key_files);
  add("ssd_other_key_bytes", ssd.other_key_bytes);
  add("ssd_other_key_dropped", ssd.other_key_dropped);
  add("spill_queue_bytes", records_.queue_bytes());
  add("spill_queue_limit_bytes", options_.spill_queue_bytes);
  add("ssd_written_bytes", ssd.device_bytes_written);
  add("ssd_catalog_written_bytes", ssd.catalog_bytes_written);
  add("ssd_written_day_bytes", budget_.spent_in_day(Clock::now()));
  // Physical bytes over those of the objects as they lie in RAM.
  add("ssd_write_percent",
      100 * ssd.device_bytes_written / std::max<uint64_t>(1, count_.spill_raw_bytes));
  add("ssd_hangs", reads_hang() || writes_hang());
  add("reservations", reservations_.size());
  add("sessions", sessions_.size());
  add("models", models_.size());
  add("waiting_calls", calls_.size());
  add("pins", index_.pins());
  LoopWatch& watch = LoopWatch::of(loop_);
  LoopWatch::Took longest = watch.longest(Clock::now());
  add("loop_longest_us", microseconds(longest.wall));
  add("loop_longest_cpu_us", microseconds(longest.cpu));
  add("loop_handlers", watch.handlers());
  add("loop_over_1ms", watch.over_1ms());
  add("loop_over_1ms_cpu", watch.over_1ms_cpu());
  add("recovered_objects", recovered_objects_);
  add("recovered_skipped", recovered_skipped_);
  add("recovery_adopted", recovery_.adopted);
  add("recovery_adopted_bytes", recovery_.adopted_bytes);
  add("recovery_rows_dropped", recovery_.rows_dropped);
  add("recovery_quarantined", recovery_.quarantined);
  add("recovery_unreadable", recovery_.unreadable);
  add("recovery_unread", recovery_.unread);
  add("recovery_ms", recovery_.milliseconds);
  add("recovery_ephemeral_dropped", recovery_.ephemeral_dropped);
  size_t parts = 0;  // of models with thousands the others' would be of no use to anybody
  for (const auto& [key, model] : models_) {
    if (!model->coded || parts + model->coded->reports.size() > kMaxReportedParts) continue;
    parts += model->coded->reports.size();
    out.models.emplace_back(model->spec->name, model->coded->reports);
  }
  return out;
}

void CacheCore::Impl::stats(uint64_t session, Deadline deadline, Done<Result<StatsReply>> done) {
  auto call = begin<Result<StatsReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  if (!ssd_) {
    StatsReply reply = stats_now({});
    return call->finish(std::move(reply));
  }
  on_worker([ssd = ssd_] { return ssd->stats(); },
            [this, call](SsdStats ssd) {
              if (!call->finished()) call->finish(stats_now(ssd));
            });
}

// Stops accepting, writes what waits, then one sync and one checkpoint.
void CacheCore::Impl::drain(Deadline deadline, Done<Status> done) {
  auto call = begin<Status>(0, deadline, std::move(done));
  draining_ = true;
  if (call->finished()) return;
  if (!ssd_) return call->finish(Status());
  drain_now(call);
}

void CacheCore::Impl::drain_now(std::shared_ptr<Call<Status>> call) {
  if (call->finished()) return;
  if (!erases_.empty()) {  // commits wait for them: those come first
    return after_erase_.push_back([this, call] { drain_now(call); });
  }
  for (const auto& [key, model] : models_) {
    bool retry = model->realm && !model->records_durable && !model->records_writing;
    if (retry) write_records(*model);
  }
  retry_spills(SIZE_MAX);
  // Whatever waits for eviction, is leased, or found the queue full when it was committed.
  queue_dirty();
  flush_touches();
  drain_checks_.push_back([this, call] { end_drain(call, false); });
  pump_spill();
  check_drained();
}

// What found no memory is tried once more; then it is said.
void CacheCore::Impl::end_drain(std::shared_ptr<Call<Status>> call, bool again) {
  const bool lacked_memory = std::exchange(spills_lacked_memory_, false) || some_unqueued_;
  if (lacked_memory && !again) {
    retry_spills(SIZE_MAX);
    queue_dirty();
    drain_checks_.push_back([this, call] { end_drain(call, true); });
    pump_spill();
    return check_drained();
  }
  charge_writes();
  Status unwritten;
  if (lacked_memory) {
    unwritten = {StatusCode::busy, "out of memory: some objects are not on the SSD"};
  } else if (uint64_t bytes = records_.queue_bytes(); bytes > 0 && budget_.limited()) {
    unwritten = {StatusCode::resource_exhausted,
                 "the write budget leaves " + std::to_string(bytes) + " bytes unwritten"};
  }
  on_ssd(
      [ssd = ssd_]() -> Status {
        KV_RETURN_IF_ERROR(ssd->sync());
        return ssd->checkpoint();
      },
      [call, unwritten](Status status) { call->finish(status.ok() ? unwritten : status); });
}

void CacheCore::Impl::check_drained() noexcept {
  if (drain_checks_.empty() || packing_ || writing_) return;
  pump_spill();
  bool queued = records_.first(Disk::queued) != nullptr;
  if (packing_ || (budget_timer_ ? !held_up() : queued && !writes_hang())) return;
  auto checks = std::exchange(drain_checks_, {});
  for (auto& check : checks) (void)if_memory(check);  // its call answers when it is dropped
}

}  // namespace kv
