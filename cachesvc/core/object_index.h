// ObjectIndex: everything stored in both tiers, by name and by prefix; which rows a query could
// use, and which objects go first when bytes are short.
//
// A Record exists exactly while its object is in RAM or on the SSD (or both). A tree node exists
// while a record hangs on it or below it. No I/O, no waiting; one thread at a time (the loop).
#pragma once

#include <boost/intrusive/list_hook.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/core/part_groups.h"
#include "cachesvc/ram_object.h"
#include "cachesvc/ram_pool.h"
#include "codec/codec.h"
#include "index/eviction.h"
#include "index/prefix_tree.h"
#include "index/restorable.h"
#include "proto/client.h"

namespace kv {

struct RealmState;

/// What is known of an object that hangs on no tree: enough to erase it, and to link it when its
/// parent returns.
struct Orphan {
  Object header;  ///< identity and tokens; no planes
};

/// Where an object is on its way to the SSD. Only Records changes it (cachesvc/core/records.h has
/// its arrows). The enumerators have no order.
enum class Disk : uint8_t {
  absent,      ///< in RAM only; nobody asked for more
  refused,     ///< in RAM only: it made room on the SSD, and is written again when a commit asks
  waiting,     ///< asked for; the queue was full
  queued,      ///< in the queue
  writing,     ///< in the batch that is packed or written
  failed,      ///< a write failed: tried again after io_backoff
  known,       ///< on the SSD only: a file of its name is there, nobody has read it since the start
  renamed,     ///< its bytes are in a visible file, written or verified since the start
  durable,     ///< as renamed, and the folder was synced
  unreadable,  ///< on the SSD only: a read failed; a miss until retry_at, or until given again
};
inline constexpr size_t kDiskStates = 10;

/// True if the file stands for the object: it holds a place on the SSD.
constexpr bool on_ssd(Disk disk) {
  return disk == Disk::known || disk == Disk::renamed || disk == Disk::durable ||
         disk == Disk::unreadable;
}

/// The place of a record in the list of its state. Leaves it when the record goes.
using DiskHook =
    boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

/// What only supplements and snapshots have: what hangs on a node.
struct Attachment {
  std::vector<Token> tokens;  ///< snapshots only: those after the parent's end
  std::vector<Extra> extras;  ///< snapshots only
  uint32_t position = 0;      ///< snapshots only
  /// Blocks to an entry's end; 0: it serves one, or (snapshots) the place where entries part.
  uint32_t end_distance = 0;
  EntryKey end_key = kNoEntry;  ///< the last object of the entry whose end it serves
  uint64_t end_serial = 0;
};

/// One object in some tier.
struct Record {
  ObjectName name;
  RealmState* realm = nullptr;             ///< null: an orphan, on the SSD only; it serves nothing
  std::unique_ptr<const Orphan> orphan;    ///< set exactly while realm is null
  std::unique_ptr<Attachment> attachment;  ///< set exactly for supplements and snapshots
  EntryKey key = kNoEntry;
  uint64_t serial = 0;    ///< tells two records of one name apart in time
  NodeId node = kNoNode;  ///< block, tail: own; supplement: its block's; snapshot: its parent's
  uint32_t pins = 0;
  uint32_t uses = 0;        ///< fetches that it served
  bool use_untold = false;  ///< of the last one the SSD knows nothing
  bool superseded = false;  ///< a tail whose tokens a longer tail or a block holds too
  Disk disk = Disk::absent;
  DiskHook disk_hook;
  RamObject ram;               ///< null: not in RAM
  uint64_t payload_bytes = 0;  ///< planes and states in memory
  /// Bytes of the file of its name, at most; 0: none is known. In RAM only: an old file, which a
  /// spill replaces if it holds other bytes, and which serves again if RAM loses its object.
  uint64_t file_bytes = 0;
  uint64_t syncs_before = 0;  ///< begun before its file was known: later ones make it durable
  std::chrono::steady_clock::time_point retry_at{};  ///< unreadable: a miss until then
  Charge index_charge;

  bool on_ssd() const { return kv::on_ssd(disk); }
  bool dirty() const { return ram && !on_ssd(); }
  /// The file's bytes were written or read since the start.
  bool verified() const { return disk == Disk::renamed || disk == Disk::durable; }
  bool usable(std::chrono::steady_clock::time_point now) const {
    return ram || (on_ssd() && (disk != Disk::unreadable || retry_at <= now));
  }
};

/// A record that is known by name, even after it is gone: another of its name has another serial.
struct PinnedName {
  ObjectName name;
  uint64_t serial;
};

/// One (namespace, model, profile): a tree and how to read what hangs on it.
struct RealmState {
  RealmState(Realm r, uint32_t number, std::shared_ptr<const ModelSpec> m,
             std::shared_ptr<const Profile> p)
      : realm(std::move(r)),
        index(number),
        model(std::move(m)),
        profile(std::move(p)),
        groups(model),
        tree(profile->block_tokens),
        nodes(1) {}
  struct Node {
    Id id;
    Record* main = nullptr;
    std::vector<Record*> attached;  ///< supplements of this node, snapshots after it
  };
  Realm realm;
  uint32_t index;
  std::shared_ptr<const ModelSpec> model;
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<const Codec> codec;  ///< null until the model is opened
  PartGroups groups;
  PrefixTree tree;
  std::deque<Node> nodes;  ///< by NodeId, from the root's; one that the tree doesn't have is empty
  std::unordered_map<Id, NodeId, IdHash> node_of;
  bool in_force = true;
  bool others_lost = false;  ///< objects of this model are stored whose profile is lost
  bool empty() const { return tree.size() == 0 && nodes[kRootNode].attached.empty(); }
  bool has_supplements() const;  ///< some part's rows, carries or states come apart from blocks
  bool has_snapshots() const;    ///< some part's states are there at checkpoints
  uint32_t block_tokens() const { return profile->block_tokens; }
};

/// A store's `now`: what could not be read is asked for again, whenever that was.
constexpr std::chrono::steady_clock::time_point kUnreadableIsMissing =
    std::chrono::steady_clock::time_point::min();

/// What a query would get.
struct Hit {
  PrefixMatch match;
  uint32_t common = 0;
  RestorePlan plan;
  struct Use {
    Record* record;
    uint32_t end_token;
  };
  std::vector<Use> uses;  ///< each object once: blocks, tails, supplements, snapshots
};

/// All that a query could use.
struct Candidates {
  PrefixMatch match;
  uint32_t common = 0;  ///< longest common prefix with anything stored
  std::vector<Holding> holdings;
  std::vector<Record*> records;
  /// Whose it is; null for one that the caller brought (Holding::object == 0).
  Record* record_of(const Holding& h) const { return h.object ? records[h.object - 1] : nullptr; }
};

/// Tokens that a snapshot shares with the query, counted from the root; the query matches its
/// parent wholly.
uint32_t snapshot_common(const Record& snapshot, const Query& query);

/// True if an entry of n tokens needs this supplement or snapshot to be restorable at one of its
/// own ends.
bool serves_end(const Record& attached, uint32_t n);

class ObjectIndex {
 public:
  /// Index bytes that one object is charged: its node, record and map entries, and its tokens as
  /// they are kept. Within a tenth of what the process grows by.
  static uint64_t index_bytes(ObjectKind kind, std::span<const Token> tokens);
  /// The same of any object with so many tokens, at most.
  static uint64_t most_index_bytes(size_t tokens);
  /// Of one that hangs on no tree.
  static uint64_t orphan_bytes(size_t tokens);

  /// The realm, made if it is new. Whoever adds to it later holds it meanwhile.
  std::shared_ptr<RealmState> realm(const Realm& realm, std::shared_ptr<const ModelSpec> model,
                                    std::shared_ptr<const Profile> profile);
  RealmState* find_realm(const Realm& realm);
  std::vector<RealmState*> realms_of(const std::string& ns, const Id& fingerprint);
  /// Of any profile but `but`.
  bool has_orphans(const std::string& ns, const Id& fingerprint, const Id& but = {}) const;
  /// Forgets realms that hold nothing and that nobody else holds. Returns: the ids of their
  /// profiles, less those that a realm or an orphan still names.
  std::vector<Id> release_realms();
  bool names_profile(const Id& profile) const;  ///< some realm or orphan does

  Record* find(const ObjectName& name);
  const Record* find(const ObjectName& name) const;
  Record* find(const PinnedName& pinned);  ///< null: it is gone
  /// As a store looks for it: null also for an orphan, and for one whose reads failed, whenever
  /// that was, as it is asked for again.
  Record* find_usable(const ObjectName& name);
  Record* find_key(EntryKey key);
  /// The record of this object, made if it is new; null if its parent has no node (an orphan) or
  /// the tree or the geometry refuses it. `object` needs no planes.
  /// Takes the charge only if it is made.
  Record* add(RealmState& realm, const Object& object, Charge&& index_charge);
  /// So many more objects are about to be added, and put on the SSD.
  void expect(size_t objects);
  /// A record that hangs on no tree: it can only be evicted, erased or linked. Null if there is a
  /// record of that name.
  Record* add_orphan(const Object& object, Charge index_charge);
  /// Gives orphans of this realm whose parent block is `parent` (zero: the root) their place, and
  /// then theirs. Call it when a parent's node or a realm is new.
  void relink(RealmState& realm, const Id& parent);
  /// The orphans of a model, in any profile, of which it can't be excluded that their entry begins
  /// with `query`: tokens are compared as far as they are known, and the id of a lost block with
  /// what the query would give it. Those that end inside `query` are not among them.
  std::vector<Record*> orphans_beginning_with(const std::string& ns, const Id& fingerprint,
                                              const Query& query);
  /// Forgets the object in both tiers. Pinned or not.
  void remove(Record& record);

  void set_ram(Record& record, RamObject object);
  void drop_ram(Record& record);  ///< keeps the record, even one that is in no tier now
  /// For Records alone. Gives the record its place in the SSD's order, or takes it; `recency` and
  /// `allocated_bytes` are those of a place that is new.
  void set_disk(Record& record, Disk to, uint64_t allocated_bytes, std::optional<uint64_t> recency);
  bool on_ssd(const Record& record) const { return ssd_.resident(record.key); }
  bool in_ram(const Record& record) const { return ram_.resident(record.key); }
  void pin(Record& record);
  void unpin(Record& record);
  void touch(const std::vector<Record*>& records);
  void supersede(Record& tail);
  /// An entry of n tokens ends with `path` (its blocks and perhaps a tail, root first): supplements
  /// and snapshots that serve it stay like everything else, the path's others go the earlier the
  /// farther away they are. Snapshots where entries part stay too.
  void mark_end(RealmState& realm, const std::vector<NodeId>& path, uint32_t n);
  /// After recovery: which tails are superseded, and how far supplements and snapshots are from an
  /// end.
  void find_ends();
  /// Objects of a realm that is not in force go before others.
  void set_in_force(RealmState& realm, bool in_force);

  /// `now` decides which failed reads are tried again. `more`: holdings of objects that aren't
  /// stored yet (Holding::object == 0). `ram_only`: as if the SSD were empty.
  struct PlanOptions {
    RestorableQuery limits;
    std::chrono::steady_clock::time_point now;
    bool ram_only = false;
    const std::vector<Holding>* more = nullptr;
  };
  Result<Hit> plan(RealmState& realm, const Query& query, const PlanOptions& options);
  Result<Candidates> candidates(RealmState& realm, const Query& query, const PlanOptions& options);
  /// The record and the blocks above it, root first; missing ones are left out.
  std::vector<Record*> path_to(Record& record);
  /// Tokens that the entry of a block, tail or supplement shares with `query`, whose complete
  /// blocks have the ids `blocks` in the record's realm.
  uint32_t common_with(const Record& record, const Query& query, std::span<const Id> blocks) const;
  Record* parent_of(Record& record);  ///< the block that must be on the SSD before it; or null

  std::vector<Record*> all_of(const std::string& ns);  ///< of this namespace, orphans included

  EvictionOrder& ram() { return ram_; }
  EvictionOrder& ssd() { return ssd_; }
  size_t size() const { return by_name_.size(); }
  uint64_t pins() const { return pins_; }
  const std::vector<std::shared_ptr<RealmState>>& realms() const { return realms_; }

 private:
  NodeId owner_node(RealmState& realm, const Object& object);
  EntryKey link(Record& record, RealmState& realm, NodeId node, const Object& object);
  void unlink(Record& record);
  void quit_ssd(const Record& record);
  bool link_orphan(Record& record, RealmState& realm);
  void settle_orphan(Record& record, EntryKey before);
  void forget_orphan(Record& record, EntryKey key);
  class OrphanMatch;
  void prune(RealmState& realm, NodeId node);
  DropUrgency urgency(const Record& record) const;
  void reorder(const Record& record);
  bool end_lives(const Record& attached);
  void find_superseded(RealmState& realm);
  static constexpr uint32_t kNoEnd = UINT32_MAX;  // below it nothing ends that isn't superseded
  using EndDistances = std::unordered_map<NodeId, uint32_t>;  // in blocks
  void find_end(Record& snapshot, const EndDistances& distance);
  void find_ends(RealmState& realm);
  EntryOptions entry_options(const Record& record, uint64_t charge_bytes) const;

  std::vector<std::shared_ptr<RealmState>> realms_;
  uint32_t next_realm_ = 0;  // below 2^31: in the upper half of its nodes' keys; ascends in realms_
  std::unordered_map<ObjectName, Record, ObjectNameHash> by_name_;
  std::unordered_map<EntryKey, Record*> by_key_;          // but blocks and tails: nodes have those
  std::unordered_multimap<Id, Record*, IdHash> orphans_;  // by parent
  EvictionOrder ram_, ssd_;
  uint64_t next_serial_ = 1;
  uint64_t pins_ = 0;
};

/// What an object holds for a model's part groups, as holdings of the given place and common
/// prefix.
void append_holdings(const RealmState& realm, const ObjectName& name, uint32_t first_token,
                     uint32_t end_token, const Holding& like, std::vector<Holding>& out);

}  // namespace kv
