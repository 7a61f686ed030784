// The choice of the share that gives next.
#include "cachesvc/core/shares.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "proto/status.h"

namespace kv {
namespace {

// A part's state while victims are chosen.
struct Giver {
  EvictionOrder::Walk walk;
  uint64_t limit;
  uint64_t bytes;  // used or asked for
  bool dry = false;
};

// True if `a` is used more than `b`, relative to the limits.
bool fuller(const Giver& a, const Giver& b) {
  const uint64_t whole_a = a.bytes / a.limit, whole_b = b.bytes / b.limit;
  if (whole_a != whole_b) return whole_a > whole_b;
  auto part = [](const Giver& g) {
    return static_cast<long double>(g.bytes % g.limit) / static_cast<long double>(g.limit);
  };
  return part(a) > part(b);
}

Giver* fullest(std::vector<Giver>& givers) {
  Giver* out = nullptr;
  for (Giver& g : givers) {
    if (!g.dry && (out == nullptr || fuller(g, *out))) out = &g;
  }
  return out;
}

}  // namespace

Shares::Shares(const std::vector<uint64_t>& limits, uint64_t tier_bytes)
    : parts_(1), bytes_(std::max<size_t>(1, limits.size())) {
  uint64_t given = 0;
  for (uint64_t limit : limits) {
    part_of_.push_back(limit > 0 ? static_cast<uint16_t>(parts_.size()) : 0);
    if (limit == 0) continue;
    given += limit;
    parts_.push_back({limit, 0, {}});
  }
  part_of_.resize(bytes_.size());
  parts_[0].limit = std::max<uint64_t>(1, tier_bytes - std::min(tier_bytes, given));
}

bool Shares::insert(ShareId share, EntryKey key, const EntryOptions& options) {
  if (!of(share).insert(key, options)) return false;
  bytes_[share] += options.charge_bytes;
  parts_[part_of_[share]].bytes += options.charge_bytes;
  return true;
}

bool Shares::erase(ShareId share, EntryKey key) {
  const uint64_t bytes = of(share).charge_bytes(key);
  if (!of(share).erase(key)) return false;
  bytes_[share] -= bytes;
  parts_[part_of_[share]].bytes -= bytes;
  return true;
}

EvictionOrder::Victims Shares::next_victims(uint64_t bytes_needed, bool dirty_too,
                                            Asker asker) const {
  EvictionOrder::Victims out;
  std::vector<Giver> givers;
  givers.reserve(parts_.size());
  for (const Part& part : parts_) {
    const bool asks = &part == &parts_[part_of_[asker.share]];
    givers.push_back(
        {EvictionOrder::Walk(part.order), part.limit, part.bytes + (asks ? asker.bytes : 0)});
  }
  while (out.bytes < bytes_needed) {
    Giver* giver = fullest(givers);
    if (giver == nullptr) break;
    auto victim = giver->walk.next(dirty_too);
    if (victim) {
      out.keys.push_back(victim->key);
      out.bytes += victim->charge_bytes;
      giver->bytes -= victim->charge_bytes;
      continue;
    }
    // The share's bytes over its limit are on their way to the tier below.
    if (giver->bytes > giver->limit && giver->walk.has_dirty()) break;
    giver->dry = true;
  }
  return out;
}

size_t Shares::size() const {
  return std::accumulate(parts_.begin(), parts_.end(), size_t{0},
                         [](size_t n, const Part& part) { return n + part.order.size(); });
}

void Shares::check_invariants() const {
  std::vector<uint64_t> sums(parts_.size());
  for (size_t share = 0; share < bytes_.size(); ++share) sums[part_of_[share]] += bytes_[share];
  for (size_t i = 0; i < parts_.size(); ++i) KV_CHECK(sums[i] == parts_[i].bytes);
}

}  // namespace kv
