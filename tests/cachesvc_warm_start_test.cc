// WarmStart by itself: what comes back into RAM, and when it keeps away.
#include "storage/file_names.h"
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class WarmStartUnit : public ::testing::Test {
 protected:
  WarmStartUnit() {
    options_ = small_options(dir_.store());
    options_.warm_start_bytes = 1u << 20;
  }
  CoreOwners& core() {
    if (!core_) core_ = std::make_unique<CoreOwners>(options_);
    return *core_;
  }
  // On the SSD only, used later than those before it.
  Record& on_ssd(const Record* parent = nullptr) {
    Record& block = core().give_block(*core().model->realm, parent);
    core().spiller.ask(block);
    core().spiller.pump();
    core().run();
    return block;
  }
  void evict(std::vector<Record*> blocks) {
    for (Record* r : blocks) EXPECT_FALSE(core().recency.leave_ram(*r));
  }
  void begin() {
    core().warm.begin();
    core().run();
  }
  size_t in_ram(const std::vector<Record*>& blocks) {
    return static_cast<size_t>(
        std::count_if(blocks.begin(), blocks.end(), [](const Record* r) { return bool(r->ram); }));
  }

  std::vector<Record*> eight_evicted() {
    std::vector<Record*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(&on_ssd());
    evict(blocks);
    return blocks;
  }

  TempDir dir_;
  CacheOptions options_;
  std::unique_ptr<CoreOwners> core_;
};

TEST_F(WarmStartUnit, TheMostRecentComeBackWithAllThatIsAboveThem) {
  const uint64_t payload = 2u * 2 * 16 * 2 * 32 * 2;  // layers, sides, rows, heads, dim, f16
  options_.warm_start_bytes = 2 * RamPool::slab_bytes(payload);
  core().open_model();
  Record& root = on_ssd();
  Record& between = on_ssd();
  Record& leaf = on_ssd(&root);
  ASSERT_EQ(root.payload_bytes, payload);
  evict({&leaf, &between, &root});
  begin();
  EXPECT_TRUE(root.ram) << "a leaf alone serves nothing";
  EXPECT_TRUE(leaf.ram);
  EXPECT_FALSE(between.ram) << "over warm_start_bytes";
  EXPECT_EQ(core().env->count.warm_objects, 2u);
}

TEST_F(WarmStartUnit, AStartBeginsIt) {
  core().open_model();
  const ObjectName name = on_ssd().name;
  core_.reset();
  EXPECT_TRUE(core().index.find(name)->ram);
}

TEST_F(WarmStartUnit, WithoutBytesForItNothingComesBack) {
  options_.warm_start_bytes = 0;
  core().open_model();
  Record& block = on_ssd();
  evict({&block});
  begin();
  EXPECT_FALSE(block.ram);
}

TEST_F(WarmStartUnit, NothingIsEvictedForIt) {
  core().open_model();
  Record& stays = on_ssd();
  Record& block = on_ssd();
  evict({&block});
  RamPool& pool = *core().env->pool;
  Charge others = *pool.try_charge(ChargeKind::session, pool.budget_bytes() - pool.used_bytes());
  begin();
  EXPECT_FALSE(block.ram);
  EXPECT_TRUE(stays.ram);
  others.release();
  core().run();
  EXPECT_FALSE(block.ram) << "it has ended";
}

TEST_F(WarmStartUnit, EndsAsSoonAsSomebodyWaitsForRam) {
  core().open_model();
  std::vector<Record*> blocks = eight_evicted();
  core().hangs = true;
  begin();
  RamPool& pool = *core().env->pool;
  Charge in_transit = *pool.try_charge(ChargeKind::staging, pool.staging_limit_bytes());
  Room room;
  room.staging = 1;
  core().room.with_room(room, soon(), [](auto) {});
  ASSERT_TRUE(core().room.wanted());
  core().hangs = false;
  core().run();
  EXPECT_GT(in_ram(blocks), 0u) << "reads under way";
  EXPECT_LT(in_ram(blocks), blocks.size());
}

TEST_F(WarmStartUnit, GoesOnPastWhatHasGone) {
  core().open_model();
  std::vector<Record*> blocks = eight_evicted();
  core().hangs = true;
  begin();
  core().records.remove(*blocks.front());  // the oldest: its turn comes last
  blocks.erase(blocks.begin());
  core().records.remove(*blocks[2]);
  blocks.erase(blocks.begin() + 2);
  core().hangs = false;
  core().run();
  EXPECT_EQ(in_ram(blocks), blocks.size());
}

// Else it would be read again for each object below it.
TEST_F(WarmStartUnit, AReadThatFailsIsNotRepeated) {
  testing::FaultFiles faults;
  options_.ssd_files = &faults;
  core().open_model();
  std::vector<Record*> path{&on_ssd()};
  while (path.size() < 8) path.push_back(&on_ssd(path.back()));
  evict({path.rbegin(), path.rend()});
  faults.script = [root = file_name(path[0]->name)](const char* call, const std::string& file) {
    const bool fails = std::string(call) == "pread" && file.find(root) != file.npos;
    return fails ? Status(StatusCode::io_error, "injected") : Status();
  };
  begin();
  EXPECT_FALSE(path[0]->ram);
  EXPECT_EQ(core().env->count.promotion_failures, 1u);
  core_.reset();  // it reads by `faults`
}

TEST_F(WarmStartUnit, NothingBelowAnObjectThatIsGoneComesBack) {
  core().open_model();
  std::vector<Record*> path{&on_ssd()};
  while (path.size() < 4) path.push_back(&on_ssd(path.back()));
  evict({path.rbegin(), path.rend()});
  core().records.remove(*path[1]);
  path.erase(path.begin() + 1);
  begin();
  EXPECT_TRUE(path[0]->ram);
  EXPECT_EQ(in_ram(path), 1u);
}

TEST_F(WarmStartUnit, ADrainEndsIt) {
  core().open_model();
  const std::vector<Record*> blocks = eight_evicted();
  core().warm.begin();
  core().env->drain();
  core().run();
  EXPECT_EQ(in_ram(blocks), 0u);
}

TEST_F(WarmStartUnit, MemoryIsReadyForThePromotionAfterThisOne) {
  options_.ram_budget_bytes = 512u << 20;
  options_.warm_start_bytes = 0;
  core().open_model();
  Record& block = on_ssd();
  evict({&block});
  const auto lacks = [this] { return core().env->pool->lacks_ready(options_.ready_bytes); };
  ASSERT_TRUE(lacks());
  core().hangs = true;
  auto charges = core().room.try_room(Promoter::room_for(block));
  core().promoter.promote(block, std::move(charges->stored), std::move(charges->promotion),
                          [](Status) {});
  core().warm.keep_ready();
  core().run();
  EXPECT_TRUE(lacks()) << "a read goes first";
  core().hangs = false;
  core().run();
  core().warm.keep_ready();
  core().run();
  EXPECT_FALSE(lacks());
}

}  // namespace
}  // namespace kv
