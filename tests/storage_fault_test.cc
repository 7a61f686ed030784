// Faults: any call of any script fails, once or for ever, by injection; and a real file system that
// is full, short of its reserve, or read-only after a failure. No answer is wrong, nothing is lost.
#include <gtest/gtest.h>

#include "tests/support/loop_disk.h"
#include "tests/support/storage_script.h"

namespace kv {
namespace {

using namespace kv::testing;

// Under a sanitizer every so many-th call is enough: release runs them all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kFaultStride = 11;
#else
constexpr uint64_t kFaultStride = 1;
#endif

struct Fault {
  FaultFiles::Mode mode;
  StatusCode code;  ///< io_error: EIO, EROFS, EMFILE; resource_exhausted: ENOSPC, EDQUOT
};
constexpr Fault kFaults[] = {
    {FaultFiles::Mode::fail_once, StatusCode::io_error},
    {FaultFiles::Mode::fail_for_ever, StatusCode::io_error},
    {FaultFiles::Mode::fail_once, StatusCode::resource_exhausted},
    {FaultFiles::Mode::fail_for_ever, StatusCode::resource_exhausted},
};

// One run with the fault at call `at`. A fault for ever ends before the script's last steps: what
// it made impossible works again, in the same tier.
void inject(const Script::Case& which, const Fault& fault, uint64_t at) {
  TempDir dir(true);
  FaultFiles files;
  Script script(which);
  Script::Events events;
  auto tell = [&](const std::string& event) { events.push_back(event); };
  script.prepare(dir.store(), tell);
  files.mode = fault.mode;
  files.at = at;
  files.code = fault.code;
  script.run(dir.store(), &files, tell, [&] { files.mode = FaultFiles::Mode::off; });
  files.mode = FaultFiles::Mode::off;
  script.check(dir.store(), events);
}

class Faults : public ::testing::TestWithParam<Script::Case> {};

TEST_P(Faults, EveryCallFailsOnceAndForEverWithEachError) {
  uint64_t calls = Script(GetParam()).count_calls(), injected = 0;
  ASSERT_GE(calls, GetParam().least_calls());
  for (const Fault& fault : kFaults) {
    for (uint64_t at = 1; at <= calls; at += kFaultStride * GetParam().step()) {
      SCOPED_TRACE("failing call " + std::to_string(at) + " mode " +
                   std::to_string(static_cast<int>(fault.mode)) + " with " + to_string(fault.code));
      inject(GetParam(), fault, at);
      ++injected;
      if (HasFailure()) return;
    }
  }
  RecordProperty("injected", static_cast<int>(injected));
  if (kFaultStride * GetParam().step() == 1) {
    EXPECT_EQ(injected, calls * std::size(kFaults));
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, Faults, ::testing::ValuesIn(Script::kCases));

// A bound for what can't be measured must not grow by its own size with every change: it passed
// 2^64 after some sixty and ended the process.
TEST(Faults, ACatalogThatCannotBeMeasuredCountsAsItsBoundHoweverLong) {
  TempDir dir(true);
  FaultFiles files;
  auto tier = open_tier(dir, small_options(&files));
  std::mt19937_64 rng(62);
  auto images = sample_chain(rng, 150, 8);
  put_all(*tier, images, Durability::spilled);
  files.script = [](const char* call, const std::string& path) -> Status {
    const bool lost = std::string(call) == "stat" && path.find("catalog") != std::string::npos;
    return lost ? Status(StatusCode::io_error, "injected") : Status();
  };
  for (size_t i = images.size(); i-- > 1;) {
    ASSERT_TRUE(tier->erase({&images[i].header.name, 1}).ok()) << i;
    ASSERT_LT(tier->stats().used_bytes, uint64_t{1} << 30) << i;
  }
  files.script = nullptr;
  ASSERT_TRUE(tier->erase({&images[0].header.name, 1}).ok());
  EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
}

// The kernel's own answers. Needs root, a loop device and mkfs.
class RealDisk : public ::testing::Test {
 protected:
  void make(const LoopDisk::Kind& kind, uint64_t min_free_bytes = 0) {
    std::string why;
    disk_ = LoopDisk::make(kind, why);
    if (!disk_) GTEST_SKIP() << "no disk of our own: " << why;
    options_ = small_options();
    options_.min_free_bytes = min_free_bytes;
    tier_ = open();
    ASSERT_TRUE(tier_);
    kept_ = sample_chain(rng_, 8, 64);
    put_all(*tier_, kept_, Durability::durable);
  }
  std::unique_ptr<SsdTier> open() {
    auto tier = SsdTier::open(disk_->store(), options_);
    EXPECT_TRUE(tier.ok()) << tier.status().to_string();
    if (!tier.ok()) return nullptr;
    auto found = (*tier)->recover();
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    if (!found.ok()) return nullptr;
    EXPECT_EQ(found->quarantined, 0u);
    return std::move(*tier);
  }
  void expect_kept() {
    for (const auto& image : kept_) {
      auto read = tier_->read(image.header.name);
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      expect_same(image, *read);
    }
  }
  std::vector<FileImage> mebibytes(size_t count) { return sample_chain(rng_, count, 1 << 13); }

  std::mt19937_64 rng_{61};
  std::unique_ptr<LoopDisk> disk_;
  SsdOptions options_;
  std::unique_ptr<SsdTier> tier_;
  std::vector<FileImage> kept_;
};

TEST_F(RealDisk, AFullOneRefusesWritesOnlyUntilThereIsRoom) {
  make(LoopDisk::without_journal());
  if (IsSkipped() || HasFailure()) return;
  ASSERT_TRUE(disk_->fill(2 << 20));
  auto more = mebibytes(6);
  size_t refused = 0;
  for (const auto& result : tier_->put(more, Durability::durable)) {
    if (result.status.ok()) continue;
    EXPECT_EQ(result.status.code(), StatusCode::resource_exhausted) << result.status.to_string();
    EXPECT_EQ(result.reached, Durability::none);
    ++refused;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_LT(refused, more.size()) << "what has room is taken";
  expect_kept();
  EXPECT_TRUE(std::filesystem::is_empty(disk_->store() + "/tmp"));
  ASSERT_TRUE(tier_->erase({&more[0].header.name, 1}).ok()) << "erasing needs no room";
  ASSERT_TRUE(disk_->give_back());
  put_all(*tier_, more, Durability::durable);
  kept_.insert(kept_.end(), more.begin(), more.end());
  expect_kept();
  EXPECT_EQ(tier_->stats().used_bytes, du(disk_->store()));
  tier_.reset();
  tier_ = open();
  expect_kept();
}

// Everything that the tier writes: files, folders, the catalog, its log.
TEST_F(RealDisk, ItsReserveIsNeverTouched) {
  constexpr uint64_t kMinFree = 30 << 20;
  make(LoopDisk::without_journal(), kMinFree);
  if (IsSkipped() || HasFailure()) return;
  bool refused = false;
  for (int round = 0; !refused; ++round) {
    ASSERT_LT(round, 200);
    auto images = sample_chain(rng_, 4, 64 << rng_() % 7);
    for (const auto& result : tier_->put(images, Durability::durable)) {
      if (result.status.ok()) continue;
      EXPECT_EQ(result.status.code(), StatusCode::resource_exhausted) << result.status.to_string();
      refused = true;
    }
    ASSERT_GE(disk_->free_bytes(), kMinFree) << "round " << round;
  }
  EXPECT_LT(disk_->free_bytes(), kMinFree + (4 << 20)) << "nothing is wasted";
  EXPECT_TRUE(tier_->checkpoint().ok());
  EXPECT_GE(disk_->free_bytes(), kMinFree);
  expect_kept();
}

TEST_F(RealDisk, OneThatTurnedReadOnlyStillServesAndLosesNothing) {
  make(LoopDisk::read_only_on_error());
  if (IsSkipped() || HasFailure()) return;
  ASSERT_TRUE(disk_->fail());
  auto more = mebibytes(3);
  auto results = tier_->put(more, Durability::durable);
  for (const auto& result : results) EXPECT_EQ(result.status.code(), StatusCode::io_error);
  EXPECT_FALSE(shell("sync -f " + disk_->store())) << "the journal fails";
  ASSERT_TRUE(disk_->heal());
  ASSERT_TRUE(disk_->read_only());
  for (const auto& result : tier_->put(more, Durability::durable)) {
    EXPECT_EQ(result.status.code(), StatusCode::io_error) << result.status.to_string();
    EXPECT_EQ(result.reached, Durability::none);
  }
  EXPECT_EQ(tier_->erase({&kept_[0].header.name, 1}).status().code(), StatusCode::io_error);
  EXPECT_EQ(tier_->put_profile(sample_profile(1)).code(), StatusCode::io_error);
  expect_kept();
  if (HasFailure()) return;
  tier_.reset();
  ASSERT_TRUE(disk_->unmount());
  ASSERT_TRUE(disk_->mount());
  tier_ = open();
  ASSERT_TRUE(tier_);
  expect_kept();
  put_all(*tier_, more, Durability::durable);
  EXPECT_EQ(tier_->stats().used_bytes, du(disk_->store()));
}

}  // namespace
}  // namespace kv
