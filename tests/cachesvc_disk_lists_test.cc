// DiskLists by itself: a record is in the list of its state, and the sums follow.
#include <gtest/gtest.h>

#include <list>

#include "cachesvc/core/disk_lists.h"

namespace kv {
namespace {

class DiskListsTest : public ::testing::Test {
 protected:
  Record& entered(Disk state, uint64_t bytes) {
    Record& r = records_.emplace_back();
    r.disk = state;
    r.payload_bytes = bytes;
    lists_.enter(r);
    lists_.check_invariants();
    return r;
  }

  std::list<Record> records_;
  DiskLists lists_;
};

using DiskListsDeathTest = DiskListsTest;

TEST_F(DiskListsTest, TheOldestOfAStateIsFirst) {
  EXPECT_EQ(lists_.first(Disk::waiting), nullptr);
  Record &a = entered(Disk::waiting, 1), &b = entered(Disk::waiting, 1);
  entered(Disk::failed, 1);
  EXPECT_EQ(lists_.first(Disk::waiting), &a);
  EXPECT_EQ(lists_.count(Disk::waiting), 2u);
  lists_.leave(a);
  lists_.leave(a);  // it is in none any more
  EXPECT_FALSE(DiskLists::listed(a));
  EXPECT_EQ(lists_.first(Disk::waiting), &b);
  EXPECT_EQ(lists_.count(Disk::waiting), 1u);
  EXPECT_EQ(lists_.count(Disk::failed), 1u);
  lists_.check_invariants();
}

TEST_F(DiskListsTest, BytesOnTheirWayAreThoseQueuedAndWritten) {
  entered(Disk::absent, 1);
  Record& queued = entered(Disk::queued, 10);
  entered(Disk::writing, 100);
  entered(Disk::renamed, 1000);
  EXPECT_EQ(lists_.queue_bytes(), 110u);
  lists_.leave(queued);
  EXPECT_EQ(lists_.queue_bytes(), 100u);
  lists_.check_invariants();
}

TEST_F(DiskListsTest, TheQueueTakesAnotherOrderAndKeepsEqualOnes) {
  Record &a = entered(Disk::queued, 1), &b = entered(Disk::queued, 2),
         &c = entered(Disk::queued, 1);
  lists_.order_queue(
      [](const Record& x, const Record& y) { return x.payload_bytes > y.payload_bytes; });
  std::vector<const Record*> order;
  for (const Record& r : lists_.all(Disk::queued)) order.push_back(&r);
  EXPECT_EQ(order, (std::vector<const Record*>{&b, &a, &c}));
}

TEST_F(DiskListsDeathTest, ARecordIsInTheListOfItsStateAlone) {
  Record& r = entered(Disk::queued, 10);
  EXPECT_DEATH(lists_.enter(r), "broken invariant");
  r.disk = Disk::writing;
  EXPECT_DEATH(lists_.check_invariants(), "broken invariant");
  r.disk = Disk::queued;
  r.payload_bytes = 11;
  EXPECT_DEATH(lists_.check_invariants(), "broken invariant");
  r.payload_bytes = 10;
}

}  // namespace
}  // namespace kv
