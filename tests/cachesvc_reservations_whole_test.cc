// What may happen between reserve and commit: nothing at all, until the time is up, and an erase.
#include <thread>

#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

TEST(Reservation, AReservationWithoutACallEndsInTime) {
  CacheOptions options = small_options();
  options.reservation_timeout = Milliseconds(1);
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(5);
  auto tokens = random_tokens(rng, 40);
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  Deadline deadline = soon();
  while (b.stat("reservations_expired") == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    client.run();
  }
  auto put = make_put(b.model, 16, tokens, reserved->needs[0], reserved->reservation);
  EXPECT_EQ(client.put(std::move(put), soon()).code(), StatusCode::not_found);
  EXPECT_EQ(b.stat("reservations"), 0u);
  EXPECT_EQ(b.stat("ram_stored_bytes"), 0u);
}

// Two reservations of one length: what is put into the older one makes it end after the younger.
TEST(Reservation, APutProlongsItsReservation) {
  CacheOptions options = small_options();
  options.reservation_timeout = Milliseconds(400);
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(7);
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto tokens = random_tokens(rng, 40), other = random_tokens(rng, 40);
    auto older = b.reserve(tokens), younger = b.reserve(other);
    ASSERT_TRUE(older.ok() && younger.ok());
    std::this_thread::sleep_for(options.reservation_timeout / 2);
    auto put = [&](size_t i) {
      return client.put(make_put(b.model, 16, tokens, older->needs[i], older->reservation), soon());
    };
    if (!put(0).ok()) continue;  // a machine that slept meanwhile
    uint64_t before = b.stat("reservations_expired");
    while (b.stat("reservations_expired") == before) client.run();
    if (b.stat("reservations") == 0) continue;  // both: it slept again
    EXPECT_TRUE(put(1).ok()) << "the older one has ended before the younger";
    EXPECT_EQ(
        client.put(make_put(b.model, 16, other, younger->needs[0], younger->reservation), soon())
            .code(),
        StatusCode::not_found);
    return;
  }
  FAIL() << "the machine sleeps all the time";
}

// What is put again and again prolongs nothing: the older one ends first all the same.
TEST(Reservation, APutOfNothingNewProlongsNothing) {
  CacheOptions options = small_options();
  options.reservation_timeout = Milliseconds(400);
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(7);
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto tokens = random_tokens(rng, 40), other = random_tokens(rng, 40);
    auto older = b.reserve(tokens);
    ASSERT_TRUE(older.ok());
    auto put = [&](const Sequence& of, const ReserveReply& r, size_t i) {
      return client.put(make_put(b.model, 16, of, r.needs[i], r.reservation), soon()).code();
    };
    ASSERT_EQ(put(tokens, *older, 0), StatusCode::ok);
    std::this_thread::sleep_for(options.reservation_timeout / 2);
    auto younger = b.reserve(other);
    ASSERT_TRUE(younger.ok());
    uint64_t before = b.stat("reservations_expired");
    while (b.stat("reservations_expired") == before) {
      StatusCode again = put(tokens, *older, 0);
      EXPECT_TRUE(again == StatusCode::ok || again == StatusCode::not_found) << to_string(again);
      client.run();
    }
    if (b.stat("reservations") == 0) continue;  // both: a machine that slept meanwhile
    EXPECT_EQ(put(tokens, *older, 1), StatusCode::not_found) << "it was prolonged";
    EXPECT_EQ(put(other, *younger, 0), StatusCode::ok);
    return;
  }
  FAIL() << "the machine sleeps all the time";
}

TEST(Reservation, ACommitNamesWhatWasErasedSinceItsReserve) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(6);
  auto base = random_tokens(rng, 48), longer = base;
  for (Token t : random_tokens(rng, 10)) longer.push_back(t);
  ASSERT_TRUE(b.store(base).ok());
  auto reserved = b.reserve(longer);
  ASSERT_TRUE(reserved.ok());
  ASSERT_EQ(reserved->needs.size(), 1u);
  auto put = make_put(b.model, 16, longer, reserved->needs[0], reserved->reservation);
  ASSERT_TRUE(client.put(std::move(put), soon()).ok());
  Sequence two_blocks(base.begin(), base.begin() + 20);
  ASSERT_EQ(*client.erase(b.opened.model, {two_blocks, {}}, soon()), 2u);
  auto commit = client.commit(reserved->reservation, Durability::accepted, soon());
  ASSERT_TRUE(commit.ok()) << commit.status().to_string();
  ASSERT_EQ(commit->lost.size(), 1u);
  EXPECT_EQ(b.fetch(longer)->tokens, 16u);
  client.run();  // the lease's end
  EXPECT_EQ(b.stat("ram_objects"), 1u);
  EXPECT_EQ(b.stat("pins"), 0u);
}

}  // namespace
}  // namespace kv
