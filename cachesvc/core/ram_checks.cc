// Checks of objects in RAM.
#include "cachesvc/core/ram_checks.h"

#include <utility>

#include "storage/file_names.h"

namespace kv {

bool RamChecks::due(const Record& record, Clock::time_point now) const {
  return record.ram && now - record.use.checked >= env_.options.verify_after;
}

void RamChecks::check(const std::vector<Record*>& records, std::function<void()> done) {
  struct Checked {
    PinnedName name;
    RamObject object;  // let go on the worker
    const Object* which;
  };
  auto all = std::make_shared<std::vector<Checked>>();
  all->reserve(records.size());
  for (Record* r : records) {
    index_.tiers().checked(*r);
    all->push_back({{r->name, r->serial}, r->ram, r->ram.object.get()});
  }
  env_.count.ram_verified += all->size();
  auto job = [all] {
    std::vector<bool> good;
    for (Checked& c : *all) good.push_back(intact(std::exchange(c.object, {})));
    return good;
  };
  env_.on_worker(job, [this, all, done = std::move(done)](std::vector<bool> good) {
    for (size_t i = 0; i < good.size(); ++i) {
      const Checked& c = (*all)[i];
      Record* r = good[i] ? nullptr : index_.find(c.name);
      if (r && r->ram.object.get() == c.which) damaged(*r);
    }
    done();
  });
}

void RamChecks::damaged(Record& record) {
  ++env_.count.ram_damaged;
  env_.event(EventKind::ram_damaged, [&] { return file_name(record.name); });
  recency_.leave_ram(record, {Missing::damaged});
}

}  // namespace kv
