// RamRoom by itself: what goes for a request, who waits, and who is served first.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class RamRoomUnit : public ::testing::Test {
 protected:
  static Room stored(uint64_t bytes) {
    Room room;
    room.stored = bytes;
    return room;
  }
  static Room staging(uint64_t bytes) {
    Room room;
    room.staging = bytes;
    return room;
  }
  // All that is free: what is asked for then must go or be waited for.
  static Charge fill(CoreOwners& c) {
    RamPool& pool = *c.env->pool;
    return *pool.try_charge(ChargeKind::session, pool.budget_bytes() - pool.used_bytes());
  }
  // Notes how the request ends; its room goes back at once.
  void ask(CoreOwners& c, const Room& room, const std::string& who) {
    c.room.with_room(room, soon(), [this, who](Result<std::shared_ptr<RoomCharges>> got) {
      ends_.push_back(who + " " + to_string(got.status().code()));
      last_ = got.status();
    });
  }
  using Ends = std::vector<std::string>;

  TempDir dir_;
  Ends ends_;
  Status last_;
};

TEST_F(RamRoomUnit, WhatCanNeverFitIsRefusedNamingBytesAndLimit) {
  CoreOwners c(small_options());
  const uint64_t budget = c.env->pool->budget_bytes();
  const uint64_t in_transit = c.env->pool->staging_limit_bytes();
  const std::pair<Room, uint64_t> rooms[] = {{stored(budget + 1), budget},
                                             {staging(in_transit + 1), in_transit}};
  for (const auto& [room, limit] : rooms) {
    ask(c, room, "r");
    EXPECT_EQ(ends_.back(), std::string("r ") + to_string(StatusCode::resource_exhausted));
    EXPECT_NE(last_.message().find(std::to_string(limit + 1)), std::string::npos)
        << last_.message();
    EXPECT_NE(last_.message().find(std::to_string(limit)), std::string::npos);
  }
  EXPECT_FALSE(c.room.wanted());
}

TEST_F(RamRoomUnit, ACleanLeafGoesBeforeADirtyOneThatWasUsedLater) {
  CoreOwners c(small_options(dir_.store()));
  RealmState& realm = c.open_model();
  Record &dirty = c.give_block(realm), &clean = c.give_block(realm);
  c.spiller.ask(clean);
  c.spiller.pump();
  c.run();
  Charge others = fill(c);
  ask(c, stored(1), "r");
  EXPECT_EQ(ends_, Ends{"r ok"});
  EXPECT_TRUE(dirty.ram);
  EXPECT_FALSE(clean.ram);
  EXPECT_EQ(c.env->count.ram_evicted_clean, 1u);
  EXPECT_EQ(c.env->count.ram_evicted_dirty, 0u);
}

TEST_F(RamRoomUnit, ADirtyLeafIsWrittenBeforeItGoes) {
  CoreOwners c(small_options(dir_.store()));
  Record& dirty = c.give_block(c.open_model());
  Charge others = fill(c);
  ask(c, stored(1), "r");
  EXPECT_EQ(ends_, Ends{});
  EXPECT_TRUE(c.room.wanted());
  c.run();
  c.room.pump();
  EXPECT_EQ(ends_, Ends{"r ok"});
  EXPECT_TRUE(dirty.on_ssd());
  EXPECT_EQ(c.env->count.ram_evicted_dirty, 0u);
}

TEST_F(RamRoomUnit, ADirtyLeafThatNothingCanSaveGoesCounted) {
  CoreOwners c(small_options());
  RealmState& realm = c.open_model();
  const Record& root = c.give_block(realm);
  const ObjectName leaf = c.give_block(realm, &root).name;
  Charge others = fill(c);
  ask(c, stored(1), "r");
  EXPECT_EQ(ends_, Ends{"r ok"});
  EXPECT_EQ(c.index.find(leaf), nullptr);
  EXPECT_TRUE(root.ram) << "a leaf first";
  EXPECT_EQ(c.env->count.ram_evicted_dirty, 1u);
}

// The system takes its time to get them back, and the loop has none.
TEST_F(RamRoomUnit, LargeObjectsAreFreedOnAWorkerAndNoMoreGoThanAreNeeded) {
  CoreOwners c(small_options());
  RealmState& realm = c.open_model(plain_model(80));
  for (int i = 0; i < 4; ++i) ASSERT_GT(c.give_block(realm).payload_bytes, 300u << 10);
  Charge others = fill(c);
  ask(c, stored(500u << 10), "r");
  EXPECT_EQ(ends_, Ends{}) << "they are charged until they are free";
  EXPECT_EQ(c.env->count.ram_evicted_dirty, 2u);
  ask(c, stored(100u << 10), "second");
  EXPECT_EQ(c.env->count.ram_evicted_dirty, 2u) << "room is on its way";
  c.run();
  EXPECT_EQ(ends_, (Ends{"r ok", "second ok"}));
  EXPECT_EQ(c.env->count.ram_evicted_dirty, 2u);
}

TEST_F(RamRoomUnit, WaitersAreServedInOrderAsBytesComeBack) {
  CoreOwners c(small_options());
  Charge others = fill(c);
  ask(c, stored(2000), "large");
  ask(c, stored(100), "small");
  others.split(1000).release();
  c.run();
  EXPECT_EQ(ends_, Ends{}) << "nobody passes";
  others.split(1000).release();
  c.run();
  EXPECT_EQ(ends_, (Ends{"large ok", "small ok"}));
  EXPECT_FALSE(c.room.wanted());
}

TEST_F(RamRoomUnit, OneWhoseAccountIsFullLetsOthersPass) {
  CoreOwners c(small_options());
  RamPool& pool = *c.env->pool;
  Charge in_transit = *pool.try_charge(ChargeKind::staging, pool.staging_limit_bytes());
  ask(c, staging(1), "staging");
  ask(c, stored(1), "stored");
  EXPECT_EQ(ends_, Ends{"stored ok"});
  in_transit.release();
  c.run();
  EXPECT_EQ(ends_, (Ends{"stored ok", "staging ok"}));
}

TEST_F(RamRoomUnit, WhoWaitsTooLongIsBusyAndSoIsOneTooMany) {
  CacheOptions o = small_options();
  o.room_wait = Milliseconds(5);
  o.max_waiting_calls = 1;
  CoreOwners c(o);
  Charge others = fill(c);
  const auto begin = Clock::now();
  ask(c, stored(1), "first");
  ask(c, stored(1), "second");
  EXPECT_EQ(ends_, Ends{"second busy"});
  while (ends_.size() < 2) c.run_for(Milliseconds(1));
  EXPECT_EQ(ends_.back(), "first busy");
  EXPECT_GE(Clock::now() - begin, o.room_wait);
  EXPECT_EQ(c.env->count.busy, 2u);
  EXPECT_FALSE(c.room.wanted());
}

TEST_F(RamRoomUnit, TryingTakesWhatIsFreeAndEvictsNothing) {
  CoreOwners c(small_options());
  Record& block = c.give_block(c.open_model());
  EXPECT_TRUE(c.room.try_room(stored(1)));
  Charge others = fill(c);
  EXPECT_FALSE(c.room.try_room(stored(1)));
  EXPECT_TRUE(block.ram);
  EXPECT_TRUE(c.room.room_now(stored(1)));
}

TEST_F(RamRoomUnit, OneWhoseCallHasEndedWaitsNoMore) {
  CoreOwners c(small_options());
  Charge others = fill(c);
  const uint64_t session = *c.calls.connect("test");
  auto waits = [&](uint64_t tag, const Room& room, const std::string& who) {
    auto call = c.calls.begin<Status>(session, {soon(), tag}, [](Status) {});
    c.room.with_room(
        room, soon(),
        [this, who, call](Result<std::shared_ptr<RoomCharges>> got) {
          ends_.push_back(who + " " + to_string(got.status().code()));
        },
        call);
  };
  waits(1, stored(others.bytes()), "large");
  waits(2, stored(1), "small");
  others.release();
  others = fill(c);
  Charge one = others.split(1);
  one.release();
  c.run();
  EXPECT_EQ(ends_, Ends{}) << "the large one comes first";
  c.calls.cancel(session, 1);
  c.run();
  EXPECT_EQ(ends_, (Ends{"large unavailable", "small ok"}));
  EXPECT_EQ(c.calls.under_way(), 0u) << "nothing keeps the calls";
  EXPECT_FALSE(c.room.wanted());
}

}  // namespace
}  // namespace kv
