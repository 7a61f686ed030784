// The ledger is atomics; the slabs behind it stand under short mutexes of their own.
#include "cachesvc/ram_pool.h"

#include <malloc.h>

#include <algorithm>
#include <mutex>

namespace kv {
namespace {

constexpr size_t kPageBytes = 4096;
// Limits of bytes that wait for reuse: budget / 8, or half of those in use. An eviction is followed
// by the allocation that it makes room for, and memory from the system has to be cleared anew.
constexpr uint64_t kRecycledShare = 8, kRecycledShareInUse = 2;
constexpr uint64_t kSegmentShare = 32;   // a segment is budget / 32
constexpr uint64_t kAnnouncedShare = 2;  // announced ones take at most budget / 2

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

size_t segment_bytes(uint64_t budget) {
  return round_up(std::clamp<uint64_t>(budget / kSegmentShare, kMinSegmentBytes, kMaxSegmentBytes),
                  kMinSegmentBytes);
}

}  // namespace

const char* to_string(ChargeKind kind) {
  switch (kind) {
    case ChargeKind::stored:
      return "stored";
    case ChargeKind::staging:
      return "staging";
    case ChargeKind::promotion:
      return "promotion";
    case ChargeKind::spill:
      return "spill";
    case ChargeKind::reply:
      return "reply";
    case ChargeKind::index:
      return "index";
    case ChargeKind::session:
      return "session";
    case ChargeKind::model:
      return "model";
  }
  return "unknown";
}

struct RamPool::Notify {
  std::mutex mutex;  // guards `released`
  std::function<void()> released;
};

// Memory of one buffer and its charge; the last Bytes that points here frees both.
struct PoolBuffer::Slab {
  Slab(std::shared_ptr<RamPool> owner, Charge paid, uint64_t size, std::string_view ns)
      : pool(std::move(owner)), charge(std::move(paid)), bytes(size) {
    if (pool->segments_ && !ns.empty() && bytes >= kSlotPageBytes) {
      data = pool->segments_->take(ns, bytes, pool->spare_bytes(charge.kind(), bytes));
    }
    in_segment = data != nullptr;
    if (!in_segment) data = pool->slabs_->take(bytes);
    if (charge.kind() == ChargeKind::stored) pool->backed_ += bytes;
  }
  Slab(const Slab&) = delete;  // owns the memory
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    bool counted = charge.kind() == ChargeKind::stored;  // else it is with the charge
    uint64_t others = counted ? pool->backed_ -= bytes : pool->backed_ - bytes;
    uint64_t keep = pool->most_idle_bytes(others);
    if (in_segment) {
      pool->segments_->give(data, bytes);
      pool->keep_waiting(keep);
    } else {
      pool->slabs_->give(data, bytes, keep);
    }
  }
  std::shared_ptr<RamPool> pool;
  Charge charge;
  uint64_t bytes;
  uint8_t* data = nullptr;
  bool in_segment = false;
};

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::move(other.pool_);
    kind_ = other.kind_;
    payer_ = other.payer_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Charge::release() {
  if (pool_ && bytes_ > 0) pool_->give_back(kind_, payer_, bytes_);
  bytes_ = 0;
  pool_.reset();
}

Charge Charge::split(uint64_t bytes) {
  KV_CHECK(bytes <= bytes_);
  bytes_ -= bytes;
  return Charge(pool_, kind_, payer_, bytes);
}

void Charge::merge(Charge other) {
  if (other.bytes_ == 0) return;
  if (bytes_ == 0) {
    *this = std::move(other);
    return;
  }
  KV_CHECK(pool_ == other.pool_ && kind_ == other.kind_ && payer_ == other.payer_);
  bytes_ += std::exchange(other.bytes_, 0);
}

Bytes PoolBuffer::freeze() && {
  std::shared_ptr<const void> owner = std::move(slab_);
  return {std::move(owner), data_, size_};
}

RamPool::RamPool(uint64_t budget_bytes, uint64_t staging_bytes, Backing backing)
    : budget_(budget_bytes),
      staging_limit_(staging_bytes),
      notify_(std::make_unique<Notify>()),
      slabs_(std::make_unique<SlabStore>()) {
  if (backing == Backing::anonymous) return;
  segments_ = std::make_unique<SegmentStore>(segment_bytes(budget_bytes));
}

RamPool::~RamPool() = default;

std::shared_ptr<RamPool> RamPool::create(uint64_t budget_bytes, uint64_t staging_bytes,
                                         Backing backing) {
  KV_CHECK(staging_bytes > 0 && staging_bytes <= budget_bytes);
  return std::shared_ptr<RamPool>(new RamPool(budget_bytes, staging_bytes, backing));
}

uint64_t RamPool::set_aside_bytes() const {
  if (!segments_) return 0;
  return std::max(segments_->fixed_idle_bytes(), budget_ / kSetAsideShare);
}

bool RamPool::may_announce(uint32_t segment) const {
  if (!segments_) return false;
  // A process that keeps retired ones mapped takes from its namespace's part alone.
  const uint64_t idle = segments_->fixed_idle_bytes() - segments_->retired_idle_bytes() +
                        segments_->idle_once_announced(segment);
  const uint64_t all = segments_->announced_bytes() + segments_->bytes_once_announced(segment);
  return idle <= budget_ / kSetAsideShare && all <= budget_ / kAnnouncedShare;
}

bool RamPool::segments_idle() const {
  return segments_ &&
         segments_->fixed_idle_bytes() - segments_->retired_idle_bytes() > budget_ / kSetAsideShare;
}

std::optional<Charge> RamPool::try_charge(ChargeKind kind, uint64_t bytes, Payer payer) {
  auto& account = accounts_[static_cast<size_t>(kind)];
  const uint64_t budget = budget_bytes();
  uint64_t cap = kind == ChargeKind::staging ? staging_limit_ : budget;
  uint64_t have = account.load();
  do {
    if (bytes > cap || have > cap - bytes) return std::nullopt;
  } while (!account.compare_exchange_weak(have, have + bytes));
  uint64_t used = used_.load();
  do {
    if (bytes > budget || used > budget - bytes) {
      account.fetch_sub(bytes);
      return std::nullopt;
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  uint64_t now = used + bytes, peak = peak_.load();
  while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
  }
  if (kind != ChargeKind::stored) backed_.fetch_add(bytes);
  auto* of_payer = account_of(kind, payer);
  if (of_payer) of_payer->fetch_add(bytes);
  if (!of_payer) payer = 0;
  return Charge(shared_from_this(), kind, payer, bytes);
}

uint64_t RamPool::spare_bytes(ChargeKind kind, uint64_t bytes) const {
  const uint64_t live = backed_bytes() + (kind == ChargeKind::stored ? bytes : 0);
  const uint64_t most = most_idle_bytes(live), have = recycled_bytes();
  return most - std::min(most, have);
}

uint64_t RamPool::most_idle_bytes(uint64_t live_bytes) const {
  const uint64_t most = std::max(budget_ / kRecycledShare, used_bytes() / kRecycledShareInUse);
  return std::min(budget_ - std::min(budget_, live_bytes), most);
}

uint64_t RamPool::slab_bytes(size_t size) {
  return round_up(std::max<size_t>(size, 1), size < kPageBytes ? kSlabAlign : kPageBytes);
}

PoolBuffer RamPool::allocate(size_t size, Charge& charge, std::string_view ns) {
  uint64_t bytes = slab_bytes(size);
  PoolBuffer out;
  out.slab_ =
      std::make_shared<PoolBuffer::Slab>(shared_from_this(), charge.split(bytes), bytes, ns);
  // Recycled slabs are the process's memory too: with this buffer they stay within the budget.
  keep_waiting(budget_ - std::min(budget_, backed_bytes()));
  out.data_ = out.slab_->data;
  out.size_ = size;
  return out;
}

void RamPool::keep_waiting(uint64_t most_bytes) noexcept {
  if (!segments_) return slabs_->trim(most_bytes);
  const uint64_t in_segments = segments_->idle_bytes() + segments_->fixed_idle_bytes();
  slabs_->trim(most_bytes - std::min(most_bytes, in_segments));
  segments_->trim(most_bytes - std::min(most_bytes, slabs_->bytes()));
}

bool RamPool::lacks_ready(uint64_t bytes) const {
  if (segments_) return false;  // the namespace is not known beforehand
  uint64_t have = recycled_bytes() + kRegionBytes;
  return have <= std::min(bytes, budget_ / kRecycledShare) && backed_bytes() <= budget_ - have;
}

void RamPool::make_ready(uint64_t bytes) noexcept try {
  while (lacks_ready(bytes)) {
    // Charged until it is among those that wait: what others allocate meanwhile keeps off it.
    auto charge = try_charge(ChargeKind::promotion, kRegionBytes);
    if (!charge) return;
    slabs_->prepare();
  }
} catch (const std::bad_alloc&) {  // without memory none is ready
}

void RamPool::trim() {
  keep_waiting(0);
  trim_heap();
}

// Calls run one at a time: where another allocator replaces glibc's (ThreadSanitizer), two first
// calls would race to set that up.
void trim_heap() {
  static std::mutex one_at_a_time;
  std::lock_guard lock(one_at_a_time);
  (void)::malloc_trim(0);
}

uint64_t RamPool::recycled_bytes() const {
  if (!segments_) return slabs_->bytes();
  return slabs_->bytes() + segments_->idle_bytes() + segments_->fixed_idle_bytes();
}

void RamPool::on_release(std::function<void()> released) {
  std::lock_guard lock(notify_->mutex);
  notify_->released = std::move(released);
}

std::atomic<uint64_t>* RamPool::account_of(ChargeKind kind, Payer payer) {
  KV_CHECK(payer < kMaxPayers);
  if (kind == ChargeKind::staging) return &staging_of_[payer];
  return kind == ChargeKind::reply ? &replies_of_[payer] : nullptr;
}

uint64_t RamPool::used_bytes(ChargeKind kind, Payer payer) const {
  KV_CHECK(kind == ChargeKind::staging || kind == ChargeKind::reply);
  return (kind == ChargeKind::staging ? staging_of_ : replies_of_).at(payer);
}

void RamPool::give_back(ChargeKind kind, Payer payer, uint64_t bytes) {
  if (auto* of_payer = account_of(kind, payer)) of_payer->fetch_sub(bytes);
  if (kind != ChargeKind::stored) backed_.fetch_sub(bytes);
  accounts_[static_cast<size_t>(kind)].fetch_sub(bytes);
  used_.fetch_sub(bytes);
  if (!notify_armed_.load() || !notify_armed_.exchange(false)) return;
  std::lock_guard lock(notify_->mutex);
  if (notify_->released) notify_->released();
}

}  // namespace kv
