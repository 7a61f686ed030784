// SpillWriter: takes queued objects to the SSD, a batch at a time: packed on workers, then written;
// the next one is packed meanwhile. Bounded: at most one batch is packed and one written, each in
// files and bytes.
//
//   queue ──start()──> packing ──> writing ──> records: renamed, or retries: failed
//
// A batch's own states: core/spill_batch.h. Spiller starts batches and is told of their steps. Loop
// thread only.
#pragma once

#include <functional>

#include "cachesvc/core/model_records.h"
#include "cachesvc/core/ram_checks.h"
#include "cachesvc/core/remote_writes.h"
#include "cachesvc/core/spill_batch.h"
#include "cachesvc/core/spill_retries.h"
#include "cachesvc/core/syncer.h"
#include "cachesvc/core/write_pace.h"

namespace kv {

class SpillWriter {
 public:
  /// Calls to the spiller: when a batch has made a step, and for an object whose old file is gone.
  struct Then {
    std::function<void()> pump;
    std::function<void(Record&)> file_lost;
  };

  SpillWriter(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, RamChecks& checks,
              Models& models, ModelRecords& model_records, Syncer& syncer, WritePace& pace,
              RemoteWrites& remote, SpillRetries& retries)
      : env_(env),
        index_(index),
        records_(records),
        lane_(lane),
        checks_(checks),
        models_(models),
        model_records_(model_records),
        syncer_(syncer),
        pace_(pace),
        remote_(remote),
        retries_(retries) {}
  SpillWriter(const SpillWriter&) = delete;  // jobs point here
  SpillWriter& operator=(const SpillWriter&) = delete;

  /// Called once, before the first batch.
  void begin(Then then) { then_ = std::move(then); }
  /// Packs a batch of what is queued, the first ones first. Precondition: an SSD; no batch is
  /// packed.
  void start();
  /// Takes every step that the batches can take.
  void pump();

  bool packs() const { return packing_ != nullptr; }
  bool writes() const { return writing_ != nullptr; }
  /// True if a batch under way pins the record, perhaps written already or the parent of one that
  /// is; the end of the batch makes progress.
  bool pins(const Record& record) const {
    return (packing_ && packing_->pins.has(record)) || (writing_ && writing_->pins.has(record));
  }
  /// Ends the process if the batches disagree with the objects' states.
  void check_invariants() const;

 private:
  using BatchPtr = std::shared_ptr<SpillBatch>;
  bool packs_codes() const;
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
  SpillRetries& retries_;
  Then then_;
  BatchPtr packing_, writing_;
};

}  // namespace kv
