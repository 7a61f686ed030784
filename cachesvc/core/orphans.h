// Orphans: objects on the SSD whose parent block, model or profile is missing, by their parent.
// They serve nothing; ObjectIndex::relink gives them their place when what they lack returns, and
// they are erased when they may belong to what is erased (core/orphan_match.h). Loop thread only.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/core/record.h"

namespace kv {

class Orphans {
 public:
  void add(Record& record) { by_parent_.emplace(record.orphan->header.parent, &record); }
  void forget(const Record& record);
  std::vector<Record*> children_of(const Id& parent) const;
  std::vector<Record*> of(const std::string& ns, const Id& fingerprint) const;
  /// True if there is one of any profile but `but`.
  bool has(const std::string& ns, const Id& fingerprint, const Id& but = {}) const;
  bool names_profile(const Id& profile) const;
  bool empty() const { return by_parent_.empty(); }

 private:
  std::unordered_multimap<Id, Record*, IdHash> by_parent_;
};

}  // namespace kv
