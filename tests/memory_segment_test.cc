// Segments against a simple oracle, seen as a reader sees them: through a second, read-only mapping
// of the descriptor that would be sent to it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "memory/segment_store.h"
#include "memory/slab_region.h"

namespace kv {
namespace {

constexpr size_t kMiB = 1u << 20;

// What a client has of a segment.
class Reader {
 public:
  explicit Reader(std::shared_ptr<const SegmentView> view) : view_(std::move(view)) {
    void* map = ::mmap(nullptr, view_->bytes(), PROT_READ, MAP_SHARED, view_->fd(), 0);
    if (map != MAP_FAILED) begin_ = static_cast<const uint8_t*>(map);
  }
  ~Reader() {
    if (begin_ != nullptr) ::munmap(const_cast<uint8_t*>(begin_), view_->bytes());
  }
  Reader(const Reader&) = delete;  // owns the mapping
  Reader& operator=(const Reader&) = delete;
  const uint8_t* at(uint64_t offset) const { return begin_ + offset; }
  bool valid(const SegmentPlace& place) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    const auto* table = reinterpret_cast<const std::atomic<uint64_t>*>(begin_);
    return table[place.offset / kSlotPageBytes].load() == place.generation;
  }
  const SegmentView& view() const { return *view_; }

 private:
  std::shared_ptr<const SegmentView> view_;
  const uint8_t* begin_ = nullptr;
};

void mark(uint8_t* slot, size_t bytes, uint64_t id) {
  for (size_t at = 0; at < bytes; at += kSlotPageBytes) std::memcpy(slot + at, &id, sizeof(id));
}
bool marked(const uint8_t* slot, size_t bytes, uint64_t id) {
  for (size_t at = 0; at < bytes; at += kSlotPageBytes) {
    if (std::memcmp(slot + at, &id, sizeof(id)) != 0) return false;
  }
  return true;
}

uint64_t resident_bytes(const uint8_t* begin, size_t bytes) {
  std::vector<unsigned char> pages(bytes / page_bytes());
  if (::mincore(const_cast<uint8_t*>(begin), bytes, pages.data()) != 0) return 0;
  uint64_t sum = 0;
  for (unsigned char p : pages) sum += (p & 1) * page_bytes();
  return sum;
}

// What a store should be: live slots, and what readers were told of those that may be gone.
class Oracle {
 public:
  explicit Oracle(uint32_t seed) : store(4 * kMiB), rng_(seed) {}

  void take() {
    const std::string owner = rng_() % 3 == 0 ? "other" : "tenant";
    const size_t bytes = rng_() % 50 == 0 ? 5 * kMiB : 1 + rng_() % (600u << 10);
    const uint64_t before_bytes = store.idle_bytes(), spare = rng_() % 2 * (rng_() % (6 * kMiB));
    uint8_t* slot = store.take(owner, bytes, spare);
    if (slot == nullptr) return;
    ASSERT_LE(store.idle_bytes(), before_bytes + spare);
    auto after = live_.lower_bound(slot);
    if (after != live_.end()) {
      ASSERT_LE(slot + round_up(bytes, kSlotPageBytes), after->first);
    }
    if (after != live_.begin()) {
      auto before = std::prev(after);
      ASSERT_LE(before->first + before->second.bytes, slot);
    }
    mark(slot, bytes, ++last_);
    live_[slot] = {owner, bytes, last_};
    live_bytes_ += round_up(bytes, kSlotPageBytes);
    auto place = store.place_of(owner, slot);
    ASSERT_TRUE(place);
    ASSERT_FALSE(store.place_of(owner == "other" ? "tenant" : "other", slot))
        << "another's namespace";
    auto [known, fresh] = owners_.insert({place->segment, owner});
    ASSERT_EQ(known->second, owner) << "a segment is of one owner for life";
    ASSERT_FALSE(retired_.contains(place->segment)) << "nothing new comes there";
  }
  void give() {
    if (live_.empty()) return;
    auto it = pick();
    ASSERT_TRUE(marked(it->first, it->second.bytes, it->second.id));
    live_bytes_ -= round_up(it->second.bytes, kSlotPageBytes);
    store.give(it->first, it->second.bytes);
    for (auto& t : told_) t.live &= t.slot != it->first;
    live_.erase(it);
  }
  // A reader is told of a live slot.
  void tell() {
    if (live_.empty()) return;
    auto it = pick();
    auto place = store.place_of(it->second.owner, it->first);
    auto view = store.announce(place->segment);
    ASSERT_TRUE(view);
    auto& reader = readers_[place->segment];
    if (!reader) reader = std::make_unique<Reader>(view);
    place = store.place_of(it->second.owner, it->first);
    ASSERT_TRUE(place->announced);
    told_.push_back({it->first, it->second.bytes, it->second.id, *place, true});
  }
  void check_told() const {
    for (const Told& t : told_) {
      const Reader& reader = *readers_.at(t.place.segment);
      ASSERT_EQ(reader.valid(t.place), t.live) << "slot " << t.id;
      if (t.live) {
        ASSERT_TRUE(marked(reader.at(t.place.offset), t.bytes, t.id));
      }
    }
  }
  void retire() {
    if (uint32_t id = store.retire_emptiest()) retired_.insert(id);
  }
  // The readers of a segment go.
  void unmap() {
    if (readers_.empty()) return;
    auto it = std::next(readers_.begin(), static_cast<ptrdiff_t>(rng_() % readers_.size()));
    std::erase_if(told_, [&](const Told& t) { return t.place.segment == it->first; });
    readers_.erase(it);
    store.close_retired();
  }
  void give_all() {
    while (!live_.empty()) give();
  }
  void unmap_all() {
    while (!readers_.empty()) unmap();
  }
  uint32_t random() { return static_cast<uint32_t>(rng_()); }
  uint64_t live_bytes() const { return live_bytes_; }

  SegmentStore store;

 private:
  struct Slot {
    std::string owner;
    size_t bytes = 0;
    uint64_t id = 0;
  };
  struct Told {
    const uint8_t* slot;
    size_t bytes;
    uint64_t id;
    SegmentPlace place;
    bool live;
  };
  std::map<uint8_t*, Slot>::iterator pick() {
    return std::next(live_.begin(), static_cast<ptrdiff_t>(rng_() % live_.size()));
  }
  std::mt19937 rng_;
  std::map<uint8_t*, Slot> live_;
  std::map<uint32_t, std::string> owners_;
  std::map<uint32_t, std::unique_ptr<Reader>> readers_;
  std::set<uint32_t> retired_;
  std::vector<Told> told_;
  uint64_t live_bytes_ = 0, last_ = 0;
};

void random_steps(uint32_t seed, int steps) {
  Oracle o(seed);
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const uint32_t kind = o.random() % 100;
    if (kind < 50 && o.live_bytes() < 40 * kMiB) {
      ASSERT_NO_FATAL_FAILURE(o.take());
    } else if (kind < 90) {
      ASSERT_NO_FATAL_FAILURE(o.give());
    } else if (kind < 94) {
      ASSERT_NO_FATAL_FAILURE(o.tell());
    } else if (kind < 95) {
      o.retire();
    } else if (kind < 97) {
      o.unmap();
    } else {
      const uint64_t keep = o.random() % (8 * kMiB);
      o.store.trim(keep);
      ASSERT_LE(o.store.idle_bytes(), std::max<uint64_t>(keep, 4 * kMiB / 256));
    }
    ASSERT_NO_FATAL_FAILURE(o.check_told());
    o.store.check_invariants();
  }
  ASSERT_NO_FATAL_FAILURE(o.give_all());
  ASSERT_NO_FATAL_FAILURE(o.check_told());
  o.unmap_all();
  o.store.trim(0);
  EXPECT_EQ(o.store.segments(), 0u) << "nothing lives, and nobody maps any";
  EXPECT_EQ(o.store.idle_bytes() + o.store.fixed_idle_bytes() + o.store.announced_bytes(), 0u);
}

TEST(SegmentProperty, SlotsAreTheirOwnersUntilTheGenerationSaysOtherwise) {
  const uint32_t base = std::random_device()();
  for (uint32_t seed = base; seed < base + 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_steps(seed, 600);
    if (::testing::Test::HasFailure()) return;
  }
}

// What a reader is told of, as it would come over a socket.
struct Told {
  std::mutex mutex;
  SegmentPlace place;
  uint64_t id = 0;
};

// A reader that reads late sees the slot's bytes, or that they are no longer its own.
TEST(SegmentProperty, AMillionReusesBesideAReader) {
  constexpr size_t kSlotBytes = 8192;
  constexpr uint64_t kReuses = 1'000'000;
  SegmentStore store(2 * kMiB);
  uint8_t* first = store.take("tenant", kSlotBytes);
  Reader reader(store.announce(store.place_of("tenant", first)->segment));
  store.give(first, kSlotBytes);
  Told told;
  std::atomic<bool> over{false};
  uint64_t read = 0, own = 0;
  std::thread other([&] {
    while (!over.load()) {
      SegmentPlace place;
      uint64_t id = 0;
      {
        std::lock_guard lock(told.mutex);
        place = told.place;
        id = told.id;
      }
      if (id == 0) continue;
      const bool right = marked(reader.at(place.offset), kSlotBytes, id);
      ++read;
      if (!reader.valid(place)) continue;
      ++own;
      ASSERT_TRUE(right) << "valid, and not its bytes";
    }
  });
  std::mt19937 rng(1);
  std::vector<uint8_t*> live;
  for (uint64_t id = 1; id <= kReuses; ++id) {
    if (live.size() == 4) {
      std::swap(live[rng() % live.size()], live.back());
      store.give(live.back(), kSlotBytes);
      live.pop_back();
    }
    live.push_back(store.take("tenant", kSlotBytes));
    mark(live.back(), kSlotBytes, id);
    std::lock_guard lock(told.mutex);
    told.place = *store.place_of("tenant", live.back());
    told.id = id;
  }
  over = true;
  other.join();
  for (uint8_t* slot : live) store.give(slot, kSlotBytes);
  EXPECT_GT(read, 0u);
  EXPECT_EQ(store.segments(), 1u) << "all in one segment";
}

TEST(Segment, AReaderCanNeitherWriteNorResize) {
  SegmentStore store(2 * kMiB);
  uint8_t* slot = store.take("tenant", 10'000);
  auto view = store.announce(store.place_of("tenant", slot)->segment);
  ASSERT_TRUE(view);
  EXPECT_EQ(::mmap(nullptr, view->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, view->fd(), 0),
            MAP_FAILED);
  EXPECT_EQ(::write(view->fd(), "x", 1), -1);
  EXPECT_EQ(::ftruncate(view->fd(), 0), -1);
  const int seals = ::fcntl(view->fd(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  // Not by a way round the descriptor, either.
  const std::string path = "/proc/self/fd/" + std::to_string(view->fd());
  const int again = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) {
    EXPECT_EQ(::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
    EXPECT_EQ(::write(again, "x", 1), -1);
    ::close(again);
  }
  slot[9'999] = 7;
  Reader reader(view);
  EXPECT_EQ(*reader.at(store.place_of("tenant", slot)->offset + 9'999), 7) << "we can still write";
  store.give(slot, 10'000);
}

TEST(Segment, FreePagesGoBackUntilItIsAnnounced) {
  constexpr size_t kHalf = kMiB / 2;
  SegmentStore store(4 * kMiB);
  uint8_t* gone = store.take("tenant", kHalf);
  uint8_t* kept = store.take("tenant", kHalf);
  std::memset(gone, 1, kHalf);
  std::memset(kept, 1, kHalf);
  store.give(gone, kHalf);
  EXPECT_EQ(store.idle_bytes(), kHalf);
  store.trim(0);
  EXPECT_EQ(store.idle_bytes(), 0u);
  EXPECT_EQ(resident_bytes(gone, kHalf), 0u);
  EXPECT_EQ(resident_bytes(kept, kHalf), kHalf);
  const uint32_t id = store.place_of("tenant", kept)->segment;
  EXPECT_EQ(store.missing_bytes(id), 3 * kHalf);
  auto view = store.announce(id);
  ASSERT_TRUE(view);
  EXPECT_EQ(store.missing_bytes(id), 0u);
  EXPECT_EQ(resident_bytes(gone, kHalf), kHalf)
      << "all of it has memory, or a reader would bring it";
  EXPECT_EQ(store.fixed_idle_bytes(), 3 * kHalf);
  store.trim(0);
  EXPECT_EQ(resident_bytes(gone, kHalf), kHalf) << "a GPU would go on reading the old pages";
  store.give(kept, kHalf);
  store.trim(0);
  EXPECT_EQ(store.segments(), 1u) << "mapped";
  view.reset();
  store.trim(0);
  EXPECT_EQ(store.segments(), 0u);
}

// Whether this system makes huge pages of a memfd's.
bool has_huge_pages() {
  SegmentStore store(2 * kMiB);
  uint8_t* slot = store.take("tenant", kMiB);
  const bool huge = store.announce(store.place_of("tenant", slot)->segment)->page_bytes() > 4096;
  store.give(slot, kMiB);
  return huge;
}

TEST(Segment, TwoThatAnnounceItAtOnceBothGetIt) {
  for (int round = 0; round < 20; ++round) {
    SegmentStore store(8u << 20);
    uint8_t* slot = store.take("tenant", 8192, 0);
    const uint32_t id = store.place_of("tenant", slot)->segment;
    EXPECT_EQ(store.open_of("tenant"), std::vector<uint32_t>{id});
    EXPECT_TRUE(store.open_of("other").empty());
    std::shared_ptr<const SegmentView> one;
    std::thread beside([&] { one = store.announce(id); });
    const auto two = store.announce(id);
    beside.join();
    EXPECT_TRUE(one && one == two) << round;
    EXPECT_TRUE(store.open_of("tenant").empty());
    store.give(slot, 8192);
    store.check_invariants();
  }
}

TEST(Segment, AHugePageComesWholeWhereItsRestMayLieIdle) {
  if (!has_huge_pages()) GTEST_SKIP() << "this system has no huge pages for shared memory";
  constexpr size_t kSlot = 64u << 10, kTable = 4096;
  SegmentStore store(2 * kMiB);
  const uint64_t rest = 2 * kMiB - kSlot;
  uint8_t* none = store.take("tenant", kSlot, rest - 1);
  EXPECT_EQ(resident_bytes(none, kSlot), 0u) << "more than is spared would lie idle";
  EXPECT_EQ(store.idle_bytes(), 0u);
  uint8_t* whole = store.take("other", kSlot, rest);
  EXPECT_EQ(resident_bytes(whole - kTable, 2 * kMiB), 2 * kMiB);
  EXPECT_EQ(store.idle_bytes(), rest - kTable);
  EXPECT_EQ(store.fixed_idle_bytes(), kTable) << "a table stays while its segment does";
  uint8_t* next = store.take("other", kSlot, rest);
  EXPECT_EQ(store.idle_bytes(), rest - kTable - kSlot) << "what lay idle is taken first";
  store.trim(0);
  EXPECT_EQ(store.idle_bytes(), 0u);
  EXPECT_EQ(resident_bytes(whole - kTable, 2 * kMiB), 2 * kSlot + kTable);
  // A long slot leaves something idle at its ends only, and what is spared is for both together.
  const uint64_t before = store.fixed_idle_bytes();
  uint8_t* longer = store.take("long", 4 * kMiB, 2 * kMiB - 3 * kTable);
  const auto place = store.place_of("long", longer);
  ASSERT_TRUE(place);
  ASSERT_EQ(place->offset, 3 * kTable);
  EXPECT_EQ(resident_bytes(longer - place->offset, 6 * kMiB), 4 * kMiB);
  EXPECT_EQ(store.idle_bytes(), 0u);
  EXPECT_EQ(store.fixed_idle_bytes(), before + 3 * kTable);
  // Where somebody has small pages already nothing is moved.
  std::memset(none, 1, kSlot);
  uint8_t* beside = store.take("tenant", kSlot, 2 * kMiB);
  EXPECT_EQ(resident_bytes(beside, kSlot), 0u);
  store.give(beside, kSlot);
  store.check_invariants();
  for (uint8_t* slot : {whole, next}) store.give(slot, kSlot);
  store.give(none, kSlot);
  store.give(longer, 4 * kMiB);
}

TEST(Segment, WithoutHugePagesNothingIsIdleThatHasNoMemory) {
  ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  SegmentStore store(4 * kMiB);
  uint8_t* slot = store.take("tenant", kMiB, 8 * kMiB);
  std::memset(slot, 1, kMiB);
  EXPECT_EQ(store.idle_bytes(), 0u);
  const uint32_t id = store.place_of("tenant", slot)->segment;
  EXPECT_LE(store.missing_bytes(id), store.bytes_once_announced(id) - kMiB);
  EXPECT_GE(store.missing_bytes(id), store.bytes_once_announced(id) - kMiB - 4096) << "the table";
  EXPECT_TRUE(store.announce(id)) << "in small pages";
  ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
  store.give(slot, kMiB);
  store.check_invariants();
}

// Takes and gives slots, and keeps the last ones.
void take_and_give(SegmentStore& store, uint32_t seed, std::map<uint8_t*, size_t>& live) {
  std::mt19937 rng(seed);
  std::map<uint8_t*, uint64_t> ids;
  for (uint64_t id = uint64_t{seed} << 20; id < (uint64_t{seed} << 20) + 4000; ++id) {
    const size_t bytes = 1 + rng() % (kMiB / 4);
    uint8_t* slot = store.take("tenant", bytes, 4 * kMiB);
    ASSERT_NE(slot, nullptr);
    mark(slot, bytes, id);
    live[slot] = bytes;
    ids[slot] = id;
    while (live.size() > rng() % 40) {
      auto it = std::next(live.begin(), static_cast<ptrdiff_t>(rng() % live.size()));
      ASSERT_TRUE(marked(it->first, it->second, ids[it->first]));
      store.give(it->first, it->second);
      live.erase(it);
    }
  }
}

// Trimmed pages stay gone while other huge pages get their memory beside.
TEST(SegmentProperty, TakersBesideATrimmer) {
  SegmentStore store(8 * kMiB);
  std::atomic<bool> over{false};
  std::thread trimmer([&] {
    while (!over.load()) store.trim(0);
  });
  std::map<uint8_t*, size_t> live[2];
  std::thread other([&] { take_and_give(store, 1, live[0]); });
  take_and_give(store, 2, live[1]);
  other.join();
  over = true;
  trimmer.join();
  live[0].insert(live[1].begin(), live[1].end());
  live[0][store.take("tenant", kMiB)] = kMiB;
  for (const auto& [slot, bytes] : live[0]) {
    const auto place = store.place_of("tenant", slot);
    const uint64_t all = store.bytes_once_announced(place->segment);
    EXPECT_LE(resident_bytes(slot - place->offset, all), all - store.missing_bytes(place->segment))
        << "memory that is not counted";
  }
  for (const auto& [slot, bytes] : live[0]) store.give(slot, bytes);
  store.trim(0);
  EXPECT_EQ(store.idle_bytes() + store.fixed_idle_bytes(), 0u);
  EXPECT_EQ(store.segments(), 0u);
  store.check_invariants();
}

TEST(Segment, ARetiredOneGoesOnceItIsEmptyAndUnmapped) {
  SegmentStore store(2 * kMiB);
  uint8_t* slot = store.take("tenant", kMiB);
  const uint32_t id = store.place_of("tenant", slot)->segment;
  EXPECT_EQ(store.retire_emptiest(), 0u) << "nobody was told of it";
  auto view = store.announce(id);
  EXPECT_EQ(store.retire_emptiest(), id);
  EXPECT_EQ(store.retired_idle_bytes(), kMiB);
  uint8_t* next = store.take("tenant", 4096);
  EXPECT_NE(store.place_of("tenant", next)->segment, id);
  store.close_retired();
  EXPECT_EQ(store.segments(), 2u);
  store.give(slot, kMiB);
  store.close_retired();
  EXPECT_EQ(store.segments(), 2u) << "mapped";
  view.reset();
  store.close_retired();
  EXPECT_EQ(store.segments(), 1u);
  store.give(next, 4096);
}

TEST(Segment, AtMostSoManyOfThem) {
  SegmentStore store(2 * kMiB);
  std::vector<uint8_t*> slots;
  while (uint8_t* slot = store.take("tenant", 3 * kMiB)) slots.push_back(slot);
  EXPECT_EQ(slots.size(), kMaxSegments);
  for (uint8_t* slot : slots) store.give(slot, 3 * kMiB);
  store.trim(0);
  EXPECT_EQ(store.segments(), 0u);
}

}  // namespace
}  // namespace kv
