// Parts of the accounts, and the quota.
#include "cachesvc/core/transit.h"

#include <algorithm>

namespace kv {
namespace {

constexpr uint64_t kReplyQuarters = 3;  // the most of the budget that replies take

}  // namespace

uint64_t Transit::limit(ChargeKind kind) const {
  const RamPool& pool = *env_.pool;
  return kind == ChargeKind::staging ? pool.staging_limit_bytes()
                                     : pool.most_bytes() / 4 * kReplyQuarters;
}

// Shares are of the whole budget, which the set-aside part makes smaller: at most half is kept.
uint64_t Transit::kept_for(ChargeKind kind, ShareId share) const {
  const Namespaces& all = env_.namespaces;
  const auto budget = static_cast<double>(env_.pool->most_bytes());
  const auto quotas = static_cast<double>(all.ram_quotas());
  if (quotas == 0) return 0;
  const double whole = std::max(budget, quotas);
  const double own =
      share == kCommonShare ? whole - quotas : static_cast<double>(all.quota(share).ram_bytes);
  return static_cast<uint64_t>(static_cast<double>(limit(kind)) / 2 * (own / whole));
}

uint64_t Transit::most(ChargeKind kind, ShareId share) const {
  uint64_t others = 0;
  for (size_t i = 0; i < env_.namespaces.count(); ++i) {
    if (i != share) others += kept_for(kind, static_cast<ShareId>(i));
  }
  const uint64_t quota = env_.namespaces.quota(share).in_flight_bytes;
  return std::min(limit(kind) - others, quota == 0 ? UINT64_MAX : quota);
}
uint64_t Transit::most_staging(ShareId share) const { return most(ChargeKind::staging, share); }
uint64_t Transit::most_reply(ShareId share) const { return most(ChargeKind::reply, share); }

bool Transit::full(ChargeKind kind, ShareId share, uint64_t bytes) const {
  if (bytes == 0) return false;
  uint64_t wanted = env_.pool->used_bytes(kind) + bytes;
  for (size_t i = 0; i < env_.namespaces.count(); ++i) {
    const auto other = static_cast<ShareId>(i);
    if (other == share) continue;
    const uint64_t kept = kept_for(kind, other);
    wanted += kept - std::min(kept, env_.pool->used_bytes(kind, other));
  }
  return wanted > limit(kind);
}

bool Transit::full(const Room& room) const {
  return full(ChargeKind::staging, room.share, room.staging) ||
         full(ChargeKind::reply, room.share, room.reply) || !within_quota(room).ok();
}

uint64_t Transit::in_flight(ShareId share) const {
  return env_.pool->used_bytes(ChargeKind::staging, share) +
         env_.pool->used_bytes(ChargeKind::reply, share);
}

Status Transit::within_quota(const Room& room) const {
  const uint64_t asked = room.staging + room.reply;
  if (asked == 0) return {};
  return kv::within_quota(env_.namespaces.name(room.share), "bytes in flight",
                          env_.namespaces.quota(room.share).in_flight_bytes, in_flight(room.share),
                          asked);
}

}  // namespace kv
