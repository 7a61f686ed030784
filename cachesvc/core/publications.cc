// Visibility of a commit's objects. What it must cover: core/coverage.cc.
#include "cachesvc/core/publications.h"

#include <algorithm>
#include <tuple>

#include "cachesvc/core/coverage.h"

namespace kv {

struct Publications::Publication {
  State state = State::adding;
  Reservation r;
  uint32_t tokens = 0;
  CommitWait wait;
  std::vector<ObjectName> order;  // of what was given, root first
  size_t next = 0;                // of them
  std::vector<PinnedName> fresh;  // objects that have their place by now
};

namespace {

// Blocks and tails come before what hangs on them.
std::vector<ObjectName> root_first(const Reservation& r, uint32_t tokens) {
  std::vector<const Object*> objects;
  for (const auto& [name, finished] : r.finished) {
    if (finished.object->end_token() <= tokens) objects.push_back(finished.object.object.get());
  }
  std::sort(objects.begin(), objects.end(), [](const Object* x, const Object* y) {
    return std::tuple(x->name.kind >= ObjectKind::supplement, x->first_token, x->name) <
           std::tuple(y->name.kind >= ObjectKind::supplement, y->first_token, y->name);
  });
  std::vector<ObjectName> order;
  order.reserve(objects.size());
  for (const Object* o : objects) order.push_back(o->name);
  return order;
}

}  // namespace

void Publications::publish(Reservation reservation, Durability wait_for, CallPtr call) {
  auto p = std::make_shared<Publication>();
  p->r = std::move(reservation);
  Status refused;
  p->tokens = covered_tokens(p->r, p->wait.reply, refused);
  if (!refused.ok()) {  // it may ask for room anew when that of this one is free
    return reservations_.free(std::move(p->r), [call, refused] { call->fail(refused); });
  }
  p->wait.model = p->r.model;
  p->wait.wait_for = wait_for;
  p->wait.call = std::move(call);
  p->order = root_first(p->r, p->tokens);
  eraser_.publication_begins(p->r.model->ns);
  step(p);
}

// The tokens that will be stored. Fewer than the reservation's if something that was there at the
// reserve has gone: it is named in `lost`. `refused`: the client has left something out.
uint32_t Publications::covered_tokens(const Reservation& r, CommitReply& reply, Status& refused) {
  uint32_t tokens = find_lost(index_, r, reply);
  if (tokens < r.tokens()) return tokens;
  Gap gap = check_coverage(index_, r);
  if (gap.status.ok()) return tokens;
  if (left_out(r)) {
    refused = gap.status;
  } else {  // the client has given all: what was there has gone meanwhile
    reply.lost.push_back(gap.name);
  }
  return gap.tokens_above;
}

void Publications::step(const Ptr& p) {
  const bool at_once = p->order.size() <= kObjectsPerStep;
  while (true) {
    if (p->state == State::adding) {
      add_some(*p);
    } else if (p->state == State::joining) {
      join(*p);
    } else {
      return end(*p);
    }
    if (!at_once) return env_.later([this, p] { step(p); });
  }
}

// The next of its objects get their place in the index.
void Publications::add_some(Publication& p) {
  Reservation& r = p.r;
  const size_t end = std::min(p.order.size(), p.next + kObjectsPerStep);
  for (; p.next < end; ++p.next) {
    Reservation::Finished& finished = r.finished.at(p.order[p.next]);
    const RamObject& object = finished.object;
    if (Record* there = index_.find_usable(object->name)) {
      r.foreign.insert(object->name);
      r.pins.add(*there);
      continue;
    }
    Record* record = index_.add(*r.realm, *object, std::move(finished.index));
    if (!record) {
      p.wait.reply.lost.push_back(object->name);
      continue;
    }
    records_.given(*record, object);
    r.pins.add(*record);
    p.fresh.push_back({record->name, record->serial});
    ++env_.count.objects_committed;
  }
  if (p.next == p.order.size()) p.state = State::joining;
}

void Publications::join(Publication& p) {
  Reservation& r = p.r;
  // Not before all of them have their place: what the client gave is better than an unread file.
  for (const PinnedName& name : p.fresh) {
    if (name.name.kind == ObjectKind::snapshot || !index_.find(name)) continue;
    index_.relink(*r.realm, name.name.id);
  }
  supersede_tails(r, p.tokens);
  auto query = std::span<const Token>(r.query.tokens).first(p.tokens);
  ends_.mark(*r.realm, r.realm->tree.find_path(query, r.query.extras), p.tokens);
  const std::vector<Record*> path = path_of(index_, r, p.tokens);
  index_.tiers().touch(path);
  for (const Record* record : path) p.wait.path.push_back({record->name, record->serial});
  p.state = State::ending;
}

// Tails whose tokens the new tail or a new block holds too go first from now on.
void Publications::supersede_tails(const Reservation& r, uint32_t tokens) {
  auto match = r.realm->tree.match(r.query.tokens, r.query.extras);
  if (!match.ok()) return;
  for (const SideCandidate& c : match->candidates) {
    Record* tail = r.realm->nodes.at(c.node).main;
    if (!tail || tail->name.kind != ObjectKind::tail || tail->superseded) continue;
    uint32_t end = r.realm->tree.end_token(c.node);
    if (c.common < end || end >= tokens) continue;
    ends_.supersede(*tail);
    ++env_.count.superseded_tails;
  }
}

void Publications::end(Publication& p) {
  Reservation& r = p.r;
  CommitReply& reply = p.wait.reply;
  reply.foreign.assign(r.foreign.begin(), r.foreign.end());
  env_.count.commits_foreign += reply.foreign.size();
  env_.count.objects_lost += reply.lost.size();
  ++env_.count.commits;
  ask_for_spill(p);
  // Objects that the index has stay with it alone, to be free as soon as they go; the rest is freed
  // here.
  std::erase_if(r.finished, [this](const auto& f) {
    Record* record = index_.find(f.first);
    return record && record->ram.object == f.second.object.object;
  });
  eraser_.publication_ends(r.model->ns);
  reservations_.free(std::move(r));
  levels_.wait(std::move(p.wait));
}

void Publications::ask_for_spill(const Publication& p) {
  const bool wants_ssd = p.wait.wait_for >= Durability::spilled;
  if (lane_ && wants_ssd && !p.r.model->records_durable) model_records_.write(*p.r.model);
  if (!wants_ssd && env_.options.spill_when != SpillWhen::commit) return;
  for (const PinnedName& name : p.wait.path) {
    Record* record = index_.find(name);
    if (record && record->dirty() && (wants_ssd || Spiller::may_spill(*record))) {
      spiller_.ask(*record);
    }
  }
}

}  // namespace kv
