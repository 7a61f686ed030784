// SsdLane: runs all jobs that change the SSD, one after another, and unlinks files.
//
// Jobs run in the order of their calls. Unlinks of erased files run behind them with their own
// share of turns, so that others' writes pass them; until they are done nothing is written under
// their names. Files that could not be unlinked are tried again with every later erase and whenever
// room is made, so an erase that succeeds has left none.
//
// While the device hangs (HangWatch) waits for it are answered without it (progress). Reads don't
// run here (core/promoter.h). Loop thread only, but for the jobs.
#pragma once

#include <list>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "cachesvc/core/ages.h"
#include "cachesvc/core/env.h"
#include "cachesvc/core/found.h"
#include "cachesvc/core/hang_watch.h"
#include "cachesvc/core/lost_names.h"
#include "cachesvc/core/records.h"
#include "cachesvc/loop/lane.h"
#include "storage/kept_state.h"
#include "storage/ssd_tier.h"

namespace kv {

class SsdLane {
 public:
  SsdLane(Env& env, ObjectIndex& index, Records& records);
  SsdLane(const SsdLane&) = delete;  // jobs point here
  SsdLane& operator=(const SsdLane&) = delete;

  /// Sets the tier; `read_buffers` pays for those it has, but the first.
  void open(std::shared_ptr<SsdTier> tier, Charge read_buffers);
  /// Ends the tier where its other work is done, as the end waits for the device.
  void close();
  /// Null: no SSD tier.
  const std::shared_ptr<SsdTier>& ssd() const { return ssd_; }
  explicit operator bool() const { return ssd_ != nullptr; }
  /// Reason, in words, that the SSD does nothing at a client's wish now; null: none.
  const char* refusal() const {
    if (!ssd_) return "there is no SSD";
    if (hangs()) return "the SSD hangs";
    return env_.draining() ? "the service is draining" : nullptr;
  }

  /// `job` behind all others, then `then(result)` on the loop.
  template <typename Job, typename Then>
  void run(Job job, Then then) {
    lane_->submit(counted(std::move(job), std::move(then)));
  }
  /// Runs the job behind the unlinks of erases too: their files are gone by then.
  template <typename Job, typename Then>
  void run_last(Job job, Then then) {
    lane_->submit_behind(counted(std::move(job), std::move(then)), true);
  }
  /// Runs the job after the least recently used leaves have gone, of at least `bytes`, with their
  /// files.
  template <typename Job, typename Then>
  void run_with_room(uint64_t bytes, Job job, Then then);

  /// Writes notes of files to the catalog, in place of earlier ones. `synced`: so that they survive
  /// a power cut. `then` follows in any case.
  void note(std::vector<NotedName> notes, bool synced = false, std::function<void()> then = {});

  // Unlinks. The files' records are gone by then, or know that they have no file.
  /// Unlinks files ahead of all later writes: those of objects that made room in the index.
  void unlink(std::vector<ObjectName> names);
  /// Unlinks files behind other work. `fence`: also behind all jobs queued now, one of which writes
  /// one of the names. `then` gets the first error.
  void unlink_behind(std::vector<ObjectName> names, bool fence,
                     std::function<void(Status)> then = {});
  /// True if unlink_behind has this name to do: nothing may be written under it.
  bool unlinking(const ObjectName& name) const { return unlinking_.contains(name); }
  /// Tries files again that could not be unlinked, ahead of later writes.
  void unlink_left();
  /// True if some file that was to go is still there. One stored anew under its name doesn't count.
  bool some_left();

  /// True if no job has ended for io_timeout: nothing waits for the device then.
  bool hangs() const { return watch_.hangs(); }
  /// Tells that a write has failed; `name` null: folders, records.
  void write_failed(const ObjectName* name, const Status& status) const;

  LostNames& lost() { return lost_; }
  const LostNames& lost() const { return lost_; }

  /// State kept over a restart: the write budget's hours and the scrubber's place.
  void keep_hours(HourBytes written);
  void keep_place(uint16_t scrubbed);
  uint16_t scrubbed_place() const { return kept_.scrubbed; }

  void check_invariants() const;

 private:
  using Parts = std::list<std::vector<ObjectName>>;
  /// Files on their way to SsdTier::erase: a job's input and result.
  struct Unlinks {
    Parts parts;
    Parts gone;           ///< parts that are unlinked
    bool behind = false;  ///< the names are among `unlinking_`
    /// Tries all parts, on a worker. Returns: the first error of SsdTier::erase.
    Status run(SsdTier& ssd);
  };
  template <typename Job, typename Then>
  std::shared_ptr<WorkerTask> counted(Job job, Then then) {
    watch_.began();
    return env_.task(std::move(job), [this, then = std::move(then)](auto out) mutable {
      watch_.ended();
      then(std::move(out));
    });
  }
  std::shared_ptr<WorkerTask> unlink_task(std::shared_ptr<Unlinks> files,
                                          std::function<void(Status)> then);
  void unlinked(Unlinks& files);
  std::vector<ObjectName> take_victims(uint64_t bytes);
  void sort_out_left();

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  std::shared_ptr<Lane> lane_;
  Charge read_buffers_;
  std::shared_ptr<SsdTier> ssd_;
  HangWatch watch_;
  Parts left_;                           // files that could not be unlinked
  std::multiset<ObjectName> unlinking_;  // names that unlink_behind has to do
  LostNames lost_;
  KeptState kept_;
};

template <typename Job, typename Then>
void SsdLane::run_with_room(uint64_t bytes, Job job, Then then) {
  auto gone = std::make_shared<Unlinks>();
  gone->parts.push_back(take_victims(bytes));
  sort_out_left();
  // Only one part of those that failed: all of them ahead of the job might look like a hang.
  if (!left_.empty()) gone->parts.splice(gone->parts.end(), left_, left_.begin());
  run(
      [ssd = ssd_, gone, job = std::move(job)]() mutable {
        (void)gone->run(*ssd);
        return job();
      },
      [this, gone, then = std::move(then)](auto out) mutable {
        unlinked(*gone);  // files that are left go back first
        then(std::move(out));
      });
}

}  // namespace kv
