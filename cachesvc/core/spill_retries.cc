// Tries of what failed. See spill_retries.h.
#include "cachesvc/core/spill_retries.h"

#include <utility>

namespace kv {

SpillRetries::SpillRetries(Env& env, Records& records)
    : env_(env), records_(records), timer_(env.loop, env.handler([this] {
        retry(std::exchange(works_, false) ? SIZE_MAX : 1);
        then_();
      })) {}

void SpillRetries::failed(Record& record) {
  ++env_.count.spills_failed;
  records_.fail_write(record);
  arm();
}

void SpillRetries::arm() {
  if (env_.draining() || timer_.armed() || !records_.first(Disk::failed)) return;
  timer_.arm_in(env_.options.io_backoff);
}

void SpillRetries::retry(size_t most) {
  for (size_t tried = 0; tried < most; ++tried) {
    Record* r = records_.first(Disk::failed);
    if (!r) return;
    records_.wait(*r);
  }
}

}  // namespace kv
