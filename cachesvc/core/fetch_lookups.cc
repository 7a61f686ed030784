// Lookups and prefetches; a fetch's question to the shared tier.
#include <algorithm>

#include "cachesvc/core/fetches.h"

namespace kv {
namespace {

using Patience = RunningFetch::Patience;

Result<Hit> planned_hit(const Env& env, RealmState& realm, const Query& query,
                        uint32_t max_tokens) {
  PlanOptions options = plan_options(env, query);
  options.limits.max_tokens = max_tokens;
  return kv::plan(realm, query, options);
}

LookupReply reply_of(const RealmState& realm, const Hit& hit) {
  return {hit.plan.tokens, hit.common, hit.plan.tier, hit.plan.form, shortfall_of(realm, hit)};
}

Result<LookupReply> look(const Env& env, RealmState& realm, const Query& query,
                         uint32_t max_tokens) {
  KV_ASSIGN_OR_RETURN(Hit hit, planned_hit(env, realm, query, max_tokens));
  return reply_of(realm, hit);
}

}  // namespace

struct Fetches::Looking {
  LookupCall call;
  std::shared_ptr<RealmState> realm;
  std::shared_ptr<const Query> query;
  Clock::time_point began = Clock::now();
};

void Fetches::lookup(uint64_t session, QueryRequest request, CallTerms terms,
                     std::function<void(Result<LookupReply>)> done) {
  auto call = calls_.begin<Result<LookupReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto state = calls_.model(session, request.model, request.profile);
  if (!state.ok()) return call->fail(state.status());
  if (Status s = check_lengths(request.query); !s.ok()) return call->fail(s);
  ++env_.count.lookups;
  Looking looking{call, (*state)->realm, std::make_shared<const Query>(std::move(request.query))};
  auto hit = planned_hit(env_, *looking.realm, *looking.query, UINT32_MAX);
  if (!hit.ok()) return call->fail(hit.status());
  RemoteWant want{looking.realm, looking.query, {}, terms.deadline, call};
  if (!remote_.may_help(want, hit->plan.tokens)) return answer(looking, *hit, nullptr);
  remote_.find(std::move(want), hit->plan.tokens,
               [this, looking](const RemoteReads::FindingPtr& more) {
                 if (looking.call->finished()) return;
                 auto now = planned_hit(env_, *looking.realm, *looking.query, UINT32_MAX);
                 if (!now.ok()) return looking.call->fail(now.status());
                 answer(looking, *now, more.get());
               });
}

// `more`: of the shared tier; may be null.
void Fetches::answer(const Looking& looking, const Hit& hit, const RemoteFinding* more) {
  RequestRecord record;
  record.kind = RequestKind::lookup;
  LookupReply reply = reply_of(*looking.realm, hit);
  notes_.describe(*looking.realm, *looking.query, hit, Missing::nothing, reply.reason, record);
  split_tiers(*looking.realm, hit, record);
  notes_.note(looking.began, record);
  if (more && more->plan.tokens > reply.tokens) {
    reply = {more->plan.tokens, more->common, more->plan.tier, more->plan.form,
             more->plan.shortfall.text};
  }
  if (reply.tokens == 0) {  // few clients fetch then
    const RealmState& realm = *looking.realm;
    notes_.missed(realm.realm.ns, realm.model->name, looking.query->tokens.size());
    open_.keep(realm, *looking.query, {.state = OpenQuestion::State::found_nothing});
  }
  looking.call->finish(std::move(reply));
}

// The call is answered before the reads or, if it waits, after them; they don't end with it.
void Fetches::prefetch(uint64_t session, PrefetchRequest request, CallTerms terms,
                       std::function<void(Result<LookupReply>)> done) {
  auto call = calls_.begin<Result<LookupReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto state = calls_.model(session, request.model, request.profile);
  if (!state.ok()) return call->fail(state.status());
  auto asked = holds_.asked(**state, request.hold, std::move(request.query));
  if (!asked.ok()) return call->fail(asked.status());
  ++env_.count.lookups;
  auto background = std::make_shared<RunningFetch>();
  background->realm = (*state)->realm;
  background->query = asked->query;
  background->max_tokens = asked->tokens;
  background->patience = request.wait ? Patience::wait : Patience::now;
  background->deadline = terms.deadline;
  if (request.wait) background->prefetch = call;
  const auto answer = [this, call, realm = (*state)->realm, asked = *asked] {
    if (!call->finished()) call->finish(look(env_, *realm, *asked.query, asked.tokens));
  };
  if (!remote_.on()) return prefetch_local(background, answer, request.wait);
  auto local = planned_hit(env_, *background->realm, *asked->query, asked->tokens);
  RemoteWant want{background->realm, background->query, {}, terms.deadline, call};
  want.limits.max_tokens = asked->tokens;
  if (!local.ok() || !remote_.may_help(want, local->plan.tokens)) {
    return prefetch_local(background, answer, request.wait);
  }
  if (!request.wait) {
    answer();
    want.call = nullptr;
  }
  remote_.find(std::move(want), local->plan.tokens,
               [this, background, answer, wait = request.wait](RemoteReads::FindingPtr more) {
                 auto rest = [this, background, answer, wait] {
                   prefetch_local(background, answer, wait);
                 };
                 more ? bring(background, more, rest) : rest();
               });
}

// The part that local tiers have.
void Fetches::prefetch_local(const FetchPtr& background, const std::function<void()>& answer,
                             bool wait) {
  auto fit = plan(*background);
  const auto in_ram = [](const Hit::Use& u) { return static_cast<bool>(u.record->ram); };
  const bool promotes = fit.ok() && !std::all_of(fit->uses.begin(), fit->uses.end(), in_ram);
  if (!wait || !promotes) answer();
  if (!promotes) return;
  if (wait) {
    background->loaded = answer;
  } else {
    background->query.reset();
  }
  promote(background, pinned(std::move(*fit)));
}

// True: the shared tier is asked, and the fetch goes on with its answer.
bool Fetches::ask_remote(const FetchPtr& f, const Hit& hit) {
  if (std::exchange(f->asked_remote, true)) return false;
  RemoteWant want{f->realm, f->query, {}, f->deadline, f->call};
  want.limits.max_tokens = std::min(f->request.max_tokens, f->max_tokens);
  want.limits.round_to_block = f->request.round_to_block;
  if (!remote_.may_help(want, hit.plan.tokens)) return false;
  remote_.find(std::move(want), hit.plan.tokens, [this, f](const RemoteReads::FindingPtr& more) {
    if (f->call->finished()) return;
    if (!more) return step(f);
    if (!f->request.wait) return answer_pending(f, more);
    for (const RemoteFinding::Piece& piece : more->pieces) {
      f->brought.insert(piece.found.name.object);
    }
    bring(f, more, [this, f] { step(f); });
  });
  return true;
}

// Brings what the shared tier has. What the SSD has of the path is pinned meanwhile: else it might
// make room for what is brought.
void Fetches::bring(const FetchPtr& f, const RemoteReads::FindingPtr& more,
                    std::function<void()> then) {
  auto local = planned_hit(env_, *f->realm, *more->want.query, more->want.limits.max_tokens);
  auto pins = local.ok() ? keep(env_, pinned(std::move(*local)).pins) : nullptr;
  remote_.bring(more, [pins = std::move(pins), then = std::move(then)]() mutable {
    then();  // its plan pins what it uses
    pins.reset();
  });
}

// Answers `pending`; what the shared tier has comes without a caller, then what the SSD has.
void Fetches::answer_pending(const FetchPtr& f, const RemoteReads::FindingPtr& more) {
  auto hit = plan(*f);
  if (!hit.ok()) return f->call->fail(hit.status());
  FetchReply reply;
  reply.tokens = more->plan.tokens;
  reply.common = more->common;
  reply.pending = true;
  reply.tier = more->plan.tier;
  reply.form = more->plan.form;
  reply.reason = "being brought from the shared tier";
  note_pending(*f, *hit, reply);
  auto call = std::exchange(f->call, nullptr);
  f->deadline = Clock::now() + env_.options.room_wait;
  more->want.deadline = f->deadline;
  more->want.call = nullptr;
  bring(f, more, [this, f] {
    prefetch_local(
        f, [] {}, false);
  });
  call->finish(std::move(reply));
}

}  // namespace kv
