// Small budgets, damaged files, and random sequences against a simple oracle.
#include <filesystem>
#include <fstream>

#include "storage/inspect.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

constexpr uint64_t kPressureRam = 2ull << 20;
constexpr uint64_t kSmallSsd = 10ull << 20;

TEST(TieredPressure, RamEvictionNeverGoesOverTheBudget) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.ram_budget_bytes = kPressureRam;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model(4));
  std::mt19937 rng(1);
  std::vector<std::vector<Token>> stored;
  for (int i = 0; i < 40; ++i) {  // 128 tokens x 1 KiB each: more than twice the budget
    stored.push_back(random_tokens(rng, 128));
    auto s = b.store(stored.back(), Durability::spilled);
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    ASSERT_EQ(s->level, Durability::spilled);
  }
  EXPECT_GT(b.stat("ram_evicted_clean"), 0u);
  EXPECT_EQ(b.stat("ram_evicted_dirty"), 0u);
  for (auto& tokens : stored) {  // everything is still served, through promotions
    auto hit = b.fetch(tokens);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    ASSERT_EQ(hit->tokens, 127u) << hit->reason;
    b.expect_serves(tokens, *hit);
  }
  EXPECT_GT(b.stat("promotions"), 0u);
  EXPECT_LE(b.stat("ram_peak_bytes"), kPressureRam);
}

TEST(TieredPressure, WithoutAnSsdOldLeavesGo) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = kPressureRam;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model(4));
  std::mt19937 rng(2);
  std::vector<Token> last;
  for (int i = 0; i < 40; ++i) {
    last = random_tokens(rng, 128);
    auto s = b.store(last);
    ASSERT_TRUE(s.ok()) << s.status().to_string();
  }
  EXPECT_GT(b.stat("ram_evicted_dirty"), 0u);
  EXPECT_LE(b.stat("ram_peak_bytes"), kPressureRam);
  auto hit = b.fetch(last);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 127u);
}

TEST(TieredPressure, WhatCanNeverFitIsRefusedWithTheLargestLength) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = kPressureRam;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model(4));
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 8000);
  auto refused = b.reserve(tokens);
  ASSERT_EQ(refused.status().code(), StatusCode::resource_exhausted);
  const std::string& text = refused.status().message();
  size_t at = text.rfind(' ');
  auto largest = static_cast<size_t>(std::stoul(text.substr(at)));
  EXPECT_GT(largest, 500u) << text;
  EXPECT_LT(largest, 8000u) << text;
  tokens.resize(largest);
  EXPECT_TRUE(b.store(tokens).ok());
  EXPECT_EQ(b.stat("pins"), 0u);
}

TEST(TieredPressure, PinnedByLeasesIsBusyThenFreed) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = kPressureRam;
  options.room_wait = Milliseconds(1);
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model(4));
  std::mt19937 rng(4);
  auto one = random_tokens(rng, 1000), two = random_tokens(rng, 1000);
  ASSERT_TRUE(b.store(one).ok());
  {
    auto hit = b.fetch(one);
    ASSERT_TRUE(hit.ok());
    ASSERT_EQ(hit->tokens, 999u);
    EXPECT_EQ(b.store(two).status().code(), StatusCode::busy);
    auto kept = b.fetch(one);  // dropping it would have freed nothing
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(kept->tokens, 999u);
    b.expect_serves(one, *hit);
  }
  auto again = b.store(two);
  EXPECT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_LE(b.stat("ram_peak_bytes"), kPressureRam);
}

// One entry of the first ones is used again and again: it stays, with the newest ones, and no more
// is dropped than the limit asks for.
TEST(TieredPressure, SsdLimitEvictsLeastRecentlyUsedLeaves) {
  constexpr size_t kStored = 60, kUsed = 3;
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.ssd_limit_bytes = kSmallSsd;
  std::mt19937 rng(5);
  std::vector<Sequence> stored;
  uint64_t used = 0;
  {
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, plain_model(8));
    for (size_t i = 0; i < kStored; ++i) {  // 128 tokens x 2 KiB: about 300 KiB each
      stored.push_back(random_tokens(rng, 128));
      auto s = b.store(stored.back(), Durability::spilled);
      ASSERT_TRUE(s.ok()) << s.status().to_string();
      ASSERT_EQ(s->level, Durability::spilled) << i;
      if (i < kUsed) continue;
      ASSERT_EQ(b.fetch(stored[kUsed])->tokens, 127u) << i;
    }
    EXPECT_GT(b.stat("ssd_evicted"), 0u);
    used = b.stat("ssd_used_bytes");
    EXPECT_LE(used, kSmallSsd);
    EXPECT_EQ(b.stat("spills_failed"), 0u);
  }
  auto cache = open_cache(options);  // what it serves now comes from the SSD
  auto b = Bench::open(*cache, plain_model(8));
  std::vector<size_t> whole;
  for (size_t i = 0; i < kStored; ++i) {
    auto hit = b.fetch(stored[i]);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    b.expect_serves(stored[i], *hit);
    if (hit->tokens == 127) whole.push_back(i);
  }
  EXPECT_GT(used, kSmallSsd / 2) << "dropped only as needed";
  ASSERT_GT(whole.size(), 15u);
  EXPECT_EQ(whole.front(), kUsed);
  for (size_t i = 1; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i], kStored - whole.size() + i) << "an older one outlived a newer one";
  }
}

// A working set larger than RAM: an access reads what it lacks once and no more than that is
// dropped for it, and what every second access uses is read once in all.
TEST(TieredPressure, AWorkingSetLargerThanRamIsReadOncePerUse) {
  constexpr uint64_t kEntries = 24, kRounds = 2, kBlocks = 8;  // 128 KiB each
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.ram_budget_bytes = kPressureRam;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model(4));
  std::mt19937 rng(9);
  std::vector<Sequence> stored;
  for (uint64_t i = 0; i < kEntries; ++i) {
    stored.push_back(random_tokens(rng, 128));
    ASSERT_TRUE(b.store(stored.back(), Durability::spilled).ok());
  }
  auto read_objects = [&] { return b.stat("promotions"); };
  auto evicted_objects = [&] { return b.stat("ram_evicted_clean"); };
  uint64_t promoted = read_objects(), evicted = evicted_objects(), hot_reads = 0;
  for (uint64_t i = 1; i < kRounds * kEntries; ++i) {
    ASSERT_EQ(b.fetch(stored[i % kEntries])->tokens, 127u) << "access " << i;
    uint64_t before = read_objects();
    ASSERT_EQ(b.fetch(stored[0])->tokens, 127u) << "access " << i;
    hot_reads += read_objects() - before;
  }
  promoted = read_objects() - promoted;
  evicted = evicted_objects() - evicted;
  EXPECT_EQ(hot_reads, kBlocks) << "what is in use stays";
  EXPECT_GT(promoted, kEntries * kBlocks) << "RAM is smaller than the working set";
  EXPECT_LE(promoted, (kRounds * kEntries + 1) * kBlocks) << "an access reads its blocks once";
  EXPECT_LE(evicted, promoted + promoted / 8) << "a block read costs about one that is dropped";
  EXPECT_EQ(b.stat("ram_evicted_dirty"), 0u);
  EXPECT_GT(b.stat("ram_stored_bytes"), kPressureRam / 2) << "and what was read is kept";
}

// Stores `tokens` durably and closes the cache; the files that it left, to be damaged.
Result<Inspection> store_and_inspect(const TempDir& dir, const ModelSpec& model,
                                     const std::vector<Token>& tokens) {
  {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, model);
    KV_ASSIGN_OR_RETURN(auto stored, b.store(tokens, Durability::durable));
    (void)stored;
  }
  return inspect_directory(dir.store(), InspectDepth::headers);
}

TEST(TieredPressure, DamagedFileIsAMissQuarantinedAndCounted) {
  TempDir dir;
  ModelSpec model = plain_model();
  std::mt19937 rng(6);
  auto tokens = random_tokens(rng, 70);
  auto files = store_and_inspect(dir, model, tokens);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  for (const InspectedFile& f : files->files) {
    if (f.kind != FileKind::block || f.header.first_token != 32) continue;
    std::fstream file(dir.store() + "/" + f.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<long>(f.file_bytes - 100));
    file.put('\x5A').put('\x5A').put('\x5A');
  }
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, model);
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok()) << hit.status().to_string();
  EXPECT_EQ(hit->tokens, 32u) << "blocks 0 and 1 stand before the damage";
  b.expect_serves(tokens, *hit);
  EXPECT_EQ(b.stat("quarantined"), 1u);
  EXPECT_EQ(b.stat("promotion_failures"), 1u);
  EXPECT_GT(b.stat("ssd_quarantine_bytes"), 0u);
  ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());  // stored anew, all is well again
  auto healed = b.fetch(tokens);
  ASSERT_TRUE(healed.ok());
  EXPECT_EQ(healed->tokens, 69u);
  b.expect_serves(tokens, *healed);
}

// A block lost before a start leaves the rest of its entry as orphans: they must neither be served
// nor keep the entry from being stored again, and the next start serves the whole.
TEST(TieredPressure, AnEntryWithALostBlockIsStoredAnewAfterARestart) {
  TempDir dir;
  ModelSpec model = plain_model();
  std::mt19937 rng(8);
  auto tokens = random_tokens(rng, 110);
  auto files = store_and_inspect(dir, model, tokens);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  for (const InspectedFile& f : files->files) {
    if (f.kind != FileKind::block || f.header.first_token != 32) continue;
    std::filesystem::resize_file(dir.store() + "/" + f.path, f.file_bytes / 2);
  }
  std::filesystem::remove(dir.store() + "/catalog.db");
  for (int start = 0; start < 2; ++start) {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, model);
    auto hit = b.fetch(tokens);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->tokens, start == 0 ? 32u : 109u) << "start " << start;
    b.expect_serves(tokens, *hit);
    auto stored = b.store(tokens, Durability::spilled);
    ASSERT_TRUE(stored.ok()) << stored.status().to_string();
    auto healed = b.fetch(tokens);
    ASSERT_TRUE(healed.ok());
    EXPECT_EQ(healed->tokens, 109u);
    b.expect_serves(tokens, *healed);
  }
}

// Entries branch off each other; the oracle knows every token sequence stored and not erased. What
// is served never exceeds it, always has the right bytes, and is all of it while nothing was
// evicted.
using Entries = std::vector<std::vector<Token>>;

uint32_t longest(const Entries& entries, const std::vector<Token>& query) {
  uint32_t best = 0;
  for (auto& e : entries) {
    uint32_t n = 0;
    while (n < e.size() && n < query.size() && e[n] == query[n]) ++n;
    best = std::max(best, n);
  }
  return std::min<uint32_t>(best, static_cast<uint32_t>(query.size()) - 1);
}

std::vector<Token> make_query(const Entries& entries, std::mt19937& rng) {
  std::vector<Token> query;
  if (!entries.empty() && rng() % 4) {
    query = entries[rng() % entries.size()];
    query.resize(1 + rng() % query.size());
  }
  auto more = random_tokens(rng, 1 + rng() % 60, 3);
  query.insert(query.end(), more.begin(), more.end());
  return query;
}

void random_walk(uint32_t seed, bool small) {
  SCOPED_TRACE("seed " + std::to_string(seed) + (small ? ", small budgets" : ""));
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.room_wait = Milliseconds(200);
  if (small) options.ram_budget_bytes = 1ull << 20;
  if (small) options.ssd_limit_bytes = 9ull << 20;
  ModelSpec model = plain_model(4);
  std::mt19937 rng(seed);
  auto profile = make_profile(model, seed % 2 ? 4 : 0);
  auto cache = open_cache(options);
  auto b = std::make_unique<Bench>(Bench::open(*cache, model, profile));
  Entries entries;
  for (int step = 0; step < 100 && !::testing::Test::HasFailure(); ++step) {
    uint32_t action = rng() % 20;
    auto query = make_query(entries, rng);
    if (action < 8) {
      auto level = static_cast<Durability>(1 + rng() % 3);
      auto s = b->store(query, level);
      bool refused = !s.ok() && (s.status().code() == StatusCode::busy ||
                                 s.status().code() == StatusCode::resource_exhausted);
      ASSERT_TRUE(s.ok() || (small && refused)) << s.status().to_string();
      if (s.ok() && !small) {
        ASSERT_GE(s->level, level);
      }
      if (s.ok()) entries.push_back(query);
    } else if (action < 18) {
      auto hit = b->fetch(query, FetchForm::stored);
      ASSERT_TRUE(hit.ok()) << hit.status().to_string();
      uint32_t best = longest(entries, query);
      ASSERT_LE(hit->tokens, best);
      ASSERT_TRUE(small || hit->tokens == best) << hit->tokens << " of " << best;
      b->expect_serves(query, *hit);
    } else if (action == 18 && !entries.empty()) {
      auto prefix = entries[rng() % entries.size()];
      ASSERT_TRUE(b->client.erase(b->opened.model, {prefix, {}}, soon()).ok());
      // What began with it is gone from its last token on; its blocks before may be others' too.
      Entries left;
      for (auto& e : entries) {
        bool begins =
            e.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), e.begin());
        if (begins) e.resize((prefix.size() - 1) / 16 * 16);
        if (!e.empty()) left.push_back(e);
      }
      entries = left;
    } else if (action == 19) {
      b.reset();
      cache.reset();
      cache = open_cache(options);
      b = std::make_unique<Bench>(Bench::open(*cache, model));
    }
  }
  EXPECT_LE(b->stat("ram_peak_bytes"), options.ram_budget_bytes);
  EXPECT_LE(b->stat("ssd_used_bytes"), options.ssd_limit_bytes);
  ASSERT_TRUE(cache->drain(soon()).ok());  // batches under way hold pins
  EXPECT_EQ(b->stat("pins"), 0u);
  EXPECT_EQ(b->stat("spill_queue_bytes"), 0u);
  EXPECT_EQ(b->stat("waiting_calls"), 1u);  // this one
}

TEST(TieredPressure, RandomSequencesAgainstAnOracle) {
  for (uint32_t seed = 1; seed <= 4; ++seed) random_walk(seed, false);
}
TEST(TieredPressure, RandomSequencesUnderSmallBudgets) {
  for (uint32_t seed = 11; seed <= 14; ++seed) random_walk(seed, true);
}

}  // namespace
}  // namespace kv
