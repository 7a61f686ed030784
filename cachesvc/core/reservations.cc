// Reservations: the objects that a store lacks, its pins, and the RAM that it will need.
#include "cachesvc/core/reservations.h"

#include <algorithm>

#include "cachesvc/core/index_bytes.h"

namespace kv {
namespace {

// Longest life of a reservation, as a multiple of its time-out, whatever is put.
constexpr int kMostTimes = 10;
// Most blocks whose ids are made on the loop, as each takes microseconds; beyond, a worker makes
// them, and planning has a handler of its own.
constexpr uint32_t kBlocksHashedHere = 32;

Status check_query(const Query& query) {
  if (query.tokens.empty() || query.tokens.size() > kMaxTokens) {
    return invalid_argument("tokens " + std::to_string(query.tokens.size()) + " outside 1.." +
                            std::to_string(kMaxTokens));
  }
  if (query.extras.size() > kMaxExtras) {
    return invalid_argument("extras " + std::to_string(query.extras.size()) + " over " +
                            std::to_string(kMaxExtras));
  }
  for (size_t i = 1; i < query.extras.size(); ++i) {
    if (query.extras[i].position < query.extras[i - 1].position) {
      return invalid_argument("extras[" + std::to_string(i) + "].position " +
                              std::to_string(query.extras[i].position) +
                              ": positions must be ascending");
    }
  }
  for (const auto& e : query.extras) {
    if (e.position >= query.tokens.size() || e.bytes.size() > kMaxExtraBytes) {
      return invalid_argument("extra at position " + std::to_string(e.position) +
                              ": outside the tokens, or over " + std::to_string(kMaxExtraBytes) +
                              " bytes");
    }
  }
  return {};
}

Status check_ends(const std::vector<uint32_t>& ends, size_t tokens) {
  if (ends.size() > kMaxNamedEnds) {
    return invalid_argument("ends " + std::to_string(ends.size()) + " over " +
                            std::to_string(kMaxNamedEnds));
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    const uint32_t before = i == 0 ? 0 : ends[i - 1];
    if (ends[i] > before && ends[i] <= tokens) continue;
    return invalid_argument("ends[" + std::to_string(i) + "] " + std::to_string(ends[i]) +
                            ": expected ascending ones, 1 to " + std::to_string(tokens));
  }
  return {};
}

// Bytes of the query, its names (two for each block, in `blocks` and in `existed`) and its sources.
uint64_t bytes_of(const Reservation& r) {
  return query_bytes(r.query, r.tokens()) +
         r.blocks.size() * (sizeof(Id) + 2 * sizeof(ObjectName)) +
         r.objects.sources.size() * sizeof(Reservation::Source) +
         r.objects.tails.size() * sizeof(ObjectName) + r.ends.named.size() * sizeof(uint32_t);
}

// Tails whose tokens are all among the first of the query: its entry supersedes them.
std::vector<ObjectName> shorter_tails(const RealmState& realm, const PrefixMatch& match,
                                      uint32_t n) {
  std::vector<ObjectName> tails;
  for (const SideCandidate& c : match.candidates) {
    const uint32_t end = realm.tree.end_token(c.node);
    const Record* tail = realm.nodes.at(c.node).main;
    const bool whole = realm.tree.is_tail(c.node) && c.common == end && end < n;
    if (whole && tail) tails.push_back(tail->name);
  }
  return tails;
}

// Rows, carries and states of the supplements among the candidates, for a query of n tokens.
std::vector<Reservation::Source> sources_of(const RealmState& realm, const Candidates& held,
                                            uint32_t n) {
  std::vector<Reservation::Source> sources;
  for (const Holding& h : held.holdings) {
    const Record& record = *held.record_of(h);
    if (record.name.kind != ObjectKind::supplement) continue;
    const bool superseded =
        realm.tree.is_tail(record.node) && h.common == h.end_token && h.end_token < n;
    sources.push_back({record.name, h.kind, h.group, {h.first, h.end}, superseded});
    if (h.kind == HoldingKind::rows) sources.back().rows.end = std::min(h.end, h.common);
  }
  return sources;
}

// The last block end before the place where n tokens leave another entry's path; 0 if they only
// continue one. Two entries that share a prefix show that a third may.
uint32_t branch_of(const PrefixTree& tree, const PrefixMatch& match, uint32_t n) {
  NodeId last = match.path.empty() ? kRootNode : match.path.back();
  bool at_block_end = match.common == tree.end_token(last);
  bool continues = at_block_end ? tree.child_count(last) == 0
                                : std::any_of(match.candidates.begin(), match.candidates.end(),
                                              [&](const SideCandidate& c) {
                                                return tree.end_token(c.node) == match.common &&
                                                       c.common == match.common;
                                              });
  return continues || match.common >= n ? 0 : tree.end_token(last);
}

// The ids of the query's blocks and tail.
struct BlockIds {
  std::vector<Id> blocks;
  Id tail;
};
BlockIds block_ids(const Realm& realm, uint32_t block, const Query& query) {
  BlockIds ids;
  const auto n = static_cast<uint32_t>(query.tokens.size());
  Id parent;
  for (uint32_t first = 0; first < n; first += block) {
    const uint32_t end = std::min(n, first + block);
    const bool complete = end - first == block;
    Id id = block_id(realm, parent, tokens_between(query, first, end),
                     extras_in(query.extras, first, end),
                     complete ? ObjectKind::block : ObjectKind::tail);
    if (complete) ids.blocks.push_back(id);
    (complete ? parent : ids.tail) = id;
  }
  return ids;
}

}  // namespace

Status Reservations::check(const ReserveRequest& request, const ModelState& model) {
  if (env_.draining()) return {StatusCode::unavailable, "the cache is draining"};
  KV_RETURN_IF_ERROR(check_query(request.query));
  KV_RETURN_IF_ERROR(check_ends(request.ends, request.query.tokens.size()));
  KV_RETURN_IF_ERROR(check_label(request.words.label));
  KV_RETURN_IF_ERROR(check_profile(request.profile, model.realm->realm.profile));
  if (reservations_.size() >= env_.options.max_reservations) {
    ++env_.count.busy;
    return {StatusCode::busy, "max_reservations " + std::to_string(env_.options.max_reservations)};
  }
  const std::string& ns = model.realm->realm.ns;
  if (env_.namespaces.quota(ns).reservations == 0) return {};
  return env_.one_more(ns, "reservations", &NamespaceQuota::reservations, size_of(ns));
}

size_t Reservations::size_of(const std::string& ns) const {
  return static_cast<size_t>(
      std::count_if(reservations_.begin(), reservations_.end(),
                    [&](const auto& each) { return each.second.realm->realm.ns == ns; }));
}

void Reservations::reserve(uint64_t session, ReserveRequest request, CallTerms terms,
                           std::function<void(Result<ReserveReply>)> done) {
  auto call = calls_.begin<Result<ReserveReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto model = calls_.model(session, request.model);
  if (!model.ok()) return call->fail(model.status());
  if (Status s = check(request, **model); !s.ok()) return call->fail(s);
  auto r = std::make_shared<Reservation>();
  r->session = session;
  r->model = *model;
  r->realm = (*model)->realm;
  r->query = std::move(request.query);
  r->ends.named = std::move(request.ends);
  r->words = std::move(request.words);
  const uint32_t block = r->realm->block_tokens();
  auto hash = [r, block] { return block_ids(r->realm->realm, block, r->query); };
  auto go_on = [this, r, call](BlockIds ids) {
    r->blocks = std::move(ids.blocks);
    r->tail = ids.tail;
    reserve_hashed(std::move(*r), call);
  };
  if (r->tokens() / block <= kBlocksHashedHere) return go_on(hash());
  env_.on_worker(hash, go_on);
}

// Continues a reserve whose ids are known: pins existing objects, asks for room for missing ones.
void Reservations::reserve_hashed(Reservation reservation, const CallPtr& call) {
  if (call->finished()) return;
  auto r = std::make_shared<Reservation>(std::move(reservation));
  auto needs = std::make_shared<std::vector<Need>>(plan(*r));
  if (r->blocks.size() <= kBlocksHashedHere) return ask_for_room(r, needs, call);
  env_.later([this, r, needs, call] { ask_for_room(r, needs, call); });
}

void Reservations::ask_for_room(const std::shared_ptr<Reservation>& r,
                                const std::shared_ptr<std::vector<Need>>& needs,
                                const CallPtr& call) {
  if (call->finished()) return;
  Room room = room_of(*r, *needs);
  const uint64_t query_bytes = bytes_of(*r);
  room.index += query_bytes;
  if (Status s = fits(*r, room); !s.ok()) return call->fail(s);
  room_.with_room(
      room, call->deadline,
      [this, call, r, needs, query_bytes](Result<std::shared_ptr<RoomCharges>> charges) {
        if (call->finished()) return;
        if (!charges.ok()) return call->fail(charges.status());
        r->charges.stored = std::move((*charges)->stored);
        r->charges.index = std::move((*charges)->index);
        r->charges.query = r->charges.index.split(query_bytes);
        std::copy_if(needs->begin(), needs->end(), std::back_inserter(r->objects.required),
                     [](const Need& need) { return need.required; });
        call->finish(ReserveReply{keep(std::move(*r)), std::move(*needs)});
      },
      call);
}

uint64_t Reservations::keep(Reservation reservation) {
  const uint64_t id = next_id_++;
  Reservation& r = reservations_[id] = std::move(reservation);
  r.id = id;
  r.last = Clock::now() + kMostTimes * env_.options.reservation_timeout;
  r.timer = std::make_unique<Timer>(env_.loop, env_.handler([this, id] { expired(id); }));
  prolong(r);
  r.timer->arm_at(r.expires);
  ++env_.count.stores;
  return id;
}

// Pins existing objects and lists missing ones.
std::vector<Need> Reservations::plan(Reservation& r) {
  const RealmState& realm = *r.realm;
  const uint32_t block = realm.block_tokens(), n = r.tokens();
  std::vector<Need> needs;
  std::vector<Record*> present;
  auto look = [&](const ObjectName& name, uint32_t index) {
    if (Record* found = index_.find_usable(name)) {
      present.push_back(found);
      r.objects.existed.insert(found->name);
    } else {
      needs.push_back({name.kind, index, 0, index * block, std::min(n, (index + 1) * block), true});
    }
  };
  for (uint32_t i = 0; i < r.blocks.size(); ++i) look(r.block_name(i), i);
  if (!r.tail.is_zero()) look(r.tail_name(), n / block);
  auto found = candidates(*r.realm, r.query, {{}, kUnreadableIsMissing});
  const Candidates held = found.ok() ? std::move(*found) : Candidates();
  // Rows that other entries have are copied at commit; their carries only where they have one.
  std::vector<Holding> own;
  for (const Holding& h : held.holdings) {
    Record* record = held.record_of(h);
    bool carry = record->name.kind == ObjectKind::supplement && h.kind != HoldingKind::rows;
    if (!carry || record->name.id == r.id_of((h.end - 1) / block)) own.push_back(h);
    if (record->name.kind >= ObjectKind::supplement) present.push_back(record);
  }
  r.objects.sources = sources_of(realm, held, n);
  r.objects.tails = shorter_tails(realm, held.match, n);
  r.ends.interval =
      block_end_interval(*realm.model, *realm.profile, env_.options.block_end_interval, n);
  r.ends.checkpoints = env_.options.block_end_interval != kEndsByPrice;
  r.ends.branch = branch_of(realm.tree, held.match, n);
  for (Need& need : attached_needs(realm.groups, block, n, r.ends, own)) needs.push_back(need);
  r.pins = Pins(env_, index_, present);
  return needs;
}

Room Reservations::room_of(const Reservation& r, const std::vector<Need>& needs) const {
  Room room;
  room.share = r.realm->share;
  uint64_t block = 0;  // blocks behind the exact tokens are alike
  for (const Need& need : needs) {
    if (!need.required) continue;
    const bool alike =
        need.kind == ObjectKind::block && need.first_row >= r.realm->profile->exact_tokens;
    uint64_t bytes = alike && block > 0
                         ? block
                         : need_bytes(*r.realm->model, *r.realm->profile, r.realm->groups, need);
    if (alike) block = bytes;
    room.stored += RamPool::slab_bytes(bytes);
    room.index += most_index_bytes(r.realm->block_tokens());
  }
  return room;
}

// Refuses a store that can never fit: more than the budget without staging.
Status Reservations::fits(const Reservation& r, const Room& room) const {
  uint64_t most = env_.pool->most_bytes() - env_.pool->staging_limit_bytes();
  if (room.index > room_.index_limit()) return room_.can_never_fit(room);
  if (room.total() <= most) return {};
  uint64_t tokens = r.tokens(), block = r.realm->block_tokens();
  uint64_t per_block = std::max<uint64_t>(1, room.total() / std::max<uint64_t>(1, tokens / block));
  uint64_t largest = std::min(tokens - 1, most / per_block * block);
  return {StatusCode::resource_exhausted,
          "a store of " + std::to_string(tokens) + " tokens needs " + std::to_string(room.total()) +
              " bytes of RAM, it may have " + std::to_string(most) +
              "; the largest length that fits is " + std::to_string(largest)};
}

// The timer runs on: it checks whether the time has been prolonged.
void Reservations::prolong(Reservation& r) {
  r.expires = std::min(Clock::now() + env_.options.reservation_timeout, r.last);
}

void Reservations::expired(uint64_t id) {
  auto it = reservations_.find(id);
  if (it == reservations_.end()) return;
  Reservation& r = it->second;
  if (Clock::now() < r.expires) return r.timer->arm_at(r.expires);
  ++env_.count.reservations_expired;
  end(id);
}

Reservation* Reservations::find(uint64_t session, uint64_t id) {
  auto it = reservations_.find(id);
  return it != reservations_.end() && it->second.session == session ? &it->second : nullptr;
}

void Reservations::end(uint64_t id, std::function<void()> then) {
  if (reservations_.contains(id)) free(take(id), std::move(then));
}

Reservation Reservations::take(uint64_t id) {
  auto it = reservations_.find(id);
  Reservation r = std::move(it->second);
  reservations_.erase(it);
  r.timer.reset();
  return r;
}

void Reservations::free(Reservation r, std::function<void()> then) {
  r.pins.release();
  env_.on_worker(
      [finished = std::move(r.objects.finished)]() mutable {
        finished.clear();
        return true;
      },
      [then = std::move(then)](bool) {
        if (then) then();
      });
  env_.progress();
}

void Reservations::end_session(uint64_t session) {
  std::vector<uint64_t> ids;
  for (const auto& [id, r] : reservations_) {
    if (r.session == session) ids.push_back(id);
  }
  for (uint64_t id : ids) end(id);
}

// The rest of the reservation is of no use, whatever becomes of the answer.
void Reservations::abort(uint64_t session, uint64_t id, CallTerms terms,
                         std::function<void(Status)> done) {
  const bool there = find(session, id) != nullptr;
  env_.count.aborts += there;
  auto call = calls_.begin<Status>(session, terms, std::move(done));
  if (!there) return call->fail({StatusCode::not_found, "no such reservation"});
  end(id, [call] { call->finish(Status()); });
}

void Reservations::check_invariants() const {
  for (const auto& [id, r] : reservations_) {
    for (const ObjectName& name : r.objects.existed) {
      const Record* known = index_.find(name);
      KV_CHECK(!known || known->pins > 0 || r.objects.finished.contains(name));
    }
    for (const auto& [name, finished] : r.objects.finished) KV_CHECK(finished.object->name == name);
  }
}

}  // namespace kv
