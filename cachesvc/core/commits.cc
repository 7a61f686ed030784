// commit: its turn, and visibility. What it must cover: core/coverage.cc.
#include "cachesvc/core/commits.h"

#include <algorithm>

#include "cachesvc/core/adopt.h"
#include "cachesvc/core/coverage.h"

namespace kv {

// However it ends, the reservation ends with it.
void Commits::commit(uint64_t session, uint64_t id, Durability wait_for, Deadline deadline,
                     std::function<void(Result<CommitReply>)> done) {
  Reservation* r = reservations_.find(session, id);
  auto call = calls_.begin<Result<CommitReply>>(session, deadline, std::move(done));
  if (!r) return call->fail({StatusCode::not_found, "no such reservation"});
  if (call->finished()) return reservations_.end(id);
  adopt(*r, deadline);
  Waiting commit{session, id, wait_for, std::move(call)};
  if (may_publish(commit)) return publish(commit);
  waiting_.push_back(std::move(commit));
}

// What can't be adopted now stays where it is: the commit checks what is there.
void Commits::adopt(Reservation& r, Deadline deadline) {
  const uint64_t session = r.session, id = r.id;
  for (AdoptedPut& adoption : adoptions(index_, r)) {
    Reservation* still = reservations_.find(session, id);
    if (!still || !identify(*still, adoption.put.object).ok()) return;
    auto call = calls_.begin<Status>(
        session, deadline, [this](Status s) { env_.count.adopted_supplements += s.ok(); });
    puts_.start(*still, std::move(adoption.put), nullptr, std::move(call),
                std::move(adoption.states_of));
  }
}

// True also if there is nothing to wait for any more.
bool Commits::may_publish(const Waiting& commit) {
  if (commit.call->finished()) return true;
  const Reservation* r = reservations_.find(commit.session, commit.id);
  return !r || (r->encoding.empty() && !eraser_.removing(r->model->ns));
}

void Commits::go_on() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto at = it++;
    if (!may_publish(*at)) continue;
    Waiting commit = std::move(*at);
    waiting_.erase(at);
    publish(commit);
  }
}

void Commits::publish(const Waiting& commit) {
  const CallPtr& call = commit.call;
  Reservation* found = reservations_.find(commit.session, commit.id);
  if (!found) return call->fail({StatusCode::not_found, "the reservation ended"});
  if (call->finished()) return reservations_.end(commit.id);
  Reservation& r = *found;
  CommitWait wait;
  Status refused;
  const uint32_t tokens = covered_tokens(r, wait.reply, refused);
  if (!refused.ok()) {  // it may ask for room anew when that of this one is free
    return reservations_.end(commit.id, [call, refused] { call->fail(refused); });
  }
  make_visible(r, tokens, wait.reply);
  supersede_tails(r, tokens);
  auto query = std::span<const Token>(r.query.tokens).first(tokens);
  index_.mark_end(*r.realm, r.realm->tree.find_path(query, r.query.extras), tokens);
  std::vector<Record*> path = path_of(index_, r, tokens);
  index_.touch(path);
  wait.reply.foreign.assign(r.foreign.begin(), r.foreign.end());
  env_.count.commits_foreign += wait.reply.foreign.size();
  env_.count.objects_lost += wait.reply.lost.size();
  ++env_.count.commits;
  for (Record* record : path) wait.path.push_back({record->name, record->serial});
  wait.model = r.model;
  wait.wait_for = commit.wait_for;
  wait.call = call;
  ask_for_spill(path, *r.model, commit.wait_for);
  // What the index has stays with it alone, to be free as soon as it goes; the rest is freed here.
  std::erase_if(r.finished, [this](const auto& f) {
    Record* record = index_.find(f.first);
    return record && record->ram.object == f.second.object.object;
  });
  reservations_.end(commit.id);
  levels_.wait(std::move(wait));
}

// The tokens that will be stored. Fewer than the reservation's if something that was there at the
// reserve has gone: it is named in `lost`. `refused`: the client has left something out.
uint32_t Commits::covered_tokens(Reservation& r, CommitReply& reply, Status& refused) {
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

// Finished objects get their place in the index, root first.
void Commits::make_visible(Reservation& r, uint32_t tokens, CommitReply& reply) {
  std::vector<Reservation::Finished*> objects;
  for (auto& [name, finished] : r.finished) objects.push_back(&finished);
  std::sort(objects.begin(), objects.end(), [](const auto* x, const auto* y) {
    const Object &a = *x->object, &b = *y->object;
    return std::tuple(a.name.kind >= ObjectKind::supplement, a.first_token, a.name) <
           std::tuple(b.name.kind >= ObjectKind::supplement, b.first_token, b.name);
  });
  std::vector<Record*> fresh;
  fresh.reserve(objects.size());
  for (Reservation::Finished* finished : objects) {
    const RamObject& object = finished->object;
    if (object->end_token() > tokens) continue;
    if (index_.find_usable(object->name)) {
      r.foreign.insert(object->name);
      continue;
    }
    Record* record = index_.add(*r.realm, *object, std::move(finished->index));
    if (!record) {
      reply.lost.push_back(object->name);
      continue;
    }
    records_.given(*record, object);
    fresh.push_back(record);
    ++env_.count.objects_committed;
  }
  // Not before all of them have their place: what the client gave is better than an unread file.
  for (Record* record : fresh) {
    if (record->name.kind != ObjectKind::snapshot) index_.relink(*r.realm, record->name.id);
  }
}

// Tails whose tokens the new tail or a new block holds too go first from now on.
void Commits::supersede_tails(Reservation& r, uint32_t tokens) {
  auto match = r.realm->tree.match(r.query.tokens, r.query.extras);
  if (!match.ok()) return;
  for (const SideCandidate& c : match->candidates) {
    Record* tail = r.realm->nodes.at(c.node).main;
    if (!tail || tail->name.kind != ObjectKind::tail || tail->superseded) continue;
    uint32_t end = r.realm->tree.end_token(c.node);
    if (c.common < end || end >= tokens) continue;
    index_.supersede(*tail);
    ++env_.count.superseded_tails;
  }
}

void Commits::ask_for_spill(const std::vector<Record*>& path, ModelState& model,
                            Durability wait_for) {
  const bool wants_ssd = wait_for >= Durability::spilled;
  if (lane_ && wants_ssd && !model.records_durable) models_.write_records(model);
  if (!wants_ssd && env_.options.spill_when != SpillWhen::commit) return;
  for (Record* record : path) {
    if (record->dirty() && (wants_ssd || Spiller::may_spill(*record))) spiller_.ask(*record);
  }
}

}  // namespace kv
