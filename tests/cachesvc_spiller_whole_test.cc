// What keeps objects from reaching the SSD: a full queue, a full device, records that could not be
// written, reads that fail, too little free space; and that none of it loses or revives anything.
#include "storage/file_reader.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using testing::FaultFiles;

// Stores until the SSD had to drop something, at last for a single small block: then less than such
// a one's room is left.
void fill_ssd(Bench& b, std::mt19937& rng) {
  for (uint32_t size : {128, 16}) {
    uint64_t before = b.stat("ssd_evicted");
    for (int i = 0; b.stat("ssd_evicted") == before; ++i) {
      ASSERT_LT(i, 200);
      ASSERT_TRUE(b.store(random_tokens(rng, size), Durability::spilled).ok());
    }
  }
}

CacheOptions full_ssd_options(const std::string& dir) {
  CacheOptions options = small_options(dir);
  options.ssd_limit_bytes = kMinLimitBytes;
  return options;
}

// ---- a full queue

TEST(Spill, WhatFoundTheQueueFullIsWrittenWhenItHasRoom) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.spill_queue_bytes = 1;
  std::mt19937 rng(1);
  auto one = random_tokens(rng, 70), two = random_tokens(rng, 70);
  {
    Stepped client(options);
    auto b = Bench::open(client, plain_model());
    ASSERT_TRUE(b.store(one).ok());
    auto answer = b.store(two, Durability::spilled);  // the queue is full of the other one
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->level, Durability::spilled) << "it waits until the queue has room";
    EXPECT_GT(b.stat("spills_deferred"), 0u);
    EXPECT_EQ(b.stat("ssd_objects"), 10u);
    EXPECT_EQ(b.stat("spills_dropped"), 0u);
    EXPECT_EQ(b.stat("spill_queue_bytes"), 0u);
    EXPECT_EQ(b.store(two, Durability::spilled)->level, Durability::spilled);
  }
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  EXPECT_EQ(client.fetch(fetch_of(b, two), soon())->tokens, 69u);
}

TEST(Spill, ADrainWritesMoreThanTheQueueHolds) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.spill_queue_bytes = 1;
  options.spill_when = SpillWhen::evict;
  std::mt19937 rng(2);
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  ASSERT_TRUE(b.store(random_tokens(rng, 70)).ok());
  EXPECT_EQ(b.stat("ssd_objects"), 0u);
  auto drained = client.call<Status>([&](auto done) { client.core->drain(soon(), done); });
  EXPECT_TRUE(drained.ok()) << drained.to_string();
  EXPECT_EQ(b.stat("ssd_objects"), 5u);
}

// ---- profile and model record

// A profile much larger than what a full SSD has left.
std::shared_ptr<const Profile> large_profile(const ModelSpec& model) {
  auto profile = std::make_shared<Profile>(*make_profile(model, 4));
  for (auto& layer : profile->parts) layer[0].key_mean.assign(2 * 256, 0.5f);
  for (auto& layer : profile->parts) layer[0].key_gain.assign(2 * 256, 1.5f);
  return profile;
}

TEST(Spill, AFullSsdMakesRoomForANewModelsRecords) {
  TempDir dir;
  ModelSpec large = model_of(std::vector<LayerSpec>(64, LayerSpec{{full_part(2, 256)}}), 9);
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 2);
  {
    Stepped client(full_ssd_options(dir.store()));
    auto b = Bench::open(client, plain_model(8));
    fill_ssd(b, rng);
    uint64_t evicted = b.stat("ssd_evicted");
    auto b2 = Bench::open(client, large, large_profile(large));
    EXPECT_GT(b.stat("ssd_evicted"), evicted);
    auto stored = b2.store(tokens, Durability::spilled);
    ASSERT_TRUE(stored.ok());
    EXPECT_EQ(stored->level, Durability::spilled);
    EXPECT_EQ(b.stat("spills_failed"), 0u);
    EXPECT_LE(b.stat("ssd_used_bytes"), kMinLimitBytes);
  }
  Stepped client(full_ssd_options(dir.store()));
  auto b = Bench::open(client, large);
  EXPECT_EQ(b.opened.profile->id(), large_profile(large)->id()) << "the record was written";
  EXPECT_EQ(client.fetch(fetch_of(b, tokens), soon())->tokens, 1u);
}

// Fails the first `times` attempts to publish a profile.
std::function<Status(const char*, const std::string&)> failing_profiles(int times) {
  auto left = std::make_shared<int>(times);
  return [left](const char* call, const std::string& path) -> Status {
    bool hit = std::string(call) == "rename" && path.ends_with(".profile") && *left > 0;
    if (!hit) return {};
    --*left;
    return {StatusCode::io_error, "injected"};
  };
}

TEST(Spill, ABatchWaitsForTheRecordsThatItNeeds) {
  for (int failures : {0, 1, 2}) {
    SCOPED_TRACE(failures);
    TempDir dir;
    FaultFiles faults;
    CacheOptions options = small_options(dir.store());
    options.ssd_files = &faults;
    Stepped client(options);
    faults.script = failing_profiles(failures);
    auto b = Bench::open(client, plain_model());  // the first attempt
    std::mt19937 rng(4);
    auto tokens = random_tokens(rng, 70);
    ASSERT_TRUE(b.store(tokens).ok());  // nobody waits for the SSD
    client.run();                       // the batch's own attempt
    EXPECT_EQ(b.stat("ssd_objects"), failures < 2 ? 5u : 0u);
    EXPECT_EQ(b.stat("spills_failed"), failures < 2 ? 0u : 5u);
    auto again = b.store(tokens, Durability::spilled);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->level, Durability::spilled);
    EXPECT_EQ(b.stat("ssd_objects"), 5u);
  }
}

// ---- a full SSD

TEST(Spill, AnEraseRacingTheAttemptAfterAnEvictionLeavesNothing) {
  TempDir dir;
  std::mt19937 rng(5);
  std::vector<Sequence> erased;
  {
    Stepped client(full_ssd_options(dir.store()));
    auto b = Bench::open(client, plain_model(8));
    for (int steps = 0; steps < 12; ++steps) {  // stop the spill at each of its steps
      fill_ssd(b, rng);
      uint64_t evicted = b.stat("ssd_evicted");
      erased.push_back(random_tokens(rng, 160));
      ASSERT_TRUE(b.store(erased.back()).ok());
      for (int i = 0; i < steps; ++i) i % 2 ? client.run_loop() : client.run_workers();
      auto n = client.erase(b.opened.model, {slice(erased.back(), 0, 5), {}}, soon());
      ASSERT_TRUE(n.ok());
      EXPECT_EQ(*n, 10u);
      client.run();
      EXPECT_TRUE(steps < 8 || b.stat("ssd_evicted") > evicted) << "the SSD was not full";
      EXPECT_EQ(b.stat("spill_queue_bytes"), 0u) << steps;
      EXPECT_EQ(b.stat("pins"), 0u) << steps;
      for (size_t at : {0, 144}) {
        ASSERT_FALSE(on_disk(dir.store(), slice(erased.back(), at, at + 16))) << steps;
      }
    }
  }
  Stepped client(full_ssd_options(dir.store()));
  auto b = Bench::open(client, plain_model(8));
  for (auto& tokens : erased) EXPECT_EQ(client.fetch(fetch_of(b, tokens), soon())->tokens, 0u);
}

TEST(Spill, MinFreeKeepsObjectsInRam) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.ssd_min_free_bytes = 1ull << 60;
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(6);
  auto tokens = random_tokens(rng, 40);
  auto stored = b.store(tokens, Durability::durable);
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->level, Durability::accepted);
  EXPECT_EQ(b.stat("ssd_objects"), 0u);
  EXPECT_EQ(b.stat("spills_failed"), 3u);
  EXPECT_EQ(client.fetch(fetch_of(b, tokens), soon())->tokens, 39u);
}

// ---- reads that fail

TEST(Spill, AFailedReadStaysOutOfTheIndexForAWhile) {
  TempDir dir;
  FaultFiles faults;
  std::mt19937 rng(7);
  auto tokens = random_tokens(rng, 70);
  {
    Stepped client(small_options(dir.store()));
    auto b = Bench::open(client, plain_model());
    ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
  }
  auto fail_blocks = [](const char* call, const std::string& path) -> Status {
    bool hit = std::string(call) == "pread" && path.ends_with(".block");
    return hit ? Status(StatusCode::io_error, "injected") : Status();
  };
  for (bool long_wait : {true, false}) {
    CacheOptions options = small_options(dir.store());
    options.ssd_files = &faults;
    options.io_backoff = long_wait ? Milliseconds(3'600'000) : Milliseconds(1);
    Stepped client(options);
    auto b = Bench::open(client, plain_model());
    faults.script = fail_blocks;
    auto hit = client.fetch(fetch_of(b, tokens), soon());
    ASSERT_TRUE(hit.ok());
    EXPECT_EQ(hit->tokens, 0u);
    uint64_t reads = b.stat("promotions");
    EXPECT_GE(b.stat("read_io_errors"), 4u);
    EXPECT_EQ(b.stat("quarantined"), 0u) << "an I/O error says nothing about the file";
    if (long_wait) {
      EXPECT_EQ(client.fetch(fetch_of(b, tokens), soon())->tokens, 0u);
      EXPECT_EQ(b.stat("promotions"), reads) << "not asked again so soon";
    }
    faults.script = nullptr;
    Deadline deadline = soon();
    uint32_t served = 0;
    while (!long_wait && served == 0) {
      served = client.fetch(fetch_of(b, tokens), soon())->tokens;
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
    if (long_wait) served = client.fetch(fetch_of(b, tokens), soon())->tokens;
    EXPECT_EQ(served, long_wait ? 0u : 69u);
  }
}

// Megabytes given back to the system would hold the loop up for milliseconds.
TEST(Spill, WhatWasWrittenIsFreedByAWorker) {
  TempDir dir;
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(61);
  auto packed = [&] { return client.core->pool()->used_bytes(ChargeKind::spill); };
  client.hangs = true;
  ASSERT_TRUE(b.store(random_tokens(rng, 64)).ok());
  while (packed() == 0) ASSERT_TRUE(client.run_once());
  client.hangs = false;
  while (packed() > 0) {
    client.run_loop();
    ASSERT_GT(packed(), 0u);
    client.run_workers();
  }
  EXPECT_EQ(b.stat("spills_written"), 4u);
}

// ---- packing

// A file of somebody else's that leaves the tier less than a quarter of its limit.
void crowd(const CacheOptions& options) {
  { Stepped made(options); }
  std::ofstream file(options.ssd_dir + "/somebody", std::ios::binary);
  file << std::string(options.ssd_limit_bytes * 5 / 8, 'x');
}

// The pieces of the block files of one entry that are codes.
struct CodePieces {
  uint64_t packed = 0, all = 0;
};
CodePieces code_pieces(const std::string& dir) {
  CodePieces counted;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir)) {
    if (file.path().extension() != ".block") continue;
    auto head = read_head(posix_files(), file.path(), nullptr);
    KV_CHECK(head.ok());
    for (size_t i = 0; i < head->header.planes.size(); ++i) {
      if (head->header.planes[i].bits == 0) continue;
      ++counted.all;
      counted.packed += head->pieces[i].packing != Packing::raw;
    }
  }
  return counted;
}

TEST(Spill, CodesArePackedWhereTheSsdIsScarceOrWritesHaveABudget) {
  struct Case {
    PackCodes when = PackCodes::scarce;
    bool crowded = false;
    uint64_t per_second = 0, per_day = 0;
    bool packed = false;
  };
  const Case cases[] = {
      {.when = PackCodes::scarce},
      {.when = PackCodes::scarce, .crowded = true, .packed = true},
      {.when = PackCodes::scarce, .per_second = 1u << 30, .packed = true},
      {.when = PackCodes::scarce, .per_day = 1u << 30, .packed = true},
      {.when = PackCodes::always, .packed = true},
      {.when = PackCodes::never, .crowded = true, .per_second = 1u << 30},
  };
  std::mt19937 rng(71);
  auto tokens = random_tokens(rng, 257);
  for (const Case& c : cases) {
    SCOPED_TRACE(&c - cases);
    TempDir dir;
    CacheOptions options = small_options(dir.store());
    options.verify_after = Milliseconds(0);  // the sum that was taken while it was read
    options.coding.k_bits = options.coding.v_bits = 4;
    options.coding.block_tokens = 128;
    options.ssd_limit_bytes = kMinLimitBytes;
    options.pack_codes = c.when;
    options.write_bytes_per_second = c.per_second;
    options.write_bytes_per_day = c.per_day;
    if (c.crowded) crowd(options);
    {
      Stepped client(options);
      auto b = Bench::open(client, plain_model());
      ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());
    }
    CodePieces pieces = code_pieces(dir.store());
    EXPECT_GE(pieces.all, 8u);
    if (c.packed) {
      EXPECT_GT(pieces.packed, pieces.all / 2) << "where it saves enough";
    } else {
      EXPECT_EQ(pieces.packed, 0u);
    }
    Stepped client(options);
    auto b = Bench::open(client, plain_model());
    for (Tier from : {Tier::ssd, Tier::ram}) {
      auto hit = b.fetch(tokens);
      ASSERT_TRUE(hit.ok()) << hit.status().to_string();
      EXPECT_EQ(hit->tokens, 256u) << hit->reason;
      EXPECT_EQ(hit->tier, from) << "verified";
      b.expect_serves(tokens, *hit);
    }
  }
}

// It takes a processor's time, which the reads of the others can overlap. But where not all are
// read at once, what comes first serves without the rest.
TEST(Spill, WhatHasToBeUnpackedIsReadFirst) {
  TempDir dir;
  std::mt19937 rng(31);
  auto tokens = random_tokens(rng, 40 * 16 + 15);  // the tail's rows are exact, so they are packed
  CacheOptions options = small_options(dir.store());
  options.coding.k_bits = options.coding.v_bits = 4;
  std::string tail;
  {
    Stepped client(options);
    auto b = Bench::open(client, plain_model());
    ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    auto hit = b.fetch(plus_one(tokens));
    ASSERT_TRUE(hit.ok());
    tail = relative_path(hit->lease.prefix().objects.back().object->name);
  }
  FaultFiles files;
  std::vector<std::string> read;
  files.script = [&](const char* call, const std::string& path) -> Status {
    if (call == std::string("open_read")) read.push_back(path);
    return {};
  };
  options.ssd_files = &files;
  for (bool at_once : {true, false}) {
    SCOPED_TRACE(at_once);
    if (!at_once) options.ram_budget_bytes = 1u << 20;  // an eighth of it is read at a time
    Stepped client(options);
    auto b = Bench::open(client, plain_model());
    read.clear();  // the start's
    auto hit = b.fetch(plus_one(tokens));
    ASSERT_TRUE(hit.ok());
    EXPECT_EQ(hit->tokens, tokens.size()) << hit->reason;
    ASSERT_EQ(read.size(), 41u);
    EXPECT_EQ(at_once ? read.front() : read.back(), dir.store() + "/" + tail);
  }
}

}  // namespace
}  // namespace kv
