// Spiller: RAM to SSD, root first, in batches: packed on workers, written one batch at a time, the
// next one packed meanwhile. An object is written only when its parent is on the SSD or earlier in
// the batch. Bounded: the queue in bytes, a batch in files and bytes, writes by a budget.
//
//   ask ──> queue (or waiting: it is full) ──> batch: packing ──> writing ──> records: renamed
//             ▲                                                     │
//             └──── io_backoff ◄──── failed ◄───────────────────────┘
//
// pump() moves whatever can move, and is asked with progress(). Loop thread only.
#pragma once

#include "cachesvc/core/model_records.h"
#include "cachesvc/core/ram_checks.h"
#include "cachesvc/core/spill_batch.h"
#include "cachesvc/core/syncer.h"
#include "cachesvc/core/write_pace.h"

namespace kv {

class Spiller {
 public:
  /// The answer to a wish that an object be on the SSD.
  enum class Asked : uint8_t {
    on_its_way,  ///< there, queued or being written
    waits,       ///< for the queue
    in_vain,     ///< no SSD; or nobody could ever reach it there
  };

  Spiller(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, RamChecks& checks,
          Models& models, ModelRecords& model_records, Syncer& syncer, WritePace& pace);
  Spiller(const Spiller&) = delete;  // jobs point here
  Spiller& operator=(const Spiller&) = delete;

  /// The object and all above it are to be on the SSD.
  Asked ask(Record& record);
  /// True if it is spilled by itself: it did not make room on the SSD, nor fail to be written.
  static bool may_spill(const Record& record) {
    return record.disk == Disk::absent || record.disk == Disk::waiting;
  }
  /// Sends dirty objects on their way, so that `bytes` can be dropped. Returns: false if nothing is
  /// on its way.
  bool ask_for_room(Asker asker);
  /// A drain: all that RAM alone has, and what failed, is asked for once more.
  void ask_for_all();
  void pump();
  /// The SSD has no right file of it any longer: it is written again from RAM, or gone.
  void file_lost(Record& record);

  /// A batch is packed or written.
  bool busy() const { return packing_ || writing_; }
  /// Nothing will be written for as long as anybody may be made to wait for room.
  bool held_up() const;

 private:
  using BatchPtr = std::shared_ptr<SpillBatch>;
  void refill_queue();
  void fail(Record& record);
  void arm_retry();
  void retry(size_t most);
  bool hold();
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
  BatchPtr packing_, writing_;
  bool works_ = false;  // one was written since failed ones were last tried
  Timer retry_timer_;
};

}  // namespace kv
