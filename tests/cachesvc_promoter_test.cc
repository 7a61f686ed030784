// The promoter by itself: one read however many wait, reads that fail, and reads that hang.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class PromoterUnit : public ::testing::Test {
 protected:
  PromoterUnit() {
    options_.ram_budget_bytes = 8u << 20;
    options_.ssd_dir = dir_.store();
    options_.ssd_min_free_bytes = 0;
    options_.io_backoff = Milliseconds(20);
    options_.room_wait = Milliseconds(20);
  }
  CoreOwners& core() {
    if (!core_) core_ = std::make_unique<CoreOwners>(options_);
    return *core_;
  }
  // Every file operation of this kind fails while it is set.
  void fail(const std::string& call) {
    options_.ssd_files = &faults_;
    faults_.script = [this, call](const char* name, const std::string&) -> Status {
      return failing_ && call == name ? Status(StatusCode::io_error, "injected") : Status();
    };
  }
  void spill(Record& record) {
    EXPECT_EQ(core().spiller.ask(record), Spiller::Asked::on_its_way);
    core().spiller.pump();
    core().run();
  }
  // Out of RAM, and not promoted before.
  void evict(Record& record) { core().recency.leave_ram(record); }
  std::optional<Status> promote(Record& record) {
    Room room = Promoter::room_for(record);
    auto charges = core().room.try_room(room);
    auto status = std::make_shared<std::optional<Status>>();
    core().promoter.promote(record, std::move(charges->stored), std::move(charges->promotion),
                            [status](Status s) { *status = std::move(s); });
    core().run();
    return *status;
  }

  TempDir dir_;
  testing::FaultFiles faults_;
  bool failing_ = false;
  CacheOptions options_;
  std::unique_ptr<CoreOwners> core_;
};

TEST_F(PromoterUnit, ReadsOnceHoweverManyWait) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  evict(block);
  core().hangs = true;
  EXPECT_FALSE(promote(block).has_value());
  int answered = 0;
  core().promoter.join(block, [&](Status s) { answered += s.ok(); });
  core().hangs = false;
  core().run();
  EXPECT_EQ(answered, 1);
  EXPECT_TRUE(block.ram);
  EXPECT_EQ(core().env->count.promotions, 1u);
}

TEST_F(PromoterUnit, MakesAFailedReadAMissForAWhile) {
  fail("open_read");
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  evict(block);
  failing_ = true;
  EXPECT_EQ(promote(block)->code(), StatusCode::io_error);
  EXPECT_EQ(block.disk, Disk::unreadable);
  EXPECT_FALSE(block.usable(Clock::now()));
  EXPECT_TRUE(block.usable(Clock::now() + Milliseconds(30)));
}

TEST_F(PromoterUnit, GivesUpAReadThatHangs) {
  options_.io_timeout = Milliseconds(10);
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  evict(block);
  core().hangs = true;
  Room room = Promoter::room_for(block);
  auto charges = core().room.try_room(room);
  Status said;
  core().promoter.promote(block, std::move(charges->stored), std::move(charges->promotion),
                          [&](Status s) { said = std::move(s); });
  core().run_for(Milliseconds(50));
  EXPECT_EQ(said.code(), StatusCode::io_error);
  EXPECT_TRUE(core().promoter.hangs());
  core().hangs = false;
  core().run();
  EXPECT_FALSE(core().promoter.hangs());
}

}  // namespace
}  // namespace kv
