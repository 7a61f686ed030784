// Places of departed ids.
#include "cachesvc/core/departures.h"

#include <algorithm>
#include <cstring>

namespace kv {
namespace {

constexpr uint64_t kMemoryShare = 2048;  // the memory is at most this part of the RAM budget
constexpr size_t kMaxChunks = 64;        // 3 MiB, 131,072 ids

}  // namespace

Departures::Departures(Env& env) : env_(env), complete_since_s_(now_s()) {
  if (env.pool->most_bytes() < kLeastRememberingBudget) return;
  const uint64_t bytes = env.pool->most_bytes() / kMemoryShare;
  const size_t chunks = std::clamp<size_t>(bytes / sizeof(Chunk), 1, kMaxChunks);
  auto charge = env.pool->try_charge(ChargeKind::session, chunks * sizeof(Chunk));
  if (!charge) return;
  charge_ = std::move(*charge);
  chunks_.resize(chunks);
}

Departures::Key Departures::key_of(const Id& id, ObjectKind kind) {
  Key key;
  std::memcpy(key.data(), id.bytes.data(), sizeof(key));
  if (kind == ObjectKind::supplement) key[1] = ~key[1];
  return key;
}

void Departures::note(const ObjectName& name, Cause cause, uint32_t at_s) {
  if (cause.why == Missing::nothing) return;
  if (chunks_.empty()) {
    complete_since_s_ = at_s;
    return;
  }
  const Key key = key_of(name.id, name.kind);
  std::unique_ptr<Chunk>& chunk = chunks_[chunk_of(key)];
  if (!chunk) chunk = std::make_unique<Chunk>();
  auto& set = (*chunk)[set_of(key)];
  auto place = std::find_if(set.begin(), set.end(), [&](const Entry& e) { return e.key == key; });
  if (place == set.end()) {
    place = std::min_element(set.begin(), set.end(),
                             [](const Entry& a, const Entry& b) { return a.at_s < b.at_s; });
    complete_since_s_ = std::max(complete_since_s_, place->at_s);
  }
  *place = {key, at_s, cause};
}

std::optional<Departures::Departure> Departures::find(const Id& id, ObjectKind kind) const {
  if (chunks_.empty()) return {};
  const Key key = key_of(id, kind);
  const std::unique_ptr<Chunk>& chunk = chunks_[chunk_of(key)];
  if (!chunk) return {};
  for (const Entry& e : (*chunk)[set_of(key)]) {
    if (e.key == key && e.at_s != 0) return Departure{e.cause, uint64_t{e.at_s} * 1000};
  }
  return {};
}

}  // namespace kv
