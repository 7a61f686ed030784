// Promoter: reads objects from the SSD into RAM, one verified read per object, however many calls
// wait for it. RAM is reserved before the read. A read that takes longer than io_timeout fails for
// its waiters; until it returns no other read begins, and its late failure only raises a doubt if
// the file may be a newer one. Namespaces take turns at the disk. Loop thread only.
#pragma once

#include <map>

#include "cachesvc/core/fair_tasks.h"
#include "cachesvc/core/pins.h"
#include "cachesvc/core/read_job.h"
#include "cachesvc/core/room_request.h"
#include "cachesvc/core/spiller.h"

namespace kv {

class Promoter {
 public:
  using Done = std::function<void(Status)>;

  Promoter(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, Spiller& spiller)
      : env_(env),
        index_(index),
        records_(records),
        lane_(lane),
        spiller_(spiller),
        reads_(env.disk, env.options.disk_threads) {}
  Promoter(const Promoter&) = delete;  // reads point here
  Promoter& operator=(const Promoter&) = delete;

  static Room room_for(const Record& record);
  /// Reads an object that is on the SSD and not in RAM; joins a read that is under way. `held`: a
  /// further reservation that the read keeps until it returns.
  void promote(Record& record, Charge stored, Charge promotion, Done done,
               std::shared_ptr<const void> held = nullptr);
  bool promoting(const Record& record) const;
  void join(const Record& record, Done done);
  bool idle() const { return promotions_.empty(); }
  /// True while a read that was given up has not returned: no other read begins.
  bool hangs() const { return late_ > 0; }
  void close() {
    promotions_.clear();
    reads_.close();
  }
  /// Ends the process if a promotion has nobody who waits, or its object is not pinned.
  void check_invariants() const;

 private:
  struct Promotion {
    uint64_t serial = 0;
    Pins pins;  ///< the object's; its ancestors stay with it
    std::vector<Done> waiters;
    std::shared_ptr<ReadJob> job;
    uint64_t ended_before = 0;  ///< `ended_` when its watch was set
    std::unique_ptr<Timer> watch;
    Clock::time_point begun = Clock::now();
  };
  Promotion* find(const ObjectName& name, uint64_t serial);
  void watch(Promotion& promotion, Clock::duration limit);
  void look(const ObjectName& name, uint64_t serial);
  void returned(const std::shared_ptr<ReadJob>& job, uint64_t serial, Result<RamObject> result);
  void late_word(const ReadJob& job, uint64_t serial, const Status& status);
  void end(const ObjectName& name, uint64_t serial, Result<RamObject> result);
  void measure(const Promotion& promotion) const;
  void failed(Record& record, const Status& status);
  bool lose_file(Record& record, const Status& status);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  Spiller& spiller_;
  FairTasks reads_;
  std::map<ObjectName, Promotion> promotions_;
  uint64_t late_ = 0;   // given up, not returned
  uint64_t ended_ = 0;  // reads
};

}  // namespace kv
