// The verbs, each a step of the loop.
#include "cachesvc/core/cache_core.h"

#include "cachesvc/core/owners.h"

namespace kv {
Result<std::unique_ptr<CacheCore>> CacheCore::create(CacheOptions options,
                                                     boost::asio::any_io_executor loop,
                                                     boost::asio::any_io_executor workers,
                                                     boost::asio::any_io_executor disk) {
  KV_RETURN_IF_ERROR(validate(options));
  KV_ASSIGN_OR_RETURN(uint64_t budget, ram_budget(options));
  KV_RETURN_IF_ERROR(check_shares(options, budget));
  auto staging = static_cast<uint64_t>(static_cast<double>(budget) * options.staging_fraction);
  const Backing backing = options.segments ? Backing::segments : Backing::anonymous;
  auto env = std::make_shared<Env>(std::move(options), std::move(loop), std::move(workers),
                                   std::move(disk), RamPool::create(budget, staging, backing));
  std::unique_ptr<CacheCore> core(new CacheCore(std::make_unique<Owners>(env)));
  Owners& own = *core->own_;
  own.begin();
  KV_RETURN_IF_ERROR(own.reconciler.open());
  own.expirer.begin();
  own.scrubber.begin(own.lane.scrubbed_place());
  env->progress();
  return core;
}

CacheCore::CacheCore(std::unique_ptr<Owners> owners) : own_(std::move(owners)) {}
CacheCore::~CacheCore() { own_->close("the cache is closing"); }

// The verbs.

Result<uint64_t> CacheCore::connect(const std::string& ns, Right right) {
  Result<uint64_t> session = Status(StatusCode::unavailable, "the cache has ended");
  if (!own_->env->closed()) own_->env->run([&] { session = own_->calls.connect(ns, right); });
  return session;
}
void CacheCore::count_denied() { ++own_->env->count.denied; }
void CacheCore::disconnect(uint64_t session) {
  if (own_->env->closed()) return;
  own_->env->run([&] {
    own_->calls.disconnect(session);
    own_->reservations.end_session(session);
    own_->models.rest_unused();
  });
}
void CacheCore::open(uint64_t session, OpenRequest request, CallTerms terms,
                     Done<Result<OpenReply>> done) {
  own_->env->run([&] { own_->opens.open(session, std::move(request), terms, std::move(done)); });
}
Result<uint32_t> CacheCore::attach(uint64_t session, const std::string& model) {
  Result<uint32_t> handle = Status(StatusCode::unavailable, "the cache has ended");
  if (own_->env->closed()) return handle;
  own_->env->run([&] {
    std::vector<std::shared_ptr<ModelState>> in_use;
    for (const auto& [key, state] : own_->models.all()) in_use.push_back(state);
    handle = own_->calls.attach(session, model, in_use);
  });
  return handle;
}
void CacheCore::lookup(uint64_t session, QueryRequest request, CallTerms terms,
                       Done<Result<LookupReply>> done) {
  own_->env->run(
      [&] { own_->fetches.lookup(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::prefetch(uint64_t session, PrefetchRequest request, CallTerms terms,
                         Done<Result<LookupReply>> done) {
  own_->env->run(
      [&] { own_->fetches.prefetch(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::demote(uint64_t session, DemoteRequest request, CallTerms terms,
                       Done<Result<DemoteReply>> done) {
  own_->env->run(
      [&] { own_->demotes.demote(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::demote_all(uint64_t session, CallTerms terms, Done<Result<DemoteAllReply>> done) {
  own_->env->run([&] { own_->sweeps.demote(session, terms, std::move(done)); });
}

void CacheCore::clear_ssd(uint64_t session, CallTerms terms, Done<Result<DemoteAllReply>> done) {
  own_->env->run([&] { own_->sweeps.clear_ssd(session, terms, std::move(done)); });
}
void CacheCore::retain(uint64_t session, RetainRequest request, CallTerms terms,
                       Done<Result<RetainReply>> done) {
  own_->env->run([&] { own_->holds.retain(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::expire(uint64_t session, ExpireRequest request, CallTerms terms,
                       Done<Result<ExpireReply>> done) {
  own_->env->run(
      [&] { own_->expirer.expire(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::hold(uint64_t session, HoldRequest request, CallTerms terms,
                     Done<Result<HoldReply>> done) {
  own_->env->run([&] { own_->holds.hold(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::renew(uint64_t session, uint64_t hold, Milliseconds time, CallTerms terms,
                      Done<Result<Milliseconds>> done) {
  own_->env->run([&] { own_->holds.renew(session, hold, time, terms, std::move(done)); });
}
void CacheCore::release(uint64_t session, uint64_t hold, CallTerms terms, Done<Status> done) {
  own_->env->run([&] { own_->holds.release(session, hold, terms, std::move(done)); });
}
void CacheCore::fetch(uint64_t session, FetchRequest request, CallTerms terms,
                      Done<Result<FetchReply>> done) {
  own_->env->run([&] { own_->fetches.fetch(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::reserve(uint64_t session, ReserveRequest request, CallTerms terms,
                        Done<Result<ReserveReply>> done) {
  own_->env->run(
      [&] { own_->reservations.reserve(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room,
                    CallTerms terms, Done<Status> done) {
  own_->env->run([&] {
    own_->puts.put(session, std::move(request), std::move(room), terms, std::move(done));
  });
}
bool CacheCore::reads_rows(const PutRequest& request) { return Puts::reads_rows(request); }
void CacheCore::put_rows(uint64_t session, PutRequest request, RowSource rows, CallTerms terms,
                         Done<Status> done) {
  own_->env->run([&] {
    own_->puts.put_rows(session, std::move(request), std::move(rows), terms, std::move(done));
  });
}
void CacheCore::commit(uint64_t session, uint64_t reservation, Durability wait_for, CallTerms terms,
                       Done<Result<CommitReply>> done) {
  own_->env->run(
      [&] { own_->commits.commit(session, reservation, wait_for, terms, std::move(done)); });
}
void CacheCore::abort(uint64_t session, uint64_t reservation, CallTerms terms, Done<Status> done) {
  own_->env->run([&] { own_->reservations.abort(session, reservation, terms, std::move(done)); });
}
void CacheCore::erase(uint64_t session, uint32_t model, Query query, CallTerms terms,
                      Done<Result<uint64_t>> done) {
  own_->env->run(
      [&] { own_->eraser.erase(session, model, std::move(query), terms, std::move(done)); });
}
void CacheCore::erase_entry(uint64_t session, QueryRequest request, CallTerms terms,
                            Done<Result<uint64_t>> done) {
  own_->env->run(
      [&] { own_->eraser.erase_entry(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::why(uint64_t session, WhyRequest request, CallTerms terms,
                    Done<Result<WhyReply>> done) {
  own_->env->run(
      [&] { own_->why_missed.why(session, std::move(request), terms, std::move(done)); });
}
void CacheCore::stats(uint64_t session, CallTerms terms, Done<Result<StatsReply>> done) {
  own_->env->run([&] { own_->stats.stats(session, terms, std::move(done)); });
}
void CacheCore::metrics(Done<Metrics> done) {
  own_->env->run([&] { own_->stats.metrics(std::move(done)); });
}
std::string CacheCore::not_ready() const {
  return own_->env->closed() ? "the cache has ended" : own_->stats.not_ready();
}
void CacheCore::cancel(uint64_t session, uint64_t tag) {
  if (own_->env->closed()) return;
  own_->env->run([&] { own_->calls.cancel(session, tag); });
}
void CacheCore::drain(Deadline deadline, Done<Status> done) {
  own_->env->run([&] { own_->drain.begin(deadline, std::move(done)); });
}

void CacheCore::limit_writes(uint64_t bytes_per_second, uint64_t bytes_per_day) {
  own_->env->run([&] { own_->pace.limit(bytes_per_second, bytes_per_day); });
}

ClientMemory& CacheCore::memory() { return own_->client_memory; }
void CacheCore::no_memory() { own_->env->no_memory(); }

// A core that has ended for lack of memory may have ended in the middle of a step.
void CacheCore::check_invariants() const {
  if (!own_->env->closed()) own_->check_invariants();
}
const std::shared_ptr<RamPool>& CacheCore::pool() const { return own_->env->pool; }
const CacheOptions& CacheCore::options() const { return own_->env->options; }

}  // namespace kv
