// Recency by itself: what is told to the SSD when bytes leave RAM, and at an end.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class RecencyUnit : public ::testing::Test {
 protected:
  // Blocks on the SSD and in RAM, used since.
  std::vector<Record*> used(CoreOwners& c, size_t count) {
    RealmState& realm = c.open_model();
    std::vector<Record*> out;
    for (size_t i = 0; i < count; ++i) out.push_back(&c.give_block(realm));
    for (Record* r : out) c.spiller.ask(*r);
    c.spiller.pump();
    c.run();
    for (Record* r : out) r->use.untold = true;
    c.index.tiers().touch(out);
    return out;
  }
  static size_t untold(const std::vector<Record*>& records) {
    return static_cast<size_t>(
        std::count_if(records.begin(), records.end(), [](Record* r) { return r->use.untold; }));
  }
  TempDir dir_;
};

TEST_F(RecencyUnit, EightRowsAMinuteAtMost) {
  CoreOwners c(small_options(dir_.store()));
  auto records = used(c, Recency::kRowsPerMinute + 3);
  for (Record* r : records) EXPECT_FALSE(c.recency.leave_ram(*r));
  EXPECT_EQ(untold(records), 3u);
  for (Record* r : records) EXPECT_FALSE(r->ram);
}

TEST_F(RecencyUnit, WhatIsToldAlreadyTakesNoRow) {
  CoreOwners c(small_options(dir_.store()));
  auto records = used(c, 2 * Recency::kRowsPerMinute);
  for (size_t i = 0; i < records.size(); i += 2) records[i]->use.untold = false;
  for (Record* r : records) c.recency.leave_ram(*r);
  EXPECT_EQ(untold(records), 0u);
}

TEST_F(RecencyUnit, WhatHasNoFileIsGoneAndTakesNoRow) {
  CoreOwners c(small_options(dir_.store()));
  auto records = used(c, Recency::kRowsPerMinute);
  for (size_t i = 0; i < Recency::kRowsPerMinute; ++i) {
    Record& dirty = c.give_block(*records[0]->realm);
    dirty.use.untold = true;
    const ObjectName name = dirty.name;
    EXPECT_TRUE(c.recency.leave_ram(dirty));
    EXPECT_EQ(c.index.find(name), nullptr);
  }
  for (Record* r : records) c.recency.leave_ram(*r);
  EXPECT_EQ(untold(records), 0u);
}

TEST_F(RecencyUnit, ADeviceThatHangsIsNotTold) {
  CacheOptions options = small_options(dir_.store());
  options.io_timeout = Milliseconds(1);
  CoreOwners c(options);
  auto records = used(c, 2);
  c.hangs = true;
  c.lane.run([] { return true; }, [](bool) {});
  while (!c.lane.hangs()) c.run_for(Milliseconds(1));
  c.recency.leave_ram(*records[0]);
  c.recency.tell_last();
  EXPECT_EQ(untold(records), 2u);
}

TEST_F(RecencyUnit, AnEndTellsAllAndAStartFindsTheirOrder) {
  std::vector<ObjectName> order;
  {
    CoreOwners c(small_options(dir_.store()));
    auto records = used(c, Recency::kRowsPerMinute + 2);
    for (auto r = records.rbegin(); r != records.rend(); ++r) {
      c.index.tiers().touch({*r});
      order.push_back((*r)->name);
    }
    c.recency.tell_last();
    EXPECT_EQ(untold(records), 0u);
    c.run();
  }
  SsdOptions ssd;
  ssd.limit_bytes = 64u << 20;
  auto tier = SsdTier::open(dir_.store(), ssd);
  ASSERT_TRUE(tier.ok()) << tier.status().to_string();
  auto found = (*tier)->recover();
  ASSERT_TRUE(found.ok());
  std::sort(found->objects.begin(), found->objects.end(),
            [](const auto& a, const auto& b) { return a.recency < b.recency; });
  std::vector<ObjectName> names;
  for (const KnownObject& o : found->objects) names.push_back(o.header.name);
  EXPECT_EQ(names, order);
}

}  // namespace
}  // namespace kv
