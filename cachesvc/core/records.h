// Records: the state of every object between RAM and the SSD, and the only writer of it.
//
// Each record of the index that has a state is in the list of that state (DiskLists). A move
// between two states is checked against the arrows below. An object's level (`spilled`, `durable`)
// follows from its state alone. Loop thread only. Callers are those that learn something of an
// object: a commit, a spill, a read, a sync, an eviction, an erase.
//
// clang-format off
//
//    in RAM only                                                  with a file of its bytes
//
//    absent ──> waiting ──> queued ──> writing ────────────────> renamed ──────> durable
//    refused       ▲          ▲           │                         ▲               ▲
//       └──────────┴──────────┤           ▼                         └─ read, right ─┘
//                             └──────── failed                              │
//                                                                         known <──> unreadable
//                                                                           ▲
//    with a file that nobody has read                            a start ───┘
//
//   waiting -> absent                         nobody could ever reach it on the SSD
//   absent .. failed -> known                 RAM lost its bytes: the old file serves again, if
//                                             there is one; without one the record is gone
//   writing -> durable                        it was synced when it was written
//   known, unreadable -> absent               a client gave the bytes anew
//   renamed, durable -> absent, refused       the file is gone, RAM has its bytes; refused: it made
//                                             room for others. Without RAM the record is gone
//   renamed, durable -> known, unreadable     a late read said it was wrong; a read failed
//
// clang-format on
#pragma once

#include <functional>

#include "cachesvc/core/departures.h"
#include "cachesvc/core/disk_lists.h"
#include "cachesvc/core/object_index.h"
#include "proto/client.h"

namespace kv {

class Records {
 public:
  using Clock = std::chrono::steady_clock;

  /// `departures`: of what is gone, with its cause; null: nobody asks.
  explicit Records(ObjectIndex& index, Departures* departures = nullptr)
      : index_(index), departures_(departures) {}
  Records(const Records&) = delete;  // records are linked into its lists
  Records& operator=(const Records&) = delete;

  /// True if one object may go from one state to the other.
  static bool may_move(Disk from, Disk to);

  /// A start found the file. Precondition: the record is new.
  void found(Record& record, uint64_t payload_bytes, uint64_t file_bytes, uint64_t allocated_bytes,
             uint64_t recency);
  /// A client gave the bytes: RAM has the object now, and a file of its name is an old one.
  /// Precondition: the record is not in RAM, and its file (if any) not verified.
  void given(Record& record, RamObject object);
  /// A spill is asked for: the object waits for the queue, enters it, is written.
  void wait(Record& record) { move(record, Disk::waiting); }
  void enqueue(Record& record) { move(record, Disk::queued); }
  void begin_write(Record& record) { move(record, Disk::writing); }
  void fail_write(Record& record) { move(record, Disk::failed); }
  /// The wait for the queue ends: an ancestor is gone.
  void forget_wait(Record& record) { move(record, Disk::absent); }
  /// The bytes are in a visible file.
  void written(Record& record, Durability reached, uint64_t allocated_bytes);
  /// Every byte of a file was read and is right; `object` (if set) is what RAM gets.
  void read(Record& record, RamObject object);
  /// A file of its name was seen on the SSD while RAM has the object.
  void old_file(Record& record, uint64_t file_bytes) { record.file.bytes = file_bytes; }
  /// A read failed, which says nothing about the bytes: a miss until `retry_at`.
  void unreadable(Record& record, Clock::time_point retry_at);
  /// The file counts as just found: no longer `renamed` or `durable`. Precondition: not in RAM.
  void doubt(Record& record) { move(record, Disk::known); }
  /// The SSD has no such file any more. Without RAM the record is gone. `made_room`: it is not
  /// written again by itself.
  void lost(Record& record, bool made_room = false, Cause cause = {});
  /// The bytes leave RAM. Returns: true if the record is gone with them.
  bool leave_ram(Record& record, Cause cause = {});
  void remove(Record& record, Cause cause = {});  ///< from both tiers and the index

  /// Numbers syncs; a file that becomes visible before sync n begins is durable when it ends.
  void begin_sync() { ++syncs_; }
  uint64_t syncs() const { return syncs_; }
  /// Makes at most `most` objects durable that were renamed before the sync began. Returns: true if
  /// none is left; the sync is over then.
  bool synced(uint64_t sync, size_t most);

  const DiskLists& lists() const { return lists_; }
  /// The one that is longest in the state. Null: none is.
  Record* first(Disk state) { return lists_.first(state); }
  /// Puts the queue in another order; equal ones keep theirs.
  void order_queue(const std::function<bool(const Record&, const Record&)>& before) {
    lists_.order_queue(before);
  }

  /// Ends the process if a list, a sum or a tier disagrees with a state.
  void check_invariants() const;

 private:
  void move(Record& record, Disk to, uint64_t allocated_bytes = 0,
            std::optional<uint64_t> recency = {});

  ObjectIndex& index_;
  Departures* departures_;
  DiskLists lists_;
  uint64_t syncs_ = 0;   // begun
  uint64_t synced_ = 0;  // the last one that ended well
};

}  // namespace kv
