// The index obeys its share of RAM while it runs and when it starts; what leaves it leaves both
// tiers, so an erase never meets what it can't tell from its own.
#include <malloc.h>

#include "cachesvc/core/index_bytes.h"
#include "cachesvc/core/records.h"
#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class IndexShare : public ::testing::Test {
 protected:
  CacheOptions options(const std::string& ssd) {
    CacheOptions o = small_options(ssd);
    o.ram_budget_bytes = 2u << 20;
    o.index_fraction = 0.1;
    o.room_wait = Milliseconds(50);
    o.on_event = [this](const CacheEvent& e) { told_[e.kind] += e.count; };
    return o;
  }
  static uint64_t share(const CacheOptions& o) {
    return static_cast<uint64_t>(o.index_fraction * static_cast<double>(o.ram_budget_bytes));
  }
  // Many of three tokens, each wholly stored.
  void fill(Bench& b, const CacheOptions& o, int entries) {
    for (int i = 0; i < entries; ++i) {
      stored_.push_back(random_tokens(rng_, 3));
      auto committed =
          b.store(stored_.back(), o.ssd_dir.empty() ? Durability::accepted : Durability::spilled);
      ASSERT_TRUE(committed.ok()) << i << ": " << committed.status().to_string();
      ASSERT_LE(b.stat("ram_index_bytes"), share(o)) << i;
    }
  }
  std::set<size_t> served(Bench& b) {
    std::set<size_t> out;
    for (size_t i = 0; i < stored_.size(); ++i) {
      auto hit = b.client.lookup({b.opened.model, {plus_one(stored_[i]), {}}}, soon());
      if (hit.ok() && hit->tokens == 3) out.insert(i);
    }
    return out;
  }
  static size_t objects_in(const std::string& directory) {
    auto found = inspect_directory(directory, InspectDepth::headers);
    EXPECT_TRUE(found.ok());
    return static_cast<size_t>(
        std::count_if(found->files.begin(), found->files.end(),
                      [](const auto& f) { return f.status.ok() && !is_record(f.kind); }));
  }

  TempDir dir_;
  std::mt19937 rng_{31};
  std::vector<std::vector<Token>> stored_;
  std::map<EventKind, uint64_t> told_;
};

TEST_F(IndexShare, StoresGoOnAndTheLeastRecentlyUsedLeaveBothTiers) {
  CacheOptions o = options(dir_.store());
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  fill(b, o, 600);
  client.run();
  uint64_t evicted = b.stat("index_evicted");
  EXPECT_GT(evicted, 200u);
  EXPECT_EQ(told_[EventKind::index_full], evicted);
  auto now = served(b);
  EXPECT_EQ(now.size(), 600 - evicted);
  EXPECT_EQ(*now.begin(), evicted) << "the oldest went";
  EXPECT_EQ(objects_in(dir_.store()), now.size()) << "their files too";
  EXPECT_EQ(b.stat("ssd_evicted"), 0u);
}

TEST_F(IndexShare, ARestartServesWhatWasServedBefore) {
  CacheOptions o = options(dir_.store());
  std::set<size_t> before;
  {
    Stepped client(o);
    auto b = Bench::open(client, plain_model(1));
    fill(b, o, 500);
    before = served(b);
  }
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  EXPECT_EQ(served(b), before);
  EXPECT_EQ(b.stat("index_evicted"), 0u);
  EXPECT_EQ(b.stat("recovered_skipped"), 0u);
}

TEST_F(IndexShare, AnEraseOfWhatWasNeverStoredTakesNothing) {
  CacheOptions o = options(dir_.store());
  {
    Stepped client(o);
    auto b = Bench::open(client, plain_model(1));
    fill(b, o, 500);
  }
  o.index_fraction = 0.05;  // less than the run before: the start has to choose
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  auto before = served(b);
  EXPECT_GT(before.size(), 50u);
  auto erased = client.erase(b.opened.model, {random_tokens(rng_, 3), {}}, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  EXPECT_EQ(*erased, 0u);
  EXPECT_EQ(served(b), before);
}

TEST_F(IndexShare, AStartWithASmallerOneKeepsTheMostRecentWhole) {
  CacheOptions o = options(dir_.store());
  o.index_fraction = 0.5;
  auto prompt = random_tokens(rng_, 80);
  {
    Stepped client(o);
    auto b = Bench::open(client, plain_model(1));
    ASSERT_TRUE(b.store(prompt, Durability::spilled).ok());
    fill(b, o, 400);
    EXPECT_EQ(b.fetch(plus_one(prompt))->tokens, 80u);  // the most recent use of all
    ASSERT_TRUE(client.call<Status>([&](auto done) { client.core->drain(soon(), done); }).ok());
  }
  o.index_fraction = 0.05;
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  client.run();
  EXPECT_LE(b.stat("ram_index_bytes"), share(o));
  EXPECT_EQ(b.fetch(plus_one(prompt))->tokens, 80u) << "with all that it begins with";
  auto now = served(b);
  EXPECT_GT(now.size(), 50u);
  EXPECT_EQ(*now.rbegin(), 399u);
  EXPECT_EQ(*now.begin(), 400 - now.size()) << "the last ones, without a gap";
  EXPECT_EQ(objects_in(dir_.store()), now.size() + 5) << "the others' files are gone";
  EXPECT_EQ(b.stat("index_evicted"), 400 - now.size());
  EXPECT_EQ(told_[EventKind::index_full], 400 - now.size());
}

TEST_F(IndexShare, FilesReadInTheBackgroundObeyItToo) {
  CacheOptions o = options(dir_.store());
  o.index_fraction = 0.5;
  {
    Stepped client(o);
    auto b = Bench::open(client, plain_model(1));
    fill(b, o, 400);
  }
  ASSERT_TRUE(std::filesystem::remove(dir_.store() + "/catalog.db"));
  o.index_fraction = 0.05;
  o.adopt_at_start = 10;
  o.reconcile_rate = 0;
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  while (b.stat("recovery_unread") > 0) client.loop.run_one();
  client.run();
  EXPECT_LE(b.stat("ram_index_bytes"), share(o));
  auto now = served(b);
  EXPECT_GT(now.size(), 50u);
  EXPECT_EQ(objects_in(dir_.store()), now.size());
  fill(b, o, 10);
}

TEST_F(IndexShare, WithoutAnSsdRamLeavesGo) {
  CacheOptions o = options("");
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  fill(b, o, 400);
  EXPECT_GT(b.stat("index_evicted"), 50u);
  EXPECT_TRUE(served(b).contains(399));
}

TEST_F(IndexShare, WhereNothingMayGoTheStoreSaysSo) {
  CacheOptions o = options("");
  o.index_fraction = 0.01;
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  std::vector<Lease> leases;
  Status refused;
  for (int i = 0; i < 100 && refused.ok(); ++i) {
    auto tokens = random_tokens(rng_, 3);
    refused = b.store(tokens).status();
    if (!refused.ok()) break;
    auto hit = b.fetch(plus_one(tokens));
    ASSERT_EQ(hit->tokens, 3u);
    leases.push_back(std::move(hit->lease));
  }
  EXPECT_EQ(refused.code(), StatusCode::resource_exhausted) << refused.to_string();
  EXPECT_NE(refused.message().find("index"), std::string::npos) << refused.message();
  auto longer = b.store(random_tokens(rng_, 16 * 40)).status();
  EXPECT_EQ(longer.code(), StatusCode::resource_exhausted) << "more than all of it";
  EXPECT_NE(longer.message().find(std::to_string(share(o))), std::string::npos) << longer.message();
  leases.clear();
  client.run();
  EXPECT_TRUE(b.store(random_tokens(rng_, 3)).ok());
}

// What hangs on a block in RAM only keeps it.
TEST_F(IndexShare, NoPathLosesItsMiddle) {
  CacheOptions o = options(dir_.store());
  o.index_fraction = 0.02;
  o.spill_when = SpillWhen::evict;
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  auto prompt = random_tokens(rng_, 32);
  ASSERT_TRUE(b.store(prompt, Durability::spilled).ok());
  auto longer = prompt;
  for (Token t : random_tokens(rng_, 20)) longer.push_back(t);
  ASSERT_TRUE(b.store(longer).ok());  // in RAM only
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(b.store(random_tokens(rng_, 3), Durability::spilled).ok()) << i;
    auto hit = b.client.lookup({b.opened.model, {plus_one(longer), {}}}, soon());
    ASSERT_TRUE(hit->tokens == 52 || hit->tokens % 16 == 0) << hit->tokens;
    for (const auto& [kind, count] : told_) ASSERT_NE(kind, EventKind::ram_damaged);
  }
}

// ---- what an object on the SSD takes of RAM

class IndexBytes : public ::testing::Test {
 protected:
  // Bytes that the process grows by for each of many objects, over what they are charged.
  double grown_over_charged(uint32_t vocabulary, ObjectKind kind, bool orphans) {
    constexpr int kPrompts = 100, kBlocks = 200;
    ObjectIndex index;
    Records records(index);
    auto spec = std::make_shared<const ModelSpec>(model_of(
        {LayerSpec{{full_part(), state_part(SnapshotPlace::checkpoint), window_part(8, 2)}}}));
    auto profile = make_profile(*spec, 4, 256);
    Realm realm{"test", spec->fingerprint, profile->id()};
    auto state = index.realm(realm, spec, profile);
    std::mt19937 rng(1);
    uint64_t charged = 0;
    double grown = 0;
    for (bool measured : {false, true}) {  // the first prompts warm the allocator up
      ::malloc_trim(0);
      const uint64_t before = resident_bytes();
      for (int p = 0; p < (measured ? kPrompts : 10); ++p) {
        Id parent;
        for (int b = 0; b < kBlocks; ++b) {
          Object o;
          o.name.kind = kind == ObjectKind::snapshot ? ObjectKind::snapshot : ObjectKind::block;
          o.first_token = kind == ObjectKind::block ? static_cast<uint32_t>(b) * 256 : 0;
          o.tokens.resize(kind == ObjectKind::snapshot ? 100 : 256);
          for (Token& t : o.tokens) t = static_cast<Token>(rng() % vocabulary);
          o.parent = parent;
          stamp(o, realm);
          Record* r = orphans ? index.add_orphan(o, Charge()) : index.add(*state, o, Charge());
          EXPECT_NE(r, nullptr);
          records.found(*r, 900, 1000, 4096, static_cast<uint64_t>(p * kBlocks + b));
          charged += orphans ? orphan_bytes(o.tokens.size()) : index_bytes(kind, o.tokens);
          if (kind == ObjectKind::block) parent = o.name.id;
        }
      }
      grown = static_cast<double>(resident_bytes() - before);
      if (!measured) charged = 0;
    }
    std::printf("vocabulary %u: %.0f bytes an object, charged %.0f\n", vocabulary,
                grown / (kPrompts * kBlocks), double(charged) / (kPrompts * kBlocks));
    return grown / double(charged);
  }
};

TEST_F(IndexBytes, TheChargeIsWhatTheProcessGrowsBy) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator takes its own";
#endif
  for (uint32_t vocabulary : {49'152u, 262'144u, 2'000'000u}) {
    EXPECT_NEAR(grown_over_charged(vocabulary, ObjectKind::block, false), 1.0, 0.1);
  }
  EXPECT_NEAR(grown_over_charged(49'152, ObjectKind::snapshot, false), 1.0, 0.2);
  EXPECT_NEAR(grown_over_charged(49'152, ObjectKind::block, true), 1.0, 0.1);
}

TEST_F(IndexBytes, ABlockOf256TokensIsAtMost1300) {
  std::vector<Token> tokens(256, 49'151);
  EXPECT_LE(index_bytes(ObjectKind::block, tokens), 1'300u);
  tokens[0] = 262'143;
  EXPECT_LE(index_bytes(ObjectKind::block, tokens), 1'300u);
}

}  // namespace
}  // namespace kv
