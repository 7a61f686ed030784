// Slots of the ring.
#include "cachesvc/core/request_ring.h"

#include <algorithm>

namespace kv {
namespace {

constexpr uint64_t kRingShare = 64;  // the ring is at most this part of the RAM budget
// Bytes of a slot with strings at their limits.
constexpr uint64_t kRingSlotBytes = sizeof(RequestRecord) + 2 * kMaxNamespaceBytes +
                                    kMaxModelNameBytes + kMaxLabelBytes + kMaxReasonBytes;

}  // namespace

RequestRing::RequestRing(Env& env) : env_(env) {
  if (env.pool->most_bytes() < kLeastRememberingBudget) return;
  const size_t most =
      std::clamp<size_t>(env.pool->most_bytes() / kRingShare / kRingSlotBytes, 1, kMaxWhyRecords);
  auto charge = env.pool->try_charge(ChargeKind::session, most * kRingSlotBytes);
  if (!charge) return;
  charge_ = std::move(*charge);
  most_ = most;
}

uint64_t RequestRing::add(RequestRecord& record) {
  ++counts_[static_cast<size_t>(record.missing)];
  if (find(record.number) == nullptr) record.number = newest_ + 1;
  if (env_.options.on_request) env_.options.on_request(record);
  if (most_ == 0) return 0;
  const uint64_t number = record.number;
  newest_ = std::max(newest_, number);
  if (record.reason.size() > kMaxReasonBytes) record.reason.resize(kMaxReasonBytes);
  if (slots_.size() < newest_ && slots_.size() < most_) {
    slots_.push_back(std::move(record));
  } else {
    std::swap(slots_[(number - 1) % most_], record);
  }
  return number;
}

const RequestRecord* RequestRing::find(uint64_t number) const {
  if (number == 0 || number > newest_ || slots_.empty()) return nullptr;
  const RequestRecord& kept = slots_[(number - 1) % most_];
  return kept.number == number ? &kept : nullptr;
}

void RequestRing::check_invariants() const {
  KV_CHECK(slots_.size() == std::min<uint64_t>(newest_, most_));
  KV_CHECK(newest_ == 0 || find(newest_) != nullptr);
}

}  // namespace kv
