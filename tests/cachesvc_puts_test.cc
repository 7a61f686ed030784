// Puts by themselves: an object of a reservation is finished and invisible, or refused and missing.
#include <algorithm>
#include <thread>

#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class PutsTest : public ::testing::Test {
 protected:
  PutsTest() : core_(small_options()) {
    core_.open_model();
    session_ = core_.connect();
    tokens_ = random_tokens(rng_, 40);
    auto reserved = core_.reserve(session_, tokens_);
    EXPECT_TRUE(reserved.ok());
    reserved_ = *reserved;
  }
  PutRequest request(size_t need) {
    return make_put(*core_.model->realm->model, 16, tokens_, reserved_.needs[need],
                    reserved_.reservation);
  }
  Status put(PutRequest request) {
    auto status = core_.call<Status>(
        [&](auto done) { core_.puts.put(session_, std::move(request), nullptr, soon(), done); });
    return status ? *status : Status(StatusCode::busy, "waits");
  }
  Reservation& reservation() { return *core_.reservations.find(session_, reserved_.reservation); }
  size_t visible() { return core_.index.size(); }

  CoreOwners core_;
  std::mt19937 rng_{5};
  uint64_t session_ = 0;
  std::vector<Token> tokens_;
  ReserveReply reserved_;
};

TEST_F(PutsTest, AFinishedObjectIsInvisibleUntilItsCommit) {
  ASSERT_TRUE(put(request(0)).ok());
  EXPECT_EQ(reservation().objects.finished.size(), 1u);
  EXPECT_EQ(visible(), 0u);
  const auto& [name, finished] = *reservation().objects.finished.begin();
  EXPECT_TRUE(intact(finished.object));
}

TEST_F(PutsTest, TheSameObjectAgainIsCountedAndKeptOnce) {
  ASSERT_TRUE(put(request(0)).ok());
  ASSERT_TRUE(put(request(0)).ok());
  EXPECT_EQ(reservation().objects.finished.size(), 1u);
  EXPECT_EQ(core_.env->count.puts_duplicate, 1u);
}

TEST_F(PutsTest, WhatIsStoredAlreadyIsNamedAndPinned) {
  const uint64_t other = core_.connect();
  core_.store(other, tokens_);
  const uint64_t pins = core_.index.tiers().pins();
  ASSERT_TRUE(put(request(0)).ok());
  EXPECT_EQ(reservation().objects.foreign.size(), 1u);
  EXPECT_TRUE(reservation().objects.finished.empty());
  EXPECT_EQ(core_.index.tiers().pins(), pins + 1);
}

TEST_F(PutsTest, APlaneTooFewIsRefusedByName) {
  PutRequest wrong = request(0);
  wrong.object.planes.pop_back();
  Status status = put(std::move(wrong));
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_NE(status.message().find("layer 1 part 0 side V"), std::string::npos) << status.message();
  EXPECT_TRUE(reservation().objects.finished.empty());
  EXPECT_TRUE(put(request(0)).ok()) << "a refused one may be put again";
}

TEST_F(PutsTest, AnotherReservationsNumberIsUnknown) {
  PutRequest wrong = request(0);
  wrong.reservation += 1;
  EXPECT_EQ(put(std::move(wrong)).code(), StatusCode::not_found);
}

TEST_F(PutsTest, APutWhoseReservationEndsMeanwhileSaysSo) {
  std::optional<Status> ended;
  core_.puts.put(session_, request(0), nullptr, soon(), [&](Status s) { ended = std::move(s); });
  core_.reservations.end(reserved_.reservation);
  core_.run_all();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code(), StatusCode::not_found);
  EXPECT_EQ(core_.env->pool->used_bytes(ChargeKind::stored), 0u);
}

// A cancelled put is answered at once, and nothing of it stays, however far it had come.
TEST_F(PutsTest, ACancelledPutLeavesNothingAndMayBePutAgain) {
  enum Stage { waiting, encoded, assembled };
  for (const Stage stage : {waiting, encoded, assembled}) {
    std::optional<Status> ended;
    core_.workers_hang = true;
    core_.puts.put(session_, request(0), nullptr, {soon(), 7}, [&](Status s) { ended = s; });
    if (stage != encoded) core_.run_all();
    if (stage != waiting) core_.run_workers();  // the results wait for the loop
    if (stage == assembled) {
      core_.run_all();  // its second job
      core_.run_workers();
    }
    ASSERT_FALSE(ended);
    core_.calls.cancel(session_, 7);
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->code(), StatusCode::cancelled);
    core_.workers_hang = false;
    core_.run_all();
    EXPECT_TRUE(reservation().objects.finished.empty()) << stage;
    EXPECT_TRUE(reservation().objects.encoding.empty()) << stage;
    EXPECT_EQ(core_.env->pool->used_bytes(ChargeKind::staging), 0u);
  }
  ASSERT_TRUE(put(request(0)).ok());
  EXPECT_EQ(reservation().objects.finished.size(), 1u);
}

// A put whose time is over while its rows are brought reads no more of them, and nothing of it
// stays.
TEST_F(PutsTest, ALatePutOfRowsThatAreBroughtLeavesNothingAndMayBePutAgain) {
  PutRequest from = request(0);
  ASSERT_TRUE(Puts::reads_rows(from));
  std::vector<uint8_t> rows;
  for (const Plane& p : from.object.planes) {
    rows.insert(rows.end(), p.bytes.span().begin(), p.bytes.span().end());
  }
  size_t reads = 0;
  const RowSource bring = [&](uint64_t at, std::span<uint8_t> to) {
    ++reads;
    std::copy_n(rows.begin() + static_cast<ptrdiff_t>(at), to.size(), to.begin());
    return Status();
  };
  for (const bool brought : {false, true}) {
    std::optional<Status> ended;
    core_.workers_hang = true;
    core_.puts.put_rows(session_, from, bring, deadline_in(Milliseconds(20)),
                        [&](Status s) { ended = std::move(s); });
    core_.run_all();
    if (brought) {
      core_.run_workers();
      core_.run_all();  // its second job waits for a worker
    }
    while (!ended) {
      std::this_thread::sleep_for(Milliseconds(1));
      core_.run_all();
    }
    EXPECT_EQ(ended->code(), StatusCode::deadline_exceeded);
    const size_t before = reads;
    EXPECT_EQ(before > 0, brought);
    core_.workers_hang = false;
    core_.run_all();
    EXPECT_EQ(reads, before);
    EXPECT_TRUE(reservation().objects.finished.empty()) << brought;
    EXPECT_TRUE(reservation().objects.encoding.empty()) << brought;
    EXPECT_EQ(core_.env->pool->used_bytes(ChargeKind::staging), 0u);
  }
  ASSERT_TRUE(put(request(0)).ok());
  EXPECT_EQ(reservation().objects.finished.size(), 1u);
}

TEST_F(PutsTest, RowsOfAnEntryThatBeginsWithTheSameAreCopied) {
  const uint64_t other = core_.connect();
  core_.store(other, slice(tokens_, 0, 24));  // a block and a tail of 8 rows
  auto reserved = core_.reserve(session_, tokens_);
  ASSERT_TRUE(reserved.ok());
  const Need block = reserved->needs[0];
  ASSERT_EQ(block.first_row, 16u);
  PutRequest request =
      make_put(*core_.model->realm->model, 16, tokens_, block, reserved->reservation);
  const Reservation& r = *core_.reservations.find(session_, reserved->reservation);
  ObjectName tail;
  for (const auto& node : r.realm->nodes) {
    if (node.main && node.main->name.kind == ObjectKind::tail) tail = node.main->name;
  }
  request.copies = {{tail, 16, 24}};
  for (Plane& plane : request.object.planes) plane = *slice_rows(plane, 24, 32);
  EXPECT_TRUE(put(std::move(request)).ok());
  EXPECT_EQ(core_.env->count.copies, 1u);
}

}  // namespace
}  // namespace kv
