// Rounds over the nodes of a namespace.
#include "cachesvc/core/sweeps.h"

#include <algorithm>
#include <utility>

namespace kv {
namespace {

constexpr size_t kUnlinkedAtATime = 8;  // files of one job: a few milliseconds each

}  // namespace

struct Sweeps::Job {
  std::shared_ptr<Call<Result<DemoteAllReply>>> call;
  std::vector<std::shared_ptr<RealmState>> realms;
  size_t realm = 0, nodes_left = 0;  // of this round
  DemoteAllReply reply;              // `deferred` and `stay`: of this round
  uint64_t left_before = 0;          // until this round
  bool off_ssd = false;              // not out of RAM
  bool swept = false;                // no round is left
  size_t unlinks = 0;                // that are under way
  Status failed;                     // the first of them that was
  void begin_round() {
    realm = 0;
    nodes_left = realms.empty() ? 0 : realms[0]->nodes.size();
    left_before = reply.left;
    reply.deferred = reply.stay = 0;
  }
};

// Null: the call has its answer.
Sweeps::JobPtr Sweeps::begin(uint64_t session, CallTerms terms,
                             std::function<void(Result<DemoteAllReply>)> done) {
  auto call = calls_.begin<Result<DemoteAllReply>>(session, terms, std::move(done));
  if (call->finished()) return nullptr;
  if (!calls_.session(session)) {
    call->fail({StatusCode::not_found, "no such session"});
    return nullptr;
  }
  if (const char* refusal = lane_.refusal()) {
    call->fail({StatusCode::unavailable, refusal});
    return nullptr;
  }
  auto job = std::make_shared<Job>();
  job->call = call;
  return job;
}

void Sweeps::demote(uint64_t session, CallTerms terms,
                    std::function<void(Result<DemoteAllReply>)> done) {
  const JobPtr job = begin(session, terms, std::move(done));
  if (!job) return;
  const std::string& ns = calls_.session(session)->ns;
  for (const auto& [key, model] : models_.all()) {
    if (key.first == ns && model->realm) job->realms.push_back(model->realm);
  }
  job->begin_round();
  step(job);
}

void Sweeps::clear_ssd(uint64_t session, CallTerms terms,
                       std::function<void(Result<DemoteAllReply>)> done) {
  const JobPtr job = begin(session, terms, std::move(done));
  if (!job) return;
  if (!found_.all_known()) {
    return job->call->fail({StatusCode::unavailable, "recovering: not all files are known yet"});
  }
  job->off_ssd = true;
  const std::string& ns = calls_.session(session)->ns;
  for (const auto& realm : index_.realms().all()) {  // those of earlier profiles too
    if (realm && realm->realm.ns == ns) job->realms.push_back(realm);
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
  std::vector<ObjectName> gone;
  for (Record* r : some) job->off_ssd ? take_off_ssd(*job, *r, gone) : look(*job, *r);
  unlink(job, std::move(gone));
  leaving_.go();
  if (job->realm < job->realms.size()) return env_.later([this, job] { step(job); });
  if (job->reply.left > job->left_before && job->reply.deferred + job->reply.stay > 0) {
    job->begin_round();  // parents of what has left
    return env_.later([this, job] { step(job); });
  }
  spiller_.pump();
  job->swept = true;
  answer(job);
}

void Sweeps::answer(const JobPtr& job) {
  if (!job->swept || job->unlinks > 0 || job->call->finished()) return;
  if (!job->failed.ok()) return job->call->fail(job->failed);
  job->call->finish(job->reply);
}

// Records that are being written, pinned, or needed by what goes on from them stay.
void Sweeps::take_off_ssd(Job& job, Record& record, std::vector<ObjectName>& gone) {
  if (!record.on_ssd()) {
    if (record.spills() || record.file.bytes > 0) ++job.reply.stay;
    return;
  }
  const bool needed = index_.tiers().ssd_of(record).has_children(record.key) ||
                      (!record.ram && index_.tiers().ram_of(record).has_children(record.key));
  if (record.pins > 0 || needed) {
    ++job.reply.stay;
    return;
  }
  lane_.lost().note(record.name);
  gone.push_back(record.name);
  ++job.reply.left;
  records_.lost(record, true, {Missing::erased});  // made room: RAM's is not written again at once
}

// A few at a time: others' reads and writes go between.
void Sweeps::unlink(const JobPtr& job, std::vector<ObjectName> gone) {
  for (size_t i = 0; i < gone.size(); i += kUnlinkedAtATime) {
    const auto first = gone.begin() + static_cast<ptrdiff_t>(i);
    const auto end =
        gone.begin() + static_cast<ptrdiff_t>(std::min(gone.size(), i + kUnlinkedAtATime));
    ++job->unlinks;
    lane_.unlink_behind({first, end}, false, [job](const Status& status) {
      --job->unlinks;
      if (!status.ok() && job->failed.ok()) job->failed = status;
      answer(job);
    });
  }
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
