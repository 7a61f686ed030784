// Shares: one tier's bytes, divided among namespaces, and which object goes when bytes are short.
//
// A namespace with a quota has a share of its own and an order of going of its own; all others have
// what is left together, and one order. One rule chooses: the share that is used most, as a part of
// itself, loses its least recently used object; whoever asks is counted with what it asks for. So
// what one does not use others may, and they give it back first. A share over its limit that has
// only dirty objects is waited for: nobody under his loses a clean one for it.
// Loop thread only.
#pragma once

#include <vector>

#include "index/eviction.h"

namespace kv {

/// Number of a namespace (core/namespaces.h); 0: any without a table.
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
  /// So many more are about to be inserted, of whichever namespace.
  void expect(size_t entries) { parts_[0].order.expect(entries); }

  /// As EvictionOrder::next_victims, among all.
  EvictionOrder::Victims next_victims(uint64_t bytes_needed, bool dirty_too,
                                      Asker asker = {}) const;

  size_t size() const;
  uint64_t bytes(ShareId share) const { return bytes_[share]; }
  /// 0: it has none of its own.
  uint64_t limit(ShareId share) const {
    return part_of_[share] == 0 ? 0 : parts_[part_of_[share]].limit;
  }
  /// Its own, or what is left for all that have none, together.
  uint64_t part_limit(ShareId share) const { return parts_[part_of_[share]].limit; }
  size_t count() const { return bytes_.size(); }
  /// Ends the process if sums of parts and of namespaces disagree.
  void check_invariants() const;

 private:
  /// An order of going and what it may have.
  struct Part {
    uint64_t limit = 0;
    uint64_t bytes = 0;
    EvictionOrder order;
  };
  std::vector<Part> parts_;        // the common one first
  std::vector<uint16_t> part_of_;  // by ShareId
  std::vector<uint64_t> bytes_;    // by ShareId
};

}  // namespace kv
