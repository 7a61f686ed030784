// The SSD tier without memory: allocation N of a call fails, alone or with all that follow, for
// N = 1 until the call passes without a failure; those of operator new, and those of SQLite. The
// call is done, or busy (or throws std::bad_alloc, which is the same); then, with memory and
// without a restart, it is done; and the directory is what its files say.
//
// KV_MEMORY_STRIDE=1 tries every N.
#include <algorithm>
#include <iostream>

#include "tests/support/failing_new.h"
#include "tests/support/storage_failing_sqlite.h"
#include "tests/support/storage_testing.h"

namespace kv::testing {
namespace {

const bool kSqliteToo = fail_sqlite_too();
constexpr int64_t kForEver = 1'000'000;

int64_t stride() {
  if (const char* own = std::getenv("KV_MEMORY_STRIDE")) return std::max(1, std::atoi(own));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 41;
#else
  return 7;
#endif
}

class StorageMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kSqliteToo);
    FailingNew::watched = false;
    images_ = sample_chain(rng_, 3);
    for (const auto& image : images_) names_.push_back(image.header.name);
  }
  void TearDown() override { FailingNew::watched = true; }

  void open() { tier_ = open_tier(dir_, small_options()); }
  Status put() {
    Status first;
    for (const auto& result : tier_->put(images_, Durability::durable)) {
      Status status = result.reached == Durability::durable ? Status() : result.status;
      // What is published already is kept as it is; its folders are synced with the next put.
      if (result.existed) status = tier_->sync();
      if (first.ok()) first = status;
    }
    return first;
  }
  Status erase() {
    KV_RETURN_IF_ERROR(tier_->erase(names_).status());
    return tier_->scrub();
  }
  void expect_readable() {
    for (const auto& image : images_) {
      auto read = tier_->read(image.header.name);
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      expect_same(image, *read);
    }
  }
  static SsdOptions unread_at_start() {
    SsdOptions options = small_options();
    options.adopt_at_start = 0;
    return options;
  }
  Status adopt(Recovery& all) {
    while (all.unread > 0) {
      Recovery part = tier_->adopt_more(2);
      Unwatched own;
      all.objects.insert(all.objects.end(), part.objects.begin(), part.objects.end());
      all.adopted += part.adopted;
      all.adopted_bytes += part.adopted_bytes;
      all.quarantined += part.quarantined;
      if (part.unread == all.unread) return {StatusCode::busy, "nothing read"};
      all.unread = part.unread;
    }
    return {};
  }
  // What another process would find.
  Recovery reopen() {
    tier_.reset();
    Recovery found;
    tier_ = open_tier(dir_, small_options(), &found);
    return found;
  }
  void expect_files(const Recovery& found) {
    EXPECT_EQ(names_of(found), std::set<ObjectName>(names_.begin(), names_.end()));
    EXPECT_EQ(found.quarantined, 0u);
    // The catalog is charged for what it may have grown by where its size could not be asked for.
    EXPECT_GE(tier_->stats().used_bytes, du(dir_.store()));
  }

  // `check` after the call that was done at last; `reset` makes it ready to run again.
  void for_each_failure(const std::function<Status()>& run, const std::function<void()>& check,
                        const std::function<void()>& reset) {
    for (bool sqlite : {false, true}) {
      for (int64_t more : {int64_t{0}, kForEver}) {
        int64_t n = 1;
        for (bool failed = true; failed; n += stride()) {
          SCOPED_TRACE(std::string(sqlite ? "SQLite's " : "") + "allocation " + std::to_string(n) +
                       (more > 0 ? " and all that follow" : ""));
          FailingNew::arm(n, more, sqlite);
          Status status = guarded(run);
          FailingNew::disarm();
          failed = FailingNew::failures() > 0;
          ASSERT_TRUE(status.ok() || status.code() == StatusCode::busy) << status.to_string();
          if (!status.ok()) status = guarded(run);
          ASSERT_TRUE(status.ok()) << status.to_string();
          check();
          reset();
          if (HasFailure()) return;
        }
        std::cout << (sqlite ? "SQLite's, " : "") << more << " more: " << n << " allocations\n";
      }
    }
  }
  static Status guarded(const std::function<Status()>& run) {
    Unwatched watched(true);
    try {
      return run();
    } catch (const std::bad_alloc&) {
      return {StatusCode::busy, "bad_alloc"};
    }
  }

  TempDir dir_{true};
  std::mt19937_64 rng_{5};
  std::vector<FileImage> images_;
  std::vector<ObjectName> names_;
  std::unique_ptr<SsdTier> tier_;
};

TEST_F(StorageMemory, APutIsWholeOrBusyAndRepeated) {
  open();
  for_each_failure([&] { return put(); },
                   [&] {
                     expect_readable();
                     expect_files(reopen());
                     EXPECT_EQ(tier_->stats().used_bytes, du(dir_.store()));
                   },
                   [&] { ASSERT_TRUE(erase().ok()); });
}

TEST_F(StorageMemory, AnEraseIsRepeatedUntilNothingIsLeftInFilesAndCatalog) {
  open();
  ASSERT_TRUE(put().ok());
  for_each_failure([&] { return erase(); },
                   [&] {
                     Recovery found = reopen();
                     EXPECT_EQ(found.objects.size() + found.rows_dropped, 0u);
                   },
                   [&] { ASSERT_TRUE(put().ok()); });
}

TEST_F(StorageMemory, AnEraseGoesOnAfterWhatFoundNoMemory) {
  open();
  for (int64_t n = 1; n == 1 || FailingNew::failures() > 0; ++n) {
    ASSERT_TRUE(put().ok());
    FailingNew::arm(n, 0);
    Status status = guarded([&] { return tier_->erase(names_).status(); });
    FailingNew::disarm();
    ASSERT_TRUE(status.ok() || status.code() == StatusCode::busy) << status.to_string();
    auto there = [&](const ObjectName& name) {
      return std::filesystem::exists(path_of(dir_, name));
    };
    auto left = std::count_if(names_.begin(), names_.end(), there);
    ASSERT_LE(left, status.ok() ? 0 : 1) << "allocation " << n;
    Status scrubbed = tier_->scrub();
    ASSERT_TRUE(scrubbed.ok()) << scrubbed.to_string();
    EXPECT_EQ(reopen().rows_dropped, 0u) << "a row without its file, allocation " << n;
    ASSERT_TRUE(erase().ok());
  }
}

TEST_F(StorageMemory, AReadIsRightOrBusy) {
  open();
  ASSERT_TRUE(put().ok());
  for_each_failure([&] { return tier_->read(names_[1]).status(); }, [&] { expect_readable(); },
                   [] {});
  EXPECT_EQ(tier_->stats().corruptions, 0u);
}

TEST_F(StorageMemory, AStartFindsEverythingOrIsBusy) {
  open();
  ASSERT_TRUE(put().ok());
  for (bool with_catalog : {true, false}) {
    SCOPED_TRACE(with_catalog ? "with its catalog" : "without a catalog");
    Recovery found;
    auto reset = [&] {
      tier_.reset();
      if (!with_catalog) std::filesystem::remove(dir_.store() + "/catalog.db");
    };
    reset();
    for_each_failure(
        [&]() -> Status {
          tier_.reset();
          KV_ASSIGN_OR_RETURN(tier_, SsdTier::open(dir_.store(), small_options()));
          KV_ASSIGN_OR_RETURN(found, tier_->recover());
          return {};
        },
        [&] {
          expect_files(found);
          expect_readable();
        },
        reset);
  }
}

TEST_F(StorageMemory, WhatTheBackgroundReadsIsReadAgainAndCountedOnce) {
  open();
  ASSERT_TRUE(put().ok());
  uint64_t file_bytes = 0;
  for (const auto& name : names_) file_bytes += std::filesystem::file_size(path_of(dir_, name));
  Recovery all;
  auto reset = [&] {
    tier_.reset();
    std::filesystem::remove(dir_.store() + "/catalog.db");
    tier_ = open_tier(dir_, unread_at_start(), &all);
  };
  reset();
  for_each_failure([&] { return adopt(all); },
                   [&] {
                     expect_files(all);
                     EXPECT_EQ(all.adopted, images_.size());
                     EXPECT_EQ(all.adopted_bytes, file_bytes);
                   },
                   reset);
}

TEST_F(StorageMemory, ADamagedFileIsMovedAwayAndLeavesNoRow) {
  Recovery all;
  auto reset = [&] {
    tier_.reset();
    std::filesystem::remove_all(dir_.store());
    open();
    ASSERT_TRUE(put().ok());
    tier_.reset();
    std::filesystem::resize_file(path_of(dir_, names_[1]), 100);
    tier_ = open_tier(dir_, unread_at_start(), &all);
    ASSERT_EQ(all.unread, 1u);
  };
  reset();
  for_each_failure([&] { return adopt(all); },
                   [&] {
                     EXPECT_LE(all.quarantined, 1u);
                     EXPECT_EQ(tier_->stats().quarantine_files, 1u);
                     EXPECT_EQ(reopen().rows_dropped, 0u);
                   },
                   reset);
}

}  // namespace
}  // namespace kv::testing
