// Eraser by itself: whose turn it is, what may be published meanwhile, and what a failure leaves.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using Answer = std::shared_ptr<std::optional<Result<uint64_t>>>;

class EraserUnit : public ::testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions o = small_options(dir_.store());
    o.ssd_files = &faults_;
    return o;
  }
  // All of the session's model, or with model 0 of its namespace.
  static Answer erase(CoreOwners& c, uint64_t session, uint32_t model = 1, Query query = {},
                      Deadline deadline = soon()) {
    auto answer = std::make_shared<std::optional<Result<uint64_t>>>();
    c.eraser.erase(session, model, std::move(query), deadline,
                   [answer](Result<uint64_t> n) { answer->emplace(std::move(n)); });
    return answer;
  }
  static void give_blocks(CoreOwners& c, size_t count) {
    for (size_t i = 0; i < count; ++i) c.give_block(*c.model->realm);
  }
  static void spill_all(CoreOwners& c) {
    c.spiller.ask_for_all();
    c.run_all();
    EXPECT_EQ(c.records.lists().count(Disk::renamed), c.index.size());
  }
  size_t block_files() {
    size_t n = 0;
    for (const auto& e : fs::recursive_directory_iterator(dir_.store())) {
      n += e.path().extension() == ".block";
    }
    return n;
  }
  void fail_unlinks() {
    faults_.script = [](const char* call, const std::string& path) {
      bool fails = std::string(call) == "unlink" && path.ends_with(".block");
      return fails ? Status(StatusCode::io_error, "injected") : Status();
    };
  }
  static constexpr size_t kTwoSteps = 40;  // blocks: one step removes 32

  TempDir dir_;
  testing::FaultFiles faults_;
};

TEST_F(EraserUnit, RemovesInStepsAndOthersAreServedBetween) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, kTwoSteps);
  Answer done = erase(c, c.connect());
  EXPECT_GT(c.index.size(), 0u);
  EXPECT_LT(c.index.size(), kTwoSteps);
  EXPECT_FALSE(c.eraser.resting());
  c.run();
  EXPECT_EQ(c.index.size(), 0u);
  EXPECT_TRUE(c.eraser.resting());
  ASSERT_TRUE(*done && (*done)->ok());
  EXPECT_EQ(***done, kTwoSteps);
}

TEST_F(EraserUnit, IsAnsweredWhenTheFilesAreGone) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, 2);
  spill_all(c);
  c.hangs = true;
  Answer done = erase(c, c.connect());
  c.run();
  EXPECT_EQ(c.index.size(), 0u);
  EXPECT_FALSE(*done);
  EXPECT_EQ(block_files(), 2u);
  c.hangs = false;
  c.run();
  EXPECT_TRUE(*done && (*done)->ok());
  EXPECT_EQ(block_files(), 0u);
}

TEST_F(EraserUnit, WaitsForTheFilesOfTheStart) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, 1);
  c.found.waiting(1);
  Answer done = erase(c, c.connect());
  c.run_all();
  EXPECT_FALSE(*done);
  EXPECT_EQ(c.index.size(), 1u);
  c.found.settled(1);
  c.run_all();
  EXPECT_TRUE(*done && (*done)->ok());
}

TEST_F(EraserUnit, WaitsForAnotherEraseOfItsNamespaceAlone) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, kTwoSteps);
  const uint64_t session = c.connect();
  Answer first = erase(c, session), second = erase(c, session);
  Answer other = erase(c, *c.calls.connect("other"), 0);
  EXPECT_FALSE(c.eraser.may_publish("test")) << "on what is about to go";
  EXPECT_TRUE(c.eraser.may_publish("other"));
  c.run();
  EXPECT_TRUE(*first && *other);
  EXPECT_FALSE(*second) << "nobody has looked again";
  EXPECT_TRUE(c.eraser.may_publish("test"));
  c.run_all();
  ASSERT_TRUE(*second && (*second)->ok());
  EXPECT_EQ(***second, 0u);
}

TEST_F(EraserUnit, WaitsForAPublicationOfItsNamespaceAndNoMoreBegin) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, 1);
  const uint64_t session = c.connect();
  c.eraser.publication_begins("test");
  EXPECT_TRUE(c.eraser.may_publish("test"));
  Answer done = erase(c, session);
  Answer other = erase(c, *c.calls.connect("other"), 0);
  EXPECT_FALSE(c.eraser.may_publish("test"));
  EXPECT_TRUE(c.eraser.may_publish("other"));
  c.run_all();
  EXPECT_TRUE(*other);
  EXPECT_FALSE(*done);
  c.eraser.publication_ends("test");
  c.run_all();
  EXPECT_TRUE(*done && (*done)->ok());
  EXPECT_TRUE(c.eraser.may_publish("test"));
}

// Its call has ended: it keeps nobody from publishing, and erases nothing when its turn comes.
TEST_F(EraserUnit, OneThatNobodyWaitsForAnyMoreLosesItsTurn) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, 1);
  const uint64_t session = c.connect();
  c.eraser.publication_begins("test");
  Answer done = erase(c, session);
  c.calls.disconnect(session);
  EXPECT_EQ((*done)->status().code(), StatusCode::unavailable);
  EXPECT_TRUE(c.eraser.may_publish("test"));
  c.eraser.publication_ends("test");
  c.run_all();
  EXPECT_EQ(c.index.size(), 1u);
}

TEST_F(EraserUnit, AFileThatStaysIsSaidAndGoesWithALaterErase) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, 1);
  spill_all(c);
  const uint64_t session = c.connect();
  fail_unlinks();
  Answer failed = erase(c, session);
  c.run();
  EXPECT_EQ((*failed)->status().code(), StatusCode::io_error);
  EXPECT_EQ(block_files(), 1u);
  faults_.script = nullptr;
  Answer later = erase(c, session);
  c.run();
  ASSERT_TRUE(*later && (*later)->ok());
  EXPECT_EQ(block_files(), 0u);
}

TEST_F(EraserUnit, WhatAStartCouldNotReadMayStillBeThere) {
  CoreOwners c(options());
  c.open_model();
  Recovery part;
  part.unreadable_objects = 1;
  c.found.add(part);
  Answer done = erase(c, c.connect());
  c.run();
  EXPECT_EQ((*done)->status().code(), StatusCode::io_error);
}

TEST_F(EraserUnit, ANamespaceIsErasedWholeOrNotAtAll) {
  CoreOwners c(options());
  c.open_model();
  give_blocks(c, 1);
  const uint64_t session = c.connect();
  Answer refused = erase(c, session, 0, {{1, 2}, {}});
  EXPECT_EQ((*refused)->status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(c.index.size(), 1u);
  Answer done = erase(c, session, 0);
  c.run();
  EXPECT_TRUE(*done && (*done)->ok());
  EXPECT_FALSE(c.model->records_durable) << "they name the namespace";
}

TEST_F(EraserUnit, ACloseBetweenTwoStepsLeavesNoFile) {
  {
    CoreOwners c(options());
    c.open_model();
    give_blocks(c, kTwoSteps);
    spill_all(c);
    erase(c, c.connect());
    EXPECT_GT(c.index.size(), 0u);
  }
  EXPECT_EQ(block_files(), 0u);
}

}  // namespace
}  // namespace kv
