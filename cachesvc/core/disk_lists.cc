// Lists and their sums. See disk_lists.h.
#include "cachesvc/core/disk_lists.h"

namespace kv {
namespace {

bool in_queue(Disk state) { return state == Disk::queued || state == Disk::writing; }

}  // namespace

void DiskLists::enter(Record& record) {
  KV_CHECK(!listed(record));
  list(record.disk).push_back(record);
  ++counts_[static_cast<size_t>(record.disk)];
  if (in_queue(record.disk)) queue_bytes_ += record.payload_bytes;
}

void DiskLists::leave(Record& record) {
  if (!listed(record)) return;
  record.disk_hook.unlink();
  --counts_[static_cast<size_t>(record.disk)];
  if (in_queue(record.disk)) queue_bytes_ -= record.payload_bytes;
}

Record* DiskLists::first(Disk state) {
  return list(state).empty() ? nullptr : &list(state).front();
}

void DiskLists::order_queue(const std::function<bool(const Record&, const Record&)>& before) {
  list(Disk::queued).sort(before);
}

void DiskLists::check_invariants() const {
  uint64_t in_queue_bytes = 0;
  for (size_t i = 0; i < kDiskStates; ++i) {
    size_t count = 0;
    for (const Record& r : lists_[i]) {
      ++count;
      KV_CHECK(r.disk == static_cast<Disk>(i));
      if (in_queue(r.disk)) in_queue_bytes += r.payload_bytes;
    }
    KV_CHECK(count == counts_[i]);
  }
  KV_CHECK(in_queue_bytes == queue_bytes_);
}

}  // namespace kv
