// EvictionOrder: the order in which entries of one tier go when bytes are needed: leaf-first LRU
// with charges and pins. One object per tier; entries of all trees share it.
//
// An entry is a victim only while it has no resident child and no pin. Supplements and snapshots
// are entries too, with their block as parent: they go before it, and apart from it. Recency is a
// counter, never a clock. All operations are O(log n). One thread at a time (the loop).
#pragma once

#include <boost/intrusive/set.hpp>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "index/sharded_map.h"

namespace kv {

/// Chosen by the caller, for example realm << 32 | NodeId.
using EntryKey = uint64_t;
inline constexpr EntryKey kNoEntry = UINT64_MAX;

/// Urgency of an entry that may go: a higher one goes before all of a lower one, equal ones by
/// recency. Between the ordinary and the superseded ones: supplements far from an entry's end, by
/// their distance.
using DropUrgency = uint32_t;
/// A client asked for it to stay. A clean one goes before dirty ones all the same: the tier below
/// has it, and what is dirty would be lost, or waited for.
inline constexpr DropUrgency kDropRetained = 0;
inline constexpr DropUrgency kDropLast = 1;                     ///< an ordinary entry
inline constexpr DropUrgency kDropSuperseded = UINT32_MAX - 1;  ///< a longer one holds its tokens
inline constexpr DropUrgency kDropFirst = UINT32_MAX;           ///< serves nothing: orphans

/// Cost of computing an entry anew, beside others: the logarithm, to 2, of its time a byte over
/// their mean. A dearer entry counts as used later than it was, a cheaper one as used earlier, each
/// by a part of the time that ordinary entries stay now: so of equal ones the cheap go first, and
/// no cost keeps for good what nobody uses.
using Worth = int8_t;
inline constexpr Worth kMostWorth = 2;  ///< up or down

struct EntryOptions {
  EntryKey parent = kNoEntry;  ///< need not be resident, now or ever
  uint64_t charge_bytes = 0;
  bool dirty = false;  ///< missing in the tier below: dropping it loses it
  DropUrgency urgency = kDropLast;
  /// Set at load, so that a restart keeps the order; below 2^62. Without it: newest.
  std::optional<uint64_t> recency = std::nullopt;
  Worth worth = 0;  ///< of one that is newest
};

class EvictionOrder {
  struct Rank;

 public:
  /// The entries that may go, one after the other in the order of going, a parent after its last
  /// child: clean ones first. Changes nothing; the order may not change meanwhile.
  class Walk {
   public:
    explicit Walk(const EvictionOrder& order);
    struct Victim {
      EntryKey key;
      uint64_t charge_bytes;
    };
    /// nullopt: no clean one is left, nor a dirty one if `dirty_too`.
    std::optional<Victim> next(bool dirty_too);
    /// True if some dirty one is left.
    bool has_dirty() const;

   private:
    struct State;
    std::shared_ptr<State> state_;
  };

  /// False if `key` is already resident or is kNoEntry or its own parent: nothing changes.
  bool insert(EntryKey key, const EntryOptions& options);
  /// Reserves capacity for `entries` more. Insert children before their parents: an entry with
  /// resident children needs no place among the victims, which saves time.
  void expect(size_t entries) { entries_.expect(entries); }
  /// Erases an entry, also one with resident children (a lost interior block). False if not
  /// resident or pinned.
  bool erase(EntryKey key);

  // These return false if `key` is not resident (unpin: or not pinned).
  bool touch(EntryKey key);
  bool set_dirty(EntryKey key, bool dirty);
  bool set_urgency(EntryKey key, DropUrgency urgency);
  /// Pins are counted: as many unpins as pins. A pin keeps all resident ancestors too, as they have
  /// a child.
  bool pin(EntryKey key);
  bool unpin(EntryKey key);
  /// Touches all with one tick: within a path the deepest still goes first, as it is the leaf.
  void touch_all(std::span<const EntryKey> keys, Worth worth = 0);

  /// The entries to drop, in this order (a parent after its last child), until their charges reach
  /// `bytes_needed`: clean ones; dirty ones too, after all clean ones that are free at that moment,
  /// if `dirty_too`. Changes nothing: the caller erases what it drops.
  /// Returns: fewer bytes than needed if no more may go; the sum is in `bytes`.
  struct Victims {
    std::vector<EntryKey> keys;
    uint64_t bytes = 0;
  };
  Victims next_victims(uint64_t bytes_needed, bool dirty_too) const;

  bool resident(EntryKey key) const;
  // 0 or false if not resident.
  uint64_t charge_bytes(EntryKey key) const;
  uint64_t recency(EntryKey key) const;
  uint32_t pins(EntryKey key) const;
  bool dirty(EntryKey key) const;
  bool has_children(EntryKey key) const;  ///< resident ones

  size_t size() const { return resident_; }
  /// Memory held, for the RAM ledger (an estimate).
  uint64_t memory_bytes() const;

 private:
  /// The smallest of its set goes first.
  struct Rank {
    DropUrgency calm;  ///< the most urgent lowest
    uint64_t recency;
    EntryKey key;
    auto operator<=>(const Rank&) const = default;
  };
  using Hook =
      boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>,
                                      boost::intrusive::optimize_size<true>>;
  struct Entry : Hook {
    EntryKey key = kNoEntry;
    EntryKey parent = kNoEntry;
    uint64_t charge = 0;
    uint64_t recency = 0;
    uint32_t children = 0;  // resident ones
    uint32_t pins = 0;
    DropUrgency urgency = kDropLast;
    bool resident = false;  // false: only remembers that resident children name it as parent
    bool dirty = false;
  };
  static Rank rank(const Entry& e) { return {UINT32_MAX - e.urgency, e.recency, e.key}; }
  struct Before {
    bool operator()(const Entry& a, const Entry& b) const { return rank(a) < rank(b); }
  };
  struct BeforeRank {
    bool operator()(const Entry& a, const Rank& b) const { return rank(a) < b; }
    bool operator()(const Rank& a, const Entry& b) const { return a < rank(b); }
  };
  using Ranks = boost::intrusive::set<Entry, boost::intrusive::compare<Before>,
                                      boost::intrusive::constant_time_size<false>>;

  static bool free_to_go(const Entry& e) { return e.resident && e.children == 0 && e.pins == 0; }
  Ranks& victims_of(const Entry& e) { return e.dirty ? dirty_victims_ : clean_victims_; }
  uint64_t ordinary_stay() const;
  uint64_t newest_of(Worth worth) const;
  Entry& made(EntryKey key);  ///< inserted if it is new
  Entry* find(EntryKey key);
  const Entry* find(EntryKey key) const;
  template <typename Change>
  void change(Entry& e, Change&& apply);

  ShardedMap<EntryKey, Entry> entries_;
  Ranks clean_victims_, dirty_victims_;  // exactly the entries that are free to go
  size_t resident_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace kv
