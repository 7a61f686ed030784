// Erases: their turns, steps and ends.
#include "cachesvc/core/eraser.h"

#include <algorithm>

namespace kv {
namespace {

constexpr size_t kUnlinkedAtATime = 8;  // files of one job: a few milliseconds each
constexpr size_t kMostShared = 65'536;  // names in the shared tier of one erase
constexpr size_t kPartsAtATime = 4;     // groups of kUnlinkedAtATime objects per handler

// Runs on a worker.
Status forget(SsdTier& ssd, const std::vector<Id>& models) {
  Status first;
  for (const Id& id : models) {
    Status status = ssd.erase_model_records(id);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace

void Eraser::erase(uint64_t session, uint32_t model, Query query, CallTerms terms,
                   std::function<void(Result<uint64_t>)> done) {
  auto call = calls_.begin<Result<uint64_t>>(session, terms, std::move(done));
  if (call->finished()) return;
  Find find = [this, session, model, query = std::move(query)]() -> Result<Scope> {
    SessionState* state = calls_.session(session);
    if (!state) return Status(StatusCode::not_found, "no such session");
    Scope scope{nullptr, query.tokens.empty(), model == 0};
    if (scope.of_namespace && !scope.whole) {
      return invalid_argument(
          "erase: model 0 means the whole namespace: expected no tokens, given " +
          std::to_string(query.tokens.size()));
    }
    if (scope.of_namespace) {
      scope.targets = EraseTargets::of_namespace(index_, state->ns);
      return scope;
    }
    KV_ASSIGN_OR_RETURN(auto its, calls_.model(session, model));
    KV_ASSIGN_OR_RETURN(scope.targets, EraseTargets::beginning_with(index_, *its, query));
    return scope;
  };
  queue({ns_of(session), std::move(find), std::move(call)});
}

std::string Eraser::ns_of(uint64_t session) const {
  const SessionState* state = calls_.session(session);
  return state ? state->ns : "";
}

void Eraser::expire(const std::string& ns, std::vector<PinnedName> names) {
  env_.count.expired_objects += names.size();
  Find find = [this, names = std::move(names)]() -> Result<Scope> {
    return Scope{EraseTargets::of_names(index_, names)};
  };
  queue({ns, std::move(find), nullptr});
}

void Eraser::erase_entry(uint64_t session, QueryRequest request, CallTerms terms,
                         std::function<void(Result<uint64_t>)> done) {
  auto call = calls_.begin<Result<uint64_t>>(session, terms, std::move(done));
  if (call->finished()) return;
  if (request.query.tokens.empty()) {
    return call->fail(invalid_argument("erase_entry: 0 tokens, expected the entry's"));
  }
  Find find = [this, session, request = std::move(request)]() -> Result<Scope> {
    Scope scope;
    KV_ASSIGN_OR_RETURN(auto its, calls_.model(session, request.model, request.profile));
    KV_ASSIGN_OR_RETURN(scope.targets, EraseTargets::of_entry(index_, *its, request.query));
    return scope;
  };
  queue({ns_of(session), std::move(find), std::move(call)});
}

bool Eraser::removing(const std::string& ns) const {
  return std::any_of(removing_.begin(), removing_.end(),
                     [&](const JobPtr& job) { return job->ns == ns; });
}

bool Eraser::may_begin(const Waiting& erase) const {
  if (erase.call && !reconciler_.all_known()) return false;
  return !removing(erase.ns) && !publishing_.contains(erase.ns);
}

bool Eraser::may_publish(const std::string& ns) const {
  if (removing(ns)) return false;
  if (!publishing_.contains(ns) || !reconciler_.all_known()) return true;
  return std::none_of(waiting_.begin(), waiting_.end(),
                      [&](const Waiting& erase) { return erase.ns == ns && !erase.over(); });
}

void Eraser::publication_ends(const std::string& ns) {
  publishing_.erase(publishing_.find(ns));
  if (!waiting_.empty() || env_.draining()) env_.progress();
}

void Eraser::check_invariants() const {
  std::set<std::string> namespaces;
  for (const JobPtr& job : removing_) {
    KV_CHECK(namespaces.insert(job->ns).second && !publishing_.contains(job->ns));
    KV_CHECK(job->left == 0);
  }
  for (const Waiting& erase : waiting_) KV_CHECK(erase.find != nullptr);
}

void Eraser::queue(Waiting erase) {
  if (may_begin(erase)) return begin(std::move(erase));
  if (erase.call) reconciler_.hurry(erase.call);
  waiting_.push_back(std::move(erase));
}

void Eraser::go_on() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto at = it++;
    if (!at->over() && !may_begin(*at)) continue;
    Waiting erase = std::move(*at);
    waiting_.erase(at);
    if (!erase.over()) begin(std::move(erase));
  }
}

void Eraser::begin(Waiting erase) {
  auto scope = erase.find();
  if (!scope.ok()) return erase.call->fail(scope.status());
  auto job = std::make_shared<Job>();
  job->ns = std::move(erase.ns);
  job->call = std::move(erase.call);
  job->whole = scope->whole;
  job->of_namespace = scope->of_namespace;
  job->targets = std::move(scope->targets);
  lane_.unlink_left();  // unlinked ahead, so that this erase ends after them
  removing_.push_back(job);
  remote_.begin_erase(job->ns);
  step(job);
}

// Takes the next objects out of the index and queues their unlinks. Others' writes pass those, but
// nothing is written under the names until they are done.
void Eraser::step(const JobPtr& job) {
  for (size_t part = 0; part < kPartsAtATime && !job->targets->done(); ++part) {
    bool writing = false;
    auto names = remove_next(*job, kUnlinkedAtATime, writing);
    lane_.unlink_behind(std::move(names), writing, [job](Status status) {
      if (job->first_error.ok()) job->first_error = std::move(status);
    });
  }
  if (!job->targets->done()) return env_.later([this, job] { step(job); });
  removing_.remove(job);
  all_removed(job);
}

// `writing`: set if one of the names is being written.
std::vector<ObjectName> Eraser::remove_next(Job& job, size_t most, bool& writing) {
  std::vector<ObjectName> names;
  for (Record* r : job.targets->next(most)) {
    names.push_back(r->name);
    if (r->ram) job.freed.push_back(r->ram);
    const auto shared = remote_ && !job.of_namespace ? remote_name(*r) : std::nullopt;
    if (shared && job.shared.size() < kMostShared) {
      job.shared.push_back(*shared);
    } else if (shared) {
      ++job.unnamed;
    }
    writing |= r->disk == Disk::writing;
    records_.remove(*r, {job.call ? Missing::erased : Missing::expired});
  }
  job.removed += names.size();
  env_.count.erased_objects += names.size();
  return names;
}

// RAM is freed on a worker; a whole model's or namespace's goes back to the system, not only to the
// pool.
void Eraser::all_removed(const JobPtr& job) {
  ++job->left;
  env_.on_worker(
      [pool = env_.pool, freed = std::move(job->freed), whole = job->whole]() mutable -> Status {
        freed.clear();
        if (whole) pool->trim();
        return {};
      },
      [this, job](Status status) {
        env_.room_freed();  // only now: earlier, others would be evicted for room about to be free
        ended(job, std::move(status));
      });
  if (lane_ && job->of_namespace) {
    ++job->left;
    lane_.run(
        [ssd = lane_.ssd(), ids = model_records_.forget(job->ns)] { return forget(*ssd, ids); },
        [this, job](Status status) { ended(job, std::move(status)); });
  }
  if (lane_) wipe_traces(job);
  if (remote_) erase_shared(job);
  models_.release_realms();
  env_.progress();
}

// Names what this machine knows of: what others stored beside it is there until it expires.
void Eraser::erase_shared(const JobPtr& job) {
  ++job->left;
  auto end = [this, job](Status status) {
    remote_.end_erase(job->ns);
    ended(job, std::move(status));
  };
  if (job->of_namespace) return remote_.erase_all(job->ns, end);
  remote_.erase(std::exchange(job->shared, {}), job->unnamed, end);
}

// Syncs the folders and has the catalog forget the tokens; of a namespace no byte of them is left
// in it. A full SSD makes room for the new catalog once, as it does for objects.
void Eraser::wipe_traces(const JobPtr& job) {
  ++job->left;
  auto end = [this, job](Status status) { ended(job, std::move(status)); };
  auto sync = [ssd = lane_.ssd()]() -> Status {
    KV_RETURN_IF_ERROR(ssd->sync());
    return ssd->checkpoint();
  };
  if (!job->of_namespace) return lane_.run_last(std::move(sync), end);
  struct Attempt {
    Status status;
    uint64_t needed = 0;
  };
  lane_.run_last(
      [ssd = lane_.ssd()]() -> Result<Attempt> {
        KV_RETURN_IF_ERROR(ssd->sync());
        Status status = ssd->wipe();
        return Attempt{std::move(status), ssd->wipe_room()};
      },
      [this, end](Result<Attempt> first) {
        if (!first.ok()) return end(first.status());
        if (first->status.code() != StatusCode::resource_exhausted) return end(first->status);
        lane_.run_with_room(
            first->needed, [ssd = lane_.ssd()] { return ssd->wipe(); }, end);
      });
}

void Eraser::ended(const JobPtr& job, Status status) {
  if (job->first_error.ok()) job->first_error = std::move(status);
  if (--job->left > 0) return;
  Status said = verdict(*job);
  if (!said.ok()) env_.event(EventKind::erase_failed, [&] { return said.message(); });
  if (!job->call) return;
  said.ok() ? job->call->finish(job->removed) : job->call->fail(said);
}

// Status of the erase: ok only if no file is left, also of an earlier erase that has failed since.
Status Eraser::verdict(const Job& job) {
  const Recovery& found = found_.sums();
  const uint64_t unknown = found.other_key_files + found.newer_files;
  if (job.of_namespace && unknown > 0) {
    env_.event(EventKind::erase_failed, [&] {
      return std::to_string(unknown) +
             " files of another key or version may hold something of the namespace";
    });
  }
  const bool left = lane_.some_left();
  if (!job.first_error.ok()) return job.first_error;
  if (found.unreadable_objects > 0) {
    return {StatusCode::io_error, std::to_string(found.unreadable_objects) +
                                      " files could not be read since the start: what they hold "
                                      "may be there after the next one"};
  }
  if (left) return {StatusCode::io_error, "some files could not be removed"};
  return {};
}

void Eraser::close() {
  for (const JobPtr& job : removing_) {
    while (!job->targets->done()) {
      bool writing = false;
      lane_.unlink_behind(remove_next(*job, kUnlinkedAtATime, writing), true);
    }
  }
  removing_.clear();
  waiting_.clear();
  publishing_.clear();
}

}  // namespace kv
