// Ages in whole seconds; 0 in a record: not known.
#include "cachesvc/core/ages.h"

namespace kv {

void note_birth(const Env& env, Record& record) {
  record.age.stored = record.age.used = env.seconds();
}

void note_uses(const Env& env, const std::vector<Record*>& records) {
  const uint32_t now = env.seconds();
  for (Record* r : records) {
    if (r->age.used > 0) env.measures.reuse_gap.add(now - r->age.used);
    r->age.used = now;
  }
}

void note_eviction(const Env& env, const Record& record, Leaves tier, bool gone) {
  const uint32_t now = env.seconds();
  Histogram& idle = tier == Leaves::ram ? env.measures.idle_ram : env.measures.idle_ssd;
  if (record.age.used > 0) idle.add(now - record.age.used);
  if (gone && record.age.stored > 0) env.measures.lifetime.add(now - record.age.stored);
}

}  // namespace kv
