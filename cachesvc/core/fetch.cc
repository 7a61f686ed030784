// lookup, prefetch, fetch: plan, bring into RAM what is missing, plan again, lease.
#include <algorithm>
#include <set>

#include "cachesvc/core/encode.h"
#include "cachesvc/core/impl.h"
#include "cachesvc/core/needs.h"

namespace kv {

struct CacheCore::Impl::FetchCall {
  std::shared_ptr<Call<Result<FetchReply>>> call;
  std::shared_ptr<RealmState> realm;
  FetchRequest request;
  Deadline deadline;
  uint32_t max_tokens = UINT32_MAX;  ///< what RAM has room for
  bool fit_now = false;              ///< only what there is room for now: no waiting for more
  bool ram_only = false;             ///< no room for a promotion now
  bool verified = false;             ///< what was due is
  uint64_t window_bytes = 0;         ///< of file and unpacked bytes while the hit is read
  std::string limit_reason;
  Id opened;                      ///< the profile that the caller knows
  std::set<ObjectName> promoted;  ///< were not in RAM when the call came
  uint64_t ssd_tokens = 0;        ///< of the hit: those of promoted blocks and tails
  uint32_t rounds = 0;
};

namespace {

constexpr uint32_t kMaxFetchRounds = 16;  // each follows a lost object or a tighter limit
constexpr uint32_t kMaxFitRounds = 64;    // of planning within one of those; each is shorter
constexpr uint64_t kWindowShare = 8;      // one fetch reads at most budget / 8 at a time

Status check_lengths(const Query& query) {
  if (query.tokens.size() <= kMaxTokens && query.extras.size() <= kMaxExtras) return {};
  return invalid_argument("query over " + std::to_string(kMaxTokens) + " tokens or " +
                          std::to_string(kMaxExtras) + " extras");
}

uint64_t decoded_slab_bytes(const Object& object, DType out) {
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
    KV_RETURN_IF_ERROR(codec.decode_rows(from, from.first_row, from.end_row(), out, {at, bytes}));
    at += bytes;
  }
  for (const StateBlob& s : object.states) at = std::copy_n(s.bytes.data(), s.bytes.size(), at);
  KV_RETURN_IF_ERROR(attach_payload(decoded, std::move(buffer).freeze()));
  return ObjectPtr(std::make_shared<const Object>(std::move(decoded)));
}

// Why no more is served.
std::string shortfall_of(const RealmState& realm, const Hit& hit) {
  std::string text = hit.plan.shortfall.text;
  if (hit.plan.tokens > 0 || !realm.others_lost) return text;
  return text + (text.empty() ? "" : "; ") +
         "of this model there are objects that serve nothing: the profile that they were stored "
         "under, or their model record, is lost";
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
                    shortfall_of(*(*state)->realm, *hit)};
  if (start) {
    auto background = std::make_shared<FetchCall>();
    background->realm = (*state)->realm;
    background->request.query = std::move(query);
    background->fit_now = true;
    background->deadline = deadline;
    auto fit = plan_fetch(*background);
    background->request.query = {};
    if (fit.ok()) fetch_promote(background, *fit);
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
  f->opened = sessions_.at(session).profiles[request.model - 1];
  f->request = std::move(request);
  f->fit_now = !f->request.wait;
  f->deadline = deadline;
  fetch_step(f);
}

// What a hit takes of RAM. Its objects are read a few at a time, so one that is being read counts
// once. The same for a hit that is in RAM already: what fits does not change while it is read.
struct CacheCore::Impl::FetchCost {
  uint64_t all = 0;      ///< every object as it lies in RAM
  uint64_t missing = 0;  ///< those that don't, and that nobody reads
  uint64_t reading = 0;  ///< file and unpacked bytes of the missing ones
  uint64_t largest = 0;  ///< such bytes of any one
  uint64_t decoded = 0;  ///< every object as the client wants it; 0: as it is stored
  /// Beside the objects: what is missing is read, and then all is decoded.
  uint64_t beside() const { return std::max(missing > 0 ? largest : 0, decoded); }
};

// What the object takes when it is decoded for this call, also of one that is on the SSD only.
uint64_t CacheCore::Impl::decoded_bytes_of(const FetchCall& f, const Record& r) const {
  if (f.request.form == FetchForm::stored) return 0;
  const RealmState& realm = *f.realm;
  Need need{r.name.kind, 0, r.name.group, r.name.first_row, r.name.end_row, true};
  bool states = r.name.kind == ObjectKind::snapshot ||
                (r.name.kind == ObjectKind::supplement && need.first_row == need.end_row);
  if (states) return RamPool::slab_bytes(r.payload_bytes);
  if (r.name.kind != ObjectKind::supplement) {
    need.first_row = realm.tree.first_token(r.node);
    need.end_row = realm.tree.end_token(r.node);
  }
  return RamPool::slab_bytes(
      decoded_bytes(*realm.model, realm.groups, need, dtype_of(f.request.form)));
}

CacheCore::Impl::FetchCost CacheCore::Impl::cost_of(const FetchCall& f, const Hit& hit) const {
  FetchCost cost;
  uint64_t block = 0;  // all complete blocks are alike
  for (const Hit::Use& u : hit.uses) {
    bool is_block = u.record->name.kind == ObjectKind::block;
    uint64_t decoded = is_block && block > 0 ? block : decoded_bytes_of(f, *u.record);
    if (is_block) block = decoded;
    cost.decoded += decoded;
    Room one = room_to_promote(*u.record);
    cost.all += one.stored;
    cost.largest = std::max(cost.largest, one.promotion);
    if (u.record->ram || promoting(*u.record)) continue;
    cost.missing += one.stored;
    cost.reading += one.promotion;
  }
  return cost;
}

// A length less than the hit's own: without as many of its last blocks as leave at most `bytes` of
// `needed`. What hangs on the blocks is taken as constant.
uint32_t CacheCore::Impl::shorter(const FetchCall& f, const Hit& hit, uint64_t needed,
                                  uint64_t bytes, bool missing_only) const {
  uint32_t end = hit.plan.tokens;
  for (auto u = hit.uses.rbegin(); u != hit.uses.rend() && needed > bytes; ++u) {
    const Record& r = *u->record;
    if (r.name.kind != ObjectKind::block && r.name.kind != ObjectKind::tail) continue;
    bool counted = !missing_only || (!r.ram && !promoting(r));
    needed -= (counted ? room_to_promote(r).stored : 0) + decoded_bytes_of(f, r);
    end = std::min(end, f.realm->tree.first_token(r.node));
  }
  if (end < hit.plan.tokens) return end;
  uint32_t block = f.realm->block_tokens();  // no block: the next state before this one
  return end == 0 ? 0 : (end - 1) / block * block;
}

// As shorter, for what is decoded alone.
uint32_t CacheCore::Impl::shorter_reply(const FetchCall& f, const Hit& hit,
                                        uint64_t decoded) const {
  uint32_t end = hit.plan.tokens;
  for (auto u = hit.uses.rbegin(); u != hit.uses.rend() && decoded > reply_limit(); ++u) {
    const Record& r = *u->record;
    if (r.name.kind != ObjectKind::block && r.name.kind != ObjectKind::tail) continue;
    decoded -= decoded_bytes_of(f, r);
    end = std::min(end, f.realm->tree.first_token(r.node));
  }
  return end < hit.plan.tokens ? end : 0;
}

// Plans until what the hit needs fits: all of it together, decoded if the client wants it so, into
// the budget, and for one who does not wait, what is missing into what is free or may be dropped
// now.
Result<Hit> CacheCore::Impl::plan_fetch(FetchCall& f) {
  ObjectIndex::PlanOptions options{{}, Clock::now()};
  options.limits.query_tokens = static_cast<uint32_t>(f.request.query.tokens.size());
  options.limits.min_tokens = options_.min_prefix_tokens;
  options.limits.round_to_block = f.request.round_to_block;
  for (uint32_t round = 0;; ++round) {
    options.limits.max_tokens = std::min(f.request.max_tokens, f.max_tokens);
    options.ram_only =
        f.ram_only || reads_hang() || f.rounds > kMaxFetchRounds || round > kMaxFitRounds;
    KV_ASSIGN_OR_RETURN(Hit hit, index_.plan(*f.realm, f.request.query, options));
    FetchCost cost = cost_of(f, hit);
    if (cost.missing + cost.decoded == 0) return hit;
    uint64_t ideal =
        std::max(cost.largest, std::min(cost.reading, pool_->budget_bytes() / kWindowShare));
    uint64_t most = pool_->budget_bytes() - pool_->used_bytes(ChargeKind::index) -
                    pool_->used_bytes(ChargeKind::model) - pool_->used_bytes(ChargeKind::session);
    uint64_t wanted = cost.missing + std::max(ideal, cost.decoded);
    uint64_t now = f.fit_now ? room_beside(hit, wanted) : UINT64_MAX;
    bool reply_never = cost.decoded > reply_limit();
    bool never = cost.all + cost.beside() > most || reply_never;
    if (!never && cost.missing + cost.beside() <= now) {
      f.window_bytes = std::min({ideal, most - cost.all, now - cost.missing});
      return hit;
    }
    uint64_t needed = (never ? cost.all : cost.missing) + cost.beside(), has = never ? most : now;
    f.limit_reason = std::to_string(hit.plan.tokens) + " tokens need " + std::to_string(needed) +
                     " bytes of RAM, it has " + std::to_string(has) + (never ? "" : " now");
    f.max_tokens = shorter(f, hit, needed, has, !never);
    if (reply_never) f.max_tokens = std::min(f.max_tokens, shorter_reply(f, hit, cost.decoded));
  }
}

// Bytes that are free, or would be after dropping what may go and the hit does not use; counted up
// to `wanted`.
uint64_t CacheCore::Impl::room_beside(const Hit& hit, uint64_t wanted) {
  uint64_t free = pool_->budget_bytes() - pool_->used_bytes();
  if (free >= wanted) return free;
  std::vector<Record*> used;
  for (const Hit::Use& u : hit.uses) used.push_back(u.record);
  auto pins = pin_all(used);
  free += index_.ram().next_victims(wanted - free, true).bytes;
  pins.release();
  return free;
}

void CacheCore::Impl::fetch_step(std::shared_ptr<FetchCall> f) {
  if (!f->call || f->call->finished()) return;
  ++f->rounds;
  auto hit = plan_fetch(*f);
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
  std::sort(path.begin(), path.end());
  path.erase(std::unique(path.begin(), path.end()), path.end());
  index_.touch(path);
  for (Record* r : path) r->use_untold = true;
  if (missing.empty()) return verify_hit(f, *hit);
  for (Record* r : missing) f->promoted.insert(r->name);
  if (f->request.wait) return fetch_promote(f, *hit);
  FetchReply reply;
  reply.tokens = hit->plan.tokens;
  reply.common = hit->common;
  reply.pending = true;
  reply.tier = hit->plan.tier;
  reply.form = hit->plan.form;
  reply.reason = "being promoted";
  auto call = std::exchange(f->call, nullptr);  // the rest goes on without a caller
  f->deadline = Clock::now() + options_.room_wait;
  f->request.query = {};
  fetch_promote(f, *hit);
  call->finish(std::move(reply));
}

// Everything is in RAM. What is due is checked first, and if some of it was damaged, planned anew.
void CacheCore::Impl::verify_hit(std::shared_ptr<FetchCall> f, const Hit& hit) {
  std::vector<Record*> used, wanted;
  for (const Hit::Use& u : hit.uses) {
    used.push_back(u.record);
    if (due(*u.record)) wanted.push_back(u.record);
  }
  if (wanted.empty() || std::exchange(f->verified, true)) return fetch_reply(f, hit);
  auto left = std::make_shared<size_t>(wanted.size());
  auto pins = std::make_shared<Pins>(pin_all(used));
  for (Record* r : wanted) {
    verify_ram(*r, [this, f, left, pins] {
      if (--*left > 0) return;
      pins->release();
      fetch_step(f);
    });
  }
}

// Reads what is missing, a window at a time: room for all first, then the jobs; then the next step.
struct CacheCore::Impl::FetchBatch {
  Pins pins;                       // what is in RAM already makes no room for the rest
  std::vector<PinnedName> wanted;  // from `next` on: not begun
  size_t next = 0;
  size_t left = 0;  // jobs of this window that run, and the window itself
  std::shared_ptr<RoomCharges> room;
};

void CacheCore::Impl::fetch_promote(std::shared_ptr<FetchCall> f, const Hit& hit) {
  auto batch = std::make_shared<FetchBatch>();
  const FetchCost cost = cost_of(*f, hit);
  std::vector<Record*> used, missing;
  for (const Hit::Use& u : hit.uses) {
    used.push_back(u.record);
    if (!u.record->ram) missing.push_back(u.record);
  }
  // What a processor has to unpack first, the others are read meanwhile; but root first where it
  // takes several windows, so that what was read serves if the rest can't be.
  if (cost.reading <= f->window_bytes) {
    std::stable_partition(missing.begin(), missing.end(),
                          [](const Record* r) { return r->file_bytes < r->payload_bytes; });
  }
  for (const Record* r : missing) batch->wanted.push_back({r->name, r->serial});
  batch->pins = pin_all(used);
  Room room;
  room.stored = cost.missing;
  room.promotion = room.stored > 0 ? f->window_bytes : 0;
  with_room(room, f->deadline, [this, f, batch](Result<std::shared_ptr<RoomCharges>> room_or) {
    if (room_or.ok()) {
      batch->room = *room_or;
      return promote_window(f, batch);
    }
    // Not the whole path, then, but what there is room for by now; in the end what RAM holds.
    f->limit_reason = room_or.status().message();
    f->ram_only = std::exchange(f->fit_now, true);
    batch->pins.release();
    fetch_step(f);
  });
}

void CacheCore::Impl::promote_window(std::shared_ptr<FetchCall> f,
                                     std::shared_ptr<FetchBatch> batch) {
  auto one_done = [this, f, batch](Status) {
    if (--batch->left > 0) return;
    bool stop = reads_hang() || (f->call && f->call->finished());
    if (batch->next < batch->wanted.size() && !stop) return promote_window(f, batch);
    batch->room->stored.release();  // a read that hangs keeps the window, not the rest of the path
    batch->room.reset();
    batch->pins.release();
    fetch_step(f);
  };
  batch->left = 1;
  uint64_t window = batch->room->promotion.bytes();
  for (; batch->next < batch->wanted.size() && !reads_hang(); ++batch->next) {
    Record* r = find_pinned(batch->wanted[batch->next]);
    if (!r || r->ram || !r->on_ssd()) continue;
    if (promoting(*r)) {
      join_promotion(*r, one_done);
      ++batch->left;
      continue;
    }
    Room need = room_to_promote(*r);
    bool fits = need.promotion <= window && need.stored <= batch->room->stored.bytes();
    if (!fits && batch->left > 1) break;  // the next window's
    if (!fits) continue;  // somebody else's read of it had failed: the next step plans for it
    window -= need.promotion;
    // The window pays.
    promote(*r, batch->room->stored.split(need.stored), Charge(), one_done, batch->room);
    ++batch->left;
  }
  one_done(Status());
}

void CacheCore::Impl::finish_fetch(const FetchCall& f, FetchReply reply) {
  uint64_t n = reply.tokens;
  count_.hit_tokens_ssd += f.ssd_tokens;
  count_.hit_tokens_ram += n - f.ssd_tokens;
  count_.miss_tokens += f.request.query.tokens.size() - n;
  if (n == 0) ++count_.fetch_misses;
  f.call->finish(std::move(reply));
}

void CacheCore::Impl::fetch_reply(std::shared_ptr<FetchCall> f, const Hit& hit) {
  FetchReply reply;
  reply.tokens = hit.plan.tokens;
  reply.common = hit.common;
  reply.form = hit.plan.form;
  bool limited = !f->limit_reason.empty() && (f->max_tokens < UINT32_MAX || f->ram_only);
  reply.reason = limited ? f->limit_reason : shortfall_of(*f->realm, hit);
  if (reply.tokens == 0 && f->opened != f->realm->realm.profile) {
    reply.reason = "profile " + f->opened.hex() + " was replaced by " +
                   f->realm->realm.profile.hex() + " since the model was opened";
  }
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
    bool main = r.name.kind == ObjectKind::block || r.name.kind == ObjectKind::tail;
    uint32_t first = main ? f->realm->tree.first_token(r.node) : u.end_token;
    ssd_tokens += u.end_token - std::min(u.end_token, first);
  }
  f->ssd_tokens = std::min<uint64_t>(ssd_tokens, reply.tokens);
  reply.tier = used.empty()              ? Tier::none
               : promoted == 0           ? Tier::ram
               : promoted == used.size() ? Tier::ssd
                                         : Tier::mixed;
  reply.lease = Lease(std::move(prefix), used.empty() ? nullptr : lease_hold(pin_all(used)));
  bool as_stored = f->request.form == FetchForm::stored || used.empty();  // n may demand nothing
  if (as_stored) return finish_fetch(*f, std::move(reply));
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
  for (const auto& o : state->out.objects) room.reply += decoded_slab_bytes(*o.object, out);
  with_room(room, f->deadline, [this, f, state, out](Result<std::shared_ptr<RoomCharges>> got) {
    if (f->call->finished()) return;
    if (!got.ok()) {  // as without room to promote: what there is room for by now, in the end none
      state->reply.lease = Lease();
      f->limit_reason = got.status().message();
      if (f->ram_only) f->max_tokens = 0;
      f->ram_only = std::exchange(f->fit_now, true);
      return later([this, f] { fetch_step(f); });  // its pins are gone by then
    }
    state->left = state->out.objects.size();
    for (size_t i = 0; i < state->out.objects.size(); ++i) {
      ObjectPtr object = state->out.objects[i].object;
      auto charge = std::make_shared<Charge>((*got)->reply.split(decoded_slab_bytes(*object, out)));
      on_worker(
          [object, out, charge, codec = f->realm->codec, pool = pool_] {
            return decode_object(*object, *codec, out, *pool, std::move(*charge));
          },
          [this, f, state, i](Result<ObjectPtr> decoded) {
            if (decoded.ok())
              state->out.objects[i].object = *decoded;
            else
              state->error = decoded.status();
            if (--state->left > 0) return;
            if (!state->error.ok()) return f->call->fail(state->error);
            // The decoded objects own their bytes: the stored ones need no pin any more.
            state->reply.lease = Lease(std::move(state->out), nullptr);
            finish_fetch(*f, std::move(state->reply));
          });
    }
  });
}

}  // namespace kv
