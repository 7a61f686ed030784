// The walk over all nodes, and the moves.
#include "cachesvc/core/compactor.h"

#include <algorithm>

namespace kv {

Compactor::Compactor(Env& env, ObjectIndex& index, RamChecks& checks)
    : env_(env),
      index_(index),
      checks_(checks),
      pause_(env.loop, env.handler([this] { next(); })) {}

void Compactor::move(State to) {
  const bool ends = to == State::idle && state_ != State::idle;
  const bool goes_on = (to == State::looking) != (state_ == State::looking) && to != State::idle;
  KV_CHECK(ends || goes_on);
  state_ = to;
}

void Compactor::begin() {
  if (!idle() || !env_.pool->segments() || Clock::now() < not_before_) return;
  move(State::looking);
  moved_ = false;
  realms_.clear();
  for (const auto& realm : index_.realms().all()) realms_.push_back(realm);
  next_ = kRootNode;
  env_.later([this] { look(); });
}

// Looks at some nodes, until some objects are found.
void Compactor::look() {
  if (env_.draining()) return move(State::idle);
  size_t budget = kNodesPerStep;
  while (budget > 0 && !realms_.empty() && found_.size() < kFoundAtATime) {
    const auto realm = realms_.back().lock();
    if (!realm || next_ >= realm->nodes.size()) {
      realms_.pop_back();
      next_ = kRootNode;
    } else {
      look_at(*realm, next_++);
      --budget;
    }
  }
  if (!found_.empty()) {
    move(State::moving);
    return next();
  }
  if (realms_.empty()) return end_walk();
  env_.later([this] { look(); });
}

void Compactor::end_walk() {
  move(State::idle);
  if (!moved_) not_before_ = Clock::now() + kRest;
}

void Compactor::look_at(RealmState& realm, NodeId node) {
  if (!realm.tree.alive(node)) return;
  std::vector<Record*> records;
  realm.nodes.at(node).list(SIZE_MAX, records);
  for (const Record* record : records) {
    if (may_move(record)) found_.push_back({record->name, record->serial});
  }
}

bool Compactor::may_move(const Record* record) const {
  if (!record || !record->ram || record->pins > 0) return false;
  const uint8_t* payload = payload_of(*record->ram);
  return payload && env_.pool->segments()->in_retired(payload);
}

void Compactor::next() {
  if (env_.draining()) found_.clear();
  while (!found_.empty()) {
    const Record* record = index_.find(found_.back());
    found_.pop_back();
    if (may_move(record)) return copy(*record);
  }
  move(State::looking);
  env_.later([this] { look(); });
}

// Without room nothing is moved now: what is evicted meanwhile empties segments too.
void Compactor::copy(const Record& record) {
  const RamObject from = record.ram;
  const PinnedName which{record.name, record.serial};
  const uint64_t bytes = RamPool::slab_bytes(from->payload_bytes());
  auto charge = env_.pool->try_charge(ChargeKind::stored, bytes);
  if (!charge) {
    found_.clear();
    return move(State::idle);
  }
  auto paid = std::make_shared<Charge>(std::move(*charge));
  env_.on_worker(
      [pool = env_.pool, from, paid]() -> Result<RamObject> {
        return into_buffer(*from, pool->allocate(from->payload_bytes(), *paid, from->ns));
      },
      [this, which, from](Result<RamObject> to) mutable {
        copied(which, std::move(from), std::move(to));
      });
}

// Either copy may be the last of its bytes here: a worker frees it.
void Compactor::copied(const PinnedName& which, RamObject from, Result<RamObject> to) {
  Record* record = index_.find(which);
  const bool same = record && record->ram.object == from.object;
  if (same && to.ok() && to->sum != from.sum) {
    checks_.damaged(*record);
  } else if (same && to.ok() && record->pins == 0) {
    index_.tiers().moved(*record, std::move(*to));
    ++env_.count.ram_moved;
    moved_ = true;
  }
  const uint64_t bytes = from->payload_bytes();
  free_on(env_.workers, std::pair(std::move(from), std::move(to)));
  pause_.arm_in(std::chrono::duration_cast<Clock::duration>(
      std::chrono::microseconds(bytes * 1'000'000 / kBytesPerSecond)));
}

}  // namespace kv
