// SsdTier: the store's directory: durable, verified, bounded. FORMAT.md says what lies on disk.
//
// Files are the truth; the catalog is a disposable mirror of them. No file is visible under its
// name before its bytes are on the device, and no byte is written before the ledger has room for
// it: the directory (everything in it) never exceeds limit_bytes. A damaged file is a miss, never
// wrong bytes. Threads: any thread may call; all calls block. read() and verify() run beside reads
// and one writer; put, erase, touch, sync, checkpoint, recover and the record calls wait for
// each other; stats and the room calls wait for nobody. Lock order: the writers' before the
// ledger's.
//
// Memory of a file's or the catalog's size is asked for: a call that finds none is busy, and may be
// repeated. Any other allocation that fails is std::bad_alloc out of the call, and the end of this
// tier: destroy it. Its files and catalog are then what a kill at that moment would have left, good
// for the next start; what was acked before is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "storage/adoption.h"
#include "storage/catalog_mirror.h"
#include "storage/directory_lock.h"
#include "storage/ledger.h"
#include "storage/object_writer.h"
#include "storage/other_keys.h"
#include "storage/publisher.h"
#include "storage/quarantine.h"
#include "storage/record_store.h"
#include "storage/recovery.h"
#include "storage/ssd_options.h"
#include "storage/ssd_stats.h"
#include "storage/store_dir.h"
#include "storage/verified_reader.h"

namespace kv {

struct EraseReply {
  uint64_t erased = 0;       ///< files that were there
  uint64_t freed_bytes = 0;  ///< allocated
};

class SsdTier {
 public:
  /// Creates the directory (its parent must exist) or takes over an existing store, and locks it.
  /// Returns: busy (another process or tier owns it), invalid_argument (limit too small, directory
  /// of another user, or neither empty nor a store), io_error, resource_exhausted.
  static Result<std::unique_ptr<SsdTier>> open(const std::string& directory, SsdOptions options);
  ~SsdTier();
  SsdTier(const SsdTier&) = delete;  // owns the directory
  SsdTier& operator=(const SsdTier&) = delete;

  /// Reads what is there and makes the catalog agree with the files. Call it once, before any other
  /// call: one that failed is repeated on a tier opened anew. Deletes nothing but temporary files
  /// and rows; damaged files go to quarantine.
  /// Returns: io_error if a folder can't be listed or measured.
  Result<Recovery> recover();
  /// Reads the headers of at most `max_files` (and 512) of those that recover() left unread, the
  /// oldest first, and tells what it found: objects (some may be known by now: a put found their
  /// file), adopted, quarantined, unreadable, foreign versions, and how many are unread still.
  Recovery adopt_more(uint64_t max_files);

  /// Publishes objects in the given order (parents first): one result each. `level` is spilled or
  /// durable. An object fails with its parent's status if its parent (or a supplement's block)
  /// failed in this batch. resource_exhausted names the bytes needed and the limit: evict and put
  /// again.
  std::vector<PutResult> put(std::span<const FileImage> images, Durability level);
  /// An upper bound on what publishing `image` takes from the limit while under way.
  uint64_t room_needed(const FileImage& image) const;
  /// limit - used - reserved - headroom, and what files of other keys give back when asked: puts
  /// whose room_needed fits will find it.
  uint64_t room_left() const { return ledger_.left() + other_keys_.bytes(); }

  /// Reads an object, every byte verified. The pieces lie where `place` says, or share one buffer.
  /// Returns: not_found; io_error (the file stays; try again later); corruption (read twice, then
  /// quarantined and forgotten); unsupported (another format version or key; it stays); busy (no
  /// memory); what `place` returned (not corruption: that would be the file's).
  Result<FileImage> read(const ObjectName& name, const PlacePayload& place = {});
  /// Makes memory for the first reads, as far as there is any. Any thread.
  void make_ready() { reader_.make_ready(); }

  /// The next files (objects, profiles and model records; at least one, at most `most`) in the
  /// order of their names after `name`, with their lengths, for a verification of the whole store;
  /// none after the last. An empty `name`: from the first. Returns: io_error.
  Result<std::vector<ListedFile>> files_after(const std::string& name, size_t most);
  /// Reads one of those from the device, every byte verified. Takes memory of its length.
  /// Returns: as read(); a damaged record is quarantined too: put it again.
  Status verify(const std::string& name);

  /// Rows, then files, then fsync of the folders: on return they are gone for good. Names that
  /// aren't there are skipped. Returns: io_error (some may remain; calling again is right).
  /// `more_follows`: without the fsync, which the next sync() or erase() makes up for.
  Result<EraseReply> erase(std::span<const ObjectName> names, bool more_follows = false);
  /// Takes an object out of the store whose content the caller found wrong: its row goes, its file
  /// moves to quarantine, durably. Returns: not_found, io_error.
  Status quarantine(const ObjectName& name);
  /// Marks objects as used now, the last one latest. Reaches the catalog in batches.
  void touch(std::span<const ObjectName> names);

  /// Keeps notes of objects in place of earlier ones; recover() gives them back as long as the
  /// catalog is there. They are in it on return.
  void note(std::span<const NotedName> notes);

  /// Keeps state that recover() gives back after a restart: the last one before a checkpoint (an
  /// own one, or of the catalog's log) or the tier's end. Waits for nobody.
  void keep(const KeptState& state) { catalog_.keep(state); }

  /// Makes everything published so far durable. Returns: io_error.
  Status sync();
  /// Writes pending touches and empties the catalog's log, so that erased tokens are gone from it.
  Status checkpoint();
  /// Leaves no byte of erased objects in any file, after an erase. Removes every temporary and
  /// quarantined file (the owner of a damaged one is unknown) and writes the catalog anew; takes
  /// room and memory of the catalog's size. Returns: resource_exhausted, busy (another process has
  /// the catalog open, no memory), io_error: something may be left.
  Status wipe();
  /// Bytes of the limit that wipe() needs, so that room can be made for it.
  uint64_t wipe_room();

  /// Records are durable on return, before the first block that names them.
  Status put_profile(const Profile& profile);
  Result<std::shared_ptr<const Profile>> read_profile(const Id& id);
  /// Erases a profile. Profiles and model records that another key sealed stay, like the files that
  /// name them.
  Status erase_profile(const Id& id);
  /// Puts a model record in force: its serial is raised above the existing ones. The others go, but
  /// for those that another key sealed. Returns: invalid_argument if the highest serial is there.
  Status put_model_record(const ModelRecord& record);
  /// Erases every serial of this (namespace, model), see model_id().
  Status erase_model_records(const Id& model);

  SsdStats stats() const;

 private:
  SsdTier(const std::string& directory, SsdOptions options, Files& files,
          std::unique_ptr<DirectoryLock> lock);
  Status erase_batch(std::span<const ObjectName> batch, EraseReply& reply);
  Status sync_now();

  // Owners, each with its part of the directory: what stands lower may call what stands above it.
  const SsdOptions options_;
  const std::unique_ptr<DirectoryLock> lock_;  // goes last
  Ledger ledger_;
  StoreDir dir_;
  Quarantine quarantine_;
  CatalogMirror catalog_;
  OtherKeys other_keys_;
  Publisher publisher_;
  VerifiedReader reader_;
  ObjectWriter objects_;
  RecordStore records_;
  Adoption adoption_;

  std::mutex writer_mutex_;  // guards the owners, as each of them says, and what follows
  bool recovered_ = false;
  bool unmeasured_ = false;                 // folders have shrunk since they were measured
  std::atomic<uint64_t> unknown_bytes_{0};  // read under no lock
};

}  // namespace kv
