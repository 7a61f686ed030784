// commit: coverage, and visibility in one step. What follows is the wait for a level (levels.cc).
#include <algorithm>

#include "cachesvc/core/impl.h"
#include "cachesvc/core/needs.h"

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
  after_erase_.push_back(
      [this, session, id, wait_for, call] { commit_idle(session, id, wait_for, call); });
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

// What a store lacks to serve its tokens.
struct CacheCore::Impl::Gap {
  Status status;              ///< ok: nothing
  ObjectName name;            ///< the first object that is wanting
  uint32_t tokens_above = 0;  ///< that can be stored without it
};

// What will be visible must serve exactly `tokens`.
CacheCore::Impl::Gap CacheCore::Impl::check_coverage(Reservation& r, uint32_t tokens) {
  const RealmState& realm = *r.realm;
  uint32_t block = realm.block_tokens();
  auto given = [&](const ObjectName& name) { return r.finished.count(name) || find_usable(name); };
  auto wanting = [&](const ObjectName& name, const std::string& what, uint32_t first) {
    return Gap{invalid_argument("store of " + std::to_string(tokens) + " tokens: expected " + what +
                                ", given none"),
               name, first};
  };
  for (uint32_t i = 0; i < r.blocks.size(); ++i) {
    ObjectName name{ObjectKind::block, r.blocks[i], 0, 0, 0};
    if (given(name)) continue;
    return wanting(
        name, "block " + std::to_string(i) + " (tokens " + range(i * block, (i + 1) * block) + ")",
        i * block);
  }
  ObjectName tail{ObjectKind::tail, r.tail, 0, 0, 0};
  uint32_t tail_first = tokens / block * block;
  if (!r.tail.is_zero() && !given(tail)) {
    return wanting(tail, "the tail " + range(tail_first, tokens), tail_first);
  }
  std::vector<Holding> finished;
  for (auto& [name, object] : r.finished) {
    Holding like;
    like.place = name.kind == ObjectKind::tail ? HoldingPlace::tail : HoldingPlace::path;
    like.common = object->end_token();
    append_holdings(realm, name, object->first_token, object->end_token(), like, finished);
  }
  ObjectIndex::PlanOptions options{{}, kUnreadableIsMissing, false, &finished};
  options.limits.query_tokens = tokens + 1;
  options.limits.max_tokens = tokens;
  options.limits.common = tokens;  // blocks and tail are there, even if they hold no rows
  auto hit = index_.plan(*r.realm, r.query, options);
  if (!hit.ok()) return {hit.status(), tail, 0};
  if (hit->plan.tokens == tokens) return {};
  const Shortfall& s = hit->plan.shortfall;
  const bool rows = s.reason == ShortReason::missing_rows;
  const uint32_t first = rows ? s.first : tokens, end = rows ? s.end : tokens;
  const uint32_t index = (rows ? first : tokens - 1) / block;
  const Id& id = index < r.blocks.size() ? r.blocks[index] : r.tail;
  ObjectName name{ObjectKind::supplement, id, s.group, first, end};
  return {coverage_error(realm, s, tokens), name, tokens};
}

// True if the client was asked for something and has not given it.
bool CacheCore::Impl::left_out(const Reservation& r) {
  const uint32_t block = r.realm->block_tokens();
  auto id_of = [&](uint32_t index) { return index < r.blocks.size() ? r.blocks[index] : r.tail; };
  auto gave = [&](const Need& need) {
    if (need.kind == ObjectKind::snapshot) {
      const uint32_t at = need.end_row, first = at / block * block;
      const Id parent = at < block ? Id{} : r.blocks[at / block - 1];
      ObjectName name{ObjectKind::snapshot, {}, 0, 0, 0};
      name.id = snapshot_id(r.realm->realm, parent, tokens_between(r.query, first, at),
                            extras_in(r.query.extras, first, at));
      return std::find(r.given.begin(), r.given.end(), name) != r.given.end();
    }
    std::vector<Holding> held;
    for (const ObjectName& name : r.given) {
      if (name.kind != need.kind || name.group != need.group) continue;
      if (name.kind != ObjectKind::supplement) {
        if (name.id == id_of(need.first_row / block)) return true;
        continue;
      }
      if (name.first_row == need.first_row && name.end_row == need.end_row) return true;
      Holding h;
      h.group = name.group;
      h.first = name.first_row;
      h.end = name.end_row;
      h.common = UINT32_MAX;
      held.push_back(h);
    }
    return need.first_row < need.end_row && need.kind == ObjectKind::supplement &&
           missing_rows({need.first_row, need.end_row}, need.group, held).empty();
  };
  return !std::all_of(r.required.begin(), r.required.end(), gave);
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
    Rollback no_record([&] {
      if (!record->on_ssd()) records_.remove(*record);  // in no tier
    });
    records_.given(*record, object);
    no_record.done();
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
  ObjectIndex::PlanOptions options{{}, kUnreadableIsMissing};
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
    Gap gap = check_coverage(r, n);
    if (!gap.status.ok() && left_out(r)) {  // it may ask for room anew then
      return end_reservation(id, [call, s = gap.status] { call->fail(s); });
    }
    if (!gap.status.ok()) {  // the client has given all: what was there has gone meanwhile
      reply.lost.push_back(gap.name);
      tokens = gap.tokens_above;
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
      if (record->dirty() && (wants_ssd || may_spill(*record))) enqueue_spill(*record);
    }
  }
  unqueued.done();
  // What the index has stays with it alone, to be free as soon as it goes; the rest is freed here.
  std::erase_if(r.finished, [this](const auto& f) {
    Record* record = index_.find(f.first);
    return record && record->ram.object == f.second.object;
  });
  end_reservation(id);
  wait_for_level(std::move(wait));
}

}  // namespace kv
