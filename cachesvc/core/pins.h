// Pins: keep records in the index while an operation uses them; given back on the loop.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cachesvc/core/env.h"
#include "cachesvc/core/object_index.h"

namespace kv {

/// Pins of one operation. Move-only: given back once. Loop thread only.
class Pins {
 public:
  Pins() = default;
  Pins(Env& env, ObjectIndex& index) : env_(env.weak_from_this()), index_(&index) {}
  Pins(Env& env, ObjectIndex& index, const std::vector<Record*>& records) : Pins(env, index) {
    names_.reserve(records.size());
    for (Record* r : records) add(*r);
  }
  Pins(Pins&& other) noexcept { *this = std::move(other); }
  Pins& operator=(Pins&& other) noexcept {
    if (this == &other) return *this;
    release();
    env_ = std::move(other.env_);
    index_ = other.index_;
    names_ = std::exchange(other.names_, {});
    return *this;
  }
  ~Pins() { release(); }

  void add(Record& record) {
    names_.push_back({record.name, record.serial});
    index_->tiers().pin(record);
  }
  void release() { release_some(names_.size()); }
  /// Gives back the last `most` of them. Returns: some are left.
  bool release_some(size_t most) {
    const size_t left = names_.size() - std::min(names_.size(), most);
    auto env = env_.lock();
    if (env && !env->closed() && left < names_.size()) {
      for (size_t i = left; i < names_.size(); ++i) {
        if (Record* r = index_->find(names_[i])) index_->tiers().unpin(*r);
      }
      env->room_freed();
    }
    names_.erase(names_.begin() + static_cast<ptrdiff_t>(left), names_.end());
    return left > 0;
  }
  /// True if none of its records was erased.
  bool all_there() const {
    return std::all_of(names_.begin(), names_.end(),
                       [this](const PinnedName& name) { return index_->find(name) != nullptr; });
  }
  bool has(const Record& record) const {
    return std::any_of(names_.begin(), names_.end(), [&](const PinnedName& name) {
      return name.serial == record.serial && name.name == record.name;
    });
  }
  /// Drops the pins without giving them back: the core is closed.
  void forget() { env_.reset(); }

 private:
  std::weak_ptr<Env> env_;
  ObjectIndex* index_ = nullptr;
  std::vector<PinnedName> names_;
};

/// Owner of the pins that may die on any thread; they are given back on the loop, some in each
/// handler.
std::shared_ptr<const void> keep(Env& env, Pins pins);

}  // namespace kv
