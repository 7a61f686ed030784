// Pins by themselves: what a process uses stays until it ends, on whatever thread that is.
#include <thread>

#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

TEST(PinsUnit, GivenBackOnceByWhoeverHasThemLast) {
  CoreOwners c(small_options());
  Record& block = c.give_block(c.open_model());
  Pins pins(*c.env, c.index, {&block, &block});
  Pins moved = std::move(pins);
  pins.release();
  EXPECT_EQ(block.pins, 2u);
  moved.release();
  moved.release();
  EXPECT_EQ(block.pins, 0u);
}

TEST(PinsUnit, OfAnObjectThatIsGoneLeaveItsSuccessorAlone) {
  CoreOwners c(small_options());
  RealmState& realm = c.open_model();
  Record& block = c.give_block(realm);
  RamObject object = block.ram;
  Pins old(*c.env, c.index, {&block});
  c.records.remove(block);
  auto charge = c.env->pool->try_charge(ChargeKind::index, 4096);
  Record& again = *c.index.add(realm, *object, std::move(*charge));
  c.records.given(again, object);
  Pins own(*c.env, c.index, {&again});
  old.release();
  EXPECT_EQ(again.pins, 1u);
}

TEST(PinsUnit, ALeaseGivesThemBackOnTheLoop) {
  CoreOwners c(small_options());
  Record& block = c.give_block(c.open_model());
  auto lease = keep(*c.env, Pins(*c.env, c.index, {&block}));
  std::thread([lease = std::move(lease)]() mutable { lease.reset(); }).join();
  EXPECT_EQ(block.pins, 1u) << "not on the thread that ended it";
  c.run();
  EXPECT_EQ(block.pins, 0u);
}

TEST(PinsUnit, ALeaseMayOutliveTheCore) {
  std::shared_ptr<const void> lease;
  {
    CoreOwners c(small_options());
    lease = keep(*c.env, Pins(*c.env, c.index, {&c.give_block(c.open_model())}));
  }
  lease.reset();
}

}  // namespace
}  // namespace kv
