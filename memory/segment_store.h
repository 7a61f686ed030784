// SegmentStore: the segments of a pool, each of one owner (a namespace) for life.
//
// take() gives a slot in the first of the owner's segments that has room, or in a new one; a slot
// larger than a segment gets its own. Huge pages get their memory then, as whole ones, as far as
// the caller spares what lies idle beside the slot. Free memory of segments that nobody else has
// seen goes back by trim(), page by page; of announced ones only all of one that nobody has mapped
// and nothing lives in. Uninitialised and uncharged: limits are the caller's business. Any thread;
// one short lock, system calls over many pages outside of it. Give and trim can't fail.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "memory/segment.h"

namespace kv {

inline constexpr size_t kMinSegmentBytes = 2u << 20, kMaxSegmentBytes = 256u << 20;
inline constexpr size_t kMaxSegments = 256;

/// Place of a slot, for a client that maps its segment.
struct SegmentPlace {
  uint32_t segment = 0;
  uint64_t offset = 0, generation = 0;
  bool announced = false;  ///< the segment's state
};

class SegmentStore {
 public:
  /// `segment_bytes`: a multiple of 2 MiB.
  explicit SegmentStore(size_t segment_bytes) : segment_bytes_(segment_bytes) {}
  SegmentStore(const SegmentStore&) = delete;  // owns the segments
  SegmentStore& operator=(const SegmentStore&) = delete;

  /// `bytes` > 0 in whole pages; null: no segment has room and there may be no other one. At most
  /// `spare_bytes` more are idle afterwards. About a millisecond for each huge page that is new.
  uint8_t* take(std::string_view owner, size_t bytes, uint64_t spare_bytes = 0);
  void give(uint8_t* slot, size_t bytes) noexcept;
  /// Gives memory of free pages back to the system until what may go is at most `keep_bytes`.
  void trim(uint64_t keep_bytes) noexcept;

  /// The place of a live slot of `owner` that begins at `slot`.
  std::optional<SegmentPlace> place_of(std::string_view owner, const uint8_t* slot) const;
  /// Memory that a segment gets when it is announced; 0 for one that is, or is gone.
  uint64_t missing_bytes(uint32_t id) const;
  /// Bytes of the segment; 0 for one that is announced, or is gone.
  uint64_t bytes_once_announced(uint32_t id) const;
  /// Memory beside live slots that it has then; 0 for one that is announced, or is gone.
  uint64_t idle_once_announced(uint32_t id) const;
  /// Segments of `owner` with something in them that were not announced.
  std::vector<uint32_t> open_of(std::string_view owner) const;
  /// Seals it, if that is not done, and gives what a reader maps. Takes milliseconds, also where
  /// another thread is at it. Null: it is gone, memory of it goes back just now, or the system
  /// refuses.
  std::shared_ptr<const SegmentView> announce(uint32_t id);
  /// The announced segment with the most idle memory takes nothing new; 0: none is announced.
  uint32_t retire_emptiest();
  /// True if `at` lies in a segment that takes nothing new.
  bool in_retired(const uint8_t* at) const;
  /// Closes retired segments that are empty and that nobody has mapped any more.
  void close_retired() noexcept;

  /// Memory beside live slots that trim() can give back: in segments that are not announced.
  uint64_t idle_bytes() const { return idle_.load(std::memory_order_relaxed); }
  /// Memory beside live slots of announced segments, retired ones among them; and of all tables.
  uint64_t fixed_idle_bytes() const { return fixed_idle_.load(std::memory_order_relaxed); }
  uint64_t retired_idle_bytes() const { return retired_idle_.load(std::memory_order_relaxed); }
  uint64_t announced_bytes() const { return announced_.load(std::memory_order_relaxed); }
  /// Bytes of the owners' segments that clients may have mapped, retired ones among them.
  uint64_t announced_bytes(const std::function<bool(const std::string& owner)>& of) const;
  size_t segments() const;

  void check_invariants() const;

 private:
  using Segments = std::map<const uint8_t*, std::unique_ptr<Segment>>;  // by their first byte
  Segment* find(uint32_t id) const;
  Segment* holder(const uint8_t* at) const;
  bool give_back(uint64_t keep_bytes);
  Segment* add(std::string_view owner, size_t bytes, uint64_t owned_bytes,
               std::unique_ptr<Segment>& gone);
  template <class May>
  std::unique_ptr<Segment> take_empty(May may);
  template <class Change>
  void change(Segment& segment, Change change);
  void count(const Segment& segment, bool add);

  const size_t segment_bytes_;
  mutable std::mutex mutex_;  // guards the segments
  std::condition_variable sealed_;
  Segments segments_;
  std::map<uint32_t, Segment*> by_id_;  // the oldest first: it fills first
  uint32_t last_id_ = 0;
  std::atomic<uint64_t> idle_{0}, fixed_idle_{0}, retired_idle_{0}, announced_{0};
};

}  // namespace kv
