// The thread that a caller lends to a recovery: it comes at once, late or never, or has no memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <new>
#include <thread>

#include "storage/ssd_tier.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;

class LentThread : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(22);
    images_ = sample_chain(rng, 40);
    put_all(*open_tier(dir_, small_options()), images_);
    files_.script = [this](const char* call, const std::string& path) { return step(call, path); };
  }
  void TearDown() override {
    if (lent_.joinable()) lent_.join();
  }
  Status step(const std::string& call, const std::string& path) {
    if (call == "stat" && path == dir_.store() + "/catalog.db") return at_catalog_();
    if (call == "list" && path == dir_.store() + "/0") at_first_folder_();
    if (call == "list" && path == dir_.store() + "/f") ++last_folders_;
    return {};
  }
  Result<Recovery> recover(RunBeside beside) {
    SsdOptions options = small_options(&files_);
    options.beside = std::move(beside);
    auto tier = SsdTier::open(dir_.store(), std::move(options));
    KV_CHECK(tier.ok());
    return (*tier)->recover();
  }
  // Lends a thread, and goes on when that has begun.
  RunBeside at_once() {
    return [this](std::function<void()> job) {
      lent_ = std::thread(std::move(job));
      began_.get_future().wait();
    };
  }
  void expect_all(const Result<Recovery>& found) {
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(found->rows_used, images_.size());
    EXPECT_EQ(found->objects.size(), images_.size());
    EXPECT_EQ(last_folders_, 1) << "listed once";
  }

  TempDir dir_;
  std::vector<FileImage> images_;
  FaultFiles files_;
  std::function<Status()> at_catalog_ = [] { return Status(); };
  std::function<void()> at_first_folder_ = [] {};
  std::atomic<int> last_folders_{0};
  std::promise<void> began_;
  std::thread lent_;
};

TEST_F(LentThread, ListsTheFoldersWhileTheCatalogIsRead) {
  std::promise<void> catalog_read;
  at_first_folder_ = [&, owner = std::this_thread::get_id()] {
    EXPECT_NE(std::this_thread::get_id(), owner);
    began_.set_value();
    auto meanwhile = catalog_read.get_future().wait_for(std::chrono::seconds(10));
    EXPECT_EQ(meanwhile, std::future_status::ready) << "the catalog waits for the folders";
  };
  at_catalog_ = [&, first = true]() mutable {
    if (std::exchange(first, false)) catalog_read.set_value();
    return Status();
  };
  expect_all(recover(at_once()));
}

TEST_F(LentThread, IsNotWaitedForBeforeItComes) {
  std::function<void()> late;
  expect_all(recover([&](std::function<void()> job) { late = std::move(job); }));
  late();
  EXPECT_EQ(last_folders_, 1) << "what it was to do is done";
}

TEST_F(LentThread, HasEndedWhenARecoveryFails) {
  std::promise<void> failed;
  at_first_folder_ = [&] {
    began_.set_value();
    failed.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // recover() would be over
  };
  at_catalog_ = [&, first = true]() mutable {
    if (std::exchange(first, false)) failed.set_value();
    return Status(StatusCode::io_error, "injected");
  };
  EXPECT_EQ(recover(at_once()).status().code(), StatusCode::io_error);
  EXPECT_EQ(last_folders_, 1);
}

TEST_F(LentThread, ItsLackOfMemoryIsTheRecoverys) {
  at_first_folder_ = [&] {
    began_.set_value();
    throw std::bad_alloc();
  };
  EXPECT_THROW((void)recover(at_once()), std::bad_alloc);
}

}  // namespace
}  // namespace kv
