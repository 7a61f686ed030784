// A fetch's reply: a lease of what lies in RAM, decoded if the client wants it so.
#include <algorithm>

#include "cachesvc/core/fetches.h"

namespace kv {

void Fetches::finish(const FetchCall& f, FetchReply reply) {
  uint64_t n = reply.tokens;
  env_.count.hit_tokens_ssd += f.ssd_tokens;
  env_.count.hit_tokens_ram += n - f.ssd_tokens;
  env_.count.miss_tokens += f.request.query.tokens.size() - n;
  if (n == 0) ++env_.count.fetch_misses;
  f.call->finish(std::move(reply));
}

void Fetches::reply(const FetchPtr& f, const Hit& hit) {
  FetchReply reply;
  reply.tokens = hit.plan.tokens;
  reply.common = hit.common;
  reply.form = hit.plan.form;
  bool limited = !f->limit_reason.empty() &&
                 (f->max_tokens < UINT32_MAX || f->patience == FetchCall::Patience::ram_only);
  reply.reason = limited ? f->limit_reason : shortfall_of(*f->realm, hit);
  Prefix prefix;
  prefix.tokens = reply.tokens;
  std::vector<Record*> used;
  size_t promoted = 0;
  uint64_t ssd_tokens = 0;
  for (const Hit::Use& u : hit.uses) {
    const Record& r = *u.record;
    prefix.objects.push_back({r.ram.object, u.end_token});
    used.push_back(u.record);
    ++u.record->uses;
    if (!f->promoted.count(r.name)) continue;
    ++promoted;
    uint32_t first = is_main(r.name.kind) ? f->realm->tree.first_token(r.node) : u.end_token;
    ssd_tokens += u.end_token - std::min(u.end_token, first);
  }
  f->ssd_tokens = std::min<uint64_t>(ssd_tokens, reply.tokens);
  reply.tier = used.empty()              ? Tier::none
               : promoted == 0           ? Tier::ram
               : promoted == used.size() ? Tier::ssd
                                         : Tier::mixed;
  auto held = used.empty() ? nullptr : hold(env_, Pins(env_, index_, used));
  reply.lease = Lease(std::move(prefix), std::move(held));
  bool as_stored = f->request.form == FetchForm::stored || used.empty();  // n may demand nothing
  if (as_stored) return finish(*f, std::move(reply));
  decode(f, std::move(reply));
}

struct Fetches::Decode {
  FetchReply reply;
  Prefix out;
  size_t left = 0;
  Status error;
};

void Fetches::decode(const FetchPtr& f, FetchReply reply) {
  auto decode = std::make_shared<Decode>();
  decode->reply = std::move(reply);
  decode->out = decode->reply.lease.prefix();
  const DType out = dtype_of(f->request.form);
  Room room;
  room.share = f->realm->share;
  for (const auto& o : decode->out.objects) room.reply += decoded_slab_bytes(*o.object, out);
  room_.with_room(room, f->deadline, [this, f, decode](Result<std::shared_ptr<RoomCharges>> got) {
    if (f->call->finished()) return;
    if (got.ok()) return decode_now(f, decode, **got);
    // The same as without room to promote: what there is room for by now, in the end none.
    decode->reply.lease = Lease();
    if (f->patience == FetchCall::Patience::ram_only) f->max_tokens = 0;
    no_room(*f, got.status());
    env_.later([this, f] { step(f); });  // its pins are gone by then
  });
}

void Fetches::decode_now(const FetchPtr& f, const std::shared_ptr<Decode>& decode,
                         RoomCharges& room) {
  const DType out = dtype_of(f->request.form);
  decode->left = decode->out.objects.size();
  for (size_t i = 0; i < decode->out.objects.size(); ++i) {
    ObjectPtr object = decode->out.objects[i].object;
    auto charge = std::make_shared<Charge>(room.reply.split(decoded_slab_bytes(*object, out)));
    env_.on_worker(
        [object, out, charge, codec = f->realm->codec, pool = env_.pool] {
          return decode_object(*object, *codec, out, *pool, std::move(*charge));
        },
        [this, f, decode, i](Result<ObjectPtr> decoded) {
          if (decoded.ok())
            decode->out.objects[i].object = *decoded;
          else
            decode->error = decoded.status();
          if (--decode->left > 0) return;
          if (!decode->error.ok()) return f->call->fail(decode->error);
          // The decoded objects own their bytes: the stored ones need no pin any more.
          decode->reply.lease = Lease(std::move(decode->out), nullptr);
          finish(*f, std::move(decode->reply));
        });
  }
}

}  // namespace kv
