// Holds: objects pinned for a time, counted by share.
#include "cachesvc/core/holds.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "cachesvc/core/promoter.h"

namespace kv {
namespace {

constexpr int kMaxFits = 8;                // plans of one call, each shorter
constexpr size_t kLetGoAtATime = 256;      // per handler
constexpr uint64_t kBytesPerObject = 160;  // name, serial, and the count of its holds

Status check_asked(const Query& query, Milliseconds time) {
  KV_RETURN_IF_ERROR(check_lengths(query));
  return time > Milliseconds(0) ? Status() : invalid_argument("time: 0 ms, expected at least 1");
}

uint64_t random_number() {
  std::random_device source;
  return (uint64_t{source()} << 32 | source()) | 1;
}

Status no_such_hold(uint64_t number) {
  return {StatusCode::not_found, "hold " + std::to_string(number) +
                                     ": this namespace has none, or its time is over, or the "
                                     "service was started anew"};
}

uint64_t bytes_of(const Record& record) { return Promoter::room_for(record).stored; }

// The tokens of a query that a hold keeps: those held, the one to compute and, where there is more,
// another one, which tells the plan that this is no repeat.
uint32_t held_tokens(const Query& query, uint32_t n) {
  return std::min(n + 2, static_cast<uint32_t>(query.tokens.size()));
}

Query held_part(Query query, uint32_t n) {
  const uint32_t kept = held_tokens(query, n);
  query.tokens.resize(kept);
  query.tokens.shrink_to_fit();
  query.extras.resize(extras_in(query.extras, 0, kept).size());
  return query;
}

// The hold's own memory.
uint64_t own_bytes(const Query& query, const Hit& hit) {
  return query_bytes(query, held_tokens(query, hit.plan.tokens)) +
         hit.uses.size() * kBytesPerObject;
}

}  // namespace

Holds::Holds(Env& env, ObjectIndex& index, RamRoom& room, Calls& calls)
    : env_(env),
      index_(index),
      room_(room),
      calls_(calls),
      shares_(env.namespaces.count()),
      next_(random_number()),
      timer_(env.loop, env.handler([this] { end_due(); })) {
  const Shares &ram = index.tiers().ram(), &ssd = index.tiers().ssd();
  for (size_t i = 0; i < shares_.size(); ++i) {
    const auto share = static_cast<ShareId>(i);
    const auto its_ram = static_cast<double>(ram.part_limit(share));
    auto its_ssd = static_cast<double>(ssd.part_limit(share));
    // The part of the SSD without a quota is shared out as RAM is.
    if (ssd.limit(share) == 0) its_ssd *= its_ram / static_cast<double>(env.pool->most_bytes());
    const double least = env.options.ssd_dir.empty() ? its_ram : std::min(its_ram, its_ssd);
    shares_[i].limit = static_cast<uint64_t>(env.options.hold_fraction * least);
  }
}

// Namespaces without RAM of their own have the rest together.
Holds::Share& Holds::share_of(const RealmState& realm) {
  return shares_[index_.tiers().ram().limit(realm.share) == 0 ? kCommonShare : realm.share];
}

void Holds::hold(uint64_t session, HoldRequest request, CallTerms terms,
                 std::function<void(Result<HoldReply>)> done) {
  auto call = calls_.begin<Result<HoldReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto model = calls_.model(session, request.model, request.profile);
  if (!model.ok()) return call->fail(model.status());
  if (env_.draining()) return call->fail({StatusCode::unavailable, "the service is draining"});
  if (Status s = check_asked(request.query, request.time); !s.ok()) return call->fail(s);
  bool less = false;
  auto reply = keep(**model, std::move(request.query), request.time, Kind::pins, less);
  if (reply.status().code() == StatusCode::resource_exhausted) ++env_.count.over_quota;
  if (!reply.ok()) return call->fail(reply.status());
  call->finish(std::move(*reply));
}

void Holds::retain(uint64_t session, RetainRequest request, CallTerms terms,
                   std::function<void(Result<RetainReply>)> done) {
  auto call = calls_.begin<Result<RetainReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto model = calls_.model(session, request.model, request.profile);
  if (!model.ok()) return call->fail(model.status());
  if (Status s = check_asked(request.query, request.time); !s.ok()) return call->fail(s);
  if (env_.draining()) {
    return call->finish(RetainReply{Outcome::rejected, 0, {}, 0, "the service is draining"});
  }
  bool less = false;
  auto kept = keep(**model, std::move(request.query), request.time, Kind::retains, less);
  if (kept.status().code() == StatusCode::resource_exhausted) {
    ++env_.count.over_quota;
    return call->finish(RetainReply{Outcome::rejected, 0, {}, 0, kept.status().message()});
  }
  if (!kept.ok()) return call->fail(kept.status());
  const Outcome outcome = kept->number == 0 ? Outcome::missing
                          : less            ? Outcome::clipped
                                            : Outcome::accepted;
  call->finish(RetainReply{outcome, kept->number, kept->time, kept->found.tokens,
                           std::move(kept->found.reason)});
}

Milliseconds Holds::clipped(Milliseconds time, Kind kind) const {
  return std::min(time, kind == Kind::pins ? env_.options.max_hold_time : kMostRetainTime);
}

// Plans until the bytes that the share's holds don't pin yet, and the hold's own, fit beside
// theirs.
Result<Hit> Holds::plan(RealmState& realm, const Query& query, HoldReply& reply, bool& less) {
  const Share& share = share_of(realm);
  const uint64_t room = share.limit - std::min(share.limit, share.bytes);
  auto added = [&](const Record& r) { return share.objects.find(r.serial) ? 0 : bytes_of(r); };
  PlanOptions options = plan_options(env_, query);
  for (int round = 0; round < kMaxFits; ++round) {
    KV_ASSIGN_OR_RETURN(Hit hit, kv::plan(realm, query, options));
    uint64_t needed = hit.plan.tokens == 0 ? 0 : own_bytes(query, hit);
    for (const Hit::Use& u : hit.uses) needed += added(*u.record);
    reply.found = {hit.plan.tokens, hit.common, hit.plan.tier, hit.plan.form,
                   round == 0 ? shortfall_of(realm, hit) : std::move(reply.found.reason)};
    if (needed <= room) return hit;
    const Status over = over_quota(realm.realm.ns, "held bytes", share.limit, share.bytes, needed);
    options.limits.max_tokens = shorter(realm, hit, needed, room, added);
    if (options.limits.max_tokens == 0) return over;
    reply.found.reason = over.message();
    less = true;
  }
  return Status(StatusCode::resource_exhausted, reply.found.reason);
}

Result<HoldReply> Holds::keep(const ModelState& model, Query query, Milliseconds asked, Kind kind,
                              bool& less) {
  RealmState& realm = *model.realm;
  const Milliseconds time = clipped(asked, kind);
  less = time < asked;
  KV_RETURN_IF_ERROR(within_quota(model.ns, "holds", env_.options.max_holds, size_of(model.ns), 1));
  HoldReply reply;
  KV_ASSIGN_OR_RETURN(Hit hit, plan(realm, query, reply, less));
  if (hit.plan.tokens == 0) return reply;
  std::vector<Record*> records;
  for (const Hit::Use& u : hit.uses) records.push_back(u.record);
  Hold hold;
  hold.pins = Pins(env_, index_, records);  // making room drops what is not pinned
  hold.room = room_.room_now({.session = own_bytes(query, hit)});
  if (!hold.room) return Status(StatusCode::busy, "no RAM for a hold's query now");
  hold.ns = model.ns;
  hold.realm = model.realm;
  hold.held.tokens = hit.plan.tokens;
  hold.held.query = std::make_shared<const Query>(held_part(std::move(query), hit.plan.tokens));
  Share& share = share_of(realm);
  share.bytes += hold.own_bytes();
  for (const Record* r : records) {
    hold.objects.push_back(r->serial);
    Counted& counted = share.objects[r->serial];
    if (counted.holds++ > 0) continue;
    counted.bytes = bytes_of(*r);
    share.bytes += counted.bytes;
  }
  std::sort(hold.objects.begin(), hold.objects.end());
  if (kind == Kind::retains) {
    for (Record* r : records) {
      index_.tiers().retain(*r);
      hold.retained.push_back({r->name, r->serial});
    }
    hold.pins = {};
    hold.retains = true;
    ++retains_;
  }
  hold.until = Clock::now() + time;
  reply.number = next_;
  reply.time = time;
  next_ += 2;
  ++counts_[model.ns];
  by_end_.insert({hold.until, reply.number});
  holds_.emplace(reply.number, std::move(hold));
  arm();
  return reply;
}

Holds::Hold* Holds::find(const std::string& ns, uint64_t number) {
  auto it = holds_.find(number);
  return it != holds_.end() && it->second.ns == ns ? &it->second : nullptr;
}

Holds::Hold* Holds::find(uint64_t session, uint64_t number) {
  const SessionState* state = calls_.session(session);
  return state ? find(state->ns, number) : nullptr;
}

Result<Holds::Held> Holds::asked(const ModelState& model, uint64_t number, Query query) {
  if (number == 0) {
    KV_RETURN_IF_ERROR(check_lengths(query));
    return Held{std::make_shared<const Query>(std::move(query))};
  }
  const Hold* hold = find(model.ns, number);
  if (!hold) return no_such_hold(number);
  if (!query.tokens.empty() || !query.extras.empty()) {
    return invalid_argument("hold " + std::to_string(number) + ": with a query beside it");
  }
  const Realm &asked = model.realm->realm, &its = hold->realm->realm;
  if (its.fingerprint != asked.fingerprint) {
    return invalid_argument("hold " + std::to_string(number) + ": of another model");
  }
  KV_RETURN_IF_ERROR(check_profile(its.profile, asked.profile));
  return hold->held;
}

bool Holds::holds(uint64_t number, const Record& record) const {
  auto it = holds_.find(number);
  if (it == holds_.end()) return false;
  const std::vector<uint64_t>& all = it->second.objects;
  return std::binary_search(all.begin(), all.end(), record.serial);
}

void Holds::renew(uint64_t session, uint64_t number, Milliseconds time, CallTerms terms,
                  std::function<void(Result<Milliseconds>)> done) {
  auto call = calls_.begin<Result<Milliseconds>>(session, terms, std::move(done));
  if (call->finished()) return;
  Hold* hold = find(session, number);
  if (!hold) return call->fail(no_such_hold(number));
  const auto now = Clock::now();
  by_end_.erase({hold->until, number});
  hold->until =
      std::max(hold->until, now + clipped(time, hold->retains ? Kind::retains : Kind::pins));
  by_end_.insert({hold->until, number});
  arm();
  call->finish(std::chrono::ceil<Milliseconds>(hold->until - now));
}

void Holds::release(uint64_t session, uint64_t number, CallTerms terms,
                    std::function<void(Status)> done) {
  auto call = calls_.begin<Status>(session, terms, std::move(done));
  if (call->finished()) return;
  if (!find(session, number)) return call->fail(no_such_hold(number));
  end(number);
  call->finish(Status());
}

void Holds::end(uint64_t number) {
  auto it = holds_.find(number);
  Hold ended = std::move(it->second);
  holds_.erase(it);
  by_end_.erase({ended.until, number});
  if (--counts_[ended.ns] == 0) counts_.erase(ended.ns);
  Share& share = share_of(*ended.realm);
  share.bytes -= ended.own_bytes();
  for (uint64_t serial : ended.objects) {
    Counted* counted = share.objects.find(serial);
    if (--counted->holds > 0) continue;
    share.bytes -= counted->bytes;
    share.objects.erase(serial);
  }
  retains_ -= ended.retains;
  kv::keep(env_, std::move(ended.pins)).reset();  // in steps
  let_go(std::move(ended.retained));
  arm();
}

// Some in each handler.
void Holds::let_go(std::vector<PinnedName> names) {
  for (size_t n = 0; n < kLetGoAtATime && !names.empty(); ++n) {
    if (Record* r = index_.find(names.back())) index_.tiers().let_go(*r);
    names.pop_back();
  }
  if (names.empty()) return;
  env_.later([this, names = std::move(names)]() mutable { let_go(std::move(names)); });
}

// Ends one hold per handler: it may have hundreds of objects.
void Holds::end_due() {
  if (!by_end_.empty() && by_end_.begin()->first <= Clock::now()) {
    end(by_end_.begin()->second);
  } else {
    arm();
  }
}

void Holds::arm() {
  if (by_end_.empty()) return timer_.cancel();
  timer_.arm_at(by_end_.begin()->first);
}

void Holds::close() {
  timer_.cancel();
  holds_.clear();
  for (Share& share : shares_) share = {share.limit, 0, {}};
  retains_ = 0;
  by_end_.clear();
  counts_.clear();
}

size_t Holds::size_of(const std::string& ns) const {
  auto it = counts_.find(ns);
  return it == counts_.end() ? 0 : it->second;
}

uint64_t Holds::bytes() const {
  uint64_t all = 0;
  for (const Share& share : shares_) all += share.bytes;
  return all;
}

void Holds::check_invariants() const {
  std::map<uint64_t, uint32_t> holds;
  std::map<std::string, uint32_t> counts;
  uint64_t all = 0;
  size_t retains = 0;
  for (const auto& [number, hold] : holds_) {
    retains += hold.retains;
    ++counts[hold.ns];
    all += hold.own_bytes();
    KV_CHECK(std::is_sorted(hold.objects.begin(), hold.objects.end()));
    for (uint64_t serial : hold.objects) ++holds[serial];
    KV_CHECK(by_end_.contains({hold.until, number}));
  }
  KV_CHECK(by_end_.size() == holds_.size());
  KV_CHECK(counts == counts_ && retains == retains_);
  size_t counted = 0;
  for (const Share& share : shares_) counted += share.objects.size();
  KV_CHECK(counted == holds.size());
  for (const auto& [serial, times] : holds) {
    const Counted* its = nullptr;
    for (const Share& share : shares_) its = its ? its : share.objects.find(serial);
    KV_CHECK(its && its->holds == times);
    all += its->bytes;
  }
  KV_CHECK(all == bytes());
  for (const Share& share : shares_) KV_CHECK(share.bytes <= share.limit);
}

}  // namespace kv
