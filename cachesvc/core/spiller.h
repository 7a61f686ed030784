// Spiller: writes objects from RAM to the SSD, root first, in batches: packed on workers, written
// one batch at a time, the next one packed meanwhile. An object is written only when its parent is
// on the SSD or earlier in the batch. Bounded: the queue in bytes, a batch in files and bytes,
// writes by a budget.
//
//   ask ──> queue (or waiting: it is full) ──> batch: packing ──> writing ──> records: renamed
//             ▲                                                     │
//             └──── io_backoff ◄──── failed ◄───────────────────────┘
//
// pump() takes every step that is possible; progress() calls it. Loop thread only.
#pragma once

#include "cachesvc/core/model_records.h"
#include "cachesvc/core/ram_checks.h"
#include "cachesvc/core/remote_writes.h"
#include "cachesvc/core/spill_batch.h"
#include "cachesvc/core/syncer.h"
#include "cachesvc/core/write_pace.h"

namespace kv {

class Spiller {
 public:
  /// The answer to a request for an object to be on the SSD.
  enum class Asked : uint8_t {
    on_its_way,  ///< there, queued or being written
    waits,       ///< waits for the queue
    in_vain,     ///< no SSD; or nobody could ever reach it there
  };

  Spiller(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, RamChecks& checks,
          Models& models, ModelRecords& model_records, Syncer& syncer, WritePace& pace,
          RemoteWrites& remote);
  Spiller(const Spiller&) = delete;  // jobs point here
  Spiller& operator=(const Spiller&) = delete;

  /// Asks for the object and its ancestors to be written to the SSD.
  Asked ask(Record& record);
  /// True if the object is spilled unasked: it did not make room on the SSD, nor fail to be
  /// written.
  static bool may_spill(const Record& record) {
    return record.disk == Disk::absent || record.disk == Disk::waiting;
  }
  /// Sends dirty objects on their way, so that `bytes` can be dropped. Returns: false if nothing is
  /// on its way.
  bool ask_for_room(Asker asker);
  /// Asks once more for all objects that RAM alone has, and for those that failed; for a drain.
  void ask_for_all();
  void pump();
  /// Handles an object whose file is gone or wrong: it is written again from RAM, or gone.
  void file_lost(Record& record, Missing why = Missing::file_gone);

  /// True while a batch is packed or written.
  bool busy() const { return packing_ || writing_; }
  /// True if a batch under way pins the record, perhaps written already or the parent of one that
  /// is; the end of the batch makes progress.
  bool pins(const Record& record) const {
    return (packing_ && packing_->pins.has(record)) || (writing_ && writing_->pins.has(record));
  }
  /// True if no write begins for as long as a request may wait for room.
  bool held_up() const;
  /// Ends the process if batches and queue disagree with the objects' states.
  void check_invariants() const;

 private:
  using BatchPtr = std::shared_ptr<SpillBatch>;
  void refill_queue();
  void fail(Record& record);
  void arm_retry();
  void retry(size_t most);
  bool waits_for_budget();
  void order_by_use();
  bool packs_codes() const;

  void start_batch();
  void pack(const BatchPtr& batch);
  bool wait_for_records(SpillBatch& batch);
  void begin_writing(const BatchPtr& batch);
  void keep_writable(SpillBatch& batch);
  void write_in_place(const BatchPtr& batch, uint64_t short_by);
  void written(const BatchPtr& batch, Result<std::vector<PutResult>> results);
  void item_written(const SpillItem& item, const PutResult& result);
  void check_old_file(const Record& record);
  void fail_batch(const BatchPtr& batch);
  void end_batch(const BatchPtr& batch);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  RamChecks& checks_;
  Models& models_;
  ModelRecords& model_records_;
  Syncer& syncer_;
  WritePace& pace_;
  RemoteWrites& remote_;
  BatchPtr packing_, writing_;
  bool works_ = false;  // an object was written since failed ones were last tried
  Timer retry_timer_;
};

}  // namespace kv
