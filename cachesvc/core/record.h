// Record: one object of the index in some tier, and its state on the way to the SSD. A value that
// ObjectIndex owns; Records alone changes its disk state, Ends alone its drop urgency. Loop thread
// only.
#pragma once

#include <boost/intrusive/list_hook.hpp>
#include <boost/intrusive/set_hook.hpp>
#include <chrono>
#include <memory>
#include <vector>

#include "cachesvc/core/shares.h"
#include "cachesvc/ram_object.h"
#include "cachesvc/ram_pool.h"
#include "index/eviction.h"
#include "index/prefix_tree.h"
#include "storage/object_note.h"

namespace kv {

struct RealmState;

/// An object without a place in a tree: the known part of it, enough to erase it, and to link it
/// when its parent returns.
struct Orphan {
  Object header;  ///< identity and tokens; no planes
};

/// An object's state on its way to the SSD. Only Records changes it (cachesvc/core/records.h has
/// its arrows). The enumerators have no order.
enum class Disk : uint8_t {
  absent,      ///< in RAM only; no spill was asked for
  refused,     ///< in RAM only: it made room on the SSD, and is written again when a commit asks
  waiting,     ///< spill asked for; the queue was full
  queued,      ///< in the queue
  writing,     ///< in the batch that is packed or written
  failed,      ///< a write failed: tried again after io_backoff
  known,       ///< on the SSD only: a file of its name is there, nobody has read it since the start
  renamed,     ///< its bytes are in a visible file, written or verified since the start
  durable,     ///< renamed, and the folder was synced
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

struct Record;
/// The time at which an object is removed. Leaves the order of all of them when it goes.
struct Expiry
    : boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
  uint64_t at = 0;  ///< whole seconds since 1970, UTC
  Record* record = nullptr;
  Charge charge;  ///< pays for it
};

/// Fields that only supplements and snapshots have, which hang on a node.
struct Attachment {
  std::vector<Token> tokens;  ///< snapshots only: those after the parent's end
  std::vector<Extra> extras;  ///< snapshots only
  uint32_t position = 0;      ///< snapshots only
  /// Blocks to an entry's end; 0: it serves one, or (snapshots) the place where entries part.
  uint32_t end_distance = 0;
  bool named = false;           ///< it serves an end that a client named: its distance stays 0
  EntryKey end_key = kNoEntry;  ///< the last object of the entry whose end it serves
  uint64_t end_serial = 0;
};

/// The file of a record's name.
struct RecordFile {
  /// Upper bound of its bytes; 0: no file is known. While in RAM only: an old file, which a spill
  /// replaces if it holds other bytes, and which serves again if RAM loses the object.
  uint64_t bytes = 0;
  uint64_t syncs_before = 0;  ///< syncs begun before it was known; later ones make it durable
  std::chrono::steady_clock::time_point retry_at{};  ///< unreadable: a miss until then
};

/// Traces of a record's use. Only Tiers changes them.
struct RecordUse {
  uint32_t fetches = 0;                             ///< that it served
  bool untold = false;                              ///< the last one is not written to the SSD
  std::chrono::steady_clock::time_point checked{};  ///< time of its last check or of its arrival
};

/// Seconds of the core (Env::seconds) at which an object was stored and last used; 0: not known, as
/// of one that a start found. Only core/ages.h changes them.
struct RecordAge {
  uint32_t stored = 0, used = 0;
};

/// Wishes of clients for an object.
struct RecordWishes {
  uint32_t retained = 0;                    ///< clients that asked for it to stay longer
  std::unique_ptr<const EntryWords> words;  ///< set for blocks and tails alone; null: none
  std::unique_ptr<Expiry> expiry;           ///< null: it is removed at no time
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
  RecordUse use;
  RecordAge age;
  RecordWishes wishes;
  ShareId share = kCommonShare;  ///< its namespace's
  bool superseded = false;       ///< a tail whose tokens a longer tail or a block holds too
  bool shared = false;           ///< the shared tier had it
  Disk disk = Disk::absent;
  uint32_t queued_ms = 0;  ///< of a clock that wraps: when it entered the write queue
  DiskHook disk_hook;
  RamObject ram;               ///< null: not in RAM
  uint64_t payload_bytes = 0;  ///< planes and states in memory
  RecordFile file;
  Charge index_charge;

  bool on_ssd() const { return kv::on_ssd(disk); }
  ObjectNote note() const {
    return {attachment && attachment->named, wishes.words ? *wishes.words : EntryWords(),
            wishes.expiry ? wishes.expiry->at : 0};
  }
  /// A write of the object is to come or under way.
  bool spills() const {
    return disk == Disk::waiting || disk == Disk::queued || disk == Disk::writing;
  }
  bool dirty() const { return ram && !on_ssd(); }
  /// The file's bytes were written or read since the start.
  bool verified() const { return disk == Disk::renamed || disk == Disk::durable; }
  bool usable(std::chrono::steady_clock::time_point now) const {
    return ram || (on_ssd() && (disk != Disk::unreadable || file.retry_at <= now));
  }
};

/// `now` of a store's plan: an unreadable object always counts as missing, so it is asked for
/// again.
constexpr std::chrono::steady_clock::time_point kUnreadableIsMissing =
    std::chrono::steady_clock::time_point::min();

/// Identity of a record, valid after it is gone: another record of its name has another serial.
struct PinnedName {
  ObjectName name;
  uint64_t serial;
};

}  // namespace kv
