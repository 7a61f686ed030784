// Attached: supplements and snapshots of one node of a realm's tree. Supplements are few (each has
// other rows or positions of the node), in the order of arrival. Snapshots may be as many as
// entries go on from the node, sorted by tokens: a query costs O(log n) and its results. Attached
// owns no record. ObjectIndex alone changes it; loop thread only.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cachesvc/core/record.h"
#include "index/symbols.h"

namespace kv {

class Attached {
 public:
  bool empty() const { return supplements_.empty() && !snapshots_; }
  size_t snapshots() const { return snapshots_ ? snapshots_->size() : 0; }

  /// Precondition: the record has its attachment.
  void add(Record& record);
  /// Precondition: the record was added.
  void remove(const Record& record);

  std::span<Record* const> supplements() const { return supplements_; }
  /// Snapshots that lie on the path which goes on from the node with `rest` (unpacked): the longest
  /// first, at most one for each of its tokens and one more.
  std::vector<Record*> snapshots_on(const Symbols& rest) const;
  /// Symbols that `rest` and some snapshot begin with, at most.
  uint32_t longest_common(const Symbols& rest) const;
  /// Adds snapshots that go on from the node with `rest` or end with it, until there are `most` in
  /// `out`.
  void snapshots_beginning_with(const Symbols& rest, size_t most, std::vector<Record*>& out) const;
  /// Adds snapshots and supplements, until there are `most` in `out`.
  void list(size_t most, std::vector<Record*>& out) const;

 private:
  struct Order {
    using is_transparent = void;
    bool operator()(const Record* a, const Record* b) const;
    bool operator()(const Record* a, const Symbols& b) const;
    bool operator()(const Symbols& a, const Record* b) const;
  };
  // Two of one node have the same tokens only if a file says so that another program wrote.
  using Snapshots = std::multiset<Record*, Order>;

  std::vector<Record*> supplements_;
  std::unique_ptr<Snapshots> snapshots_;  // null: none
};

}  // namespace kv
