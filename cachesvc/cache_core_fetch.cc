// lookup, prefetch, fetch: plan, bring into RAM what is missing, plan again, lease.
#include <algorithm>
#include <set>

#include "cachesvc/cache_core_encode.h"
#include "cachesvc/cache_core_impl.h"

namespace kv {

struct CacheCore::Impl::FetchCall {
  std::shared_ptr<Call<Result<FetchReply>>> call;
  RealmState* realm = nullptr;
  FetchRequest request;
  Deadline deadline;
  uint32_t max_tokens = UINT32_MAX;   ///< what RAM has room for
  bool ram_only = false;              ///< no room for a promotion now
  std::string limit_reason;
  std::set<ObjectName> promoted;      ///< were not in RAM when the call came
  uint32_t rounds = 0;
};

namespace {

constexpr uint32_t kMaxFetchRounds = 16;  // each follows a lost object or a tighter limit

Status check_lengths(const Query& query) {
  if (query.tokens.size() <= kMaxTokens && query.extras.size() <= kMaxExtras) return {};
  return invalid_argument("query over " + std::to_string(kMaxTokens) + " tokens or " +
                          std::to_string(kMaxExtras) + " extras");
}

uint64_t decoded_bytes(const Object& object, DType out) {
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) {
    bytes += uint64_t{p.rows()} * p.heads * p.dim * dtype_bytes(out);
  }
  for (const StateBlob& s : object.states) bytes += s.bytes.size();
  return RamPool::slab_bytes(bytes);
}

// Worker. The object with every plane as one exact run of `out`, in one pool buffer.
Result<ObjectPtr> decode_object(const Object& object, const Codec& codec, DType out, RamPool& pool,
                                Charge charge) {
  Object decoded = object;
  uint64_t total = 0;
  for (Plane& p : decoded.planes) {
    p.dtype = out;
    p.bits = 0;
    p.runs = {{RunForm::exact, p.rows()}};
    total += plane_bytes(p);
  }
  for (const StateBlob& s : decoded.states) total += s.bytes.size();
  PoolBuffer buffer = pool.allocate(total, charge);
  uint8_t* at = buffer.data();
  for (size_t i = 0; i < object.planes.size(); ++i) {
    const Plane& from = object.planes[i];
    uint64_t bytes = plane_bytes(decoded.planes[i]);
    KV_RETURN_IF_ERROR(
        codec.decode_rows(from, from.first_row, from.end_row(), out, {at, bytes}));
    at += bytes;
  }
  for (const StateBlob& s : object.states) at = std::copy_n(s.bytes.data(), s.bytes.size(), at);
  KV_RETURN_IF_ERROR(attach_payload(decoded, std::move(buffer).freeze()));
  return ObjectPtr(std::make_shared<const Object>(std::move(decoded)));
}

DType dtype_of(FetchForm form) {
  return form == FetchForm::f32 ? DType::f32 : form == FetchForm::f16 ? DType::f16 : DType::bf16;
}

}  // namespace

void CacheCore::Impl::lookup(uint64_t session, uint32_t model, Query query, bool start,
                             Deadline deadline, Done<Result<LookupReply>> done) {
  auto call = begin<Result<LookupReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  auto state = model_of(session, model);
  if (!state.ok()) return call->fail(state.status());
  if (Status s = check_lengths(query); !s.ok()) return call->fail(s);
  ObjectIndex::PlanOptions options{{}, Clock::now()};
  options.limits.query_tokens = static_cast<uint32_t>(query.tokens.size());
  options.limits.min_tokens = options_.min_prefix_tokens;
  auto hit = index_.plan(*(*state)->realm, query, options);
  if (!hit.ok()) return call->fail(hit.status());
  ++count_.lookups;
  LookupReply reply{hit->plan.tokens, hit->common, hit->plan.tier, hit->plan.form,
                    hit->plan.shortfall.text};
  if (start) {
    auto background = std::make_shared<FetchCall>();
    background->realm = (*state)->realm;
    background->request.query = std::move(query);
    background->deadline = deadline;
    std::vector<Record*> missing;
    for (const Hit::Use& u : hit->uses) {
      if (!u.record->ram) missing.push_back(u.record);
    }
    if (!missing.empty()) fetch_promote(background, missing);
  }
  call->finish(std::move(reply));
}

void CacheCore::Impl::fetch(uint64_t session, FetchRequest request, Deadline deadline,
                            Done<Result<FetchReply>> done) {
  auto call = begin<Result<FetchReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  auto state = model_of(session, request.model);
  if (!state.ok()) return call->fail(state.status());
  if (Status s = check_lengths(request.query); !s.ok()) return call->fail(s);
  ++count_.fetches;
  auto f = std::make_shared<FetchCall>();
  f->call = call;
  f->realm = (*state)->realm;
  f->request = std::move(request);
  f->deadline = deadline;
  fetch_step(f);
}

void CacheCore::Impl::fetch_step(std::shared_ptr<FetchCall> f) {
  if (!f->call || f->call->finished()) return;
  ObjectIndex::PlanOptions options{{}, Clock::now()};
  options.limits.query_tokens = static_cast<uint32_t>(f->request.query.tokens.size());
  options.limits.max_tokens = std::min(f->request.max_tokens, f->max_tokens);
  options.limits.min_tokens = options_.min_prefix_tokens;
  options.limits.round_to_block = f->request.round_to_block;
  options.ram_only = f->ram_only || ++f->rounds > kMaxFetchRounds;
  auto hit = index_.plan(*f->realm, f->request.query, options);
  if (!hit.ok()) return f->call->fail(hit.status());
  std::vector<Record*> missing, path;
  for (const Hit::Use& u : hit->uses) {
    if (!u.record->ram) missing.push_back(u.record);
    path.push_back(u.record);
  }
  // Blocks on the path that hold nothing which this hit uses are kept warm with it.
  for (NodeId node : hit->match.path) {
    if (Record* r = f->realm->nodes.at(node).main) path.push_back(r);
  }
  index_.touch(path);
  note_touches(path);
  if (missing.empty()) return fetch_reply(f, *hit);
  for (Record* r : missing) f->promoted.insert(r->name);
  if (!f->request.wait) {
    FetchReply reply;
    reply.tokens = hit->plan.tokens;
    reply.common = hit->common;
    reply.pending = true;
    reply.tier = hit->plan.tier;
    reply.form = hit->plan.form;
    reply.reason = "being promoted";
    auto call = std::exchange(f->call, nullptr);  // the rest goes on without a caller
    f->deadline = Clock::now() + options_.room_wait;
    fetch_promote(f, std::move(missing));
    return call->finish(std::move(reply));
  }
  fetch_promote(f, std::move(missing));
}

// Reads all of `missing` at once: room for all first, then one job each; then the next step.
void CacheCore::Impl::fetch_promote(std::shared_ptr<FetchCall> f, std::vector<Record*> missing) {
  struct Batch {
    std::vector<PinnedName> pins;
    size_t left = 1;
  };
  auto batch = std::make_shared<Batch>();
  std::vector<Record*> path;
  Room room;
  for (Record* r : missing) {
    auto way = index_.path_to(*r);
    path.insert(path.end(), way.begin(), way.end());
    if (promoting(*r)) continue;
    Room one = room_to_promote(*r);
    room.stored += one.stored;
    room.promotion += one.promotion;
  }
  std::sort(path.begin(), path.end());
  path.erase(std::unique(path.begin(), path.end()), path.end());
  batch->pins = pin_all(path);
  auto one_done = [this, f, batch](Status) {
    if (--batch->left > 0) return;
    unpin_all(batch->pins);
    fetch_step(f);
  };
  std::vector<PinnedName> wanted;
  for (Record* r : missing) wanted.push_back({r->name, r->serial});
  with_room(room, f->deadline, [this, f, batch, wanted, one_done](
                                   Result<std::shared_ptr<RoomCharges>> charges) {
    if (!charges.ok()) {
      // Not the whole path, then: half as long if it can never fit, else what RAM holds already.
      bool never = charges.status().code() == StatusCode::resource_exhausted;
      f->limit_reason = charges.status().message();
      if (never) {
        uint32_t longest = 0;
        for (const PinnedName& w : wanted) {
          Record* r = find_pinned(w);
          if (r && r->name.kind != ObjectKind::snapshot) {
            longest = std::max(longest, f->realm->tree.end_token(r->node));
          }
        }
        f->max_tokens = std::min(f->max_tokens, longest) / 2;
      }
      f->ram_only = !never || f->max_tokens == 0;
      return one_done(charges.status());
    }
    for (const PinnedName& w : wanted) {
      Record* r = find_pinned(w);
      if (!r || r->ram || !r->on_ssd()) continue;
      ++batch->left;
      if (promoting(*r)) {
        join_promotion(*r, one_done);
        continue;
      }
      // One that was being read when the room was counted may have failed meanwhile: next round.
      Room need = room_to_promote(*r);
      if ((*charges)->stored.bytes() < need.stored ||
          (*charges)->promotion.bytes() < need.promotion) {
        --batch->left;
        continue;
      }
      promote(*r, (*charges)->stored.split(need.stored),
              (*charges)->promotion.split(need.promotion), one_done);
    }
    (*charges)->stored.release();
    (*charges)->promotion.release();
    one_done(Status());
  });
}

void CacheCore::Impl::count_fetch(const FetchCall& f, const Hit& hit, const Query& query) {
  uint64_t n = hit.plan.tokens, ssd = 0;
  for (const Hit::Use& u : hit.uses) {
    bool main = u.record->name.kind == ObjectKind::block || u.record->name.kind == ObjectKind::tail;
    if (!main || !f.promoted.count(u.record->name)) continue;
    ssd += u.end_token - std::min(u.end_token, f.realm->tree.first_token(u.record->node));
  }
  ssd = std::min(ssd, n);
  count_.hit_tokens_ssd += ssd;
  count_.hit_tokens_ram += n - ssd;
  count_.miss_tokens += query.tokens.size() - n;
  if (n == 0) ++count_.fetch_misses;
}

void CacheCore::Impl::fetch_reply(std::shared_ptr<FetchCall> f, const Hit& hit) {
  FetchReply reply;
  reply.tokens = hit.plan.tokens;
  reply.common = hit.common;
  reply.form = hit.plan.form;
  bool limited = !f->limit_reason.empty() && reply.tokens < hit.common;
  reply.reason = limited ? f->limit_reason : hit.plan.shortfall.text;
  Prefix prefix;
  prefix.tokens = reply.tokens;
  std::vector<Record*> used;
  size_t promoted = 0;
  for (const Hit::Use& u : hit.uses) {
    prefix.objects.push_back({u.record->ram, u.end_token});
    used.push_back(u.record);
    promoted += f->promoted.count(u.record->name);
  }
  reply.tier = used.empty() ? Tier::none
               : promoted == 0 ? Tier::ram
               : promoted == used.size() ? Tier::ssd : Tier::mixed;
  count_fetch(*f, hit, f->request.query);
  reply.lease = Lease(std::move(prefix), used.empty() ? nullptr : lease_hold(pin_all(used)));
  if (used.empty()) return f->call->finish(std::move(reply));  // a length that demands nothing
  if (f->request.form == FetchForm::stored) return f->call->finish(std::move(reply));
  fetch_decode(f, std::move(reply));
}

void CacheCore::Impl::fetch_decode(std::shared_ptr<FetchCall> f, FetchReply reply) {
  struct Decode {
    FetchReply reply;
    Prefix out;
    size_t left = 0;
    Status error;
  };
  DType out = dtype_of(f->request.form);
  auto state = std::make_shared<Decode>();
  state->reply = std::move(reply);
  state->out = state->reply.lease.prefix();
  Room room;
  for (const auto& o : state->out.objects) room.reply += decoded_bytes(*o.object, out);
  with_room(room, f->deadline, [this, f, state, out](Result<std::shared_ptr<RoomCharges>> got) {
    if (f->call->finished()) return;
    if (!got.ok()) return f->call->fail(got.status());
    state->left = state->out.objects.size();
    for (size_t i = 0; i < state->out.objects.size(); ++i) {
      ObjectPtr object = state->out.objects[i].object;
      auto charge = std::make_shared<Charge>((*got)->reply.split(decoded_bytes(*object, out)));
      on_worker([object, out, charge, codec = f->realm->codec, pool = pool_] {
        return decode_object(*object, *codec, out, *pool, std::move(*charge));
      }, [f, state, i](Result<ObjectPtr> decoded) {
        if (decoded.ok()) state->out.objects[i].object = *decoded;
        else state->error = decoded.status();
        if (--state->left > 0) return;
        if (!state->error.ok()) return f->call->fail(state->error);
        // The decoded objects own their bytes: the stored ones need no pin any more.
        state->reply.lease = Lease(std::move(state->out), nullptr);
        f->call->finish(std::move(state->reply));
      });
    }
  });
}

}  // namespace kv
