// reserve: what a store lacks, object by object; its pins, and the RAM that it will need.
#include <algorithm>

#include "cachesvc/core/impl.h"
#include "cachesvc/core/needs.h"

namespace kv {
namespace {

// As long as its time-out a reservation may live in all, whatever is put.
constexpr int kMostTimes = 10;

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

// Of its query and the names made of it: two for each block, as an id and among what existed.
uint64_t bytes_of(const Reservation& r) {
  uint64_t bytes = r.query.tokens.size() * sizeof(Token);
  for (const Extra& e : r.query.extras) bytes += sizeof(Extra) + e.bytes.size();
  return bytes + r.blocks.size() * (sizeof(Id) + 2 * sizeof(ObjectName));
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

}  // namespace

std::span<const Token> tokens_between(const Query& query, uint32_t first, uint32_t end) {
  return std::span<const Token>(query.tokens).subspan(first, end - first);
}

void CacheCore::Impl::reserve(uint64_t session, ReserveRequest request, Deadline deadline,
                              Done<Result<ReserveReply>> done) {
  auto call = begin<Result<ReserveReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  auto model = model_of(session, request.model);
  if (!model.ok()) return call->fail(model.status());
  if (draining_) return call->fail({StatusCode::unavailable, "the cache is draining"});
  if (Status s = check_query(request.query); !s.ok()) return call->fail(s);
  if (request.profile != (*model)->realm->realm.profile) {
    return call->fail({StatusCode::profile_changed,
                       "profile in force is " + (*model)->realm->realm.profile.hex()});
  }
  if (reservations_.size() >= options_.max_reservations) {
    ++count_.busy;
    return call->fail(
        {StatusCode::busy, "max_reservations " + std::to_string(options_.max_reservations)});
  }
  auto r = std::make_shared<Reservation>();
  r->session = session;
  r->model = *model;
  r->realm = (*model)->realm;
  r->query = std::move(request.query);
  auto needs = std::make_shared<std::vector<Need>>(needs_of(*r));
  Room room = room_of(*r, *needs);
  uint64_t query_bytes = bytes_of(*r);
  room.index += query_bytes;
  if (Status s = fits(*r, room); !s.ok()) return call->fail(s);
  with_room(room, deadline,
            [this, call, r, needs, query_bytes](Result<std::shared_ptr<RoomCharges>> charges) {
              bool gone = call->finished() || !sessions_.count(r->session);
              if (!charges.ok() || gone) {
                return call->fail(charges.ok()
                                      ? Status(StatusCode::unavailable, "the session was closed")
                                      : charges.status());
              }
              r->stored = std::move((*charges)->stored);
              r->index = std::move((*charges)->index);
              r->query_charge = r->index.split(query_bytes);
              std::copy_if(needs->begin(), needs->end(), std::back_inserter(r->required),
                           [](const Need& need) { return need.required; });
              uint64_t id = next_reservation_++;
              r->id = id;
              EndGuard guard(*this, id);
              Reservation& kept = reservations_[id] = std::move(*r);
              sessions_[kept.session].reservations.insert(id);
              arm(kept);
              guard.keep();
              ++count_.stores;
              call->finish(ReserveReply{id, std::move(*needs)});
            });
}

// Fills the ids and pins of `r` and lists what is missing.
std::vector<Need> CacheCore::Impl::needs_of(Reservation& r) {
  const RealmState& realm = *r.realm;
  uint32_t block = realm.block_tokens(), n = static_cast<uint32_t>(r.query.tokens.size());
  std::vector<Need> needs;
  std::vector<Record*> present;
  Id parent;
  auto look = [&](ObjectKind kind, uint32_t index, uint32_t first, uint32_t end, const Id& id) {
    if (Record* found = find_usable({kind, id, 0, 0, 0})) {
      present.push_back(found);
      r.existed.insert(found->name);
    } else {
      needs.push_back({kind, index, 0, first, end, true});
    }
  };
  for (uint32_t i = 0; i < n / block; ++i) {
    Id id = block_id(realm.realm, parent, tokens_between(r.query, i * block, (i + 1) * block),
                     extras_in(r.query.extras, i * block, (i + 1) * block), ObjectKind::block);
    look(ObjectKind::block, i, i * block, (i + 1) * block, id);
    r.blocks.push_back(id);
    parent = id;
  }
  Hit hit;
  ObjectIndex::PlanOptions options{{}, kUnreadableIsMissing};
  auto held = index_.holdings(*r.realm, r.query, options, hit);
  std::vector<Holding> holdings = held.ok() ? std::move(*held) : std::vector<Holding>{};
  if (n % block != 0) {
    uint32_t first = n / block * block;
    r.tail = block_id(realm.realm, parent, tokens_between(r.query, first, n),
                      extras_in(r.query.extras, first, n), ObjectKind::tail);
    look(ObjectKind::tail, n / block, first, n, r.tail);
  }
  // Rows that other entries hold are adopted at commit; their carries only where they have one.
  std::vector<Holding> own;
  for (const Holding& h : holdings) {
    const ObjectName& name = reinterpret_cast<Record*>(h.object)->name;
    bool carry = name.kind == ObjectKind::supplement && h.kind != HoldingKind::rows;
    uint32_t index = carry ? (h.end - 1) / block : 0;
    const Id& id = index < r.blocks.size() ? r.blocks[index] : r.tail;
    if (!carry || name.id == id) own.push_back(h);
  }
  r.ends = {block_end_interval(realm), branch_of(realm.tree, hit.match, n)};
  for (Need& need : attached_needs(realm.groups, block, n, r.ends, own)) needs.push_back(need);
  for (const Holding& h : holdings) {
    auto* record = reinterpret_cast<Record*>(h.object);
    if (record->name.kind >= ObjectKind::supplement) present.push_back(record);
  }
  r.pins = pin_all(present);
  return needs;
}

Room CacheCore::Impl::room_of(const Reservation& r, const std::vector<Need>& needs) {
  Room room;
  for (const Need& need : needs) {
    if (!need.required) continue;
    uint64_t bytes = need_bytes(*r.realm->model, *r.realm->profile, r.realm->groups, need);
    room.stored += RamPool::slab_bytes(bytes);
    room.index += ObjectIndex::most_index_bytes(r.realm->block_tokens());
  }
  return room;
}

// Refuses what can never fit: more than the budget without staging.
Status CacheCore::Impl::fits(const Reservation& r, const Room& room) {
  uint64_t most = pool_->budget_bytes() - pool_->staging_limit_bytes();
  if (room.index > index_limit()) return can_never_fit(room);
  if (room.total() <= most) return {};
  uint64_t tokens = r.query.tokens.size(), block = r.realm->block_tokens();
  uint64_t per_block = std::max<uint64_t>(1, room.total() / std::max<uint64_t>(1, tokens / block));
  uint64_t largest = std::min(tokens - 1, most / per_block * block);
  return {StatusCode::resource_exhausted,
          "a store of " + std::to_string(tokens) + " tokens needs " + std::to_string(room.total()) +
              " bytes of RAM, it may have " + std::to_string(most) +
              "; the largest length that fits is " + std::to_string(largest)};
}

// The timer itself runs on: it looks whether its time has been prolonged.
void CacheCore::Impl::arm(Reservation& r) {
  const auto now = Clock::now();
  if (!r.timer) r.last = now + kMostTimes * options_.reservation_timeout;
  r.expires = std::min(now + options_.reservation_timeout, r.last);
  if (r.timer) return;
  r.timer = std::make_unique<boost::asio::steady_timer>(loop_, r.expires);
  r.timer->async_wait([weak = weak_from_this(), id = r.id](boost::system::error_code error) {
    if (auto self = weak.lock(); self && !self->closed_) self->reservation_timer(id, error);
  });
}

void CacheCore::Impl::reservation_timer(uint64_t id, const boost::system::error_code& error) {
  auto it = reservations_.find(id);
  if (error || it == reservations_.end()) return;
  EndGuard guard(*this, id);
  Reservation& r = it->second;
  if (Clock::now() >= r.expires) {
    ++count_.reservations_expired;
    return;
  }
  r.timer->expires_at(r.expires);
  r.timer->async_wait([weak = weak_from_this(), id](boost::system::error_code e) {
    if (auto self = weak.lock(); self && !self->closed_) self->reservation_timer(id, e);
  });
  guard.keep();
}

Reservation* CacheCore::Impl::find_reservation(uint64_t session, uint64_t id) {
  auto it = reservations_.find(id);
  return it != reservations_.end() && it->second.session == session ? &it->second : nullptr;
}

// `then` follows when its memory is free, on a worker or, without memory for that, here.
void CacheCore::Impl::end_reservation(uint64_t id, const std::function<void()>& then) noexcept {
  auto it = reservations_.find(id);
  if (it == reservations_.end()) return;
  Reservation r = std::move(it->second);
  reservations_.erase(it);
  if (auto s = sessions_.find(r.session); s != sessions_.end()) {
    s->second.reservations.erase(id);
  }
  r.pins.release();
  bool freeing = if_memory([&] {
    auto finished = std::make_shared<decltype(r.finished)>();
    auto free = task(
        [finished] {
          finished->clear();
          return true;
        },
        [then = then](bool) {  // not a const copy: moving it allocates nothing
          if (then) then();
        });
    finished->swap(r.finished);
    free->submit(workers_);
  });
  if (!freeing) r.finished.clear();
  if (!freeing && then) (void)if_memory(then);
  for (auto& waiting : r.when_idle) (void)if_memory(waiting);  // its call answers when dropped
}

// Whatever becomes of the answer: what is left of the reservation is of no use.
void CacheCore::Impl::abort(uint64_t session, uint64_t id, Deadline deadline, Done<Status> done) {
  bool there = find_reservation(session, id) != nullptr;
  count_.aborts += there;
  EndGuard guard(*this, there ? id : 0);
  auto call = begin<Status>(session, deadline, std::move(done));
  if (call->finished()) return;
  if (!there) return call->fail({StatusCode::not_found, "no such reservation"});
  end_reservation(id, [call] { call->finish(Status()); });
}

}  // namespace kv
