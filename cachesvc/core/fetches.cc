// Plans, and the steps from a plan to the answer. Lookups and the shared tier:
// core/fetch_lookups.cc; leases: core/fetch_reply.cc.
#include "cachesvc/core/fetches.h"

#include <algorithm>

#include "cachesvc/core/reply_object.h"

namespace kv {
namespace {

using Patience = RunningFetch::Patience;

constexpr uint32_t kMaxFetchRounds = 16;  // a round follows a lost object or a tighter limit
constexpr uint32_t kMaxFitRounds = 64;    // plans in one round; each is shorter
constexpr uint64_t kWindowShare = 8;      // one fetch reads at most budget / 8 at a time

}  // namespace

void Fetches::fetch(uint64_t session, FetchRequest request, CallTerms terms,
                    std::function<void(Result<FetchReply>)> done) {
  auto call = calls_.begin<Result<FetchReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto state = calls_.model(session, request.model, request.profile);
  if (!state.ok()) return call->fail(state.status());
  if (Status s = validate(request.selection, *(*state)->realm->model); !s.ok()) {
    return call->fail(s);
  }
  request.form = form_to_make(*(*state)->realm->codec, request.form);
  const bool streams = (*state)->realm->profile->transforms != nullptr;
  if (streams && request.form == FetchForm::stored && !request.selection.heads.all()) {
    return call->fail(invalid_argument(
        "selection of heads: a stream has all of a row's; expected a decoded form, given stored"));
  }
  auto asked = holds_.asked(**state, request.hold, std::move(request.query));
  if (!asked.ok()) return call->fail(asked.status());
  auto f = std::make_shared<RunningFetch>();
  f->call = call;
  f->realm = (*state)->realm;
  f->query = asked->query;
  f->request = std::move(request);
  f->max_tokens = asked->tokens;
  f->patience = f->request.wait ? Patience::wait : Patience::now;
  f->deadline = terms.deadline;
  begin(*f);
  step(f);
}

// Counts the fetch, unless it is asked again after `pending`: then it goes on from there.
void Fetches::begin(RunningFetch& f) {
  const auto open = open_.take(*f.realm, *f.query);
  const bool again = open && open->state == OpenQuestion::State::pending;
  f.miss_counted = open && !again;
  if (!again) {
    ++env_.count.fetches;
    return;
  }
  f.record.number = open->number;
  f.begun = open->begun;
  f.ssd_before = open->ssd_tokens;
  f.remote_before = open->remote_tokens;
}

// `reply`: tokens of it that RAM has not yet are the SSD's, and beyond this hit the shared tier's.
void Fetches::note_pending(RunningFetch& f, const Hit& hit, const FetchReply& reply) {
  notes_.describe(*f.realm, *f.query, hit, Missing::pending, reply.reason, f.record);
  f.record.missing = Missing::pending;
  OpenQuestion open;
  open.begun = f.begun;
  split_tiers(*f.realm, hit, f.record);
  open.ssd_tokens = std::max<uint64_t>(f.ssd_before, f.record.ssd_tokens);
  open.remote_tokens = std::max<uint64_t>(f.remote_before, reply.tokens - hit.plan.tokens);
  f.record.ram_tokens = f.record.ssd_tokens = 0;  // nothing is served
  if (f.record.number == 0) {
    open.number = notes_.note(f.begun, f.record);
  } else {
    open.number = f.record.number;  // noted already
  }
  open_.keep(*f.realm, *f.query, std::move(open));
}

FetchCost Fetches::cost_of(const RunningFetch& f, const Hit& hit) const {
  FetchCost cost;
  uint64_t block = 0;  // bytes of any complete block that comes whole: all are alike
  for (const Hit::Use& u : hit.uses) {
    bool is_block = u.record->name.kind == ObjectKind::block && f.request.selection.from_token == 0;
    uint64_t decoded = is_block && block > 0 ? block : decoded_bytes_of(f, *u.record);
    if (is_block) block = decoded;
    cost.decoded += decoded;
    Room one = Promoter::room_for(*u.record);
    cost.all += one.stored;
    cost.largest = std::max(cost.largest, one.promotion);
    cost.pending |= f.polls() && !u.record->ram;
    if (u.record->ram || promoter_.promoting(*u.record)) continue;
    if (reads_.coming(f, *u.record)) continue;
    cost.missing += one.stored;
    cost.reading += one.promotion;
  }
  cost.decoded -= std::min(cost.decoded, f.reply_room_bytes());
  return cost;
}

// Plans until the hit fits: all of it, decoded if the client wants that, into the budget; and for a
// call that does not wait, its missing part into RAM that is free or may be freed now.
Result<Hit> Fetches::plan(RunningFetch& f) {
  const RamPool& pool = *env_.pool;
  PlanOptions options = plan_options(env_, *f.query);
  options.limits.round_to_block = f.request.round_to_block;
  for (uint32_t round = 0;; ++round) {
    options.limits.max_tokens = std::min(f.request.max_tokens, f.max_tokens);
    options.ram_only = f.patience == Patience::ram_only || promoter_.hangs() ||
                       f.rounds > kMaxFetchRounds || round > kMaxFitRounds;
    KV_ASSIGN_OR_RETURN(Hit hit, kv::plan(*f.realm, *f.query, options));
    FetchCost cost = cost_of(f, hit);
    if (cost.missing + cost.decoded == 0) return hit;
    uint64_t ideal =
        std::max(cost.largest, std::min(cost.reading, pool.most_bytes() / kWindowShare));
    uint64_t most = pool.most_bytes() - pool.used_bytes(ChargeKind::index) -
                    pool.used_bytes(ChargeKind::model) - pool.used_bytes(ChargeKind::session);
    uint64_t wanted = cost.missing + std::max(ideal, cost.decoded);
    const uint64_t share = room_.share_of(f.realm->share);
    uint64_t now = f.patience == Patience::wait
                       ? share
                       : std::min(share, room_beside(hit, f.realm->share, wanted));
    const uint64_t most_reply = room_.transit().most_reply(f.realm->share);
    bool reply_never = cost.decoded > most_reply;
    bool never = cost.all + cost.beside() > most || reply_never;
    if (!never && cost.missing + cost.beside_now() <= now) {
      f.window_bytes = std::min({ideal, most - cost.all, now - cost.missing});
      return hit;
    }
    uint64_t needed = never ? cost.all + cost.beside() : cost.missing + cost.beside_now();
    uint64_t has = never ? most : now;
    f.limit_reason = std::to_string(hit.plan.tokens) + " tokens need " + std::to_string(needed) +
                     " bytes of RAM, it has " + std::to_string(has) +
                     (never          ? ""
                      : has == share ? " for this namespace"
                                     : " now");
    f.max_tokens = shorter(*f.realm, hit, needed, has, [&](const Record& r) {
      const bool counted = never || (!r.ram && !promoter_.promoting(r));
      return (counted ? Promoter::room_for(r).stored : 0) + decoded_bytes_of(f, r);
    });
    if (reply_never) {
      f.max_tokens = std::min(f.max_tokens, shorter_reply(f, hit, cost.decoded, most_reply));
    }
  }
}

// Bytes that are free, or would be after dropping objects that may go and that the hit does not
// use; counted up to `wanted`.
uint64_t Fetches::room_beside(const Hit& hit, ShareId share, uint64_t wanted) {
  uint64_t free = env_.pool->free_bytes();
  if (free >= wanted) return free;
  std::vector<Record*> used;
  for (const Hit::Use& u : hit.uses) used.push_back(u.record);
  Pins pins(env_, index_, used);
  return free + index_.tiers().ram().next_victims(wanted - free, true, {share, wanted}).bytes;
}

void Fetches::step(const FetchPtr& f) {
  if (auto loaded = std::exchange(f->loaded, nullptr)) return loaded();
  if (!f->call || f->call->finished()) return;
  ++f->rounds;
  auto hit = plan(*f);
  if (!hit.ok()) return f->call->fail(hit.status());
  if (ask_remote(f, *hit)) return;
  auto planned = std::make_shared<Planned>(pinned(std::move(*hit)));
  next(f, planned, [this, f, planned] {
    keep_warm(*f, planned->hit);
    next(f, planned, [this, f, planned] { use(f, *planned); });
  });
}

Fetches::Planned Fetches::pinned(Hit hit) {
  std::vector<Record*> used;
  used.reserve(hit.uses.size());
  for (const Hit::Use& u : hit.uses) used.push_back(u.record);
  Pins pins(env_, index_, used);
  return {std::move(hit), std::move(pins)};
}

// Runs then() at once; for a long hit in its own handler, unless part of it was erased by then.
template <typename Then>
void Fetches::next(const FetchPtr& f, const PlannedPtr& planned, Then then) {
  if (planned->hit.uses.size() <= kObjectsAtATime) return then();
  env_.later([this, f, planned, then = std::move(then)] {
    if (f->call->finished()) return;
    if (planned->pins.all_there()) return then();
    planned->pins.release();
    step(f);
  });
}

void Fetches::use(const FetchPtr& f, Planned& planned) {
  bool missing = false;
  for (const Hit::Use& u : planned.hit.uses) {
    if (u.record->ram) continue;
    missing = true;
    f->promoted.insert(u.record->name);
  }
  if (!missing) return check(f, planned);
  if (!f->request.wait) return answer_pending(f, planned);
  promote(f, std::move(planned));
}

// Touches the hit's objects, and blocks on its path of which it uses nothing.
void Fetches::keep_warm(const RunningFetch& f, const Hit& hit) {
  std::vector<Record*> path;
  for (const Hit::Use& u : hit.uses) path.push_back(u.record);
  for (NodeId node : hit.match.path) {
    if (Record* r = f.realm->nodes.at(node).main) path.push_back(r);
  }
  std::sort(path.begin(), path.end());
  path.erase(std::unique(path.begin(), path.end()), path.end());
  note_uses(env_, path);
  index_.tiers().use(path);
}

// Answers `pending`; the promotion goes on without a caller.
void Fetches::answer_pending(const FetchPtr& f, Planned& planned) {
  const Hit& hit = planned.hit;
  FetchReply reply;
  reply.tokens = hit.plan.tokens;
  reply.common = hit.common;
  reply.pending = true;
  reply.tier = hit.plan.tier;
  reply.form = hit.plan.form;
  reply.reason = "being promoted";
  note_pending(*f, hit, reply);
  auto call = std::exchange(f->call, nullptr);
  f->deadline = Clock::now() + env_.options.room_wait;
  f->query.reset();
  promote(f, std::move(planned));
  call->finish(std::move(reply));
}

// Checks that are due run beside the answer; with verify_after 0 they come first, and the hit is
// planned anew, as some of it may have been damaged.
void Fetches::check(const FetchPtr& f, Planned& planned) {
  const auto now = Clock::now();
  std::vector<Record*> due;
  for (const Hit::Use& u : planned.hit.uses) {
    if (checks_.due(*u.record, now)) due.push_back(u.record);
  }
  if (due.empty() || std::exchange(f->checked, true)) return reply(f, planned);
  if (env_.options.verify_after > Milliseconds(0)) {
    checks_.check(due, [] {});
    return reply(f, planned);
  }
  auto pins = std::make_shared<Pins>(std::move(planned.pins));
  checks_.check(due, [this, f, pins] {
    pins->release();
    env_.later([this, f] { step(f); });  // a long prompt's plan is enough for one handler
  });
}

// Nobody waits for room and has some.
void Fetches::promote(const FetchPtr& f, Planned planned) {
  f->reply_room.reset();
  const FetchCost cost = cost_of(*f, planned.hit);
  reads_.read(f, planned.hit, cost, std::move(planned.pins), [this, f] { step(f); });
}

}  // namespace kv
