// Spiller: has objects written from RAM to the SSD, root first. An object is written only when its
// parent is on the SSD or earlier in the batch. Bounded: the queue in bytes, writes by a budget.
//
//   ask ──> queue (or waiting: it is full) ──> SpillWriter: a batch ──> records: renamed
//             ▲                                    │
//             └───────────── SpillRetries ◄────────┘ failed
//
// pump() takes every step that is possible; progress() calls it. Loop thread only.
#pragma once

#include "cachesvc/core/spill_writer.h"

namespace kv {

class Spiller {
 public:
  /// The answer to a request for an object to be on the SSD.
  enum class Asked : uint8_t {
    on_its_way,  ///< there, queued or being written
    waits,       ///< waits for the queue
    in_vain,     ///< no SSD; or nobody could ever reach it there
  };

  Spiller(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, WritePace& pace,
          SpillRetries& retries, SpillWriter& writer);
  Spiller(const Spiller&) = delete;  // the writer points here
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
  bool busy() const { return writer_.packs() || writer_.writes(); }
  /// As SpillWriter::pins.
  bool pins(const Record& record) const { return writer_.pins(record); }
  /// True if no write begins for as long as a request may wait for room.
  bool held_up() const;
  /// Ends the process if the queue is beyond its bound.
  void check_invariants() const;

 private:
  void refill_queue();
  bool waits_for_budget();
  void order_by_use();

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  WritePace& pace_;
  SpillRetries& retries_;
  SpillWriter& writer_;
};

}  // namespace kv
