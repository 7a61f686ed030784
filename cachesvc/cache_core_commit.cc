// commit: coverage, visibility in one step, and the wait for a level of durability.
#include <algorithm>

#include "cachesvc/cache_core_impl.h"
#include "cachesvc/cache_core_needs.h"

namespace kv {
namespace {

std::string range(uint32_t first, uint32_t end) {
  return "[" + std::to_string(first) + ", " + std::to_string(end) + ")";
}

// The first part of the group that the plan found wanting, what it should have and what it lacks.
Status coverage_error(const RealmState& realm, const Shortfall& s, uint32_t tokens) {
  const PartGroup& group = realm.groups[s.group];
  std::string at = "layer " + std::to_string(group.members[0].layer) + " part " +
                   std::to_string(group.members[0].part) + " (" + to_string(group.spec.kind) +
                   "): a store of " + std::to_string(tokens) + " tokens, expected ";
  if (s.reason == ShortReason::missing_rows) {
    for (const RowRange& r : demanded_rows(group.spec, tokens)) {
      at += "rows " + range(r.first, r.end) + " ";
    }
    return invalid_argument(at + "given all but " + range(s.first, s.end));
  }
  const char* what = s.reason == ShortReason::missing_carry ? "the carry" : "the snapshot";
  return invalid_argument(at + what + " at " + std::to_string(tokens) + ", given none (" + s.text +
                          ")");
}

}  // namespace

void CacheCore::Impl::commit(uint64_t session, uint64_t id, Durability wait_for, Deadline deadline,
                             Done<Result<CommitReply>> done) {
  Reservation* r = find_reservation(session, id);
  EndGuard guard(*this, r ? id : 0);  // however it ends, but where it waits
  auto call = begin<Result<CommitReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  if (!r) return call->fail({StatusCode::not_found, "no such reservation"});
  adopt_from_others(*r, deadline);
  r = find_reservation(session, id);
  if (!r) return call->fail({StatusCode::not_found, "the reservation ended"});
  auto idle = [this, session, id, wait_for, call] { commit_idle(session, id, wait_for, call); };
  if (!r->encoding.empty()) r->when_idle.push_back(idle);
  guard.keep();
  if (r->encoding.empty()) idle();
}

// Its puts have ended; an erase of its namespace may be between two steps.
void CacheCore::Impl::commit_idle(uint64_t session, uint64_t id, Durability wait_for,
                                  std::shared_ptr<Call<Result<CommitReply>>> call) {
  EndGuard guard(*this, id);
  if (call->finished()) return;
  Reservation* r = find_reservation(session, id);
  if (!r || !erasing(r->model->ns)) return commit_now(session, id, wait_for, call);
  after_erase_.push_back([this, session, id, wait_for, call] {
    commit_idle(session, id, wait_for, call);
  });
  guard.keep();
}

// Blocks and tail that were there at reserve and are gone: they and all after them aren't stored.
// Returns: the tokens that remain.
uint32_t CacheCore::Impl::find_lost(Reservation& r, CommitReply& reply) {
  uint32_t block = r.realm->block_tokens();
  auto n = static_cast<uint32_t>(r.query.tokens.size());
  auto lost = [&](const ObjectName& name) {
    return r.existed.count(name) && !r.finished.count(name) && !find_usable(name);
  };
  for (uint32_t i = 0; i < r.blocks.size(); ++i) {
    ObjectName name{ObjectKind::block, r.blocks[i], 0, 0, 0};
    if (!lost(name)) continue;
    reply.lost.push_back(name);
    return i * block;
  }
  ObjectName tail{ObjectKind::tail, r.tail, 0, 0, 0};
  if (r.tail.is_zero() || !lost(tail)) return n;
  reply.lost.push_back(tail);
  return n / block * block;
}

// What will be visible must serve exactly `tokens`.
Status CacheCore::Impl::check_coverage(Reservation& r, uint32_t tokens) {
  const RealmState& realm = *r.realm;
  uint32_t block = realm.block_tokens();
  auto given = [&](const ObjectName& name) { return r.finished.count(name) || find_usable(name); };
  for (uint32_t i = 0; i < r.blocks.size(); ++i) {
    if (given({ObjectKind::block, r.blocks[i], 0, 0, 0})) continue;
    return invalid_argument("store of " + std::to_string(tokens) + " tokens: expected block " +
                            std::to_string(i) + " (tokens " + range(i * block, (i + 1) * block) +
                            "), given none");
  }
  ObjectName tail{ObjectKind::tail, r.tail, 0, 0, 0};
  if (!r.tail.is_zero() && !given(tail)) {
    return invalid_argument("store of " + std::to_string(tokens) + " tokens: expected the tail " +
                            range(tokens / block * block, tokens) + ", given none");
  }
  std::vector<Holding> finished;
  for (auto& [name, object] : r.finished) {
    Holding like;
    like.place = name.kind == ObjectKind::tail ? HoldingPlace::tail : HoldingPlace::path;
    like.common = object->end_token();
    append_holdings(realm, name, object->first_token, object->end_token(), like, finished);
  }
  ObjectIndex::PlanOptions options{{}, Clock::now(), false, &finished};
  options.limits.query_tokens = tokens + 1;
  options.limits.max_tokens = tokens;
  options.limits.common = tokens;  // blocks and tail are there, even if they hold no rows
  KV_ASSIGN_OR_RETURN(Hit hit, index_.plan(*r.realm, r.query, options));
  if (hit.plan.tokens == tokens) return {};
  return coverage_error(realm, hit.plan.shortfall, tokens);
}

// Makes finished objects visible, root first.
void CacheCore::Impl::publish(Reservation& r, uint32_t tokens, CommitReply& reply) {
  std::vector<RamObject> objects;
  for (auto& [name, object] : r.finished) objects.push_back(object);
  std::sort(objects.begin(), objects.end(), [](const RamObject& a, const RamObject& b) {
    bool attached_a = a->name.kind >= ObjectKind::supplement;
    bool attached_b = b->name.kind >= ObjectKind::supplement;
    return std::tuple(attached_a, a->first_token, a->name) <
           std::tuple(attached_b, b->first_token, b->name);
  });
  std::vector<Record*> fresh;
  fresh.reserve(objects.size());
  for (const RamObject& object : objects) {
    if (object->end_token() > tokens) continue;
    if (find_usable(object->name)) {
      r.foreign.insert(object->name);
      continue;
    }
    Record* record = index_.add(*r.realm, *object, std::move(r.index_charges[object->name]));
    if (!record) {
      reply.lost.push_back(object->name);
      continue;
    }
    try {
      index_.set_ram(*record, object);
    } catch (const std::bad_alloc&) {
      index_.remove(*record);  // in no tier
      throw;
    }
    fresh.push_back(record);
    ++count_.objects_committed;
  }
  // Not before all of them have their place: what the client gave is better than an unread file.
  for (Record* record : fresh) {
    if (record->name.kind != ObjectKind::snapshot) index_.relink(*r.realm, record->name.id);
  }
}

// Everything that the entry of this reservation consists of, root first, old and new.
std::vector<Record*> CacheCore::Impl::path_of(Reservation& r, uint32_t tokens) {
  std::vector<Record*> path;
  std::set<Record*> seen;
  auto add = [&](Record* record) {
    if (record && seen.insert(record).second) path.push_back(record);
  };
  for (const Id& id : r.blocks) add(index_.find({ObjectKind::block, id, 0, 0, 0}));
  if (!r.tail.is_zero()) add(index_.find({ObjectKind::tail, r.tail, 0, 0, 0}));
  ObjectIndex::PlanOptions options{{}, Clock::now()};
  options.limits.query_tokens = tokens + 1;
  options.limits.max_tokens = tokens;
  auto hit = index_.plan(*r.realm, r.query, options);
  if (hit.ok()) {
    for (const Hit::Use& use : hit->uses) add(use.record);
  }
  for (auto& [name, object] : r.finished) add(index_.find(name));
  return path;
}

// Tails whose tokens the new tail or a new block holds too go first from now on.
void CacheCore::Impl::supersede_tails(Reservation& r, uint32_t tokens) {
  auto match = r.realm->tree.match(r.query.tokens, r.query.extras);
  if (!match.ok()) return;
  for (const SideCandidate& c : match->candidates) {
    Record* tail = r.realm->nodes.at(c.node).main;
    if (!tail || tail->name.kind != ObjectKind::tail || tail->superseded) continue;
    uint32_t end = r.realm->tree.end_token(c.node);
    if (c.common < end || end >= tokens) continue;
    index_.supersede(*tail);
    ++count_.superseded_tails;
  }
}

void CacheCore::Impl::commit_now(uint64_t session, uint64_t id, Durability wait_for,
                                 std::shared_ptr<Call<Result<CommitReply>>> call) {
  Reservation* found = find_reservation(session, id);
  if (!found) return call->fail({StatusCode::not_found, "the reservation ended"});
  Reservation& r = *found;
  CommitWait wait;
  CommitReply& reply = wait.reply;
  auto n = static_cast<uint32_t>(r.query.tokens.size());
  uint32_t tokens = find_lost(r, reply);
  if (tokens == n) {
    if (Status s = check_coverage(r, n); !s.ok()) {
      return end_reservation(id, [call, s] { call->fail(s); });  // it may ask for room anew then
    }
  }
  Rollback unqueued([&] {
    some_unqueued_ |= options_.spill_when == SpillWhen::commit;
    spill_wake_->ask();
  });
  publish(r, tokens, reply);
  supersede_tails(r, tokens);
  auto query = std::span<const Token>(r.query.tokens).first(tokens);
  index_.mark_end(*r.realm, r.realm->tree.find_path(query, r.query.extras), tokens);
  std::vector<Record*> path = path_of(r, tokens);
  index_.touch(path);
  reply.foreign.assign(r.foreign.begin(), r.foreign.end());
  count_.commits_foreign += reply.foreign.size();
  count_.objects_lost += reply.lost.size();
  ++count_.commits;
  for (Record* record : path) wait.path.push_back({record->name, record->serial});
  wait.model = r.model;
  wait.wait_for = wait_for;
  wait.failed_syncs = failed_syncs_;
  wait.call = call;
  bool wants_ssd = wait_for >= Durability::spilled;
  if (ssd_ && wants_ssd && !r.model->records_durable && !r.model->records_writing) {
    write_records(*r.model);
  }
  if (wants_ssd || options_.spill_when == SpillWhen::commit) {
    for (Record* record : path) {
      if (wants_ssd) record->spill_refused = false;
      if (record->dirty() && !record->spill_refused) enqueue_spill(*record);
    }
  }
  unqueued.done();
  // What the index has stays with it alone, to be free as soon as it goes; the rest is freed here.
  std::erase_if(r.finished, [this](const auto& f) {
    Record* record = index_.find(f.first);
    return record && record->ram.object == f.second.object;
  });
  end_reservation(id);
  commit_waits_.push_back(std::move(wait));
  pump_spill();
  check_commit_waits();
}

// The lowest level over the whole path and the records that it needs.
Durability CacheCore::Impl::level_of(const CommitWait& wait) {
  Durability level = wait.path.empty() ? Durability::none : Durability::durable;
  for (const PinnedName& p : wait.path) {
    Record* r = find_pinned(p);
    Durability own = !r ? Durability::none
                        : r->on_ssd() ? r->disk : r->ram ? Durability::accepted : Durability::none;
    level = std::min(level, own);
  }
  if (!wait.model->records_durable) level = std::min(level, Durability::accepted);
  return level;
}

// True if nothing under way can raise the level.
bool CacheCore::Impl::stuck(const CommitWait& wait) {
  if (!ssd_ || writes_hang() || wait.failed_syncs != failed_syncs_) return true;
  if (!wait.model->records_durable && !wait.model->records_writing) return true;
  for (const PinnedName& p : wait.path) {
    Record* r = find_pinned(p);
    if (!r || (!r->on_ssd() && (!r->spill_queued || held_up()))) return true;
  }
  return false;
}

void CacheCore::Impl::check_commit_waits() noexcept {
  std::list<CommitWait> done;
  bool wants_sync = false;
  for (auto it = commit_waits_.begin(); it != commit_waits_.end();) {
    auto wait = it++;
    Durability level = level_of(*wait);
    if (wait->call->finished() || level >= wait->wait_for || stuck(*wait)) {
      wait->reply.level = level;
      done.splice(done.end(), commit_waits_, wait);
    } else {
      wants_sync |= wait->wait_for == Durability::durable && level == Durability::spilled;
    }
  }
  if (wants_sync && !if_memory([&] { schedule_sync(); })) pump_later();
  for (CommitWait& wait : done) wait.call->finish(std::move(wait.reply));
}

}  // namespace kv
