// erase: what an erase names leaves the index in steps, and its files after it, a few at a time
// behind the SSD's other work.
#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

constexpr size_t kErasedAtATime = 32;   // objects of one handler
constexpr size_t kUnlinkedAtATime = 8;  // files of one job: a few milliseconds each
static_assert(kErasedAtATime % kUnlinkedAtATime == 0);

// Worker.
Status forget(SsdTier& ssd, const std::vector<Id>& models) {
  Status first;
  for (const Id& id : models) {
    Status status = ssd.erase_model_records(id);
    if (first.ok()) first = std::move(status);
  }
  return first;
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
  std::shared_ptr<std::vector<Id>> records;  // of models, by `forget`: a namespace's
  std::shared_ptr<WorkerTask> forget;
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
      if (r->name.kind != ObjectKind::snapshot || r->attachment->position < query.tokens.size())
        continue;
      bool begins = snapshot_common(*r, query) == query.tokens.size();
      if (begins && std::find(out.begin(), out.end(), r) == out.end()) out.push_back(r);
    }
  }
  return out;
}

// The entry that ends with the query's last token, with what no other entry has: from its end
// upwards, until another one goes on or ends. Tails and snapshots that the query goes on from, and
// no other entry, are earlier turns of it.
Result<std::vector<Record*>> CacheCore::Impl::entry_targets(const ModelState& model,
                                                            const Query& query) {
  std::vector<Record*> out;
  const auto n = static_cast<uint32_t>(query.tokens.size());
  for (RealmState* realm : index_.realms_of(model.ns, model.spec->fingerprint)) {
    KV_ASSIGN_OR_RETURN(auto match, realm->tree.match(query.tokens, query.extras));
    const PrefixTree& tree = realm->tree;
    // Rows of a child that end here are an earlier turn's.
    auto own_tail = [&](NodeId child) {
      uint32_t first = tree.first_token(child), end = tree.end_token(child);
      return end <= n && end - first < realm->block_tokens() &&
             tree.begins_with(child, tokens_between(query, first, end),
                              extras_in(query.extras, first, end));
    };
    auto own_attached = [&](const Record* r) {
      return r->name.kind != ObjectKind::snapshot ||
             (r->attachment->position <= n &&
              snapshot_common(*r, query) == r->attachment->position);
    };
    NodeId at = match.path.empty() ? kRootNode : match.path.back();
    bool stored = tree.end_token(at) == n;
    for (NodeId child : tree.children(at)) {
      stored |= tree.end_token(child) == n && own_tail(child);
    }
    for (const Record* r : realm->nodes.at(at).attached) {
      stored |=
          r->name.kind == ObjectKind::snapshot && r->attachment->position == n && own_attached(r);
    }
    if (!stored) continue;
    auto take = [&](NodeId node) {
      const RealmState::Node& its = realm->nodes.at(node);
      out.insert(out.end(), its.attached.begin(), its.attached.end());
      if (its.main) out.push_back(its.main);
    };
    for (NodeId below = kNoNode;; below = std::exchange(at, tree.parent(at))) {
      std::vector<NodeId> tails, others;
      for (NodeId child : tree.children(at)) {
        if (child != below) (own_tail(child) ? tails : others).push_back(child);
      }
      auto go_on_from = [&](auto... rows) {
        return std::any_of(others.begin(), others.end(),
                           [&](NodeId other) { return tree.begins_with(other, rows...); });
      };
      for (NodeId tail : tails) {
        if (tree.end_token(tail) == n || !go_on_from(tail)) take(tail);
      }
      const auto& attached = realm->nodes.at(at).attached;
      bool all_own = std::all_of(attached.begin(), attached.end(), own_attached);
      if (others.empty() && all_own && at != kRootNode) {
        take(at);
        continue;
      }
      for (Record* r : attached) {
        bool snapshot = r->name.kind == ObjectKind::snapshot && own_attached(r);
        bool shared = snapshot && go_on_from(std::span<const Token>(r->attachment->tokens),
                                             std::span<const Extra>(r->attachment->extras));
        if (snapshot && (r->attachment->position == n || !shared)) out.push_back(r);
      }
      break;
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

Result<CacheCore::Impl::EraseScope> CacheCore::Impl::scope_of(uint64_t session, uint32_t model,
                                                              const Query& query) {
  EraseScope scope;
  scope.of_namespace = model == 0;
  scope.whole = query.tokens.empty();
  if (model == 0) {
    KV_ASSIGN_OR_RETURN(scope.targets, namespace_targets(session, query));
    return scope;
  }
  KV_ASSIGN_OR_RETURN(auto state, model_of(session, model));
  KV_ASSIGN_OR_RETURN(scope.targets, erase_targets(*state, query));
  return scope;
}

void CacheCore::Impl::erase(uint64_t session, uint32_t model, Query query, Deadline deadline,
                            Done<Result<uint64_t>> done) {
  auto call = begin<Result<uint64_t>>(session, deadline, std::move(done));
  if (call->finished()) return;
  when_all_known(call, [this, session, model, query = std::move(query), call] {
    erase_found(
        session, [=, this] { return scope_of(session, model, query); }, call);
  });
}

void CacheCore::Impl::erase_entry(uint64_t session, uint32_t model, Query query, Deadline deadline,
                                  Done<Result<uint64_t>> done) {
  auto call = begin<Result<uint64_t>>(session, deadline, std::move(done));
  if (call->finished()) return;
  if (query.tokens.empty())
    return call->fail(invalid_argument("erase_entry: 0 tokens, expected the entry's"));
  FindScope find = [this, session, model, query = std::move(query)]() -> Result<EraseScope> {
    EraseScope scope;
    KV_ASSIGN_OR_RETURN(auto state, model_of(session, model));
    KV_ASSIGN_OR_RETURN(scope.targets, entry_targets(*state, query));
    return scope;
  };
  when_all_known(call, [this, session, find, call] { erase_found(session, find, call); });
}

void CacheCore::Impl::erase_found(uint64_t session, FindScope find,
                                  std::shared_ptr<Call<Result<uint64_t>>> call) {
  auto its = sessions_.find(session);
  if (its != sessions_.end() && erasing(its->second.ns)) {
    return after_erase_.push_back([this, session, find, call] {
      if (!call->finished()) erase_found(session, find, call);
    });
  }
  auto scope = find();
  if (!scope.ok()) return call->fail(scope.status());
  uint64_t removed = scope->targets.size();
  auto finish = [this, call, removed, whole_namespace = scope->of_namespace](Status status) {
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
  prepare_erase(*job, *scope, std::move(finish));
  erases_.push_back(job.get());
  count_.erased_objects += removed;
  erase_step(job);
}

void CacheCore::Impl::prepare_erase(EraseJob& job, const EraseScope& scope,
                                    std::function<void(Status)> finish) {
  const auto& targets = scope.targets;
  for (const Record* r : targets) job.targets.push_back({r->name, r->serial});
  // What it frees is freed on a worker. Of a model or namespace the memory goes back to the system,
  // not only to the pool.
  const int jobs = !ssd_ ? 1 : scope.of_namespace ? 3 : 2;
  auto last = std::make_shared<LastOf>(LastOf{std::move(finish), jobs, {}});
  job.freed = std::make_shared<std::vector<RamObject>>();
  job.freed->reserve(targets.size());
  job.trim = task(
      [pool = pool_, freed = job.freed, whole = scope.whole]() -> Status {
        freed->clear();
        if (whole) pool->trim();
        return {};
      },
      [this, last](Status status) {
        room_wake_->ask();  // not before: others would be evicted for what is about to be free
        last->end(std::move(status));
      });
  if (!ssd_) return;
  std::multiset<ObjectName> names;
  Parts parts;
  for (const Record* r : targets) {
    if (parts.empty() || parts.back().size() == kUnlinkedAtATime) parts.emplace_back();
    parts.back().push_back(r->name);
    names.insert(r->name);
  }
  if (scope.of_namespace) {
    job.records = std::make_shared<std::vector<Id>>();
    job.records->reserve(models_.size() + resting_.size());
    job.forget = ssd_task([ssd = ssd_, ids = job.records] { return forget(*ssd, *ids); },
                          [last](Status status) { last->end(std::move(status)); });
  }
  std::set<const Record*> own;
  if (!left_files_.empty()) own.insert(targets.begin(), targets.end());
  job.tasks = erase_tasks(left_files_.size() + parts.size(), job.unlinks, scope.of_namespace,
                          [last](Status status) { last->end(std::move(status)); });
  // Nothing fails from here on. At once what was left before, so that the next erase finds it done.
  sort_out_left_files(own);
  job.left_files = left_files_.size();
  left_files_.splice(left_files_.end(), parts);
  for (auto& u : job.unlinks) {
    if (!left_files_.empty()) u->parts.splice(u->parts.end(), left_files_, left_files_.begin());
  }
  for (size_t i = 0; i < job.unlinks.size(); ++i) job.unlinks[i]->behind = i >= job.left_files;
  unlinking_.merge(names);
  for (size_t i = 0; i < job.left_files; ++i) {  // ahead of later writes of its names
    job.unlinks[i].reset();
    ssd_lane_->submit(std::move(job.tasks[i]));
  }
}

// A part that fails is left over as soon as that is known. `fence`: one of its objects is being
// written.
void CacheCore::Impl::submit_part(EraseJob& job, size_t part, bool fence) noexcept {
  job.unlinks[part].reset();
  ssd_lane_->submit_behind(std::move(job.tasks[part]), fence);
}

// The next of its objects leave the index; when all of a part have, their unlinks are queued.
// Others' writes pass them, but nothing is written of their names until they are done.
void CacheCore::Impl::erase_step(const std::shared_ptr<EraseJob>& job) noexcept {
  size_t end = std::min(job->targets.size(), job->next + kErasedAtATime);
  while (job->next < end) {
    const size_t part = job->next / kUnlinkedAtATime;
    bool writing = false;  // one of them
    for (size_t part_end = std::min(end, (part + 1) * kUnlinkedAtATime); job->next < part_end;) {
      Record* r = find_pinned(job->targets[job->next++]);
      if (!r) continue;  // evicted meanwhile
      if (r->ram) job->freed->push_back(r->ram);
      writing |= r->disk == Disk::writing;
      records_.remove(*r);
    }
    if (ssd_) submit_part(*job, job->left_files + part, writing);
  }
  if (job->next < job->targets.size()) {
    return post_surely(loop_, job->memory, [weak = weak_from_this(), job] {
      if (auto self = weak.lock(); self && !self->closed_) self->erase_step(job);
    });
  }
  end_erase(*job);
}

// All have left the index.
void CacheCore::Impl::end_erase(EraseJob& job) noexcept {
  job.trim->submit(workers_);
  if (job.forget) {
    forget_records(job.ns, *job.records);
    ssd_lane_->submit(std::move(job.forget));
  }
  for (auto& rest : job.tasks) {  // parts of nothing, and the last
    if (rest) ssd_lane_->submit_behind(std::move(rest), true);
  }
  std::erase(erases_, &job);
  check_commit_waits();
  for (auto& call : std::exchange(after_erase_, {})) {  // each a step of its own
    bool posted = if_memory([&] { later(call); });
    if (!posted) (void)if_memory(call);  // it answers when it is dropped
  }
  if (!opening_) release_realms();
}

// The model records of a namespace hold its name: they go too. A model that is open has its own
// written anew with the next object of it; one that is being written now is of what comes.
void CacheCore::Impl::forget_records(const std::string& ns, std::vector<Id>& gone) noexcept {
  if (files_unknown() || opening_) return;
  for (auto& [key, model] : models_) {
    if (key.first != ns || model->records_writing) continue;
    model->records_durable = false;
    gone.push_back(model_id(key.first, key.second));
  }
  std::erase_if(resting_, [&](const auto& rests) {
    if (rests.first.first != ns) return false;
    gone.push_back(model_id(rests.first.first, rests.first.second));
    return true;
  });
}

// The core closes: what has begun is done, behind all other work of the SSD.
void CacheCore::Impl::end_erases() noexcept {
  for (EraseJob* job : std::exchange(erases_, {})) {
    for (auto& task : job->tasks) {
      if (task) ssd_lane_->submit_behind(std::move(task), true);
    }
  }
}

bool CacheCore::Impl::erasing(const std::string& ns) const {
  return std::any_of(erases_.begin(), erases_.end(),
                     [&](const EraseJob* job) { return job->ns == ns; });
}

// One for each part of the files, then the folders are synced and the catalog forgets the tokens.
// In parts, so that others' writes go in between.
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
    auto sync = [ssd = ssd_]() -> Status {
      KV_RETURN_IF_ERROR(ssd->sync());
      return ssd->checkpoint();
    };
    tasks.push_back(ssd_task(std::move(sync), std::move(end)));
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
        KV_RETURN_IF_ERROR(ssd->sync());
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

}  // namespace kv
