// Checks of objects in RAM, on workers.
#include "cachesvc/core/ram_checks.h"

#include "storage/file_names.h"

namespace kv {

// Each object has its own turn, so that no fetch has all of a long prefix checked at once.
bool RamChecks::due(const Record& record) const {
  uint32_t every = env_.options.verify_hits;
  return every > 0 && record.ram && (record.uses + record.serial) % every == 0;
}

void RamChecks::check(const Record& record, std::function<void()> done) {
  ++env_.count.ram_verified;
  PinnedName which{record.name, record.serial};
  env_.on_worker([object = record.ram] { return intact(object); },
                 [this, which, object = record.ram.object, done = std::move(done)](bool good) {
                   Record* r = good ? nullptr : index_.find(which);
                   if (r && r->ram.object == object) damaged(*r);
                   done();
                 });
}

void RamChecks::damaged(Record& record) {
  ++env_.count.ram_damaged;
  env_.event(EventKind::ram_damaged, [&] { return file_name(record.name); });
  recency_.leave_ram(record);
}

}  // namespace kv
