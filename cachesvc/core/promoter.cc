// Reads under way, their time limits, and their results.
#include "cachesvc/core/promoter.h"

#include <algorithm>

#include "storage/file_names.h"

namespace kv {

Room Promoter::room_for(const Record& record) {
  Room room;
  room.share = record.share;
  room.stored = RamPool::slab_bytes(record.payload_bytes);
  // Upper bound of packed bytes, unpacked bytes and the read buffer.
  room.promotion = record.file.bytes + record.payload_bytes;
  return room;
}

Promoter::Promotion* Promoter::find(const ObjectName& name, uint64_t serial) {
  auto it = promotions_.find(name);
  return it != promotions_.end() && it->second.serial == serial ? &it->second : nullptr;
}

bool Promoter::promoting(const Record& record) const {
  auto it = promotions_.find(record.name);
  return it != promotions_.end() && it->second.serial == record.serial;
}

void Promoter::join(const Record& record, Done done) {
  promotions_.at(record.name).waiters.push_back(std::move(done));
  ++env_.count.promotion_joins;
}

void Promoter::promote(Record& record, Charge stored, Charge promotion, Done done,
                       std::shared_ptr<const void> held) {
  KV_CHECK(record.on_ssd() && !record.ram && record.realm);
  if (promoting(record)) return join(record, std::move(done));
  auto job = std::make_shared<ReadJob>();
  job->ssd = lane_.ssd();
  job->model = record.realm->model;
  job->profile = record.realm->profile;
  job->pool = env_.pool;
  job->name = record.name;
  job->stored = std::move(stored);
  job->promotion = std::move(promotion);
  job->held = std::move(held);
  Promotion& p = promotions_[record.name] = {};
  p.serial = record.serial;
  p.pins = Pins(env_, index_, {&record});
  p.waiters.push_back(std::move(done));
  p.job = job;
  p.watch = std::make_unique<Timer>(
      env_.loop,
      env_.handler([this, name = record.name, serial = record.serial] { look(name, serial); }));
  watch(p, env_.options.io_timeout);
  ++env_.count.promotions;
  auto read = env_.task([job] { return job->run(); },
                        [this, job, serial = record.serial](Result<RamObject> result) {
                          reads_.ended();
                          returned(job, serial, std::move(result));
                        });
  reads_.submit(record.realm->realm.ns, record.file.bytes, std::move(read));
}

void Promoter::check_invariants() const {
  for (const auto& [name, p] : promotions_) {
    KV_CHECK(!p.waiters.empty() && p.watch->armed());
    KV_CHECK(p.job->name == name && !p.job->late);
    const Record* r = index_.find(PinnedName{name, p.serial});
    KV_CHECK(!r || r->pins > 0);
  }
  reads_.check_invariants();
}

void Promoter::watch(Promotion& p, Clock::duration limit) {
  p.ended_before = ended_;
  p.watch->arm_in(limit);
}

// A promotion ends without its read if the read has run for io_timeout, or waits and no other read
// has ended meanwhile. A read that has begun keeps its reservations: its memory is in use.
void Promoter::look(const ObjectName& name, uint64_t serial) {
  Promotion* p = find(name, serial);
  if (!p) return;
  const auto limit = env_.options.io_timeout;
  ReadJob& job = *p->job;
  if (job.state == ReadJob::State::waiting && p->ended_before != ended_) return watch(*p, limit);
  if (job.take(ReadJob::State::given_up)) {
    job.release();
  } else {
    auto ran = std::chrono::duration_cast<Milliseconds>(Clock::now() - job.began.load());
    if (ran < limit) return watch(*p, limit - ran);
  }
  job.late = true;
  if (++late_ == 1) env_.event(EventKind::hang, [&] { return "a read of " + file_name(name); });
  ++env_.count.io_timeouts;
  end(name, serial,
      Status(StatusCode::io_error,
             "the read took longer than io_timeout, " + std::to_string(limit.count()) + " ms"));
}

void Promoter::returned(const std::shared_ptr<ReadJob>& job, uint64_t serial,
                        Result<RamObject> result) {
  ++ended_;
  if (!job->late) return end(job->name, serial, std::move(result));
  if (--late_ == 0) env_.event(EventKind::hang_over, [] { return "reads"; });
  if (!result.ok()) late_word(*job, serial, result.status());
  env_.progress();
}

// Applies the failure of a late read, after its waiters were answered. The file may be a newer one
// than was read: a record verified meanwhile is only doubted.
void Promoter::late_word(const ReadJob& job, uint64_t serial, const Status& status) {
  Record* known = index_.find(PinnedName{job.name, serial});
  if (!known) return;
  if (known->verified() && !known->ram) return records_.doubt(*known);
  lose_file(*known, status);
}

void Promoter::end(const ObjectName& name, uint64_t serial, Result<RamObject> result) {
  auto it = promotions_.find(name);
  if (it == promotions_.end() || it->second.serial != serial) return;
  Promotion p = std::move(it->second);
  promotions_.erase(it);
  Record* record = index_.find(PinnedName{p.job->name, serial});
  Status status = record ? result.status() : Status(StatusCode::not_found, "was erased");
  if (record && status.ok()) {
    records_.read(*record, *result);
    measure(p);
  }
  if (record && !status.ok()) failed(*record, status);
  p.pins.release();
  for (auto& waiter : p.waiters) waiter(status);
  env_.progress();
}

void Promoter::measure(const Promotion& p) const {
  env_.measures.promotion.add(Measures::microseconds(Clock::now() - p.begun));
  env_.measures.read_wait.add(Measures::microseconds(p.job->began.load() - p.begun));
}

void Promoter::failed(Record& record, const Status& status) {
  ++env_.count.promotion_failures;
  if (lose_file(record, status) || status.code() == StatusCode::busy) return;
  ++env_.count.read_io_errors;
  env_.event(EventKind::read_failed,
             [&] { return file_name(record.name) + ": " + status.message(); });
  records_.unreadable(record, Clock::now() + env_.options.io_backoff);
}

// True if the read has found the file missing or wrong. `unsupported`: a file of another version or
// key, which a new store replaces.
bool Promoter::lose_file(Record& record, const Status& status) {
  StatusCode code = status.code();
  if (code != StatusCode::corruption && code != StatusCode::not_found &&
      code != StatusCode::unsupported) {
    return false;
  }
  lane_.lost().note(record.name);
  // A file that does not verify is in quarantine already; one that verifies and still does not fit
  // its model goes there now.
  if (code == StatusCode::corruption) {
    lane_.run([ssd = lane_.ssd(), name = record.name] { return ssd->quarantine(name); },
              [](Status) {});
    ++env_.count.quarantined;
    env_.event(EventKind::quarantined,
               [&] { return file_name(record.name) + ": " + status.message(); });
  }
  spiller_.file_lost(record,
                     code == StatusCode::corruption ? Missing::damaged : Missing::file_gone);
  return true;
}

}  // namespace kv
