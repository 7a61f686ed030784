// The order of the times.
#include "cachesvc/core/expiries.h"

namespace kv {

void Expiries::set(Record& record, uint64_t at, Charge charge) {
  if (!record.expiry) {
    record.expiry = std::make_unique<Expiry>();
    record.expiry->charge = std::move(charge);
  }
  record.expiry->unlink();
  record.expiry->at = at;
  record.expiry->record = &record;
  order_.insert(*record.expiry);
}

bool Expiries::lift(Record& record) {
  if (!record.expiry) return false;
  record.expiry.reset();
  return true;
}

Record* Expiries::next() { return order_.empty() ? nullptr : order_.begin()->record; }

void Expiries::check_invariants() const {
  for (const Expiry& each : order_) KV_CHECK(each.record->expiry.get() == &each);
}

uint64_t wall_seconds(const Env& env) {
  const auto now =
      env.options.wall_clock ? env.options.wall_clock() : std::chrono::system_clock::now();
  const auto whole = std::chrono::floor<std::chrono::seconds>(now.time_since_epoch());
  return static_cast<uint64_t>(std::max<int64_t>(0, whole.count()));
}

}  // namespace kv
