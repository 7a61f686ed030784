// DiskLists: every record in the list of its state between RAM and the SSD, the oldest there first,
// with how many each list has and the bytes of what is on its way.
//
// Records alone enters and takes out; all may read. A record that dies leaves its list, so that it
// must be taken out before. Loop thread only.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <functional>

#include "cachesvc/core/record.h"

namespace kv {

class DiskLists {
 public:
  using List =
      boost::intrusive::list<Record,
                             boost::intrusive::member_hook<Record, DiskHook, &Record::disk_hook>,
                             boost::intrusive::constant_time_size<false>>;
  DiskLists() = default;
  DiskLists(const DiskLists&) = delete;  // records are linked into it
  DiskLists& operator=(const DiskLists&) = delete;

  static bool listed(const Record& record) { return record.disk_hook.is_linked(); }
  /// Puts the record last in the list of its state. Precondition: it is in none.
  void enter(Record& record);
  /// Takes the record out of the list of its state, if it is there.
  void leave(Record& record);
  /// Null: the list is empty.
  Record* first(Disk state);
  /// Puts the queue in another order; equal ones keep theirs.
  void order_queue(const std::function<bool(const Record&, const Record&)>& before);

  const List& all(Disk state) const { return lists_[static_cast<size_t>(state)]; }
  size_t count(Disk state) const { return counts_[static_cast<size_t>(state)]; }
  /// Payload bytes of what is queued or being written.
  uint64_t queue_bytes() const { return queue_bytes_; }
  /// Ends the process if a record is in another state's list, or a sum is wrong.
  void check_invariants() const;

 private:
  List& list(Disk state) { return lists_[static_cast<size_t>(state)]; }

  std::array<List, kDiskStates> lists_;
  std::array<size_t, kDiskStates> counts_{};
  uint64_t queue_bytes_ = 0;
};

}  // namespace kv
