// OtherKeys: the files here that are sealed with a key which is not this owner's.
//
// Such files serve nothing while this owner runs, so they make room when a write needs some: the
// newest first, so that the rest has its parents when their key returns; model records and profiles
// last, without which nothing is served. Else they stay. Their bytes are in the ledger. Internal to
// storage/; called under the tier's writer lock, bytes() and the counts from any thread.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "storage/store_dir.h"

namespace kv {

inline constexpr size_t kMaxListedOthers = 100'000;  ///< each takes some 300 bytes of memory

class OtherKeys {
 public:
  explicit OtherKeys(StoreDir& dir) : dir_(dir) {}

  /// A file in `folder`, by its name, that sealed_by_other() told of. Beyond kMaxListedOthers it is
  /// counted in the ledger only, and makes room after another start.
  void add(uint32_t folder, const std::string& name, const FileInfo& info);
  /// A file of this owner's took that name.
  void forget(const std::string& name);
  /// Unlinks files until `bytes` are free or none is left. False if nothing was freed.
  bool make_room(uint64_t bytes);

  uint64_t files() const { return files_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }      ///< allocated
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }  ///< made room

 private:
  struct File {
    uint32_t folder;
    std::string name;
    uint64_t allocated_bytes;
  };
  using Files = std::multimap<std::pair<bool, int64_t>, File>;  // a record or profile; minus time
  void take_out(Files::iterator file);

  StoreDir& dir_;
  Files order_;
  std::map<std::string, Files::iterator> by_name_;
  std::atomic<uint64_t> files_{0}, bytes_{0}, dropped_{0};
};

}  // namespace kv
