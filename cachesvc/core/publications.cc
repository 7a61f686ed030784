// Visibility of a commit's objects. Checks of what it must cover: core/coverage.cc.
#include "cachesvc/core/publications.h"

#include <algorithm>
#include <tuple>

namespace kv {

struct Publications::Publication {
  void move(State to) {
    KV_CHECK(may_move(state, to));
    state = to;
  }
  State state = State::counting;
  Reservation r;
  uint32_t tokens = 0;
  CommitWait wait;
  std::vector<ObjectName> order;                   // names of the given objects, root first
  size_t next = 0;                                 // position in `order`
  std::vector<PinnedName> fresh;                   // objects that have their place by now
  std::optional<std::vector<PinnedName>> serving;  // known if the check of its coverage found it
  std::vector<PinnedName> kept;                    // what named ends need beside blocks and tail
  std::vector<PinnedName> noted;                   // objects of which the SSD is to know more
};

namespace {

// Blocks and tails come before what hangs on them.
std::vector<ObjectName> root_first(const Reservation& r, uint32_t tokens) {
  std::vector<const Object*> objects;
  for (const auto& [name, finished] : r.objects.finished) {
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

bool Publications::may_move(State from, State to) {
  const bool shorter = from < State::ordering && to == State::ordering;
  return shorter || static_cast<int>(to) == static_cast<int>(from) + 1;
}

void Publications::publish(Reservation reservation, Durability wait_for, CallPtr call) {
  auto p = std::make_shared<Publication>();
  p->r = std::move(reservation);
  p->wait.model = p->r.model;
  p->wait.wait_for = wait_for;
  p->wait.call = std::move(call);
  eraser_.publication_begins(p->r.model->ns);
  step(p);
}

// A long publication runs one state per handler: one pass over hundreds of objects is enough.
void Publications::step(const Ptr& p) {
  const size_t objects = std::max(p->r.blocks.size(), p->r.objects.finished.size());
  const bool at_once = objects <= kObjectsPerStep;
  do {
    switch (p->state) {
      case State::counting:
        p->tokens = find_lost(index_, p->r, p->wait.reply);
        // No further check if the reply names a lost object.
        p->move(p->tokens == p->r.tokens() ? State::naming : State::ordering);
        break;
      case State::naming:
        if (!cover(*p, check_blocks(index_, p->r), State::covering)) return;
        break;
      case State::covering:
        if (!cover(*p, check_coverage(p->r, p->serving), State::ordering)) return;
        break;
      case State::ordering:
        p->order = root_first(p->r, p->tokens);
        p->move(State::adding);
        break;
      case State::adding:
        add_some(*p);
        break;
      case State::linking:
        link(*p);
        break;
      case State::keeping:
        keep_end(*p);
        break;
      case State::planning:
        if (!p->serving) p->serving = serving(p->r, p->tokens);
        p->move(State::joining);
        break;
      case State::joining:
        join(*p);
        break;
      case State::touching:
        touch(*p);
        break;
      case State::spilling:
        ask_for_spill(*p);
        break;
      case State::freeing:
        free(*p);
        break;
      case State::ending:
        return end(*p);
    }
  } while (at_once);
  env_.later([this, p] { step(p); });
}

// Decides on a gap of the store. Fewer tokens than the reservation's become visible if an object
// that was there at the reserve has gone: the reply names it. False: refused, as the client has
// left an object out.
bool Publications::cover(Publication& p, Gap gap, State next) {
  p.move(gap.status.ok() ? next : State::ordering);
  if (gap.status.ok()) return true;
  if (!left_out(p.r)) {
    p.wait.reply.lost.push_back(gap.name);
    p.tokens = gap.tokens_above;
    return true;
  }
  eraser_.publication_ends(p.r.model->ns);
  // The answer follows when the reservation's room is free, so that a retry finds it.
  reservations_.free(std::move(p.r), [call = p.wait.call, why = gap.status] { call->fail(why); });
  return false;
}

// Adds the next objects to the index.
void Publications::add_some(Publication& p) {
  Reservation& r = p.r;
  const size_t end = std::min(p.order.size(), p.next + kObjectsPerStep);
  for (; p.next < end; ++p.next) {
    Reservation::Finished& finished = r.objects.finished.at(p.order[p.next]);
    const RamObject& object = finished.object;
    if (Record* there = index_.find_usable(object->name)) {
      r.objects.foreign.insert(object->name);
      r.pins.add(*there);
      continue;
    }
    Record* record = index_.add(*r.realm, *object, std::move(finished.index));
    if (!record) {
      p.wait.reply.lost.push_back(object->name);
      continue;
    }
    records_.given(*record, object);
    note_birth(env_, *record);
    r.pins.add(*record);
    p.fresh.push_back({record->name, record->serial});
    ++env_.count.objects_committed;
  }
  if (p.next == p.order.size()) p.move(State::linking);
}

void Publications::link(Publication& p) {
  Reservation& r = p.r;
  // Orphans are linked after all new objects: the client's bytes are better than an unread file.
  for (const PinnedName& name : p.fresh) {
    if (name.name.kind == ObjectKind::snapshot || !index_.find(name)) continue;
    index_.relink(*r.realm, name.name.id);
  }
  supersede_tails(r, p.tokens);
  auto query = std::span<const Token>(r.query.tokens).first(p.tokens);
  const std::vector<NodeId> path = r.realm->tree.find_path(query, r.query.extras);
  ends_.mark(*r.realm, path, p.tokens);
  if (p.tokens == r.tokens() && !path.empty()) keep_words(p, path.back());
  p.move(State::keeping);
}

// Keeps what the client says of the entry with its last object, if that is there.
void Publications::keep_words(Publication& p, NodeId end) {
  const EntryWords& words = p.r.words;
  Record* last = p.r.realm->nodes.at(end).main;
  if (words.empty() || !last || !say(env_, *last, words)) return;
  env_.count.prefill_ms_told += words.prefill_ms;
  if (words.prefill_ms > 0) index_.tiers().told_cost(*last);
  p.noted.push_back({last->name, last->serial});
}

// Keeps the next of the ends that the client named, and says whether it is restorable.
void Publications::keep_end(Publication& p) {
  const Reservation& r = p.r;
  std::vector<NamedEnd>& told = p.wait.reply.ends;
  if (told.size() == r.ends.named.size()) return p.move(State::planning);
  const NamedEnd& end =
      told.emplace_back(named_end(r, r.ends.named[told.size()], env_.options.min_prefix_tokens));
  ++(end.restorable ? env_.count.ends_kept : env_.count.ends_missed);
  if (!end.restorable) return;
  auto query = std::span<const Token>(r.query.tokens).first(p.tokens);
  for (const Ends::Kept& kept :
       ends_.keep(*r.realm, r.realm->tree.find_path(query, r.query.extras), end.tokens)) {
    p.kept.push_back({kept.record->name, kept.record->serial});
    if (kept.is_new) p.noted.push_back(p.kept.back());
  }
}

void Publications::join(Publication& p) {
  p.serving->insert(p.serving->end(), p.kept.begin(), p.kept.end());
  p.wait.path = path_of(index_, p.r, *p.serving);
  p.move(State::touching);
}

void Publications::touch(Publication& p) {
  std::vector<Record*> path;
  path.reserve(p.wait.path.size());
  for (const PinnedName& name : p.wait.path) {
    if (Record* record = index_.find(name)) path.push_back(record);
  }
  index_.tiers().touch(path);
  for (Record* record : path) {  // another entry has them now, which has no time
    if (expiries_.lift(*record)) p.noted.push_back({record->name, record->serial});
  }
  p.move(State::spilling);
}

// Supersedes tails whose tokens the new tail or a new block holds too.
void Publications::supersede_tails(const Reservation& r, uint32_t tokens) {
  for (const ObjectName& name : r.objects.tails) {
    Record* tail = index_.find(name);
    if (!tail || tail->realm != r.realm.get() || tail->superseded) continue;
    if (r.realm->tree.end_token(tail->node) >= tokens) continue;
    ends_.supersede(*tail);
    ++env_.count.superseded_tails;
  }
}

void Publications::ask_for_spill(Publication& p) {
  p.move(State::freeing);
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

void Publications::free(Publication& p) {
  Reservation& r = p.r;
  CommitReply& reply = p.wait.reply;
  reply.foreign.assign(r.objects.foreign.begin(), r.objects.foreign.end());
  env_.count.commits_foreign += reply.foreign.size();
  env_.count.objects_lost += reply.lost.size();
  ++env_.count.commits;
  ++env_.measures.models.of(r.model->ns, r.model->spec->name).stores;
  env_.measures.store.add(Measures::microseconds(Clock::now() - r.begun));
  // Drops references to objects that the index has, so that they are free as soon as they go; end()
  // frees the others.
  std::erase_if(r.objects.finished, [this](const auto& f) {
    Record* record = index_.find(f.first);
    return record && record->ram.object == f.second.object.object;
  });
  p.move(State::ending);
}

void Publications::end(Publication& p) {
  eraser_.publication_ends(p.r.model->ns);
  reservations_.free(std::move(p.r));
  std::vector<NotedName> notes;  // of others: theirs come with their files
  for (const PinnedName& name : p.noted) {
    const Record* r = index_.find(name);
    if (r && r->on_ssd()) notes.emplace_back(name.name, r->note());
  }
  const bool synced = p.wait.wait_for == Durability::durable;
  auto wait = std::make_shared<CommitWait>(std::move(p.wait));
  lane_.note(std::move(notes), synced, [this, wait] { levels_.wait(std::move(*wait)); });
}

}  // namespace kv
