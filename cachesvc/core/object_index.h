// ObjectIndex: everything stored in both tiers, by name and by its place in a tree; and which
// objects go first when bytes are short.
//
// A Record exists exactly while its object is in RAM or on the SSD (or both). A tree node exists
// while a record hangs on it or below it. No I/O, no waiting; one thread at a time (the loop).
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/core/namespaces.h"
#include "cachesvc/core/orphans.h"
#include "cachesvc/core/realms.h"
#include "cachesvc/core/tiers.h"

namespace kv {

/// Nodes in one step of a walk over all that is stored: a step takes tens of microseconds.
inline constexpr size_t kNodesPerStep = 128;

/// Keys of supplements, snapshots and orphans, which no node names, are serials.
inline constexpr EntryKey kAttached = 1ull << 63;
constexpr EntryKey attached_key(uint64_t serial) { return kAttached | serial; }

class ObjectIndex {
 public:
  /// An index without quotas: one share of each tier.
  ObjectIndex() : ObjectIndex({}, 0, 0) {}
  ObjectIndex(Namespaces namespaces, uint64_t ram_bytes, uint64_t ssd_bytes)
      : namespaces_(std::move(namespaces)),
        tiers_(namespaces_.ram_shares(ram_bytes), namespaces_.ssd_shares(ssd_bytes)) {}
  ObjectIndex(const ObjectIndex&) = delete;  // records point to each other
  ObjectIndex& operator=(const ObjectIndex&) = delete;

  /// Forgets realms that hold nothing and that nobody else holds. Returns: the ids of their
  /// profiles, less those that a realm or an orphan still names.
  std::vector<Id> release_realms();
  bool names_profile(const Id& profile) const;  ///< true if a realm or orphan does

  Record* find(const ObjectName& name);
  const Record* find(const ObjectName& name) const;
  Record* find(const PinnedName& pinned);  ///< null: it is gone
  /// The record as a store looks for it: null also for an orphan, and for one whose reads failed,
  /// whenever that was, as it is asked for again.
  Record* find_usable(const ObjectName& name);
  Record* find_key(EntryKey key);
  /// The record of this object, made if it is new; null if its parent has no node (an orphan) or
  /// the tree or the geometry refuses it. `object` needs no planes.
  /// Takes the charge only if it is made.
  Record* add(RealmState& realm, const Object& object, Charge&& index_charge);
  /// Reserves capacity for `objects` more that will be added, and put on the SSD.
  void expect(size_t objects);
  /// A record that hangs on no tree: it can only be evicted, erased or linked. Null if there is a
  /// record of that name.
  Record* add_orphan(const Object& object, Charge index_charge);
  /// Gives orphans of this realm whose parent block is `parent` (zero: the root) their place, then
  /// their children. Call it when a parent's node or a realm is new.
  void relink(RealmState& realm, const Id& parent);
  /// Forgets the object in both tiers. Pinned or not.
  void remove(Record& record);

  /// Objects of a realm that is not in force go before others: those that come from now on, and
  /// those that are there by reorder().
  void set_in_force(RealmState& realm, bool in_force) { realm.in_force = in_force; }
  /// Gives what hangs on at most `most` nodes, `first` and those after it, its place among what
  /// goes first. Returns: the node after them; kNoNode: there is none.
  NodeId reorder(const RealmState& realm, NodeId first, size_t most);

  Tiers& tiers() { return tiers_; }
  size_t size() const { return by_name_.size(); }
  Realms& realms() { return realms_; }
  /// The realm, made if it is new (Realms::get).
  std::shared_ptr<RealmState> realm(const Realm& realm, std::shared_ptr<const ModelSpec> model,
                                    std::shared_ptr<const Profile> profile) {
    return realms_.get(realm, namespaces_.share(realm.ns), std::move(model), std::move(profile));
  }
  const Namespaces& namespaces() const { return namespaces_; }
  const Orphans& orphans() const { return orphans_; }
  /// Ends the process if the sums of some namespace are not those of its records.
  void check_invariants();

 private:
  NodeId owner_node(RealmState& realm, const Object& object);
  EntryKey link(Record& record, RealmState& realm, NodeId node, const Object& object);
  void unlink(Record& record);
  bool link_orphan(Record& record, RealmState& realm);
  void forget_orphan(Record& record, EntryKey key);
  void prune(RealmState& realm, NodeId node);

  const Namespaces namespaces_;
  Realms realms_;
  Orphans orphans_;
  ShardedMap<ObjectName, Record, ObjectNameHash> by_name_;
  std::unordered_map<EntryKey, Record*> by_key_;  // records that no node names
  Tiers tiers_;
  uint64_t next_serial_ = 1;
};

}  // namespace kv
