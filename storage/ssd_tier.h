// SsdTier: the store's directory: durable, verified, bounded. FORMAT.md says what lies on disk.
//
// Files are the truth; the catalog is a disposable mirror of them. No file is visible under its
// name before its bytes are on the device, and no byte is written before the ledger has room for
// it: the directory (everything in it) never exceeds limit_bytes. A damaged file is a miss, never
// wrong bytes. Threads: any thread may call; all calls block. read() and verify() run beside reads
// and one writer; put, erase, touch, sync, checkpoint, recover and the record calls wait for
// each other; stats and the room calls wait for nobody.
//
// Memory of a file's or the catalog's size is asked for: a call that finds none is busy, and may be
// repeated. Any other allocation that fails is std::bad_alloc out of the call, and the end of this
// tier: destroy it. Its files and catalog are then what a kill at that moment would have left, good
// for the next start; what was acked before is there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/client.h"
#include "proto/plane.h"
#include "proto/status.h"
#include "storage/beside.h"
#include "storage/block_file.h"
#include "storage/catalog.h"
#include "storage/files.h"
#include "storage/record_file.h"
#include "storage/seal_key.h"

namespace kv {

/// Where a put or an erase is, for tests that stop it there. FORMAT.md, "Publish and delete".
enum class Step : uint8_t {
  temp_created,     ///< an empty temporary file exists
  temp_first_byte,  ///< its first bytes are written
  temp_synced,      ///< complete and on the device
  renamed,          ///< visible under its name
  folders_synced,   ///< its name is on the device too (durable only)
  row_written,      ///< the catalog knows it
  row_removed,      ///< erase: the catalog has forgotten it
  unlinked,         ///< erase: the name is gone
};
using StepObserver = std::function<void(Step, const std::string& file_name)>;

inline constexpr uint64_t kMinLimitBytes = 8ull << 20;  ///< smaller directories aren't opened
/// Kept free below the limit so that deletes and bookkeeping always find room.
inline constexpr uint64_t kHeadroomBytes = 2ull << 20;
inline constexpr size_t kMaxBatchFiles = 64;  ///< open temporary files at a time within one put

struct SsdOptions {
  uint64_t limit_bytes = 0;                 ///< of allocated bytes in the directory
  uint64_t min_free_bytes = 0;              ///< left free on the file system by puts
  uint64_t quarantine_bytes = 64ull << 20;  ///< of damaged files kept for inspection; 0: none
  /// Files without a good row whose headers recover() reads; adopt_more() reads the others.
  uint64_t adopt_at_start = UINT64_MAX;
  bool reindex = false;  ///< recover() reads every header and writes the catalog anew; of the old
                         ///< one only recency counts
  int64_t hour = 0;      ///< it is, since 1970 (UTC): recover() tells what was written in the day
  /// Every file and row that is written is sealed with it; null: they are plain. Plain files are
  /// read in any case.
  std::shared_ptr<const SealKey> key;
  Files* files = nullptr;   ///< nullptr: the operating system
  size_t read_buffers = 4;  ///< of 4 MiB, that files are read through: at most kMostReadBuffers
  RunBeside beside;         ///< recover() lists the folders there while it reads the catalog; null:
                            ///< one after the other
  StepObserver observer;    ///< called inside put and erase; may not call the tier
};

inline constexpr size_t kMaxRejectedNames = 1000;  ///< named one by one in a Recovery

/// A file that a recovery did not take, and why.
struct RejectedFile {
  std::string file;
  Status reason;
};

struct Recovery {
  std::vector<KnownObject> objects;  ///< in no order; a parent may be missing (orphans are kept)
  std::vector<std::shared_ptr<const Profile>> profiles;
  std::vector<ModelRecord> models;  ///< the highest valid serial of each (namespace, model)
  uint64_t rows_used = 0;           ///< objects whose catalog row was good
  uint64_t adopted = 0;             ///< files that had no good row
  uint64_t adopted_bytes = 0;       ///< length of those files
  uint64_t rows_dropped = 0;        ///< rows without a file, or that contradict their own id
  uint64_t temps_removed = 0;       ///< temporary files of a dead process
  uint64_t quarantined = 0;         ///< damaged files
  uint64_t unreadable = 0;          ///< I/O errors: left alone, not listed (nor counted, if even
                                    ///< their size can't be told)
  uint64_t unreadable_objects = 0;  ///< of these, files of objects: they may be there again later
  uint64_t unknown_files = 0;       ///< foreign names or other format versions: left alone, counted
  uint64_t unknown_bytes = 0;       ///< allocated by them
  uint64_t newer_files = 0;         ///< of `unknown_files`, those with names of ours
  uint64_t other_key_files = 0;     ///< sealed with another key: left alone, counted, and removed
                                    ///< when a write needs their room
  uint64_t other_key_bytes = 0;     ///< allocated by them
  uint64_t ephemeral_dropped = 0;   ///< sealed with a dead owner's key in memory: removed, if this
                                    ///< owner's key is such a one too
  std::string catalog_rebuilt;      ///< why the catalog was started anew or left out; empty if it
                                    ///< was good
  std::vector<RejectedFile> rejected;  ///< the first kMaxRejectedNames of `quarantined`,
                                       ///< `unreadable`, and files of other versions and keys
  uint64_t unread = 0;                 ///< files left to adopt_more(): counted, not yet known
  std::optional<KeptState> state;      ///< of keep(); none: never written, or lost
  HourBytes written;                   ///< lengths of the object files that are there, by the hour
                                       ///< of their last change: the last kKeptHours of them
  uint64_t milliseconds = 0;           ///< that it took
};

struct PutResult {
  Status status;
  /// What was reached even if status is an error: none, spilled (renamed) or durable (folder
  /// synced).
  Durability reached = Durability::none;
  bool existed = false;  ///< a file of these very bytes was there, and stands
  uint64_t allocated_bytes = 0;
};

struct EraseReply {
  uint64_t erased = 0;       ///< files that were there
  uint64_t freed_bytes = 0;  ///< allocated
};

/// Counters since open, and gauges. Bytes are allocated bytes.
struct SsdStats {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;      ///< everything in the directory
  uint64_t reserved_bytes = 0;  ///< promised to writes under way and to the catalog's growth
  uint64_t quarantine_bytes = 0, quarantine_files = 0;
  uint64_t unknown_bytes = 0;                         ///< as of recover()
  uint64_t other_key_files = 0, other_key_bytes = 0;  ///< sealed with another key
  uint64_t other_key_dropped = 0;                     ///< of these, removed to make room
  uint64_t files_written = 0, bytes_written = 0;      ///< lengths of published files
  /// What the device was given: file bytes, also of files that failed, and the catalog's pages (to
  /// its log, and at most as many to the database).
  uint64_t device_bytes_written = 0, catalog_bytes_written = 0;
  uint64_t reads = 0, bytes_read = 0;
  uint64_t read_errors = 0;    ///< I/O errors
  uint64_t corruptions = 0;    ///< files that failed twice and left the store
  uint64_t rereads_saved = 0;  ///< files that failed once and then verified
  uint64_t put_failures = 0;
  uint64_t erased = 0;
  uint64_t catalog_failures = 0;  ///< the catalog could not follow; the next recover() repairs it
};

class SsdTier {
 public:
  /// Creates the directory (its parent must exist) or takes over an existing store, and locks it.
  /// Returns: busy (another process or tier owns it), invalid_argument (limit too small, directory
  /// of another user, or neither empty nor a store), io_error, resource_exhausted.
  static Result<std::unique_ptr<SsdTier>> open(const std::string& directory, SsdOptions options);
  virtual ~SsdTier() = default;
  SsdTier(const SsdTier&) = delete;  // owns the directory's lock
  SsdTier& operator=(const SsdTier&) = delete;

  /// Reads what is there and makes the catalog agree with the files. Call it once, before any other
  /// call: one that failed is repeated on a tier opened anew. Deletes nothing but temporary files
  /// and rows; damaged files go to quarantine.
  /// Returns: io_error if a folder can't be listed or measured.
  virtual Result<Recovery> recover() = 0;
  /// Reads the headers of at most `max_files` (and 512) of those that recover() left unread, the
  /// oldest first, and tells what it found: objects (some may be known by now: a put found their
  /// file), adopted, quarantined, unreadable, foreign versions, and how many are unread still.
  virtual Recovery adopt_more(uint64_t max_files) = 0;

  /// Publishes objects in the given order (parents first): one result each. `level` is spilled or
  /// durable. An object fails with its parent's status if its parent (or a supplement's block)
  /// failed in this batch. resource_exhausted names the bytes needed and the limit: evict and put
  /// again.
  virtual std::vector<PutResult> put(std::span<const FileImage> images, Durability level) = 0;
  /// An upper bound on what publishing `image` takes from the limit while under way.
  virtual uint64_t room_needed(const FileImage& image) const = 0;
  /// limit - used - reserved - headroom, and what files of other keys give back when asked: puts
  /// whose room_needed fits will find it.
  virtual uint64_t room_left() const = 0;

  /// Every byte verified. The pieces lie where `place` says, or share one buffer.
  /// Returns: not_found; io_error (the file stays; try again later); corruption (read twice, then
  /// quarantined and forgotten); unsupported (another format version or key; it stays); busy (no
  /// memory); what `place` returned (not corruption: that would be the file's).
  virtual Result<FileImage> read(const ObjectName& name, const PlacePayload& place = {}) = 0;
  /// Memory that the first reads go through is there afterwards, or what there is. Any thread.
  virtual void make_ready() = 0;

  /// To verify the whole store, file by file: the next files (objects, profiles and model records;
  /// at least one, at most `most`) in the order of their names after `name`, with their lengths;
  /// none after the last. An empty `name`: from the first. Returns: io_error.
  virtual Result<std::vector<ListedFile>> files_after(const std::string& name, size_t most) = 0;
  /// Reads one of those from the device, every byte verified. Takes memory of its length.
  /// Returns: as read(); a damaged record is quarantined too: put it again.
  virtual Status verify(const std::string& name) = 0;

  /// Rows, then files, then fsync of the folders: on return they are gone for good. Names that
  /// aren't there are skipped. Returns: io_error (some may remain; calling again is right).
  Result<EraseReply> erase(std::span<const ObjectName> names) { return erase(names, false); }
  /// `more_follows`: without the fsync, which the next sync() or erase() makes up for.
  virtual Result<EraseReply> erase(std::span<const ObjectName> names, bool more_follows) = 0;
  /// Takes an object out of the store whose content the caller found wrong: its row goes, its file
  /// moves to quarantine, durably. Returns: not_found, io_error.
  virtual Status quarantine(const ObjectName& name) = 0;
  /// Marks objects as used now, the last one latest. Reaches the catalog in batches.
  virtual void touch(std::span<const ObjectName> names) = 0;

  /// What recover() gives back after a restart: the last one before a checkpoint (an own one, or of
  /// the catalog's log) or the tier's end. Waits for nobody.
  virtual void keep(const KeptState& state) = 0;

  /// Makes everything published so far durable. Returns: io_error.
  virtual Status sync() = 0;
  /// Writes pending touches and empties the catalog's log, so that erased tokens are gone from it.
  virtual Status checkpoint() = 0;
  /// After an erase: no byte of what was erased stays in any file. Removes every temporary and
  /// quarantined file (whose a damaged one is nobody can tell) and writes the catalog anew; takes
  /// room and memory of the catalog's size. Returns: resource_exhausted, busy (another process has
  /// the catalog open, no memory), io_error: something may be left.
  virtual Status scrub() = 0;
  /// What scrub() needs of the limit: one that is exhausted can be made room for.
  virtual uint64_t scrub_room() = 0;

  /// Records are durable on return, before the first block that names them.
  virtual Status put_profile(const Profile& profile) = 0;
  virtual Result<std::shared_ptr<const Profile>> read_profile(const Id& id) = 0;
  /// One that another key sealed stays: so do the files that name it. So do such model records.
  virtual Status erase_profile(const Id& id) = 0;
  /// Becomes the one in force: its serial is raised above those that are there. The others go, but
  /// for those that another key sealed. Returns: invalid_argument if the highest serial is there.
  virtual Status put_model_record(const ModelRecord& record) = 0;
  /// Every serial of this (namespace, model), see model_id().
  virtual Status erase_model_records(const Id& model) = 0;

  virtual SsdStats stats() const = 0;

 protected:
  SsdTier() = default;
};

}  // namespace kv
