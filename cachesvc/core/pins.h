// Pins of records: what a process uses stays in the index until it ends. Internal to
// cachesvc/cache_core*; loop thread only.
#pragma once

#include <memory>
#include <vector>

#include "cachesvc/core/cache_core.h"
#include "proto/plane.h"

namespace kv {

/// A pin that knows which record it is for, even after that one is gone.
struct PinnedName {
  ObjectName name;
  uint64_t serial;
};

/// Pins of one process, given back when it ends, on the loop.
class Pins {
 public:
  Pins() = default;
  explicit Pins(std::weak_ptr<CacheCore::Impl> core) : core_(std::move(core)) {}
  Pins(Pins&& other) noexcept { *this = std::move(other); }
  Pins& operator=(Pins&& other) noexcept;
  ~Pins() { release(); }
  void release() noexcept;
  void forget() noexcept { core_.reset(); }  ///< the core is closed: nothing to give back

 private:
  friend class CacheCore::Impl;
  std::weak_ptr<CacheCore::Impl> core_;
  std::vector<PinnedName> names_;
};

}  // namespace kv
