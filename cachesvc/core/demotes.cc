// Hits out of RAM, some objects in each handler.
#include "cachesvc/core/demotes.h"

#include <algorithm>

namespace kv {
namespace {

constexpr size_t kDemotedAtATime = 64;  // per handler: a long prompt has hundreds

// Objects that serve the hit or hang on its blocks, children before their parents.
std::vector<PinnedName> objects_of(const RealmState& realm, const Hit& hit) {
  std::vector<Record*> all;
  for (const Hit::Use& u : hit.uses) all.push_back(u.record);
  for (NodeId node : hit.match.path) {
    if (realm.tree.end_token(node) <= hit.plan.tokens) realm.nodes.at(node).list(SIZE_MAX, all);
  }
  // A block's children lie behind it, its supplements and snapshots hang on it.
  const auto rank = [&](const Record* r) {
    const bool own = r->name.kind == ObjectKind::block || r->name.kind == ObjectKind::tail;
    return std::tuple(own ? realm.tree.end_token(r->node) : UINT32_MAX, r->serial);
  };
  std::sort(all.begin(), all.end(),
            [&](const Record* a, const Record* b) { return rank(a) > rank(b); });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<PinnedName> names;
  names.reserve(all.size());
  for (const Record* r : all) names.push_back({r->name, r->serial});
  return names;
}

}  // namespace

struct Demotes::Job {
  std::shared_ptr<Call<Result<DemoteReply>>> call;
  DemoteReply reply;
  uint64_t hold = 0;
  std::vector<PinnedName> objects;
  size_t at = 0;
  size_t left = 0, deferred = 0, stay = 0;  // objects
};

void Demotes::demote(uint64_t session, DemoteRequest request, CallTerms terms,
                     std::function<void(Result<DemoteReply>)> done) {
  auto call = calls_.begin<Result<DemoteReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto state = calls_.model(session, request.model, request.profile);
  if (!state.ok()) return call->fail(state.status());
  auto asked = holds_.asked(**state, request.hold, std::move(request.query));
  if (!asked.ok()) return call->fail(asked.status());
  RealmState& realm = *(*state)->realm;
  PlanOptions options = plan_options(env_, *asked->query);
  options.limits.max_tokens = asked->tokens;
  auto hit = plan(realm, *asked->query, options);
  if (!hit.ok()) return call->fail(hit.status());
  auto job = std::make_shared<Job>();
  job->call = call;
  job->hold = request.hold;
  job->reply.tokens = hit->plan.tokens;
  if (hit->plan.tokens == 0) return call->finish(DemoteReply{Outcome::missing, 0, ""});
  if (const char* refusal = lane_.refusal()) {
    return call->finish(DemoteReply{Outcome::rejected, hit->plan.tokens, refusal});
  }
  job->objects = objects_of(realm, *hit);
  step(job);
}

// A call that has ended moves nothing more.
void Demotes::step(const JobPtr& job) {
  if (job->call->finished()) return leaving_.go();
  const size_t end = std::min(job->objects.size(), job->at + kDemotedAtATime);
  while (job->at < end) ask(*job, job->objects[job->at++]);
  leaving_.go();
  if (end < job->objects.size()) return env_.later([this, job] { step(job); });
  spiller_.pump();
  answer(*job);
}

void Demotes::ask(Job& job, const PinnedName& name) {
  Record* r = index_.find(name);
  if (!r || !r->ram) return;
  // A parent does as its children do.
  const bool waits = !r->verified() || job.deferred > 0 || spiller_.pins(*r);
  if (!waits && may_leave(*r, job.hold)) {
    leave(*r);
    ++job.left;
    return;
  }
  // An object that is being written is pinned by that.
  const bool comes =
      waits && deferred_.size() < kMostDeferred && spiller_.ask(*r) != Spiller::Asked::in_vain;
  ++(comes ? job.deferred : job.stay);
  if (comes) deferred_.push_back({name, job.hold});
}

// True if something pins the record beside the hold.
bool Demotes::pinned(const Record& record, uint64_t hold) const {
  const uint32_t own = hold != 0 && holds_.holds(hold, record) ? 1 : 0;
  return record.pins > own;
}

bool Demotes::may_leave(const Record& record, uint64_t hold) const {
  return !pinned(record, hold) && !index_.tiers().ram_of(record).has_children(record.key);
}

void Demotes::leave(Record& record) {
  leaving_.add(record.ram, record.payload_bytes);
  recency_.leave_ram(record);
  ++env_.count.demoted_objects;
}

void Demotes::answer(const Job& job) const {
  DemoteReply reply = job.reply;
  const size_t others = job.left + job.deferred;
  reply.outcome = job.stay > 0 ? (others > 0 ? Outcome::clipped : Outcome::rejected)
                               : (job.deferred > 0 ? Outcome::deferred : Outcome::accepted);
  if (job.stay > 0) {
    reply.reason = std::to_string(job.stay) + " of " + std::to_string(others + job.stay) +
                   " objects stay: pinned, other entries go on from them, or never on the SSD";
  }
  job.call->finish(std::move(reply));
}

void Demotes::go_on() {
  if (lane_.hangs()) deferred_.clear();
  for (size_t n = 0; !deferred_.empty(); ++n) {
    if (n == kDemotedAtATime) {
      env_.progress();
      break;
    }
    const Deferred next = deferred_.front();
    Record* r = index_.find(next.name);
    if (r && r->ram && (r->spills() || spiller_.pins(*r))) break;
    deferred_.pop_front();
    if (r && r->ram && r->verified() && may_leave(*r, next.hold)) leave(*r);
  }
  leaving_.go();
}

}  // namespace kv
