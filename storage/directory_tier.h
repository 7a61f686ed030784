// DirectoryTier: SsdTier over one locked directory. Internal to storage/: callers see SsdTier.
//
// Lock order: writer_mutex_ before the ledger's. Reads take neither, except when a file fails to
// verify: then the second read and the move to quarantine run as a writer. stats(), room_needed()
// and room_left() never wait for a writer.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "storage/adoption.h"
#include "storage/catalog_mirror.h"
#include "storage/ledger.h"
#include "storage/other_keys.h"
#include "storage/publisher.h"
#include "storage/quarantine.h"
#include "storage/read_buffers.h"
#include "storage/ssd_tier.h"
#include "storage/store_dir.h"

namespace kv {

class DirectoryTier final : public SsdTier {
 public:
  DirectoryTier(const std::string& directory, SsdOptions options, Files& files,
                std::array<Fd, 2> locks);
  ~DirectoryTier() override;

  Result<Recovery> recover() override;
  Recovery adopt_more(uint64_t max_files) override;
  std::vector<PutResult> put(std::span<const FileImage> images, Durability level) override;
  uint64_t room_needed(const FileImage& image) const override;
  uint64_t room_left() const override { return ledger_.left() + other_keys_.bytes(); }
  Result<FileImage> read(const ObjectName& name, const PlacePayload& place = {}) override;
  void make_ready() override { buffers_.make_ready(); }
  Result<std::vector<ListedFile>> files_after(const std::string& name, size_t most) override;
  Status verify(const std::string& name) override;
  using SsdTier::erase;
  Result<EraseReply> erase(std::span<const ObjectName> names, bool more_follows) override;
  Status quarantine(const ObjectName& name) override;
  void touch(std::span<const ObjectName> names) override;
  void keep(const KeptState& state) override { catalog_.keep(state); }
  Status sync() override;
  Status checkpoint() override;
  Status scrub() override;
  uint64_t scrub_room() override;
  Status put_profile(const Profile& profile) override;
  Result<std::shared_ptr<const Profile>> read_profile(const Id& id) override;
  Status erase_profile(const Id& id) override;
  Status put_model_record(const ModelRecord& record) override;
  Status erase_model_records(const Id& model) override;
  SsdStats stats() const override;

  StoreDir& dir() { return dir_; }

 private:
  /// One object of a put on its way through the steps.
  struct Item {
    const FileImage* image = nullptr;
    PutResult* result = nullptr;
    PendingFile pending;
    bool alive = false;  ///< not failed, and not there before
  };
  /// Ids whose object failed in this put: what depends on them fails too.
  using FailedIds = std::map<Id, Status>;

  void put_batch(std::span<const FileImage> images, Durability level, std::span<PutResult> results,
                 FailedIds& failed);
  void put_items(std::span<Item> items, Durability level, FailedIds& failed);
  void write_item(Item& item, FailedIds& failed);
  void publish_item(Item& item, FailedIds& failed);
  void sync_items(std::span<Item> items);
  void mirror_items(std::span<Item> items);
  void fail(Item& item, Status status, FailedIds& failed);
  /// The file of that name is there and holds these very bytes. One of other bytes is replaced; a
  /// damaged one goes to quarantine.
  bool stored(const FileImage& image);

  /// Publisher::write_temp, with room from files of other keys if need be.
  Status write_temp(const EncodedFile& file, uint64_t extra_room, PendingFile& pending);
  Status put_record(const EncodedFile& file, const Id& id, const std::string& name);
  /// Unlinks, and takes its bytes off the ledger. Returns: not_found, io_error.
  Status remove_file(const Id& id, const std::string& name, EraseReply& reply);
  Status erase_batch(std::span<const ObjectName> batch, EraseReply& reply);
  Result<FileImage> read_again(const ObjectName& name, const std::string& path,
                               const PlacePayload& place);
  Status verify_record(const ParsedName& name, const std::string& path);
  /// The row, then the file. Returns: io_error; not_found.
  Status move_away(const ObjectName& name, const std::string& path);
  void flush_touches();
  Status sync_now();
  Status remove_temps();
  std::vector<std::pair<std::string, uint64_t>> serials_of(const Id& model, Status& status) const;

  const SsdOptions options_;
  Ledger ledger_;
  StoreDir dir_;
  Publisher publisher_;
  Quarantine quarantine_;
  CatalogMirror catalog_;
  OtherKeys other_keys_;
  Adoption adoption_;
  const std::array<Fd, 2> locks_;  // of the file LOCK, and of the directory (or -1)

  std::mutex writer_mutex_;  // guards what follows but the counters, and the parts above but the
                             // ledger
  ReadBuffers buffers_;      ///< of options.read_buffers
  bool recovered_ = false;
  bool unmeasured_ = false;  ///< folders have shrunk since they were measured
  uint64_t recency_ = 0;
  std::map<std::string, uint64_t> touches_;  // by file name, not yet in the catalog

  // SsdStats' counters of these names: written under any lock or none, read under none.
  struct Counters {
    std::atomic<uint64_t> unknown_bytes{0}, files_written{0}, bytes_written{0}, reads{0},
        bytes_read{0}, read_errors{0}, corruptions{0}, rereads_saved{0}, put_failures{0}, erased{0};
  };
  Counters counters_;
};

}  // namespace kv
