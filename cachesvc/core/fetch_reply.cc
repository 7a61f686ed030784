// Replies of fetches: what a hit's objects serve, and their lease.
#include <algorithm>

#include "cachesvc/core/entry_record.h"
#include "cachesvc/core/fetches.h"

namespace kv {
namespace {

// The tier of a hit of `all` tokens or objects, so many of which the SSD and the shared tier had.
Tier tier_of(uint64_t all, uint64_t ssd, uint64_t remote) {
  return all == 0            ? Tier::none
         : ssd + remote == 0 ? Tier::ram
         : ssd == all        ? Tier::ssd
         : remote == all     ? Tier::remote
                             : Tier::mixed;
}

}  // namespace

void Fetches::finish(RunningFetch& f, FetchReply reply) {
  notes_.served(f, reply);
  f.call->finish(std::move(reply));
}

void Fetches::reply(const FetchPtr& f, Planned& planned) {
  const Hit& hit = planned.hit;
  FetchReply reply;
  reply.tokens = hit.plan.tokens;
  reply.common = hit.common;
  reply.form = hit.plan.form;
  bool limited = !f->limit_reason.empty() &&
                 (f->max_tokens < UINT32_MAX || f->patience == RunningFetch::Patience::ram_only);
  reply.reason = limited ? f->limit_reason : shortfall_of(*f->realm, hit);
  Prefix prefix;
  prefix.tokens = reply.tokens;
  prefix.objects.reserve(hit.uses.size());
  size_t promoted = 0, brought = 0;
  uint64_t ssd_tokens = 0, remote_tokens = 0, saved = 0;
  for (const Hit::Use& u : hit.uses) {
    const Record& r = *u.record;
    if (!all_rows_below(*r.ram.object, *f->realm->model, f->request.selection)) {
      prefix.objects.push_back({r.ram.object, u.end_token});
    }
    index_.tiers().served(*u.record);
    saved = std::max(saved, saved_ms(r, reply.tokens));
    const bool remote = f->brought.contains(r.name);
    if (!remote && !f->promoted.contains(r.name)) continue;
    ++(remote ? brought : promoted);
    uint32_t first = is_main(r.name.kind) ? f->realm->tree.first_token(r.node) : u.end_token;
    (remote ? remote_tokens : ssd_tokens) += u.end_token - std::min(u.end_token, first);
  }
  env_.count.prefill_ms_saved += saved;
  f->saved_ms = saved;
  notes_.describe(*f->realm, *f->query, hit, limited ? Missing::no_room : Missing::nothing,
                  reply.reason, f->record);
  f->record.saved_ms = static_cast<uint32_t>(saved);
  f->ssd_tokens = std::min<uint64_t>(ssd_tokens, reply.tokens);
  f->remote_tokens = std::min<uint64_t>(remote_tokens, reply.tokens - f->ssd_tokens);
  const size_t used = hit.uses.size();
  reply.tier = tier_of(used, promoted, brought);
  if (f->ssd_before + f->remote_before > 0) {  // and it came while the client asked again
    f->ssd_tokens = std::min<uint64_t>(std::max(f->ssd_tokens, f->ssd_before), reply.tokens);
    f->remote_tokens = std::min<uint64_t>(std::max(f->remote_tokens, f->remote_before),
                                          reply.tokens - f->ssd_tokens);
    reply.tier = tier_of(reply.tokens, f->ssd_tokens, f->remote_tokens);
  }
  auto held = used == 0 ? nullptr : keep(env_, std::move(planned.pins));
  reply.lease = Lease(std::move(prefix), std::move(held));
  const bool done = !f->needs_work() || reply.lease.prefix().objects.empty();
  if (done) return finish(*f, std::move(reply));
  replies_.make(
      f, std::move(reply),
      {[this, f](FetchReply made) { finish(*f, std::move(made)); }, [this, f] { step(f); }});
}

}  // namespace kv
