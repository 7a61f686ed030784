// StoreView: the files of a store's directory put together: paths, entries, models, profiles.
//
// Built once from headers, immutable afterwards. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "storage/inspect.h"
#include "storage/ssd_tier.h"
#include "tools/cachectl.h"
#include "tools/cachectl_notes.h"

namespace kv::cachectl {

/// A stored token sequence: its newest object and all that it rests on.
struct Entry {
  const InspectedFile* leaf = nullptr;      ///< a tail, a snapshot, or a block without children
  std::vector<const InspectedFile*> path;   ///< blocks from the root, then the leaf
  std::vector<const InspectedFile*> files;  ///< the path with its supplements and snapshots
  bool complete = false;                    ///< the path reaches the root
  uint64_t stored_bytes = 0;                ///< lengths of `files`
  uint64_t fp16_bytes = 0;                  ///< the same rows in fp16
};

/// The entry whose last object's id begins with `id`. Returns: not_found, invalid_argument
/// (several).
Result<size_t> find_entry(const std::vector<Entry>& entries, const std::string& id);

/// Rows in fp16, states as they are.
uint64_t fp16_bytes(const Object& object);
/// The coding of these files' planes, e.g. "tq4", "raw", "K tq4 V tq3", "tq4+raw".
std::string codec_summary(const std::vector<const InspectedFile*>& files);
bool is_object(const InspectedFile& file);
/// True if the child begins where its parent ends, and the parent before it: damaged or hostile
/// files make no loop, as the position rises.
bool goes_on(const Object& parent, const Object& child);

/// Takes the request's store over, exclusively, with no limit on its bytes; never creates one.
/// Returns: busy (a daemon has it), not_found or invalid_argument (no store), io_error.
Result<std::unique_ptr<SsdTier>> own_store(const Request& request, SsdOptions options);

class StoreView {
 public:
  /// Returns: what inspect_directory returns.
  static Result<StoreView> load(const Request& request);

  const Inspection& inspection() const { return *inspection_; }
  /// Null if the store lacks it, or its file is damaged.
  const InspectedFile* block(const Id& id) const;
  /// Undamaged files with this id: block or tail and its supplements, or a snapshot; or records.
  std::vector<const InspectedFile*> with_id(const Id& id) const;
  /// The record in force for the object's (namespace, model); null if there is none.
  std::shared_ptr<const ModelRecord> model_of(const Object& object) const;
  std::shared_ptr<const Profile> profile(const Id& id) const;
  /// The records in force, of all namespaces.
  std::vector<std::shared_ptr<const ModelRecord>> models() const;
  /// The model's name, or the beginning of its fingerprint.
  std::string model_name(const Object& object) const;
  /// Blocks from the root down to `file`, itself included, then the path's completeness.
  std::vector<const InspectedFile*> path_to(const InspectedFile& file, bool& complete) const;
  /// Blocks, tails and snapshots that name it as their parent.
  std::vector<const InspectedFile*> children_of(const Id& id) const;
  /// A block or tail with its supplements and the snapshots at its end.
  std::vector<const InspectedFile*> entry_files(const InspectedFile& step) const;
  Entry entry_of(const InspectedFile& leaf) const;
  /// A client's words on the entry that ends with this file; empty: nothing.
  EntryWords words_of(const InspectedFile& leaf) const;
  /// Sorted by namespace, model, then id.
  std::vector<Entry> entries() const;

 private:
  void add(const InspectedFile& file);
  const InspectedFile* object(const Id& id, FileKind kind) const;
  bool stands_alone(const InspectedFile& snapshot) const;
  const InspectedFile* snapshot_at(const InspectedFile& leaf) const;
  bool is_leaf(const InspectedFile& file) const;

  std::shared_ptr<const Inspection> inspection_;
  std::unordered_multimap<Id, const InspectedFile*, IdHash> by_id_;
  std::unordered_multimap<Id, const InspectedFile*, IdHash> children_;  // blocks, tails, snapshots
  std::map<Id, std::shared_ptr<const ModelRecord>> models_;  // by model_id, highest serial
  std::map<Id, std::shared_ptr<const Profile>> profiles_;
  std::map<ObjectName, ObjectNote> notes_;
  bool snapshots_ = false;  // the store has some
};

/// Calls work(i) once for each i below `count`, on all processors.
void for_each_index(size_t count, const std::function<void(size_t)>& work);

}  // namespace kv::cachectl
