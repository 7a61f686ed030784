// SsdLane: all that changes the SSD, one job after another; and files that are to go.
//
// Jobs run in the order of their calls. Unlinks of what was erased run behind them with a share of
// turns of their own, so that others' writes pass them; until they are done nothing is written of
// their names. What could not be unlinked is left: remembered, and tried again with every later
// erase and whenever room is made, so an erase that says it is done has left none.
//
// When no job has ended for io_timeout the device hangs, and whoever waits for it is answered
// without it (progress); when one ends, all goes on. Reads don't run here (core/promoter.h).
// Loop thread only, but for the jobs.
#pragma once

#include <list>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "cachesvc/core/env.h"
#include "cachesvc/core/found.h"
#include "cachesvc/core/records.h"
#include "cachesvc/loop/lane.h"
#include "cachesvc/loop/timer.h"
#include "storage/kept_state.h"
#include "storage/ssd_tier.h"

namespace kv {

class SsdLane {
 public:
  SsdLane(Env& env, ObjectIndex& index, Records& records);
  SsdLane(const SsdLane&) = delete;  // jobs point here
  SsdLane& operator=(const SsdLane&) = delete;

  /// The SSD tier begins.
  void open(std::shared_ptr<SsdTier> tier);
  /// The tier's end waits for the device, so it comes where the device's other work is done.
  void close();
  /// Null: no SSD tier.
  const std::shared_ptr<SsdTier>& ssd() const { return ssd_; }
  explicit operator bool() const { return ssd_ != nullptr; }

  /// `job` behind all others, then `then(result)` on the loop.
  template <typename Job, typename Then>
  void run(Job job, Then then) {
    lane_->submit(counted(std::move(job), std::move(then)));
  }
  /// Runs the job behind the unlinks of erases too: what they removed is gone by then.
  template <typename Job, typename Then>
  void run_last(Job job, Then then) {
    lane_->submit_behind(counted(std::move(job), std::move(then)), true);
  }
  /// Runs the job after the least recently used leaves have gone, of at least `bytes`, with their
  /// files.
  template <typename Job, typename Then>
  void run_with_room(uint64_t bytes, Job job, Then then);

  // Files that go. Their records are gone by then, or know that they have none.
  /// Ahead of all that is written later: what made room in the index.
  void unlink(std::vector<ObjectName> names);
  /// Behind others. `fence`: behind all jobs of now, one of which writes one of the names. `then`
  /// gets the first error.
  void unlink_behind(std::vector<ObjectName> names, bool fence,
                     std::function<void(Status)> then = {});
  /// True if a file of this name is to go behind others: nothing may be written of it.
  bool unlinking(const ObjectName& name) const { return unlinking_.contains(name); }
  /// Tries again, ahead of later writes, what could not be unlinked.
  void unlink_left();
  /// True if some file that was to go is there. What was stored anew under its name doesn't count.
  bool some_left();

  /// No job has ended for io_timeout: nobody waits for them.
  bool hangs() const { return hangs_; }
  /// Tells that a write has failed; `name` null: folders, records.
  void write_failed(const ObjectName* name, const Status& status) const;

  /// While files are read behind the start: the names whose files have gone meanwhile.
  void remember_losses(bool on);
  void note_loss(const ObjectName& name) {
    if (remembers_) lost_.insert(name);
  }
  bool was_lost(const ObjectName& name) const { return lost_.contains(name); }

  /// Kept over a restart: the write budget's hours and the scrubber's place.
  void keep_hours(HourBytes written);
  void keep_place(uint16_t scrubbed);

  void check_invariants() const;

 private:
  using Parts = std::list<std::vector<ObjectName>>;
  /// Files on their way to SsdTier::erase: a job's input and result.
  struct Unlinks {
    Parts parts;
    Parts gone;           ///< of them, those that are unlinked
    bool behind = false;  ///< the names are among `unlinking_`
    /// Worker. Tries all parts. Returns: the first error of SsdTier::erase.
    Status run(SsdTier& ssd);
  };
  template <typename Job, typename Then>
  std::shared_ptr<WorkerTask> counted(Job job, Then then) {
    ++jobs_;
    watch();
    return env_.task(std::move(job), [this, then = std::move(then)](auto out) mutable {
      returned();
      then(std::move(out));
    });
  }
  std::shared_ptr<WorkerTask> unlink_task(std::shared_ptr<Unlinks> files,
                                          std::function<void(Status)> then);
  void unlinked(Unlinks& files);
  std::vector<ObjectName> take_victims(uint64_t bytes);
  void sort_out_left();
  void watch();
  void look();
  void returned();

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<SsdTier> ssd_;
  uint64_t jobs_ = 0, ended_ = 0;
  uint64_t ended_before_ = 0;  // when the watch was set
  bool hangs_ = false;
  Timer watch_;
  Parts left_;                           // that are to go and could not
  std::multiset<ObjectName> unlinking_;  // that go behind others
  bool remembers_ = false;
  std::set<ObjectName> lost_;
  KeptState kept_;
};

template <typename Job, typename Then>
void SsdLane::run_with_room(uint64_t bytes, Job job, Then then) {
  auto gone = std::make_shared<Unlinks>();
  gone->parts.push_back(take_victims(bytes));
  sort_out_left();
  // One part of what failed before: all of it ahead of the job might be taken for a hang.
  if (!left_.empty()) gone->parts.splice(gone->parts.end(), left_, left_.begin());
  run(
      [ssd = ssd_, gone, job = std::move(job)]() mutable {
        (void)gone->run(*ssd);
        return job();
      },
      [this, gone, then = std::move(then)](auto out) mutable {
        unlinked(*gone);  // what is left goes back first
        then(std::move(out));
      });
}

}  // namespace kv
