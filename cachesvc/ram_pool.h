// RamPool: one ledger over all live bytes of the service, and the buffers that they lie in.
//
// Every byte that the service owns is charged before it is allocated, and the charge goes back when
// the last reference dies, on whatever thread that is. used_bytes() <= budget_bytes(), always.
// Buffers are slabs of a SlabStore, in huge pages where the system has them; freed slabs wait there
// for reuse. Backed by segments, a namespace's buffers of a page or more lie in its segments
// (memory/segment.h), as far as there may be another one; the rest in slabs. Free memory of
// announced segments can't go back: with segments an eighth of the budget is set aside for it, more
// while it is more, and budget_bytes() is the rest. At most half of the budget is announced, so
// that freed bytes of the other half can serve any namespace. Any thread may call anything here.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "memory/segment_store.h"
#include "memory/slab_store.h"
#include "proto/bytes.h"
#include "proto/status.h"

namespace kv {

/// Purposes of bytes. Gauges in stats have these names.
enum class ChargeKind : uint8_t {
  stored = 0,  ///< planes and states of objects, visible or finished and waiting for their commit
  staging,     ///< bytes in transit or in encoding; together at most the staging limit
  promotion,   ///< file bytes being read and unpacked
  spill,       ///< packed bytes on their way to the SSD
  reply,       ///< planes decoded for a client
  index,       ///< tokens, names and tree nodes of objects in any tier
  session,     ///< connections: short requests and replies
  model,       ///< models, profiles and codecs that are open or stored of
};
inline constexpr size_t kChargeKinds = 8;
/// Number of whoever a charge is for; 0: all who have none of their own.
using Payer = uint16_t;
inline constexpr size_t kMaxPayers = 257;
const char* to_string(ChargeKind kind);

/// Idle memory of announced segments is at most budget / kSetAsideShare.
inline constexpr uint64_t kSetAsideShare = 8;

/// Memory of buffers that are allocated for a namespace.
enum class Backing : uint8_t { anonymous, segments };

/// Gives what the allocator keeps back to the system. May take milliseconds.
void trim_heap();

class RamPool;

/// A right to `bytes()` bytes of the budget; gives them back when destroyed. Move-only: counted
/// once.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept { *this = std::move(other); }
  Charge& operator=(Charge&& other) noexcept;
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { release(); }

  uint64_t bytes() const { return bytes_; }
  ChargeKind kind() const { return kind_; }
  void release();
  /// Takes `bytes` of this charge out into one of its own. `bytes` <= bytes().
  Charge split(uint64_t bytes);
  /// Adds `other`'s bytes, of the same kind, payer and pool.
  void merge(Charge other);

 private:
  friend class RamPool;
  Charge(std::shared_ptr<RamPool> pool, ChargeKind kind, Payer payer, uint64_t bytes)
      : pool_(std::move(pool)), kind_(kind), payer_(payer), bytes_(bytes) {}
  std::shared_ptr<RamPool> pool_;
  ChargeKind kind_ = ChargeKind::stored;
  Payer payer_ = 0;
  uint64_t bytes_ = 0;
};

/// Writable bytes with their charge; frozen once they are complete. Move-only: one writer.
class PoolBuffer {
 public:
  PoolBuffer() = default;
  uint8_t* data() { return data_; }
  size_t size() const { return size_; }
  /// The bytes as an immutable value; the charge lives as long as any slice of it.
  Bytes freeze() &&;

 private:
  friend class RamPool;
  struct Slab;
  std::shared_ptr<Slab> slab_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

class RamPool : public std::enable_shared_from_this<RamPool> {
 public:
  /// `staging_bytes` caps the staging account. 0 < staging_bytes <= budget_bytes.
  static std::shared_ptr<RamPool> create(uint64_t budget_bytes, uint64_t staging_bytes,
                                         Backing backing = Backing::anonymous);
  ~RamPool();
  RamPool(const RamPool&) = delete;  // charges point here
  RamPool& operator=(const RamPool&) = delete;

  /// nullopt if the budget (or the staging limit) has no room for all of it. `payer`: counted of
  /// staging and replies alone.
  std::optional<Charge> try_charge(ChargeKind kind, uint64_t bytes, Payer payer = 0);
  /// `size` bytes, uninitialised, paid for out of `charge` (which has at least slab_bytes(size)).
  /// `ns`: the namespace whose clients may map it; empty: nobody else may see it.
  PoolBuffer allocate(size_t size, Charge& charge, std::string_view ns = {});
  /// Bytes that a buffer of `size` takes from the ledger.
  static uint64_t slab_bytes(size_t size);

  /// Bytes that may be charged now.
  uint64_t budget_bytes() const { return budget_ - std::min(budget_, set_aside_bytes()); }
  /// Bytes that may be charged at most, at any time.
  uint64_t most_bytes() const { return segments_ ? budget_ - budget_ / kSetAsideShare : budget_; }
  uint64_t free_bytes() const {
    const uint64_t budget = budget_bytes();
    return budget - std::min(budget, used_bytes());
  }
  uint64_t staging_limit_bytes() const { return staging_limit_; }
  uint64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  uint64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  uint64_t used_bytes(ChargeKind kind) const {
    return accounts_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
  }
  /// Bytes of one payer. Precondition: `kind` is staging or reply: the others' payers are not
  /// counted.
  uint64_t used_bytes(ChargeKind kind, Payer payer) const;
  /// Charged bytes less those charged as `stored` that are no slab yet: at most used_bytes().
  /// Recycled slabs thus stay in place while memory is reserved for a promotion, which takes them.
  uint64_t backed_bytes() const { return backed_.load(std::memory_order_relaxed); }
  /// Null: the pool has none.
  SegmentStore* segments() const { return segments_.get(); }
  /// True if with this segment announced ones stay within their limit, and their idle memory within
  /// what is set aside.
  bool may_announce(uint32_t segment) const;
  /// True if announced segments have more free memory than is set aside: one should be retired.
  bool segments_idle() const;
  /// Slabs kept for reuse, uncharged: freed bytes that the process still holds. With
  /// backed_bytes() at most the budget.
  uint64_t recycled_bytes() const;
  /// Fills recycled slabs up to about `bytes`, with fresh memory if there are fewer: the next
  /// allocation waits for no page faults. Less where the budget (or the recycled slabs' share of
  /// it) has no room. Takes milliseconds.
  void make_ready(uint64_t bytes) noexcept;
  /// True if make_ready(bytes) has anything to do.
  bool lacks_ready(uint64_t bytes) const;
  /// Gives recycled slabs, and what the allocator keeps, back to the system. May take milliseconds.
  void trim();

  /// `released` is called after the first release of bytes that follows notify_once(), on the
  /// releasing thread, under a lock. It may not throw, nor touch the pool: post somewhere.
  void on_release(std::function<void()> released);
  void notify_once() { notify_armed_.store(true); }

 private:
  friend class Charge;
  friend class PoolBuffer;
  RamPool(uint64_t budget_bytes, uint64_t staging_bytes, Backing backing);
  uint64_t set_aside_bytes() const;
  uint64_t most_idle_bytes(uint64_t live_bytes) const;
  uint64_t spare_bytes(ChargeKind kind, uint64_t bytes) const;
  void keep_waiting(uint64_t most_bytes) noexcept;
  void give_back(ChargeKind kind, Payer payer, uint64_t bytes);
  /// Null: payers of the kind are not counted.
  std::atomic<uint64_t>* account_of(ChargeKind kind, Payer payer);

  const uint64_t budget_;
  const uint64_t staging_limit_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> peak_{0};
  std::atomic<uint64_t> backed_{0};  ///< live slabs of `stored`, and all other charges
  std::array<std::atomic<uint64_t>, kChargeKinds> accounts_{};
  std::array<std::atomic<uint64_t>, kMaxPayers> staging_of_{}, replies_of_{};
  std::atomic<bool> notify_armed_{false};
  struct Notify;
  std::unique_ptr<Notify> notify_;
  std::unique_ptr<SlabStore> slabs_;
  std::unique_ptr<SegmentStore> segments_;
};

}  // namespace kv
