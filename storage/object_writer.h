// ObjectWriter: objects on their way to the directory: a batch is written, synced, renamed in the
// caller's order, and only then told to the catalog. FORMAT.md, "Publish and delete".
//
// Objects whose file is there, with these very bytes, are left alone. Internal to storage/; called
// under the tier's writer lock, room_needed() and count() from any thread.
#pragma once

#include <atomic>
#include <map>
#include <span>
#include <vector>

#include "proto/client.h"
#include "storage/block_file.h"
#include "storage/catalog_mirror.h"
#include "storage/publisher.h"
#include "storage/ssd_stats.h"
#include "storage/store_dir.h"
#include "storage/verified_reader.h"

namespace kv {

struct PutResult {
  Status status;
  /// Level reached, even if status is an error: none, spilled (renamed) or durable (folder synced).
  Durability reached = Durability::none;
  bool existed = false;  ///< a file of these very bytes was there, and stays
  uint64_t allocated_bytes = 0;
};

class ObjectWriter {
 public:
  ObjectWriter(StoreDir& dir, Publisher& publisher, CatalogMirror& catalog, VerifiedReader& reader)
      : dir_(dir), publisher_(publisher), catalog_(catalog), reader_(reader) {}

  /// See SsdTier::put().
  std::vector<PutResult> put(std::span<const FileImage> images, Durability level);
  /// See SsdTier::room_needed().
  uint64_t room_needed(const FileImage& image) const;
  /// files_written, bytes_written, put_failures.
  void count(SsdStats& out) const;

 private:
  /// An object of a put on its way through the steps.
  struct Item {
    const FileImage* image = nullptr;
    PutResult* result = nullptr;
    PendingFile pending;
    bool alive = false;  ///< neither failed nor there before
  };
  /// Ids whose object failed in this put: what depends on them fails too.
  using FailedIds = std::map<Id, Status>;

  void put_batch(std::span<Item> items, Durability level, FailedIds& failed);
  void write_item(Item& item, FailedIds& failed);
  void publish_item(Item& item, FailedIds& failed);
  void sync_items(std::span<Item> items);
  void mirror_items(std::span<Item> items);
  void fail(Item& item, Status status, FailedIds& failed);
  /// The file of that name is there and holds these very bytes. One of other bytes is replaced; a
  /// damaged one goes to quarantine.
  bool stored(const FileImage& image);

  StoreDir& dir_;
  Publisher& publisher_;
  CatalogMirror& catalog_;
  VerifiedReader& reader_;
  std::atomic<uint64_t> files_written_{0}, bytes_written_{0}, put_failures_{0};
};

}  // namespace kv
