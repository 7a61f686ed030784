// Shares: one tier's bytes, divided among namespaces, and the choice of the object that goes when
// bytes are short.
//
// A namespace with a quota has a share and an eviction order of its own; all others have the rest
// and one order together. One rule chooses: the share used most, relative to its limit, loses its
// least recently used object; the asker's use includes the bytes it asks for. So others may use
// what a share leaves, and give it back first. A share over its limit with only dirty objects is
// waited for: no share under its limit loses a clean object for it. Loop thread only.
#pragma once

#include <vector>

#include "index/eviction.h"

namespace kv {

/// Number of a namespace (core/namespaces.h); 0: every one without a quota.
using ShareId = uint16_t;
inline constexpr ShareId kCommonShare = 0;

/// Bytes that are wanted for a namespace.
struct Asker {
  ShareId share = kCommonShare;
  uint64_t bytes = 0;
};

class Shares {
 public:
  /// `limits`: bytes by number, 0: none of its own; `tier_bytes`: of all.
  Shares(const std::vector<uint64_t>& limits, uint64_t tier_bytes);

  bool insert(ShareId share, EntryKey key, const EntryOptions& options);
  bool erase(ShareId share, EntryKey key);
  EvictionOrder& of(ShareId share) { return parts_[part_of_[share]].order; }
  const EvictionOrder& of(ShareId share) const { return parts_[part_of_[share]].order; }
  /// Reserves capacity for `entries` more, of any namespace.
  void expect(size_t entries) { parts_[0].order.expect(entries); }

  /// The next victims among all shares; as EvictionOrder::next_victims.
  EvictionOrder::Victims next_victims(uint64_t bytes_needed, bool dirty_too,
                                      Asker asker = {}) const;

  size_t size() const;
  uint64_t bytes(ShareId share) const { return bytes_[share]; }
  /// The namespace's own limit; 0: none.
  uint64_t limit(ShareId share) const {
    return part_of_[share] == 0 ? 0 : parts_[part_of_[share]].limit;
  }
  /// The namespace's own limit, or the common one of all that have none.
  uint64_t part_limit(ShareId share) const { return parts_[part_of_[share]].limit; }
  size_t count() const { return bytes_.size(); }
  /// Ends the process if sums of parts and of namespaces disagree.
  void check_invariants() const;

 private:
  /// An eviction order and its limit.
  struct Part {
    uint64_t limit = 0;
    uint64_t bytes = 0;
    EvictionOrder order;
  };
  std::vector<Part> parts_;        // the common part first
  std::vector<uint16_t> part_of_;  // by ShareId
  std::vector<uint64_t> bytes_;    // by ShareId
};

}  // namespace kv
