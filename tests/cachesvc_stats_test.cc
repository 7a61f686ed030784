// Stats by themselves: gauges are what their owners say.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class StatsTest : public ::testing::Test {
 protected:
  static std::map<std::string, uint64_t> values(CoreOwners& c, uint64_t session) {
    auto reply =
        c.call<Result<StatsReply>>([&](auto done) { c.stats.stats(session, soon(), done); });
    std::map<std::string, uint64_t> out;
    if (!reply || !reply->ok()) return out;
    for (const auto& [name, value] : (*reply)->values) {
      EXPECT_TRUE(out.emplace(name, value).second) << name << " twice";
    }
    return out;
  }
  TempDir dir_;
  std::mt19937 rng_{1};
};

TEST_F(StatsTest, TellEachOwnersState) {
  CoreOwners c(small_options(dir_.store()));
  c.open_model();
  const uint64_t session = c.connect();
  c.store(session, random_tokens(rng_, 40), Durability::durable);
  ASSERT_TRUE(c.reserve(session, random_tokens(rng_, 20)).ok());
  auto v = values(c, session);
  EXPECT_EQ(v.at("stores"), 2u);
  EXPECT_EQ(v.at("commits"), 1u);
  EXPECT_EQ(v.at("objects_committed"), 3u);
  EXPECT_EQ(v.at("reservations"), 1u);
  EXPECT_EQ(v.at("sessions"), c.calls.sessions());
  EXPECT_EQ(v.at("ram_used_bytes"), c.env->pool->used_bytes());
  EXPECT_EQ(v.at("ssd_objects"), 3u);
}

// Whoever has no right to more sees nothing that others' doings change.
TEST_F(StatsTest, OfOnesOwnNamespaceAlone) {
  CoreOwners c(small_options(dir_.store()));
  c.open_model();
  const uint64_t mine = *c.calls.connect("mine", Right::own);
  auto before = values(c, mine);
  EXPECT_EQ(before.at("namespace_sessions"), 1u);
  EXPECT_EQ(before.at("namespace_models"), 0u);
  EXPECT_EQ(before.at("namespace_entries"), 0u);
  const uint64_t other = c.connect();
  c.store(other, random_tokens(rng_, 40));
  EXPECT_EQ(values(c, mine), before);
  EXPECT_EQ(values(c, other).at("namespace_models"), 1u);
  EXPECT_EQ(values(c, other).at("namespace_entries"), 3u) << "two blocks of 16 tokens and a tail";
  auto reply = c.call<Result<StatsReply>>([&](auto done) { c.stats.stats(mine, soon(), done); });
  EXPECT_TRUE((*reply)->models.empty());
}

TEST_F(StatsTest, AHangingDeviceDoesNotHoldThemUp) {
  CoreOwners c(small_options(dir_.store()));
  c.open_model();
  const uint64_t session = c.connect();
  c.hangs = true;
  EXPECT_FALSE(values(c, session).empty());
}

}  // namespace
}  // namespace kv
