// The SSD tier without memory (ssd_tier.h). A small allocation that fails, of operator new or of
// SQLite, ends the tier, and leaves what a kill would leave; memory of a file's or the catalog's
// size is asked for, and a call that finds none is busy.
#include <sys/resource.h>

#include <fstream>

#include "storage/read_buffers.h"
#include "tests/support/failing_new.h"
#include "tests/support/storage_failing_sqlite.h"
#include "tests/support/storage_testing.h"

namespace kv::testing {
namespace {

const bool kSqliteToo = fail_sqlite_too();
constexpr int64_t kForEver = 1'000'000;

class StorageMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kSqliteToo);
    FailingNew::watched = false;
    descriptors_ = descriptors();
    tier_ = open_tier(dir_, small_options());
    put_all(*tier_, acked_, Durability::durable);
  }
  void TearDown() override { FailingNew::watched = true; }

  // Runs a call whose allocation `nth`, and the `more` after it, fail. Null: it threw, and the tier
  // ended with memory still short, as its owner would end it.
  std::optional<Status> run(int64_t nth, int64_t more, bool sqlite,
                            const std::function<Status()>& call) {
    tier_->touch(std::span(&acked_[0].header.name, 1));  // for its end to write
    FailingNew::arm(nth, more, sqlite);
    std::optional<Status> status;
    {
      Unwatched watched(true);
      try {
        status = call();
      } catch (const std::bad_alloc&) {
        tier_.reset();
      }
    }
    FailingNew::disarm();
    return status;
  }
  static int64_t descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  }
  // What the next start finds: all that was acked, and of `others` each whole or not at all.
  void expect_whole(const std::vector<FileImage>& others) {
    Recovery found;
    tier_.reset();
    EXPECT_EQ(descriptors(), descriptors_);
    tier_ = open_tier(dir_, small_options(), &found);
    EXPECT_EQ(found.quarantined + found.unreadable + found.unknown_files, 0u);
    EXPECT_EQ(tier_->stats().used_bytes, du(dir_.store()));
    auto names = names_of(found);
    for (const auto* images : {&std::as_const(acked_), &others}) {
      for (const auto& image : *images) {
        bool there = names.contains(image.header.name);
        EXPECT_TRUE(there || images == &others);
        auto read = tier_->read(image.header.name);
        ASSERT_EQ(read.ok(), there) << read.status().to_string();
        if (there) expect_same(image, *read);
      }
    }
  }

  TempDir dir_{true};
  std::mt19937_64 rng_{5};
  std::vector<FileImage> acked_ = sample_chain(rng_, 3), others_ = sample_chain(rng_, 3);
  std::unique_ptr<SsdTier> tier_;
  int64_t descriptors_ = 0;  // without a tier
};

TEST_F(StorageMemory, AFailedSmallAllocationLeavesWhatAKillWouldLeave) {
  std::vector<ObjectName> names;
  for (const auto& image : others_) names.push_back(image.header.name);
  auto put = [&]() -> Status { return tier_->put(others_, Durability::durable).back().status; };
  auto erase = [&]() -> Status { return tier_->erase(names).status(); };
  for (bool sqlite : {false, true}) {
    int ended = 0;
    auto run_out = [&](int64_t nth, const std::function<Status()>& call) {
      bool ends = !run(nth, kForEver, sqlite, call), failed = FailingNew::failures() > 0;
      EXPECT_TRUE(ends == failed || (sqlite && failed)) << "SQLite does without some";
      ended += ends;
      expect_whole(others_);
    };
    for (int64_t nth : {1, 2, 5, 12, 30, 75, 150, 300}) {
      SCOPED_TRACE(std::string(sqlite ? "SQLite's " : "") + "allocation " + std::to_string(nth));
      run_out(nth, put);
      put_all(*tier_, others_, Durability::durable);
      run_out(nth, erase);
      ASSERT_TRUE(tier_->erase(names).ok());
      ASSERT_TRUE(tier_->wipe().ok());
      if (HasFailure()) return;
    }
    EXPECT_GE(ended, sqlite ? 3 : 6);
  }
}

TEST_F(StorageMemory, ABodyThatFindsNoneIsBusyAndItsFileStays) {
  int busy = 0;
  for (int64_t nth = 1; nth == 1 || FailingNew::failures() > 0; ++nth) {
    auto status = run(nth, 0, false, [&] { return tier_->read(acked_[1].header.name).status(); });
    if (!status) tier_ = open_tier(dir_, small_options());
    if (!status || status->ok()) continue;
    EXPECT_EQ(status->code(), StatusCode::busy) << status->to_string();
    ++busy;
    EXPECT_TRUE(tier_->read(acked_[1].header.name).ok());
  }
  EXPECT_EQ(busy, 2) << "the header and the payload";
  expect_whole({});
}

// In a process of its own: exits 0 if all holds.
void read_without_a_buffer(SsdTier& tier, const ObjectName& name) {
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  rlimit before = limit;
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit.rlim_cur = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + kReadBufferBytes / 2;
  if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(1);
  tier.make_ready();  // what there is: none
  if (tier.read(name).status().code() != StatusCode::busy) ::_exit(2);
  if (::setrlimit(RLIMIT_AS, &before) != 0) ::_exit(1);
  ::_exit(tier.read(name).ok() ? 0 : 3);
}

TEST_F(StorageMemory, AReadThatFindsNoBufferIsBusyAndItsFileStays) {
  tier_.reset();
  tier_ = open_tier(dir_, small_options());  // without a buffer yet
  EXPECT_EXIT(read_without_a_buffer(*tier_, acked_[1].header.name), ::testing::ExitedWithCode(0),
              "");
}

TEST_F(StorageMemory, ACompactionThatFindsNoneIsBusyAndDoneWhenItIsRepeated) {
  int busy = 0;
  for (int64_t nth = 1; nth == 1 || FailingNew::failures() > 0; nth += 5) {
    auto status = run(nth, 0, true, [&] { return tier_->wipe(); });
    if (!status) tier_ = open_tier(dir_, small_options());
    if (!status || status->ok()) continue;
    EXPECT_EQ(status->code(), StatusCode::busy) << status->to_string();
    ++busy;
    EXPECT_TRUE(tier_->wipe().ok());
  }
  EXPECT_GT(busy, 3);
  expect_whole({});
}

}  // namespace
}  // namespace kv::testing
