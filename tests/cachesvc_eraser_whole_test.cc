// Eraser: what is gone after an erase: objects, files, and the memory that they took.
#include <malloc.h>

#include <algorithm>
#include <fstream>

#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

TEST(Erase, OfANamespaceTakesAllItsModelsAndNothingElse) {
  TempDir dir;
  auto cache = open_cache(small_options(dir.store()), "mine");
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 40);
  {
    auto unopened = Bench::open(*cache, plain_model(2, 3));
    ASSERT_TRUE(unopened.store(tokens, Durability::durable).ok());
  }
  cache.reset();
  cache = open_cache(small_options(dir.store()), "mine");
  auto yours = cache->connect("yours");
  ASSERT_TRUE(yours.ok());
  auto one = Bench::open(*cache, plain_model(2, 1));
  auto two = Bench::open(*cache, plain_model(2, 2));
  auto other = Bench::open(**yours, plain_model(2, 1));
  for (Bench* b : {&one, &two, &other}) ASSERT_TRUE(b->store(tokens, Durability::durable).ok());
  auto refused = cache->erase(0, {tokens, {}}, soon());
  EXPECT_EQ(refused.status().code(), StatusCode::invalid_argument);
  auto erased = cache->erase(0, {}, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  EXPECT_EQ(*erased, 9u) << "two blocks and a tail of three models, one of them not opened since";
  EXPECT_EQ(one.fetch(plus_one(tokens))->tokens, 0u);
  EXPECT_EQ(two.fetch(plus_one(tokens))->tokens, 0u);
  EXPECT_EQ(other.fetch(plus_one(tokens))->tokens, 40u);
  auto left = inspect_directory(dir.store(), InspectDepth::headers);
  ASSERT_TRUE(left.ok());
  for (const auto& f : left->files) {
    bool object = f.kind == FileKind::block || f.kind == FileKind::tail;
    if (object) {
      EXPECT_EQ(f.header.ns, "yours") << f.path;
    }
  }
  ASSERT_TRUE(one.store(tokens).ok()) << "the models stay open";
  EXPECT_EQ(one.fetch(plus_one(tokens))->tokens, 40u);
}

// A damaged file of it lies in quarantine, where no row names it.
TEST(Erase, OfANamespaceLeavesNoTokenInAnyByteOfTheDirectory) {
  TempDir dir;
  std::mt19937 rng(5);
  auto tokens = random_tokens(rng, 48);
  auto block = [&](size_t i) { return std::vector<Token>(&tokens[16 * i], &tokens[16 * i] + 16); };
  {
    auto cache = open_cache(small_options(dir.store()), "mine");
    auto b = Bench::open(*cache, plain_model());
    ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
  }
  auto files = inspect_directory(dir.store(), InspectDepth::headers);
  ASSERT_TRUE(files.ok());
  for (const auto& f : files->files) {
    if (f.kind != FileKind::block || f.header.tokens != block(1)) continue;
    std::fstream file(dir.store() + "/" + f.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end).put('x');
  }
  auto cache = open_cache(small_options(dir.store()), "mine");
  auto b = Bench::open(*cache, plain_model());
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, 16u);
  ASSERT_FALSE(std::filesystem::is_empty(dir.store() + "/quarantine"));
  for (size_t i : {0, 1, 2}) EXPECT_TRUE(on_disk(dir.store(), block(i)));
  auto erased = cache->erase(0, {}, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  for (size_t i : {0, 1, 2}) EXPECT_FALSE(on_disk(dir.store(), block(i)));
}

// The catalog is written anew, so for a while there are two.
TEST(Erase, OfANamespaceMakesRoomForItselfOnAFullSsd) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.ssd_limit_bytes = kMinLimitBytes;
  options.spill_batch_files = 1;  // a batch's room is evicted at once
  std::mt19937 rng(6);
  auto fill = [&](Stepped& client) {
    auto yours = Bench::open(client, plain_model());
    while (yours.stat("ssd_evicted") == 0) {
      ASSERT_TRUE(yours.store(random_tokens(rng, 320), Durability::spilled).ok());
    }
  };
  {
    Stepped first(options);
    fill(first);
  }
  Stepped client(options);
  fill(client);  // to the brim: the catalog's log is short now
  client.session = *client.core->connect("mine");
  auto mine = Bench::open(client, plain_model());
  auto tokens = random_tokens(rng, 16);
  ASSERT_TRUE(mine.store(tokens, Durability::durable).ok());
  uint64_t evicted = mine.stat("ssd_evicted");
  auto erased = client.erase(0, {}, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  EXPECT_EQ(*erased, 1u);
  EXPECT_GT(mine.stat("ssd_evicted"), evicted);
  EXPECT_FALSE(on_disk(dir.store(), tokens));
}

size_t objects_in(const std::string& directory) {
  auto found = inspect_directory(directory, InspectDepth::headers);
  EXPECT_TRUE(found.ok());
  auto object = [](const auto& f) { return f.status.ok() && !is_record(f.kind); };
  return static_cast<size_t>(std::count_if(found->files.begin(), found->files.end(), object));
}

// For FaultFiles: blocks and tails can't be unlinked.
Status no_unlink(const char* call, const std::string& path) {
  bool object = path.ends_with(".block") || path.ends_with(".tail");
  bool fails = object && std::string(call) == "unlink";
  return fails ? Status(StatusCode::io_error, "injected") : Status();
}

// The index has forgotten what the first one could not unlink; its repetition knows all the same.
TEST(Erase, ThatFailedIsDoneWhenItIsRepeated) {
  for (uint32_t all : {0, 1}) {
    TempDir dir;
    testing::FaultFiles faults;
    CacheOptions options = small_options(dir.store());
    options.ssd_files = &faults;
    std::mt19937 rng(8);
    auto tokens = random_tokens(rng, 40);
    {
      Stepped client(options);
      auto b = Bench::open(client, plain_model());
      ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
      ASSERT_EQ(objects_in(dir.store()), 3u);
      faults.script = no_unlink;
      auto erase = [&] { return client.erase(all ? 0 : b.opened.model, {}, soon()).status(); };
      EXPECT_EQ(erase().code(), StatusCode::io_error);
      EXPECT_EQ(erase().code(), StatusCode::io_error) << "they are still there";
      EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, 0u);
      faults.script = nullptr;
      Status repeated = erase();
      EXPECT_TRUE(repeated.ok()) << repeated.to_string();
      EXPECT_EQ(objects_in(dir.store()), 0u);
    }
    Stepped client(options);
    EXPECT_EQ(Bench::open(client, plain_model()).fetch(plus_one(tokens))->tokens, 0u);
  }
}

// A second one that comes while the first is under way finds nothing to remove any more.
TEST(Erase, BehindOneThatFailsDoesNotSayThatItIsDone) {
  TempDir dir;
  testing::FaultFiles faults;
  CacheOptions options = small_options(dir.store());
  options.ssd_files = &faults;
  std::mt19937 rng(10);
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  ASSERT_TRUE(b.store(random_tokens(rng, 40), Durability::durable).ok());
  faults.script = no_unlink;
  std::vector<Status> answers;
  for (int i = 0; i < 2; ++i) {
    client.core->erase(client.session, b.opened.model, {}, soon(),
                       [&](Result<uint64_t> done) { answers.push_back(done.status()); });
  }
  client.run();
  ASSERT_EQ(answers.size(), 2u);
  for (const Status& s : answers) EXPECT_EQ(s.code(), StatusCode::io_error) << s.to_string();
  faults.script = nullptr;
  EXPECT_TRUE(client.erase(b.opened.model, {}, soon()).ok());
  EXPECT_EQ(objects_in(dir.store()), 0u);
}

TEST(Erase, ThatFailedTakesNothingThatWasStoredAnewSince) {
  for (Durability level : {Durability::accepted, Durability::durable}) {
    TempDir dir;
    testing::FaultFiles faults;
    CacheOptions options = small_options(dir.store());
    options.ssd_files = &faults;
    std::mt19937 rng(9);
    auto tokens = random_tokens(rng, 40), other = random_tokens(rng, 40);
    Stepped client(options);
    auto b = Bench::open(client, plain_model());
    ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    faults.script = no_unlink;
    EXPECT_EQ(client.erase(b.opened.model, {}, soon()).status().code(), StatusCode::io_error);
    faults.script = nullptr;
    ASSERT_TRUE(b.store(tokens, level).ok());
    auto erased = client.erase(b.opened.model, {other, {}}, soon());
    ASSERT_TRUE(erased.ok()) << erased.status().to_string();
    EXPECT_EQ(*erased, 0u);
    client.run();
    client.core.reset();
    client.run();
    Stepped again(options);
    EXPECT_EQ(Bench::open(again, plain_model()).fetch(plus_one(tokens))->tokens, 40u);
  }
}

// Its files go in several jobs: between them the SSD shows that it moves.
TEST(Erase, OfEverythingGivesTheMemoryBackToTheSystem) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 256ull << 20;
  auto cache = open_cache(options);
  ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(4, 128)}}));
  auto b = Bench::open(*cache, model, make_profile(model, 0, 64));
  std::mt19937 rng(2);
  uint64_t empty = b.stat("ram_used_bytes");
  for (int i = 0; i < 24; ++i) {
    ASSERT_TRUE(b.store(random_tokens(rng, 256)).ok());  // 16 KiB a token: 4 MiB each
  }
  ::malloc_trim(0);  // what the test itself freed
  [[maybe_unused]] uint64_t full = resident_bytes();
  EXPECT_GT(b.stat("ram_stored_bytes"), 90ull << 20);
  auto erased = cache->erase(b.opened.model, {}, soon());
  ASSERT_TRUE(erased.ok());
  EXPECT_EQ(*erased, 24u * 4);
  EXPECT_EQ(b.stat("ram_used_bytes"), empty);
  EXPECT_EQ(b.stat("ram_recycled_bytes"), 0u) << "no slab waits for reuse";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what is freed
  EXPECT_LT(resident_bytes() + (80ull << 20), full);
#endif
}

}  // namespace
}  // namespace kv
