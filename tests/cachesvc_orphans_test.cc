// Objects whose parent block, profile or model record is gone: erased with what they may belong to,
// linked at once when what they lack returns, never served before.
#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

class Orphans : public ::testing::Test {
 protected:
  void store(const std::vector<Sequence>& entries) {
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    for (const Sequence& tokens : entries) {
      ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    }
  }
  // Of the entry with these tokens (any: all of them), the block that begins at `first`.
  void lose_block(uint32_t first, const Sequence& entry) {
    int lost = 0;
    for (const InspectedFile& f : files()) {
      if (f.kind != FileKind::block || f.header.first_token != first) continue;
      bool same = std::equal(f.header.tokens.begin(), f.header.tokens.end(), entry.begin() + first);
      if (same && fs::remove(dir_.store() + "/" + f.path)) ++lost;
    }
    ASSERT_EQ(lost, 1);
  }
  std::vector<InspectedFile> files() {
    auto found = inspect_directory(dir_.store(), InspectDepth::headers);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? found->files : std::vector<InspectedFile>{};
  }
  size_t objects() {
    auto all = files();
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const InspectedFile& f) {
      return f.kind <= FileKind::snapshot;
    }));
  }
  bool on_disk(const Sequence& tokens) { return kv::on_disk(dir_.store(), tokens); }

  TempDir dir_;
  ModelSpec model_ = plain_model();
  std::mt19937 rng_{21};
};

Sequence join(Sequence a, const Sequence& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(Orphans, AnEraseOfTheModelTakesThem) {
  auto tokens = random_tokens(rng_, 110);
  store({tokens});
  lose_block(32, tokens);
  {
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    EXPECT_EQ(b.fetch(tokens)->tokens, 32u);
    auto other = cache->connect("other");
    ASSERT_TRUE(other.ok());
    auto stranger = Bench::open(**other, model_);
    EXPECT_EQ(*stranger.client.erase(stranger.opened.model, {}, soon()), 0u) << "not its own";
    auto erased = b.client.erase(b.opened.model, {}, soon());
    ASSERT_TRUE(erased.ok()) << erased.status().to_string();
    EXPECT_EQ(*erased, 6u);  // blocks 0, 1, 3, 4, 5 and the tail
    EXPECT_EQ(b.stat("ssd_objects"), 0u);
    EXPECT_EQ(b.stat("ram_index_bytes"), 0u);
    EXPECT_FALSE(on_disk(slice(tokens, 48, 64)));
  }
  EXPECT_EQ(objects(), 0u);
}

// Lost blocks before the end of the query: what they were follows from their ids, so an entry that
// differs from the query in a lost block only stays.
TEST_F(Orphans, AnEraseTakesExactlyThoseWhoseLostBlocksWereTheQuerys) {
  auto mine = random_tokens(rng_, 110);
  auto same_end = join(random_tokens(rng_, 16), slice(mine, 16, 110));  // differs in block 0
  auto same_begin = join(slice(mine, 0, 70), random_tokens(rng_, 40));  // differs after the query
  auto stranger = random_tokens(rng_, 110);
  store({mine, same_end, same_begin, stranger});
  for (const auto* entry : {&mine, &same_end, &stranger}) lose_block(0, *entry);
  size_t before = objects();
  {
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    auto erased = b.client.erase(b.opened.model, {slice(mine, 0, 68), {}}, soon());
    ASSERT_TRUE(erased.ok());
    EXPECT_EQ(*erased, 3u + 3u);  // blocks 4, 5 and the tail of `mine` and of `same_begin`
    EXPECT_EQ(*b.client.erase(b.opened.model, {slice(mine, 0, 68), {}}, soon()), 0u);
  }
  EXPECT_EQ(objects(), before - 6);
  EXPECT_FALSE(on_disk(slice(same_begin, 80, 96)));
  EXPECT_TRUE(on_disk(slice(same_end, 80, 96)));
  EXPECT_TRUE(on_disk(slice(stranger, 80, 96)));
}

// The query ends inside the lost block, so nothing proves whose children they are.
TEST_F(Orphans, AnEraseTakesThoseThatMayBeginWithTheQuery) {
  auto mine = random_tokens(rng_, 60), stranger = random_tokens(rng_, 60);
  auto known = random_tokens(rng_, 60);
  store({mine, stranger, known});
  lose_block(0, mine);
  lose_block(0, stranger);
  lose_block(16, known);  // its first block says that it begins otherwise
  {
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    auto erased = b.client.erase(b.opened.model, {slice(mine, 0, 10), {}}, soon());
    ASSERT_TRUE(erased.ok());
    EXPECT_EQ(*erased, 3u + 3u + 2u);  // blocks 1 and 2 and the tail; block 2 and the tail
  }
  EXPECT_FALSE(on_disk(slice(mine, 32, 48)));
  EXPECT_EQ(objects(), 1u);
}

TEST_F(Orphans, AreLinkedAtOnceWhenTheirParentReturns) {
  auto tokens = random_tokens(rng_, 110);
  store({tokens});
  lose_block(32, tokens);
  auto cache = open_cache(small_options(dir_.store()));
  auto b = Bench::open(*cache, model_);
  EXPECT_EQ(b.fetch(tokens)->tokens, 32u);
  // Another entry brings the lost block back; nothing after it travels.
  auto other = join(slice(tokens, 0, 48), random_tokens(rng_, 5));
  ASSERT_TRUE(b.store(other, Durability::spilled).ok());
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 109u);
  EXPECT_EQ(hit->tier, Tier::mixed);
  b.expect_serves(tokens, *hit);
  auto again = b.reserve(tokens);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->needs.empty());
  auto durable = b.client.commit(again->reservation, Durability::durable, soon());
  ASSERT_TRUE(durable.ok());
  EXPECT_EQ(durable->level, Durability::durable) << "the sync at start knows it";
  EXPECT_EQ(*b.client.erase(b.opened.model, {tokens, {}}, soon()), 1u) << "its tail";
}

// The client gives its bytes again; that an old file of the same name is there must not be enough.
TEST_F(Orphans, ADamagedOneDoesNotStandForWhatTheClientStores) {
  auto tokens = random_tokens(rng_, 110);
  store({tokens});
  lose_block(32, tokens);
  for (const InspectedFile& f : files()) {
    if (f.kind != FileKind::block || f.header.first_token != 48) continue;
    std::fstream file(dir_.store() + "/" + f.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<long>(f.file_bytes - 100));
    file.put('\x5A').put('\x5A').put('\x5A');
  }
  {
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    auto stored = b.store(tokens, Durability::spilled);
    ASSERT_TRUE(stored.ok());
    EXPECT_EQ(stored->level, Durability::spilled);
    EXPECT_GT(b.stat("ssd_quarantine_bytes"), 0u) << "kept for inspection";
  }
  auto cache = open_cache(small_options(dir_.store()));
  auto b = Bench::open(*cache, model_);
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 109u);
  b.expect_serves(tokens, *hit);
}

// Its parent can't be written, so nor can it; then pressure drops it from RAM.
TEST_F(Orphans, OneThatWasReplacedAndDroppedUnwrittenKeepsItsFileForErasesToo) {
  auto tokens = random_tokens(rng_, 110);
  store({tokens});
  lose_block(0, tokens);
  testing::FaultFiles faults;
  faults.script = [](const char* call, const std::string&) -> Status {
    if (std::string(call) != "rename") return {};
    return {StatusCode::io_error, "injected"};
  };
  CacheOptions options = small_options(dir_.store());
  options.ssd_files = &faults;
  options.spill_batch_files = 1;  // its parent fails before it is tried
  options.ram_budget_bytes = 4ull << 20;
  options.room_wait = Milliseconds(10);
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, model_);
  ASSERT_TRUE(b.store(tokens).ok());
  for (int i = 0; i < 4000 && b.stat("ram_evicted_dirty") < 7; ++i) {
    ASSERT_TRUE(b.store(random_tokens(rng_, 15)).ok());
  }
  ASSERT_EQ(b.fetch(tokens)->tokens, 0u) << "blocks 0 to 5 and the tail are gone";
  ASSERT_EQ(b.stat("ssd_objects"), 6u) << "all but block 0";
  ASSERT_TRUE(b.client.erase(b.opened.model, {}, soon()).ok());
  EXPECT_FALSE(on_disk(slice(tokens, 48, 64)));
  EXPECT_EQ(objects(), 0u);
}

TEST_F(Orphans, AreLinkedWhenTheirProfileReturns) {
  auto tokens = random_tokens(rng_, 110);
  store({tokens});
  for (const InspectedFile& f : files()) {
    if (f.kind >= FileKind::profile) fs::remove(dir_.store() + "/" + f.path);
  }
  auto cache = open_cache(small_options(dir_.store()));
  auto b = Bench::open(*cache, model_);
  EXPECT_EQ(b.stat("recovered_skipped"), 7u);
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 109u);
  b.expect_serves(tokens, *hit);
}

TEST_F(Orphans, TheReasonOfAMissNamesALostProfileOrModelRecord) {
  auto tokens = random_tokens(rng_, 64);
  for (FileKind lost : {FileKind::profile, FileKind::model_record}) {
    TempDir dir;
    {
      auto cache = open_cache(small_options(dir.store()));
      auto b = Bench::open(*cache, model_, make_profile(model_, 4));
      ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    }
    auto found = inspect_directory(dir.store(), InspectDepth::headers);
    for (const InspectedFile& f : found->files) {
      if (f.kind == lost) fs::remove(dir.store() + "/" + f.path);
    }
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, model_);  // under another profile, then
    auto looked = b.client.lookup({b.opened.model, {plus_one(tokens), {}}}, soon());
    auto fetched = b.fetch(plus_one(tokens));
    EXPECT_EQ(looked->tokens + fetched->tokens, 0u);
    for (const std::string& reason : {looked->reason, fetched->reason}) {
      EXPECT_NE(reason.find("the profile that they were stored under"), reason.npos) << reason;
    }
  }
}

TEST_F(Orphans, TheReasonOfAMissNamesNoProfileWhereABlockIsLost) {
  auto tokens = random_tokens(rng_, 64);
  store({tokens});
  lose_block(0, tokens);
  auto cache = open_cache(small_options(dir_.store()));
  auto b = Bench::open(*cache, model_);
  auto miss = b.fetch(plus_one(tokens));
  EXPECT_EQ(miss->tokens, 0u);
  EXPECT_EQ(miss->reason.find("profile"), std::string::npos) << miss->reason;
}

}  // namespace
}  // namespace kv
