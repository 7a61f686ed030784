// Holds: what was promised stays, for its time and within its namespace's bounds, and no longer.
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

constexpr Milliseconds kMinute{60'000};

// 64 KiB a block of 16 tokens.
ModelSpec large_model() {
  return model_of(std::vector<LayerSpec>(4, LayerSpec{{full_part(4, 64)}}));
}

class HoldsTest : public ::testing::Test {
 protected:
  HoldsTest() {
    options_ = small_options(dir_.store());
    options_.ram_budget_bytes = 8ull << 20;
    options_.ssd_limit_bytes = 16ull << 20;
    options_.durable_group_delay = Milliseconds(0);
  }
  Bench& bench() {
    if (!core_) {
      core_ = std::make_unique<Stepped>(options_);
      bench_.emplace(Bench::open(*core_, large_model()));
    }
    return *bench_;
  }
  std::vector<Token> stored(size_t n) {
    const auto tokens = random_tokens(rng_, n);
    store(tokens);
    return tokens;
  }
  void store(const std::vector<Token>& tokens) {
    ASSERT_TRUE(bench().store(tokens, Durability::durable).ok());
  }
  // More than both tiers hold.
  void press() {
    for (int i = 0; i < 40; ++i) stored(128);
    core_->core->check_invariants();
  }
  Result<HoldReply> hold(const std::vector<Token>& tokens, Milliseconds time = kMinute) {
    return core_->hold({bench().opened.model, {plus_one(tokens), {}}, {}, time}, soon());
  }
  FetchRequest of_hold(uint64_t number) {
    FetchRequest request;
    request.model = bench().opened.model;
    request.hold = number;
    return request;
  }
  Result<FetchReply> fetch_held(uint64_t number) { return core_->fetch(of_hold(number), soon()); }
  uint32_t found(const std::vector<Token>& tokens) {
    return core_->lookup({bench().opened.model, {plus_one(tokens), {}}}, soon())->tokens;
  }

  TempDir dir_;
  std::mt19937 rng_{11};
  CacheOptions options_;
  std::unique_ptr<Stepped> core_;
  std::optional<Bench> bench_;
};

TEST_F(HoldsTest, WhatIsHeldStaysInBothTiersUntilItIsReleased) {
  const auto tokens = stored(128), other = stored(128);
  const auto held = hold(tokens);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->found.tokens, 128u);
  EXPECT_EQ(held->time, kMinute);
  press();
  EXPECT_EQ(found(other), 0u) << "there was no pressure";
  auto hit = fetch_held(held->number);
  ASSERT_TRUE(hit.ok()) << hit.status().to_string();
  EXPECT_EQ(hit->tokens, 128u);
  EXPECT_EQ(hit->tier, Tier::ram);
  bench().expect_serves(plus_one(tokens), *hit);
  hit->lease = Lease();
  ASSERT_TRUE(core_->release(held->number, soon()).ok());
  EXPECT_EQ(bench().stat("held_bytes"), 0u);
  press();
  EXPECT_EQ(found(tokens), 0u);
  EXPECT_EQ(fetch_held(held->number).status().code(), StatusCode::not_found);
}

TEST_F(HoldsTest, TimeEndsAHoldUnlessItIsRenewed) {
  const auto tokens = stored(32);
  const auto brief = hold(tokens, Milliseconds(1)), renewed = hold(tokens, Milliseconds(1));
  ASSERT_TRUE(brief.ok() && renewed.ok());
  const auto left = core_->renew(renewed->number, kMinute, soon());
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(*left, kMinute);
  EXPECT_EQ(*core_->renew(renewed->number, Milliseconds(1), soon()), kMinute) << "never shorter";
  while (bench().stat("holds") > 1) core_->loop.run_one_for(kMinute);
  EXPECT_EQ(fetch_held(brief->number).status().code(), StatusCode::not_found);
  EXPECT_EQ(core_->renew(brief->number, kMinute, soon()).status().code(), StatusCode::not_found);
  EXPECT_EQ(fetch_held(renewed->number)->tokens, 32u);
  core_->core->check_invariants();
}

TEST_F(HoldsTest, TheEndOfAConnectionEndsNone) {
  const auto tokens = stored(32);
  const auto held = hold(tokens);
  ASSERT_TRUE(held.ok());
  core_->core->disconnect(core_->session);
  core_->session = *core_->core->connect("test");
  bench_.emplace(Bench::open(*core_, large_model()));
  EXPECT_EQ(fetch_held(held->number)->tokens, 32u);
}

TEST_F(HoldsTest, MoreThanTheShareIsHeldShorterAndSharedBlocksCountOnce) {
  options_.hold_fraction = 0.125;  // 1 MiB: 16 blocks, less what a slab takes beside
  const auto tokens = stored(512);
  const auto first = hold(tokens);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_LE(first->found.tokens, 256u);
  EXPECT_GE(first->found.tokens, 128u);
  EXPECT_NE(first->found.reason.find("held bytes 1048576"), std::string::npos)
      << first->found.reason;
  EXPECT_EQ(fetch_held(first->number)->tokens, first->found.tokens) << "no more than was promised";
  const uint64_t bytes = bench().stat("held_bytes");
  const auto second = hold(tokens);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(second->found.tokens, first->found.tokens);
  const uint64_t both = bench().stat("held_bytes");
  EXPECT_LT(both, bytes + (16u << 10)) << "its own query and lists";
  const auto refused = hold(stored(64));
  EXPECT_EQ(refused.status().code(), StatusCode::resource_exhausted);
  EXPECT_NE(refused.status().message().find("used " + std::to_string(both)), std::string::npos)
      << refused.status().to_string();
  ASSERT_TRUE(core_->release(first->number, soon()).ok());
  EXPECT_EQ(bench().stat("held_bytes"), bytes);
  ASSERT_TRUE(core_->release(second->number, soon()).ok());
  EXPECT_EQ(bench().stat("held_bytes"), 0u);
}

TEST_F(HoldsTest, ANamespaceHoldsAtMostItsPartOfItsQuota) {
  options_.quotas["test"].ram_bytes = 2ull << 20;
  const auto held = hold(stored(320));
  ASSERT_TRUE(held.ok()) << held.status().to_string();
  EXPECT_LE(bench().stat("held_bytes"), 1ull << 20);
  EXPECT_EQ(held->found.tokens, 240u) << "16 blocks would be all of it, without the hold's own";
}

TEST_F(HoldsTest, ExtrasThatAreKeptCount) {
  const auto tokens = stored(32);
  const auto plain = hold(tokens);
  const uint64_t bytes = bench().stat("held_bytes");
  ASSERT_TRUE(core_->release(plain->number, soon()).ok());
  const Query marked{plus_one(tokens), std::vector<Extra>(4, {32, std::vector<uint8_t>(1000)})};
  const auto held = core_->hold({bench().opened.model, marked, {}, kMinute}, soon());
  ASSERT_TRUE(held.ok()) << held.status().to_string();
  EXPECT_EQ(held->found.tokens, 32u);
  EXPECT_GE(bench().stat("held_bytes"), bytes + 4000);
}

// So namespaces without a quota of the SSD may not hold more of it together than there is.
TEST_F(HoldsTest, SsdThatNoQuotaHasIsSharedOutAsRamIs) {
  options_.ram_budget_bytes = 32ull << 20;
  options_.quotas["test"].ram_bytes = 16ull << 20;
  const auto held = hold(stored(1536));  // 6 MiB, where half of 16 MiB / 2 may be held
  ASSERT_TRUE(held.ok()) << held.status().to_string();
  EXPECT_LE(bench().stat("held_bytes"), 4ull << 20);
  EXPECT_LT(held->found.tokens, 1024u);
  EXPECT_GE(held->found.tokens, 960u);
}

TEST_F(HoldsTest, OfALongQueryOnlyWhatIsHeldIsKeptAndARamThatIsFullMakesRoom) {
  const auto tokens = stored(32);
  press();
  store(tokens);
  auto query = tokens;
  const auto more = random_tokens(rng_, 1u << 20);
  query.insert(query.end(), more.begin(), more.end());
  const auto held = hold(query);
  ASSERT_TRUE(held.ok()) << held.status().to_string();
  EXPECT_EQ(held->found.tokens, 32u);
  EXPECT_LT(bench().stat("held_bytes"), 160u << 10) << "two blocks of 64 KiB";
  EXPECT_EQ(fetch_held(held->number)->tokens, 32u);
}

// Quotas may leave nothing for all others.
TEST_F(HoldsTest, WhereNothingMayBeHeldThatIsTheAnswer) {
  options_.quotas["another"].ram_bytes = options_.ram_budget_bytes;
  const auto held = hold(stored(32));
  EXPECT_EQ(held.status().code(), StatusCode::resource_exhausted);
  EXPECT_NE(held.status().message().find("held bytes 0, used 0"), std::string::npos);
}

TEST_F(HoldsTest, AHoldThatFindsNothingIsNone) {
  bench();
  const auto held = hold(random_tokens(rng_, 40));
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->number, 0u);
  EXPECT_EQ(bench().stat("holds"), 0u);
  core_->core->check_invariants();
}

TEST_F(HoldsTest, WhatIsWrongIsSaid) {
  options_.max_holds = 2;
  const auto tokens = stored(32);
  const auto held = hold(tokens);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(hold(tokens, Milliseconds(0)).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(hold(tokens, 1000 * kMinute)->time, options_.max_hold_time);
  const auto third = hold(tokens);
  EXPECT_EQ(third.status().code(), StatusCode::resource_exhausted);
  EXPECT_NE(third.status().message().find("holds 2, used 2, asked 1"), std::string::npos);
  EXPECT_EQ(bench().stat("over_quota"), 1u);
  FetchRequest both = of_hold(held->number);
  both.query.tokens = tokens;
  EXPECT_EQ(core_->fetch(both, soon()).status().code(), StatusCode::invalid_argument);
  auto other = Bench::open(*core_, model_of({LayerSpec{{full_part()}}}, 9));
  FetchRequest strange = of_hold(held->number);
  strange.model = other.opened.model;
  EXPECT_EQ(core_->fetch(strange, soon()).status().code(), StatusCode::invalid_argument);
  const uint64_t mine = core_->session;
  core_->session = *core_->core->connect("another");
  EXPECT_EQ(core_->release(held->number, soon()).code(), StatusCode::not_found);
  EXPECT_EQ(core_->renew(held->number, kMinute, soon()).status().code(), StatusCode::not_found);
  auto stranger = Bench::open(*core_, large_model());
  EXPECT_EQ(fetch_held(held->number).status().code(), StatusCode::not_found);
  core_->session = mine;
  OpenRequest replace;
  replace.model = large_model();
  replace.profile = make_profile(replace.model, 4, 32);
  replace.replace = true;
  ASSERT_TRUE(core_->open(replace, soon()).ok());
  FetchRequest before = of_hold(held->number);
  before.profile = replace.profile->id();
  EXPECT_EQ(core_->fetch(before, soon()).status().code(), StatusCode::profile_changed);
}

TEST_F(HoldsTest, NumbersOfAnEarlierStartMeanNothing) {
  const auto tokens = stored(32);
  const uint64_t before = hold(tokens)->number;
  bench_.reset();
  core_.reset();
  bench();
  EXPECT_NE(hold(tokens)->number, before);
  EXPECT_EQ(fetch_held(before).status().code(), StatusCode::not_found);
}

TEST_F(HoldsTest, APrefetchThatWaitsAnswersWhenAllIsInRam) {
  options_.ssd_limit_bytes = 64ull << 20;
  const auto tokens = stored(128);
  for (int i = 0; i < 20; ++i) stored(128);
  const auto held = hold(tokens);
  ASSERT_TRUE(held.ok());
  ASSERT_EQ(held->found.tier, Tier::ssd) << "it did not leave RAM";
  PrefetchRequest request{bench().opened.model, {}, {}, true, held->number};
  auto come = core_->prefetch(request, soon());
  ASSERT_TRUE(come.ok());
  EXPECT_EQ(come->tokens, 128u);
  EXPECT_EQ(come->tier, Tier::ram);
}

// Stores, erases, holds, renewals, releases and their time, in any order: what is held and was not
// erased is served.
TEST_F(HoldsTest, WhatIsHeldIsServedWhateverHappensBeside) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    rng_.seed(seed);
    struct Promise {
      std::vector<Token> tokens;
      uint64_t number;
      uint32_t held;
    };
    std::vector<std::vector<Token>> entries;
    std::vector<Promise> promises;
    for (int step = 0; step < 150; ++step) {
      const uint32_t what = rng_() % 10;
      if (what < 5 || entries.empty()) {
        auto tokens = random_tokens(rng_, 16 + rng_() % 160);
        if (!entries.empty() && what < 2) {  // goes on from another
          const auto& other = entries[rng_() % entries.size()];
          tokens.insert(tokens.begin(), other.begin(), other.begin() + 16);
        }
        store(tokens);
        entries.push_back(tokens);
      } else if (what < 7) {
        const auto& tokens = entries[rng_() % entries.size()];
        auto held = hold(tokens);
        if (held.ok() && held->number != 0) {
          promises.push_back({tokens, held->number, held->found.tokens});
        }
      } else if (what == 7 && !promises.empty()) {
        const size_t at = rng_() % promises.size();
        ASSERT_TRUE(core_->release(promises[at].number, soon()).ok());
        promises.erase(promises.begin() + static_cast<long>(at));
      } else if (what == 8 && step % 3 == 0) {
        const auto tokens = entries[rng_() % entries.size()];
        const Query start{{tokens.begin(), tokens.begin() + 1}, {}};
        ASSERT_TRUE(core_->erase(bench().opened.model, start, soon()).ok());
        for (Promise& p : promises) {
          if (p.tokens[0] == tokens[0]) p.held = 0;
        }
      }
      core_->core->check_invariants();
      for (const Promise& p : promises) {
        auto hit = fetch_held(p.number);
        ASSERT_TRUE(hit.ok()) << hit.status().to_string();
        ASSERT_GE(hit->tokens, p.held);
      }
    }
    EXPECT_FALSE(promises.empty());
    bench_.reset();
    core_.reset();
  }
}

}  // namespace
}  // namespace kv
