// Replies of fetches: leases of objects in RAM, or of objects made from them for the client.
#include <algorithm>
#include <numeric>

#include "cachesvc/core/entry_record.h"
#include "cachesvc/core/fetches.h"
#include "cachesvc/core/reply_object.h"

namespace kv {
namespace {

constexpr size_t kMadeAtATime = 32;

}  // namespace

void Fetches::describe(const RealmState& realm, const Query& query, const Hit& hit, Missing limit,
                       const std::string& reason, RequestRecord& record) const {
  misses_.explain(realm, query, hit, hit.plan.tokens, limit, record);
  if (record.missing != Missing::nothing) record.reason.assign(reason, 0, kMaxReasonBytes);
}

void Fetches::note(Clock::time_point began, RequestRecord& record) {
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  record.total_us = std::max(1u, static_cast<uint32_t>(took.count()));
  record.at_ms = env_.wall_ms();
  ring_.add(record);
}

void Fetches::finish(RunningFetch& f, FetchReply reply) {
  uint64_t n = reply.tokens;
  const uint64_t ram_tokens = n - f.ssd_tokens - f.remote_tokens;
  env_.count.hit_tokens_ssd += f.ssd_tokens;
  env_.count.hit_tokens_remote += f.remote_tokens;
  env_.count.hit_tokens_ram += ram_tokens;
  env_.count.miss_tokens += f.query->tokens.size() - n;
  if (n == 0) ++env_.count.fetch_misses;
  ModelUse& use = env_.measures.models.of(f.realm->realm.ns, f.realm->model->name);
  ++use.fetches;
  use.misses += n == 0;
  use.hit_tokens_ssd += f.ssd_tokens;
  use.hit_tokens_remote += f.remote_tokens;
  use.hit_tokens_ram += ram_tokens;
  use.miss_tokens += f.query->tokens.size() - n;
  use.prefill_ms_saved += f.saved_ms;
  env_.measures.fetch[static_cast<size_t>(reply.tier)].add(
      Measures::microseconds(Clock::now() - f.begun));
  f.record.ssd_tokens = static_cast<uint32_t>(f.ssd_tokens);
  f.record.remote_tokens = static_cast<uint32_t>(f.remote_tokens);
  f.record.ram_tokens = static_cast<uint32_t>(ram_tokens);
  note(f.begun, f.record);
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
  describe(*f->realm, *f->query, hit, limited ? Missing::no_room : Missing::nothing, reply.reason,
           f->record);
  f->record.saved_ms = static_cast<uint32_t>(saved);
  f->ssd_tokens = std::min<uint64_t>(ssd_tokens, reply.tokens);
  f->remote_tokens = std::min<uint64_t>(remote_tokens, reply.tokens - f->ssd_tokens);
  const size_t used = hit.uses.size();
  reply.tier = used == 0                 ? Tier::none
               : promoted + brought == 0 ? Tier::ram
               : promoted == used        ? Tier::ssd
               : brought == used         ? Tier::remote
                                         : Tier::mixed;
  auto held = used == 0 ? nullptr : keep(env_, std::move(planned.pins));
  reply.lease = Lease(std::move(prefix), std::move(held));
  const bool done = !f->needs_work() || reply.lease.prefix().objects.empty();
  if (done) return finish(*f, std::move(reply));
  make_objects(f, std::move(reply));
}

struct Fetches::Making {
  FetchReply reply;
  Prefix out;
  std::vector<uint64_t> bytes;  // results and scratch, by object, as far as known
  std::shared_ptr<RoomCharges> room;
  size_t begun = 0;  // objects
  size_t left = 0;   // objects that are not made yet
  Status error;
};

void Fetches::make_objects(const FetchPtr& f, FetchReply reply) {
  auto making = std::make_shared<Making>();
  making->reply = std::move(reply);
  making->out = making->reply.lease.prefix();
  making->left = making->out.objects.size();
  ask_for_reply_room(f, making);
}

// Handlers do some objects each, here and below: a long prompt has hundreds.
void Fetches::ask_for_reply_room(const FetchPtr& f, const std::shared_ptr<Making>& making) {
  if (f->call->finished()) return;
  const auto& objects = making->out.objects;
  const size_t end = std::min(objects.size(), making->bytes.size() + kMadeAtATime);
  while (making->bytes.size() < end) {
    const Object& object = *objects[making->bytes.size()].object;
    making->bytes.push_back(reply_bytes(object, f->request.form, f->request.selection).slabs());
  }
  if (end < objects.size()) {
    return env_.later([this, f, making] { ask_for_reply_room(f, making); });
  }
  Room room;
  room.share = f->realm->share;
  room.reply = std::accumulate(making->bytes.begin(), making->bytes.end(), uint64_t{0});
  f->step_began = Clock::now();
  room_.with_room(
      room, f->deadline,
      [this, f, making](Result<std::shared_ptr<RoomCharges>> got) {
        f->step_ended(&RequestRecord::wait_us);
        if (f->call->finished()) return;
        if (got.ok()) {
          f->step_began = Clock::now();
          making->room = *got;
          return begin_making(f, making);
        }
        // Lowers the aim as without room to promote: to what there is room for, in the end to none.
        making->reply.lease = Lease();
        if (f->patience == RunningFetch::Patience::ram_only) f->max_tokens = 0;
        no_room(*f, got.status());
        env_.later([this, f] { step(f); });  // its pins are gone by then
      },
      f->call);
}

void Fetches::begin_making(const FetchPtr& f, const std::shared_ptr<Making>& making) {
  if (f->call->finished()) return;
  const size_t end = std::min(making->out.objects.size(), making->begun + kMadeAtATime);
  while (making->begun < end) make_one(f, making, making->begun++);
  if (end < making->out.objects.size()) {
    env_.later([this, f, making] { begin_making(f, making); });
  }
}

void Fetches::make_one(const FetchPtr& f, const std::shared_ptr<Making>& making, size_t at) {
  auto charge = std::make_shared<Charge>(making->room->reply.split(making->bytes[at]));
  auto task = env_.task(
      [object = making->out.objects[at].object, form = f->request.form,
       selection = f->request.selection, charge, codec = f->realm->codec, pool = env_.pool] {
        return make_reply_object(object, *codec, form, selection, *pool, std::move(*charge));
      },
      [this, f, making, at](Result<ObjectPtr> made) {
        decodes_.ended();
        if (made.ok())
          making->out.objects[at].object = *made;
        else
          making->error = made.status();
        if (--making->left == 0) made_all(f, *making);
      });
  decodes_.submit(f->realm->realm.ns, making->bytes[at], std::move(task));
}

void Fetches::made_all(const FetchPtr& f, Making& making) {
  f->step_ended(&RequestRecord::make_us);
  if (!making.error.ok()) return f->call->fail(making.error);
  std::erase_if(making.out.objects, [](const FetchedObject& o) { return !o.object; });
  // Made objects own their bytes: the stored ones need no pin any more.
  if (f->copies())
    making.reply.lease = Lease(std::move(making.out), nullptr);
  else
    making.reply.lease = Lease(std::move(making.out), making.reply.lease.kept());
  finish(*f, std::move(making.reply));
}

}  // namespace kv
