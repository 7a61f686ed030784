// Rounds over the nodes of a namespace.
#include "cachesvc/core/sweeps.h"

#include <algorithm>
#include <utility>

namespace kv {

struct Sweeps::Job {
  std::shared_ptr<Call<Result<DemoteAllReply>>> call;
  std::vector<std::shared_ptr<RealmState>> realms;
  size_t realm = 0, nodes_left = 0;  // of this round
  DemoteAllReply reply;              // `deferred` and `stay`: of this round
  uint64_t left_before = 0;          // until this round
  void begin_round() {
    realm = 0;
    nodes_left = realms.empty() ? 0 : realms[0]->nodes.size();
    left_before = reply.left;
    reply.deferred = reply.stay = 0;
  }
};

void Sweeps::demote(uint64_t session, CallTerms terms,
                    std::function<void(Result<DemoteAllReply>)> done) {
  auto call = calls_.begin<Result<DemoteAllReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  const SessionState* state = calls_.session(session);
  if (!state) return call->fail({StatusCode::not_found, "no such session"});
  if (!lane_ || lane_.hangs() || env_.draining()) {
    return call->fail({StatusCode::unavailable, !lane_          ? "there is no SSD"
                                                : lane_.hangs() ? "the SSD hangs"
                                                                : "the service is draining"});
  }
  auto job = std::make_shared<Job>();
  job->call = call;
  for (const auto& [key, model] : models_.all()) {
    if (key.first == state->ns && model->realm) job->realms.push_back(model->realm);
  }
  job->begin_round();
  step(job);
}

// The newest nodes come first: a child is newer than its parent, unless it has a number that was
// free.
void Sweeps::step(const JobPtr& job) {
  if (job->call->finished()) return leaving_.go();
  std::vector<Record*> some;
  for (size_t n = 0; n < kNodesPerStep && job->realm < job->realms.size(); ++n) {
    RealmState& realm = *job->realms[job->realm];
    if (job->nodes_left == 0) {
      if (++job->realm < job->realms.size()) {
        job->nodes_left = job->realms[job->realm]->nodes.size();
      }
      continue;
    }
    if (--job->nodes_left < realm.nodes.size()) realm.nodes[job->nodes_left].list(SIZE_MAX, some);
  }
  for (Record* r : some) look(*job, *r);
  leaving_.go();
  if (job->realm < job->realms.size()) return env_.later([this, job] { step(job); });
  if (job->reply.left > job->left_before && job->reply.deferred + job->reply.stay > 0) {
    job->begin_round();  // parents of what has left
    return env_.later([this, job] { step(job); });
  }
  spiller_.pump();
  job->call->finish(job->reply);
}

void Sweeps::look(Job& job, Record& record) {
  if (!record.ram) return;
  const bool needed = index_.tiers().ram_of(record).has_children(record.key);
  if (record.verified() && record.pins == 0 && !needed) {
    leaving_.add(record.ram, record.payload_bytes);
    recency_.leave_ram(record);
    ++env_.count.demoted_objects;
    ++job.reply.left;
    return;
  }
  const bool comes =
      record.spills() || (!record.verified() && spiller_.ask(record) != Spiller::Asked::in_vain);
  ++(comes ? job.reply.deferred : job.reply.stay);
}

}  // namespace kv
