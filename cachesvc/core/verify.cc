// verify: objects in RAM against the checksum that they were stored with, on workers: one in
// verify_hits uses of each before it is served; spills (_spill) and copies (_put) always. What a
// check finds damaged leaves RAM: its file on the SSD serves instead, or it is a miss.
#include "cachesvc/core/impl.h"

namespace kv {

// Each object has its own turn, so that no fetch has all of a long prefix checked at once.
bool CacheCore::Impl::due(const Record& record) const {
  uint32_t every = options_.verify_hits;
  return every > 0 && record.ram && (record.uses + record.serial) % every == 0;
}

void CacheCore::Impl::verify_ram(const Record& record, std::function<void()> done) {
  ++count_.ram_verified;
  PinnedName which{record.name, record.serial};
  on_worker([object = record.ram] { return intact(object); },
            [this, which, object = record.ram.object, done = std::move(done)](bool good) {
              Record* r = good ? nullptr : find_pinned(which);
              if (r && r->ram.object == object) lose_ram(*r);
              done();
            });
}

void CacheCore::Impl::lose_ram(Record& record) noexcept {
  ++count_.ram_damaged;
  event(EventKind::ram_damaged, [&] { return file_name(record.name); });
  if (if_memory([&] { leave_ram(record); })) return;
  // No memory to note the file that is there: erases say that one may be left.
  ++recovery_.unreadable_objects;
  records_.remove(record);
}

}  // namespace kv
