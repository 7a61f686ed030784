// Orphans: objects on the SSD whose parent block, model or profile is missing, by their parent and
// by their model. Orphans serve nothing; ObjectIndex::relink gives them their place when the
// missing part returns, and an erase takes those that it may cover (core/orphan_match.h). Loop
// thread only.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/core/record.h"

namespace kv {

class Orphans {
 public:
  void add(Record& record);
  /// `key`: the record's key when it was added.
  void forget(const Record& record, EntryKey key);
  std::vector<Record*> children_of(const Id& parent) const;
  /// The next `most` of a model after the one with key `after`, the oldest first; 0: from the
  /// first.
  std::vector<Record*> of(const std::string& ns, const Id& fingerprint, EntryKey after,
                          size_t most) const;
  /// The first `most` of a namespace, of any model.
  std::vector<Record*> of(const std::string& ns, size_t most) const;
  /// True if there is one of any profile but `but`.
  bool has(const std::string& ns, const Id& fingerprint, const Id& but = {}) const;
  bool names_profile(const Id& profile) const;
  bool empty() const { return by_parent_.empty(); }

 private:
  using ModelName = std::pair<std::string, Id>;  ///< namespace, fingerprint
  struct OfModel {
    std::map<EntryKey, Record*> orphans;
    std::map<Id, size_t> profiles;  ///< number of orphans that name each
  };
  std::unordered_multimap<Id, Record*, IdHash> by_parent_;
  std::map<ModelName, OfModel> by_model_;
};

}  // namespace kv
