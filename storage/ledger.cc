// The ledger's sums.
#include "storage/ledger.h"

#include "proto/status.h"

namespace kv {

bool Ledger::reserve(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  uint64_t taken = used_ + reserved_ + headroom_;
  if (taken > limit_ || bytes > limit_ - taken) return false;
  reserved_ += bytes;
  return true;
}

void Ledger::reserve_always(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  reserved_ += bytes;
}

void Ledger::unreserve(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  KV_CHECK(bytes <= reserved_);
  reserved_ -= bytes;
}

void Ledger::replace(uint64_t old_bytes, uint64_t new_bytes) {
  std::lock_guard lock(mutex_);
  // A file that shrank behind our back must not wrap the sum.
  used_ = used_ > old_bytes ? used_ - old_bytes : 0;
  used_ += new_bytes;
}

uint64_t Ledger::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

uint64_t Ledger::reserved() const {
  std::lock_guard lock(mutex_);
  return reserved_;
}

uint64_t Ledger::left() const {
  std::lock_guard lock(mutex_);
  uint64_t taken = used_ + reserved_ + headroom_;
  return taken >= limit_ ? 0 : limit_ - taken;
}

}  // namespace kv
