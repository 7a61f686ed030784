// Ledger: bytes that the store's directory has allocated, and bytes promised to writes under way.
//
// Invariant: used + reserved never exceeds limit through reserve(); bookkeeping that must not fail
// (deletes) may take from the headroom below the limit. Any thread.
#pragma once

#include <cstdint>
#include <mutex>

namespace kv {

class Ledger {
 public:
  Ledger(uint64_t limit_bytes, uint64_t headroom_bytes)
      : limit_(limit_bytes), headroom_(headroom_bytes) {}

  /// Promises `bytes` to a write, or returns false if they don't fit below limit - headroom.
  bool reserve(uint64_t bytes);
  /// Promises without asking: for bookkeeping whose bound is far below the headroom.
  void reserve_always(uint64_t bytes);
  /// Ends a promise without a write.
  void unreserve(uint64_t bytes);
  /// A measured part of the directory changed its allocated bytes.
  void replace(uint64_t old_bytes, uint64_t new_bytes);
  void add(uint64_t bytes) { replace(0, bytes); }
  void remove(uint64_t bytes) { replace(bytes, 0); }

  uint64_t limit() const { return limit_; }
  uint64_t used() const;
  uint64_t reserved() const;
  /// Bytes that reserve() would still grant.
  uint64_t left() const;

 private:
  const uint64_t limit_;
  const uint64_t headroom_;
  mutable std::mutex mutex_;  // guards the two sums
  uint64_t used_ = 0;
  uint64_t reserved_ = 0;
};

}  // namespace kv
