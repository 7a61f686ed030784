// The order of the times.
#include "cachesvc/core/expiries.h"

namespace kv {

void Expiries::set(Record& record, uint64_t at, Charge charge) {
  if (!record.wishes.expiry) {
    record.wishes.expiry = std::make_unique<Expiry>();
    record.wishes.expiry->charge = std::move(charge);
  }
  record.wishes.expiry->unlink();
  record.wishes.expiry->at = at;
  record.wishes.expiry->record = &record;
  order_.insert(*record.wishes.expiry);
}

bool Expiries::lift(Record& record) {
  if (!record.wishes.expiry) return false;
  record.wishes.expiry.reset();
  return true;
}

Record* Expiries::next() { return order_.empty() ? nullptr : order_.begin()->record; }

void Expiries::check_invariants() const {
  for (const Expiry& each : order_) KV_CHECK(each.record->wishes.expiry.get() == &each);
}

uint64_t wall_seconds(const Env& env) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(env.wall_now().time_since_epoch());
  return static_cast<uint64_t>(std::max<int64_t>(0, whole.count()));
}

}  // namespace kv
