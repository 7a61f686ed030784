// The index obeys its share of RAM while it runs and when it starts; what leaves it leaves both
// tiers, so an erase never meets what it can't tell from its own.
#include "storage/inspect.h"
#include "tests/cachesvc_stepped.h"
#include "tests/storage_testing.h"

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
      auto hit = b.client.lookup(b.opened.model, {plus_one(stored_[i]), {}}, soon());
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
  EXPECT_GT(b.stat("index_evicted"), 100u);
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
    auto hit = b.client.lookup(b.opened.model, {plus_one(longer), {}}, soon());
    ASSERT_TRUE(hit->tokens == 52 || hit->tokens % 16 == 0) << hit->tokens;
    for (const auto& [kind, count] : told_) ASSERT_NE(kind, EventKind::ram_damaged);
  }
}

}  // namespace
}  // namespace kv
