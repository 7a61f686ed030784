// Reservations by themselves: what they pin, what they keep free, and how they end.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class ReservationsTest : public ::testing::Test {
 protected:
  std::vector<Token> tokens(size_t n) { return random_tokens(rng_, n); }
  static uint64_t stored(const CoreOwners& c) {
    return c.env->pool->used_bytes(ChargeKind::stored);
  }
  std::mt19937 rng_{3};
};

TEST_F(ReservationsTest, ListsWhatIsMissingAndKeepsRoomForIt) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  auto reserved = c.reserve(session, tokens(40));
  ASSERT_TRUE(reserved.ok());
  EXPECT_EQ(reserved->needs.size(), 3u) << "two blocks of 16 and a tail";
  EXPECT_GT(stored(c), 0u);
  c.reservations.end(reserved->reservation);
  c.run();
  EXPECT_EQ(stored(c), 0u);
  EXPECT_EQ(c.reservations.size(), 0u);
}

TEST_F(ReservationsTest, WhatIsThereIsPinnedUntilTheEnd) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  const auto prompt = tokens(32);
  c.store(session, prompt);
  const uint64_t before = c.index.tiers().pins();
  auto reserved = c.reserve(session, prompt);
  ASSERT_TRUE(reserved.ok());
  EXPECT_TRUE(reserved->needs.empty());
  EXPECT_EQ(c.index.tiers().pins(), before + 2);
  c.reservations.check_invariants();
  c.reservations.end(reserved->reservation);
  EXPECT_EQ(c.index.tiers().pins(), before);
}

TEST_F(ReservationsTest, ASessionsEndEndsItsOwnAlone) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t mine = c.connect(), yours = c.connect();
  auto my = c.reserve(mine, tokens(20)), your = c.reserve(yours, tokens(20));
  ASSERT_TRUE(my.ok() && your.ok());
  c.reservations.end_session(mine);
  EXPECT_EQ(c.reservations.find(mine, my->reservation), nullptr);
  EXPECT_NE(c.reservations.find(yours, your->reservation), nullptr);
  EXPECT_EQ(c.reservations.find(mine, your->reservation), nullptr) << "another session's";
}

TEST_F(ReservationsTest, OneThatWasTakenIsEndedByNobodyElse) {
  CacheOptions options = small_options();
  options.reservation_timeout = Milliseconds(5);
  CoreOwners c(options);
  c.open_model();
  const uint64_t session = c.connect();
  auto reserved = c.reserve(session, tokens(20));
  ASSERT_TRUE(reserved.ok());
  Reservation taken = c.reservations.take(reserved->reservation);
  c.run_for(Milliseconds(20));
  c.reservations.end_session(session);
  EXPECT_EQ(c.env->count.reservations_expired, 0u);
  EXPECT_GT(stored(c), 0u);
  bool freed = false;
  c.reservations.free(std::move(taken), [&] { freed = true; });
  c.run();
  EXPECT_TRUE(freed);
  EXPECT_EQ(stored(c), 0u);
}

TEST_F(ReservationsTest, AnAbortEndsItAndASecondFindsNone) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  auto reserved = c.reserve(session, tokens(20));
  ASSERT_TRUE(reserved.ok());
  auto abort = [&] {
    return *c.call<Status>(
        [&](auto done) { c.reservations.abort(session, reserved->reservation, soon(), done); });
  };
  EXPECT_TRUE(abort().ok());
  EXPECT_EQ(abort().code(), StatusCode::not_found);
}

TEST_F(ReservationsTest, AStoreThatCanNeverFitIsRefusedWithTheLengthThatDoes) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  auto reserved = c.reserve(session, tokens(200'000));
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.status().code(), StatusCode::resource_exhausted);
  EXPECT_NE(reserved.status().message().find("the largest length that fits is"), std::string::npos)
      << reserved.status().message();
}

TEST_F(ReservationsTest, AnotherProfileThanTheOneInForceIsRefused) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  auto reply = c.call<Result<ReserveReply>>([&](auto done) {
    c.reservations.reserve(session, {1, Id{{9}}, {tokens(20), {}}}, soon(), done);
  });
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status().code(), StatusCode::profile_changed);
}

TEST_F(ReservationsTest, ItsTimeBeginsAnewWithEachPut) {
  CacheOptions options = small_options();
  options.reservation_timeout = Milliseconds(200);
  CoreOwners c(options);
  c.open_model();
  const uint64_t session = c.connect();
  auto reserved = c.reserve(session, tokens(20));
  ASSERT_TRUE(reserved.ok());
  c.run_for(Milliseconds(5));
  Reservation* r = c.reservations.find(session, reserved->reservation);
  ASSERT_TRUE(r);
  const auto put = Clock::now(), end = put + std::chrono::seconds(20);
  c.reservations.prolong(*r);
  while (c.reservations.size() > 0 && Clock::now() < end) c.run_for(Milliseconds(1));
  EXPECT_GE(Clock::now() - put, options.reservation_timeout);
  EXPECT_EQ(c.env->count.reservations_expired, 1u);
  EXPECT_EQ(stored(c), 0u);
}

TEST_F(ReservationsTest, NoPutProlongsItBeyondTenTimesItsTime) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  const auto before = Clock::now();
  auto reserved = c.reserve(session, tokens(20));
  ASSERT_TRUE(reserved.ok());
  Reservation* r = c.reservations.find(session, reserved->reservation);
  const auto most = 10 * c.env->options.reservation_timeout;
  EXPECT_GE(r->last, before + most);
  EXPECT_LE(r->last, Clock::now() + most);
  r->last = Clock::now() + Milliseconds(1);
  c.reservations.prolong(*r);
  EXPECT_EQ(r->expires, r->last);
}

TEST_F(ReservationsTest, OneTooManyIsBusyAndADrainTakesNoMore) {
  CacheOptions options = small_options();
  options.max_reservations = 1;
  CoreOwners c(options);
  c.open_model();
  const uint64_t session = c.connect();
  auto first = c.reserve(session, tokens(20));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(c.reserve(session, tokens(20)).status().code(), StatusCode::busy);
  c.reservations.end(first->reservation);
  c.env->drain();
  EXPECT_EQ(c.reserve(session, tokens(20)).status().code(), StatusCode::unavailable);
}

// A guest's namespace without a table of its own leaves half to others.
TEST(NamespacesTest, AGuestHasCountsOfItsOwn) {
  const Namespaces all({{"uid-5", {.reservations = 9}}}, {.reservations = 3});
  EXPECT_EQ(all.quota("uid-4").reservations, 3u);
  EXPECT_EQ(all.quota("uid-5").reservations, 9u) << "it has a table";
  EXPECT_EQ(all.quota("default").reservations, 0u);
  CacheOptions options = small_options();
  options.max_reservations = 10;
  const CoreOwners c(options);
  EXPECT_EQ(c.env->namespaces.quota("uid-4").reservations, 5u);
}

TEST_F(ReservationsTest, OneWhoseCallEndsWhileItWaitsForRoomIsNone) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  RamPool& pool = *c.env->pool;
  Charge others = *pool.try_charge(ChargeKind::session, pool.budget_bytes() - pool.used_bytes());
  EXPECT_EQ(c.reserve(session, tokens(20)).status().message(), "waits");
  EXPECT_TRUE(c.room.wanted());
  c.calls.disconnect(session);
  others.release();
  c.run_all();
  EXPECT_EQ(c.reservations.size(), 0u);
  EXPECT_EQ(stored(c), 0u);
}

}  // namespace
}  // namespace kv
