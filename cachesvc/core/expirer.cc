// Times given in steps, and what is over.
#include "cachesvc/core/expirer.h"

#include <algorithm>
#include <map>

#include "cachesvc/core/paths.h"

namespace kv {
namespace {

constexpr size_t kTimesAtATime = 256;  // per handler
constexpr std::chrono::seconds kLongestWait(60);

}  // namespace

struct Expirer::Job {
  std::shared_ptr<Call<Result<ExpireReply>>> call;
  ExpireReply reply;
  uint64_t at = 0;  // 0: their times are taken away
  std::vector<PinnedName> objects;
  size_t next = 0;
  Charge room;
  std::vector<NotedName> notes;
};

Expirer::Expirer(Env& env, ObjectIndex& index, SsdLane& lane, const Found& found,
                 Expiries& expiries, Calls& calls, Eraser& eraser)
    : env_(env),
      index_(index),
      lane_(lane),
      found_(found),
      expiries_(expiries),
      calls_(calls),
      eraser_(eraser),
      timer_(env.loop, env.handler([this] { due(); })) {}

void Expirer::expire(uint64_t session, ExpireRequest request, CallTerms terms,
                     std::function<void(Result<ExpireReply>)> done) {
  auto call = calls_.begin<Result<ExpireReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto model = calls_.model(session, request.model, request.profile);
  if (!model.ok()) return call->fail(model.status());
  if (Status s = check_lengths(request.query); !s.ok()) return call->fail(s);
  auto found = EraseTargets::found_now(index_, **model, request.query, request.whole, kMostObjects);
  if (!found.ok()) return call->fail(found.status());
  if (found->empty()) return call->finish(ExpireReply{Outcome::missing, 0, ""});
  if (env_.draining() || found->size() > kMostObjects) {
    return call->finish(ExpireReply{
        Outcome::rejected, 0,
        env_.draining() ? "the service is draining"
                        : "more than " + std::to_string(kMostObjects) + " objects begin so"});
  }
  auto job = std::make_shared<Job>();
  job->call = call;
  if (request.time.count() > 0) {
    job->at = wall_seconds(env_) + static_cast<uint64_t>(request.time.count());
    auto room = env_.pool->try_charge(ChargeKind::index, found->size() * Expiries::kBytes);
    if (!room) return call->fail({StatusCode::busy, "no room in RAM for the times now"});
    job->room = std::move(*room);
  }
  for (const Record* r : *found) job->objects.push_back({r->name, r->serial});
  if (!found_.all_known()) job->reply.reason = "files that are still to be read have no time";
  step(job);
}

void Expirer::step(const JobPtr& job) {
  const size_t end = std::min(job->objects.size(), job->next + kTimesAtATime);
  for (; job->next < end; ++job->next) {
    Record* r = index_.find(job->objects[job->next]);
    if (!r) continue;
    ++job->reply.objects;
    if (job->at > 0) {
      expiries_.set(*r, job->at, job->room.split(Expiries::kBytes));
    } else if (!expiries_.lift(*r)) {
      continue;
    }
    if (r->on_ssd()) job->notes.emplace_back(r->name, r->note());
  }
  if (end < job->objects.size()) return env_.later([this, job] { step(job); });
  arm();
  const bool all = job->reply.reason.empty();
  job->reply.outcome = all ? Outcome::accepted : Outcome::clipped;
  if (job->reply.objects == 0) job->reply = {Outcome::missing, 0, ""};
  lane_.note(std::move(job->notes), true, [job] { job->call->finish(std::move(job->reply)); });
}

// Erases what is over, some in each handler.
void Expirer::due() {
  const uint64_t now = wall_seconds(env_);
  std::map<std::string, std::vector<PinnedName>> over;
  for (size_t n = 0; n < kTimesAtATime; ++n) {
    Record* r = expiries_.next();
    if (!r || r->wishes.expiry->at > now) break;
    over[r->realm ? r->realm->realm.ns : r->orphan->header.ns].push_back({r->name, r->serial});
    expiries_.lift(*r);
  }
  for (auto& [ns, names] : over) eraser_.expire(ns, std::move(names));
  arm();
}

void Expirer::arm() {
  Record* next = expiries_.next();
  if (!next || env_.draining()) return timer_.cancel();
  const uint64_t now = wall_seconds(env_), at = next->wishes.expiry->at;
  const auto left = std::chrono::seconds(at > now ? at - now : 0);
  timer_.arm_in(std::min<Milliseconds>(left, kLongestWait));
}

void Expirer::check_invariants() const {
  KV_CHECK(!timer_.armed() || *timer_.due() <= Clock::now() + kLongestWait);
}

}  // namespace kv
