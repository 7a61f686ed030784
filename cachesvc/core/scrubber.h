// Scrubber: reads the files of the SSD one by one, at scrub_bytes_per_second, in the order of their
// names and round again, so that one that rots while nobody asks for it is found. Damaged objects
// go to quarantine and are a miss, or are written anew from RAM; damaged records are written anew.
// Reads give way to promotions, requests that wait for RAM, the start's reads, and a device that
// hangs.
//
//   listing ──> next file ──(gives way)──> verifying ──pace──> next file … ──> pass over: pause
//
// Loop thread only.
#pragma once

#include <deque>

#include "cachesvc/core/promoter.h"
#include "cachesvc/core/ram_room.h"
#include "storage/file_names.h"

namespace kv {

class Scrubber {
 public:
  Scrubber(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, const Found& found,
           ModelRecords& model_records, Spiller& spiller, RamRoom& room, Promoter& promoter);
  Scrubber(const Scrubber&) = delete;  // jobs point here
  Scrubber& operator=(const Scrubber&) = delete;

  /// Begins behind the place that an earlier process reached.
  void begin(uint16_t place);
  /// Ends the process if its files are not the next ones, in order.
  void check_invariants() const;

 private:
  void next_in(Clock::duration pause);
  void next();
  void list();
  bool gives_way() const;
  void verify(const ListedFile& file, Charge memory);
  void verified(FileKind kind, const PinnedName& which, const std::string& name,
                const Status& status);
  void damaged(FileKind kind, const PinnedName& which);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  const Found& found_;
  ModelRecords& model_records_;
  Spiller& spiller_;
  RamRoom& room_;
  Promoter& promoter_;
  WriteBudget pace_;              // limits reads
  std::deque<ListedFile> files_;  // the next files
  std::string after_;             // name of the last file before these; empty: a pass begins
  uint32_t waited_ = 0;           // times that the next file waited
  Timer timer_;
};

}  // namespace kv
