// The write budget: spills wait for it, and while they do, what was reused goes first.
#include <algorithm>

#include "cachesvc/cache_core_impl.h"

namespace kv {

// True if nothing may be written now; whoever asked is called again when something may.
bool CacheCore::Impl::hold_spills() {
  if (!budget_.limited()) return false;
  if (writing_) return true;  // what it writes counts first
  auto now = Clock::now(), at = budget_.next(now);
  if (at <= now) {
    order_by_use();
    return false;
  }
  if (budget_timer_) return true;
  ++count_.spills_held;
  budget_timer_ = std::make_unique<boost::asio::steady_timer>(loop_, at);
  budget_timer_->async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (error || !self || self->closed_) return;
    self->budget_timer_.reset();
    self->pump_spill();
    self->check_drained();
  });
  later([this] { check_commit_waits(); });
  return true;
}

// Nothing will be written for as long as anybody may be made to wait for room.
bool CacheCore::Impl::held_up() const {
  auto now = Clock::now();
  return writes_hang() || (budget_.limited() && budget_.next(now) > now + options_.room_wait);
}

// An object counts as much as the most used one that rests on it, so parents stay before children.
void CacheCore::Impl::order_by_use() {
  std::map<const Record*, uint32_t> uses;
  for (const PinnedName& which : spill_queue_) {
    Record* r = find_pinned(which);
    uint32_t own = r ? r->uses : 0;
    for (Record* at = r; at && at->spill_queued; at = index_.parent_of(*at)) {
      auto [it, fresh] = uses.try_emplace(at, own);
      if (!fresh && it->second >= own) break;
      it->second = own;
    }
  }
  std::vector<std::pair<uint32_t, PinnedName>> ordered;
  ordered.reserve(spill_queue_.size());
  for (const PinnedName& which : spill_queue_) {
    auto it = uses.find(find_pinned(which));
    ordered.emplace_back(it == uses.end() ? 0 : it->second, which);
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::transform(ordered.begin(), ordered.end(), spill_queue_.begin(),
                 [](const auto& item) { return item.second; });
}

void CacheCore::Impl::charge_writes() {
  uint64_t written = ssd_->stats().device_bytes_written;
  budget_.spent(written - std::min(written, charged_writes_), Clock::now());
  charged_writes_ = written;
}

}  // namespace kv
