// Values by key: reads, removals, and what a SET does until its value is the one that is stored.
#include "cachesvc/daemon/resp_values.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/keyed.h"

namespace kv {
namespace {

// Times that a SET removes another value, before it gives up against others' SETs of its key.
constexpr int kMaxReplaced = 3;
constexpr size_t kCompareBytes = 1u << 20;  // of two values in one turn

Deadline soon() { return deadline_in(kRespTimeout); }

Query stored_query(const std::string& key) { return {keyed_tokens(key), {}}; }
Query asked_query(const std::string& key) {
  Query query = stored_query(key);
  query.tokens.push_back(0);
  return query;
}

std::optional<Bytes> value_in(const Prefix& prefix, const std::string& key) {
  if (prefix.tokens != kKeyedTokens) return std::nullopt;
  for (const FetchedObject& each : prefix.objects) {
    if (each.object->name.kind != ObjectKind::snapshot || each.object->states.empty()) continue;
    return keyed_value(each.object->states.front().bytes, key);
  }
  return std::nullopt;
}

bool has_snapshot(const std::vector<Need>& needs) {
  return std::any_of(needs.begin(), needs.end(),
                     [](const Need& need) { return need.kind == ObjectKind::snapshot; });
}

// True if all of the entry is stored, with our own value.
bool is_ours(const CommitReply& reply) {
  return std::none_of(reply.foreign.begin(), reply.foreign.end(),
                      [](const ObjectName& name) { return name.kind == ObjectKind::snapshot; });
}

}  // namespace

struct RespValues::Set {
  std::string key;
  Bytes state;
  std::shared_ptr<RoomCharges> room;
  int replaced = 0;
  std::function<void(End)> done;
};

void RespValues::with_model(std::function<void(const Status&)> then) {
  if (opened_) return then({});
  core_.open(session_, {keyed_model(), nullptr, false, PrefillMode::exact}, soon(),
             [this, keep = host_.keep(), then = std::move(then)](const Result<OpenReply>& reply) {
               if (host_.closed()) return;
               if (reply.ok()) {
                 opened_ = {reply->model, reply->realm.profile, reply->profile->block_tokens};
               }
               then(reply.status());
             });
}

// Looks at why a call failed: another profile wants the model opened again.
void RespValues::note(const Status& status) {
  if (status.code() == StatusCode::profile_changed) opened_.reset();
}

QueryRequest RespValues::query_of(const std::string& key) const {
  return {opened_->model, asked_query(key), opened_->profile};
}

void RespValues::fetch(const std::string& key, std::function<void(Result<FetchReply>)> then) {
  FetchRequest request;
  request.model = opened_->model;
  request.profile = opened_->profile;
  request.query = asked_query(key);
  core_.fetch(session_, std::move(request), soon(),
              [this, keep = host_.keep(), then = std::move(then)](Result<FetchReply> reply) {
                if (host_.closed()) return;
                note(reply.status());
                then(std::move(reply));
              });
}

void RespValues::get(const std::string& key,
                     std::function<void(std::optional<Value> value, bool promised)> done) {
  with_model([this, key, done = std::move(done)](const Status& status) {
    if (!status.ok()) return done(std::nullopt, false);
    fetch(key, [this, key, done](Result<FetchReply> reply) {
      const bool promised = holds_.end(session_, asked_query(key).tokens, soon());
      auto bytes = reply.ok() ? value_in(reply->lease.prefix(), key) : std::nullopt;
      if (!bytes) return done(std::nullopt, promised);
      done(Value{std::move(*bytes), core_.memory().share(std::move(reply->lease))}, promised);
    });
  });
}

void RespValues::exists(const std::string& key, std::function<void(bool)> done) {
  with_model([this, key, done = std::move(done)](const Status& status) {
    if (!status.ok()) return done(false);
    holds_.find(session_, query_of(key), soon(),
                [this, keep = host_.keep(), done](Result<bool> found) {
                  if (host_.closed()) return;
                  note(found.status());
                  done(found.ok() && *found);
                });
  });
}

void RespValues::remove(const std::string& key, std::function<void(Result<bool>)> done) {
  with_model([this, key, done = std::move(done)](const Status& status) {
    if (!status.ok()) return done(status);
    holds_.end(session_, asked_query(key).tokens, soon());
    core_.erase_entry(session_, {opened_->model, stored_query(key), opened_->profile}, soon(),
                      [this, keep = host_.keep(), done](Result<uint64_t> removed) {
                        if (host_.closed()) return;
                        note(removed.status());
                        if (!removed.ok()) return done(removed.status());
                        done(*removed > 0);
                      });
  });
}

void RespValues::set(const std::string& key, Bytes state, std::shared_ptr<RoomCharges> room,
                     std::function<void(End)> done) {
  auto set = std::make_shared<Set>(Set{key, std::move(state), std::move(room), 0, std::move(done)});
  with_model([this, set](const Status& status) { status.ok() ? reserve(set) : give_up(set); });
}

void RespValues::reserve(const SetPtr& set) {
  core_.reserve(session_, {opened_->model, opened_->profile, stored_query(set->key)}, soon(),
                [this, keep = host_.keep(), set](const Result<ReserveReply>& reply) {
                  if (host_.closed()) return;
                  note(reply.status());
                  if (!reply.ok()) return give_up(set);
                  if (has_snapshot(reply->needs)) return store(set, *reply);
                  core_.abort(session_, reply->reservation, soon(), [](const Status&) {});
                  compare(set);
                });
}

// A put that fails has the commit fail.
void RespValues::store(const SetPtr& set, const ReserveReply& reserved) {
  for (const Need& need : reserved.needs) {
    if (!need.required) continue;
    PutRequest put;
    put.reservation = reserved.reservation;
    put.object.name.kind = need.kind;
    std::shared_ptr<RoomCharges> room;
    if (need.kind == ObjectKind::snapshot) {
      put.object.name.first_row = put.object.name.end_row = kKeyedTokens;
      put.object.states = {{0, 0, set->state}};
      room = std::exchange(set->room, nullptr);
    } else {
      put.object.first_token = need.block_index * opened_->block_tokens;
    }
    core_.put(session_, std::move(put), std::move(room), soon(), [](const Status&) {});
  }
  commit(set, reserved.reservation);
}

void RespValues::commit(const SetPtr& set, uint64_t reservation) {
  core_.commit(session_, reservation, Durability::accepted, soon(),
               [this, keep = host_.keep(), set](const Result<CommitReply>& reply) {
                 if (host_.closed()) return;
                 note(reply.status());
                 if (!reply.ok() || !reply->lost.empty()) return give_up(set);
                 if (!is_ours(*reply)) return compare(set);
                 set->done(End::stored);
               });
}

// The first value under a key stays until it is removed: an equal one may.
void RespValues::compare(const SetPtr& set) {
  fetch(set->key, [this, set](Result<FetchReply> reply) {
    auto bytes = reply.ok() ? value_in(reply->lease.prefix(), set->key) : std::nullopt;
    const size_t head = keyed_head_bytes(set->key);
    if (!bytes || bytes->size() != set->state.size() - head) return replace(set);
    compare_some(set, {std::move(*bytes), core_.memory().share(std::move(reply->lease))}, 0);
  });
}

void RespValues::compare_some(const SetPtr& set, const Value& stored, size_t from) {
  const size_t bytes = std::min(kCompareBytes, stored.bytes.size() - from);
  const uint8_t* ours = set->state.data() + keyed_head_bytes(set->key) + from;
  const bool same = bytes == 0 || std::memcmp(stored.bytes.data() + from, ours, bytes) == 0;
  if (!same) return replace(set);
  if (from + bytes == stored.bytes.size()) return set->done(End::stored);
  host_.take_turn([this, keep = host_.keep(), set, stored, from = from + bytes] {
    if (!host_.closed()) compare_some(set, stored, from);
  });
}

void RespValues::replace(const SetPtr& set) {
  if (set->replaced++ == kMaxReplaced || !opened_) return give_up(set);
  remove(set->key, [this, set](const Result<bool>& removed) {
    removed.ok() ? reserve(set) : set->done(End::unknown);
  });
}

// A SET that stores nothing leaves no earlier value either.
void RespValues::give_up(const SetPtr& set) {
  set->state = {};
  set->room.reset();
  remove(set->key, [set](const Result<bool>& removed) {
    set->done(removed.ok() ? End::dropped : End::unknown);
  });
}

}  // namespace kv
