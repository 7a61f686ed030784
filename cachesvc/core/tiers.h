// Tiers: records in RAM and on the SSD, pinned or free to go, and the order in which they go. Loop
// thread only.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cachesvc/core/realm_state.h"
#include "cachesvc/core/shares.h"

namespace kv {

/// The key of a block or tail, by its node; others have serials (ObjectIndex).
inline EntryKey node_key(const RealmState& realm, NodeId node) {
  return (uint64_t{realm.index} << 32) | node;
}

class Tiers {
 public:
  Tiers(Shares ram, Shares ssd) : ram_(std::move(ram)), ssd_(std::move(ssd)) {}
  void set_ram(Record& record, RamObject object);
  /// The bytes that RAM has of it lie elsewhere now. Precondition: it is in RAM, and unpinned.
  void moved(Record& record, RamObject object);
  void drop_ram(Record& record);  ///< keeps the record, even one that is in no tier now
  /// Called by Records alone. Gives the record its place in the SSD's order, or takes it; `recency`
  /// and `allocated_bytes` are those of a place that is new.
  void set_disk(Record& record, Disk to, uint64_t allocated_bytes, std::optional<uint64_t> recency);
  void pin(Record& record);
  void unpin(Record& record);
  /// The record goes after all that is not retained; as many calls of let_go end it.
  void retain(Record& record);
  void let_go(Record& record);
  /// Marks these, of one namespace, as used now.
  void touch(const std::vector<Record*>& records);
  /// Touches records that a fetch used: the SSD is to be told.
  void use(const std::vector<Record*>& records);
  /// A client has told what the record's model costs: the records of its share are weighed by the
  /// mean of what was told.
  void told_cost(const Record& record);
  void served(Record& record) { ++record.use.fetches; }     ///< a fetch used it
  void told(Record& record) { record.use.untold = false; }  ///< the SSD knows its last use
  void checked(Record& record) { record.use.checked = std::chrono::steady_clock::now(); }
  /// Gives the record its new place, as its drop_urgency has changed.
  void reorder(const Record& record);
  /// Forgets a record that goes. Precondition: in no tier, and unpinned.
  void forget(Record& record);
  /// Moves the place of a linked orphan in the SSD's order from the key that it had before.
  void key_changed(const Record& record, EntryKey before);

  Shares& ram() { return ram_; }
  Shares& ssd() { return ssd_; }
  /// The eviction orders of the record's share.
  EvictionOrder& ram_of(const Record& record) { return ram_.of(record.share); }
  EvictionOrder& ssd_of(const Record& record) { return ssd_.of(record.share); }
  uint64_t pins() const { return pins_; }

 private:
  Worth worth_of(const Record& record) const;
  EntryOptions entry_options(const Record& record, uint64_t charge_bytes) const;
  void quit_ssd(const Record& record);

  Shares ram_, ssd_;
  uint64_t pins_ = 0;
  std::map<ShareId, float> mean_cost_;  ///< logarithm of ms a MiB, to 2
};

}  // namespace kv
