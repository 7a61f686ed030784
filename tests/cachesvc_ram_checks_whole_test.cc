// RAM checks: bits that flip in RAM, between a store and a hit, a spill or a copy.
#include "tests/support/cachesvc_verify.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

TEST_F(Verify, AFlippedBitInRamIsAMissWhereEveryUseIsVerified) {
  Stepped client(options(kBeforeEach));
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(tokens_).ok());
  for (size_t index = 0; index < 4; ++index) {
    for (size_t bit : {0u, 4097u, 8u * 2047u + 7u}) {
      auto hit = b.fetch(plus_one(tokens_));
      ASSERT_EQ(hit->tokens, 64u) << hit->reason;
      flip(*hit->lease.prefix().objects[index].object, bit);
      uint64_t before = b.stat("ram_damaged");
      expect_served(b, tokens_, static_cast<uint32_t>(16 * index));
      EXPECT_EQ(b.stat("ram_damaged"), before + 1);
      ASSERT_TRUE(b.store(tokens_).ok());
      expect_served(b, tokens_, 64);
    }
  }
  client.run();  // leases end on the loop
  EXPECT_EQ(b.stat("pins"), 0u);
}

TEST_F(Verify, StatesAreVerifiedLikeRows) {
  ModelSpec model = model_of({LayerSpec{{state_part(SnapshotPlace::checkpoint)}}});
  Stepped client(options(kBeforeEach));
  auto b = Bench::open(client, model);
  ASSERT_TRUE(b.store(tokens_).ok());
  expect_served(b, tokens_, 64);
  auto hit = b.fetch(plus_one(tokens_));
  for (const auto& o : hit->lease.prefix().objects) {
    if (!o.object->states.empty()) flip(*o.object);
  }
  expect_served(b, tokens_, 0);
  EXPECT_EQ(b.stat("ram_damaged"), 1u);
}

TEST_F(Verify, TheFileServesInPlaceOfItsDamagedCopyInRam) {
  Stepped client(options(kBeforeEach, true));
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(tokens_, Durability::spilled).ok());
  flip_stored(b, tokens_, 2);
  expect_served(b, tokens_, 64);
  EXPECT_EQ(b.stat("ram_damaged"), 1u);
  EXPECT_EQ(b.stat("promotions"), 1u);
  expect_served(b, tokens_, 64);
  EXPECT_EQ(b.stat("promotions"), 1u);
}

// A promoted object has a sum of its own.
TEST_F(Verify, APromotedObjectIsVerifiedToo) {
  {
    auto cache = open_cache(options(kBeforeEach, true));
    auto b = Bench::open(*cache, model_);
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  }
  Stepped client(options(kBeforeEach, true));
  auto b = Bench::open(client, model_);
  expect_served(b, tokens_, 64);
  ASSERT_EQ(b.stat("ram_damaged"), 0u);
  flip_stored(b, tokens_, 3);
  expect_served(b, tokens_, 64);
  EXPECT_EQ(b.stat("ram_damaged"), 1u);
}

// Also where no hit is verified, and whether pieces are packed or not.
TEST_F(Verify, AFlippedBitInRamNeverReachesTheSsd) {
  for (uint8_t bits : {0, 4}) {
    SCOPED_TRACE(int{bits});
    CacheOptions o = options(kNever, true);
    o.spill_when = SpillWhen::evict;
    o.coding.k_bits = o.coding.v_bits = bits;
    {
      Stepped client(o);
      auto b = Bench::open(client, model_);
      ASSERT_TRUE(b.store(tokens_).ok());
      ASSERT_EQ(b.stat("ssd_objects"), 0u);
      flip_stored(b, tokens_, 2);
      auto stored = b.store(tokens_, Durability::durable);
      ASSERT_TRUE(stored.ok()) << stored.status().to_string();
      EXPECT_LT(stored->level, Durability::accepted) << "block 2 is nowhere";
      EXPECT_EQ(b.stat("ram_damaged"), 1u);
      EXPECT_EQ(b.stat("spill_queue_bytes"), 0u);
      expect_served(b, tokens_, 32);
    }
    {
      auto cache = open_cache(o);
      auto b = Bench::open(*cache, model_);
      expect_served(b, tokens_, 32);
      ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
    }
    auto cache = open_cache(o);
    auto b = Bench::open(*cache, model_);
    expect_served(b, tokens_, 64);
    ASSERT_TRUE(b.client.erase(b.opened.model, {}, soon()).ok());
  }
}

// Nor where a file of its name is known to be there: that one is verified when it is read.
TEST_F(Verify, AFlippedBitInRamDoesNotReplaceAFileThatIsDamagedToo) {
  CacheOptions o = options(kNever, true);
  {
    auto cache = open_cache(o);
    auto b = Bench::open(*cache, model_);
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  }
  std::filesystem::remove(dir_.store() + "/catalog.db");
  o.adopt_at_start = o.reconcile_rate = 0;
  o.spill_when = SpillWhen::evict;
  Stepped client(o);
  client.hangs = true;
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(tokens_).ok()) << "before any file was read";
  client.hangs = false;
  client.run();
  ASSERT_EQ(b.stat("recovery_unread"), 0u);
  ASSERT_EQ(b.stat("ssd_objects"), 0u);
  flip_stored(b, tokens_, 2);
  auto hit = b.fetch(plus_one(tokens_));
  std::string name = file_name(hit->lease.prefix().objects[2].object->name);
  std::string path = dir_.store() + "/" + name.substr(0, 1) + "/" + name;
  testing::flip_byte(path, static_cast<long>(std::filesystem::file_size(path)) - 100);
  ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  EXPECT_EQ(b.stat("ram_damaged"), 1u);
  expect_served(b, tokens_, 32);
  EXPECT_EQ(b.stat("quarantined"), 1u);
}

// A copy would give the damage a sum of its own.
TEST_F(Verify, RowsOfADamagedSourceAreNotCopied) {
  Stepped client(options(kNever));
  auto b = Bench::open(client, model_, make_profile(model_, 4));
  ASSERT_TRUE(b.store(tokens_).ok());
  Sequence two(tokens_.begin(), tokens_.begin() + 56);
  for (Token t : random_tokens(rng_, 8)) two.push_back(t);
  ObjectName source = b.fetch(plus_one(tokens_))->lease.prefix().objects[3].object->name;
  flip_stored(b, tokens_, 3);
  auto reserved = b.reserve(two);
  ASSERT_TRUE(reserved.ok());
  ASSERT_EQ(reserved->needs.size(), 1u);
  PutRequest put = make_put(model_, 16, two, reserved->needs[0], reserved->reservation);
  for (Plane& p : put.object.planes) p = *slice_rows(p, 56, 64);
  put.copies = {{source, 48, 56}};
  StatusCode code = client.put(std::move(put), soon()).code();
  EXPECT_EQ(code, StatusCode::not_found) << "as if it were gone";
  EXPECT_EQ(b.stat("ram_damaged"), 1u);
  expect_served(b, tokens_, 48);
}

// Nor is a carry that a block takes over from a tail before it.
TEST_F(Verify, StatesOfADamagedTailAreNotCopied) {
  ModelSpec model = model_of({LayerSpec{{state_part(SnapshotPlace::block_end)}}});
  Sequence turn(tokens_.begin(), tokens_.begin() + 21);
  for (bool damaged : {false, true}) {
    Stepped client(options(kNever));
    auto b = Bench::open(client, model);
    ASSERT_TRUE(b.store(turn).ok());
    if (damaged) {
      auto hit = b.fetch(plus_one(turn));
      ASSERT_EQ(hit->tokens, 21u);
      for (const auto& o : hit->lease.prefix().objects) {
        bool at_end = !o.object->states.empty() && o.object->name.end_row == 21;
        if (at_end) flip(*o.object);
      }
    }
    ASSERT_TRUE(b.store(tokens_).ok());
    EXPECT_EQ(b.stat("copied_supplements"), damaged ? 0u : 1u);
    EXPECT_EQ(b.stat("ram_damaged"), damaged ? 1u : 0u);
    auto hit = b.fetch(plus_one(turn));
    EXPECT_EQ(hit->tokens == 21, !damaged) << hit->tokens;
    b.expect_serves(plus_one(turn), *hit);
  }
}

// The hit does not wait for the check: it has the damage, and the next one does not.
TEST_F(Verify, AUseLongAfterTheLastCheckIsVerifiedBesideTheAnswer) {
  constexpr Milliseconds kAfter{20};
  Stepped client(options(kAfter));
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(tokens_).ok());
  flip_stored(b, tokens_, 2);
  std::this_thread::sleep_for(kAfter);
  const uint64_t before = b.stat("ram_verified");
  ASSERT_EQ(b.fetch(plus_one(tokens_))->tokens, 64u);
  client.run();
  EXPECT_EQ(b.stat("ram_verified"), before + 4);
  EXPECT_EQ(b.stat("ram_damaged"), 1u);
  expect_served(b, tokens_, 32);
}

TEST_F(Verify, UsesSoonAfterOneAnotherAreNotVerified) {
  Stepped client(options(kNever));
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(tokens_).ok());
  for (int i = 0; i < 200; ++i) expect_served(b, tokens_, 64);
  EXPECT_EQ(b.stat("ram_verified"), 0u);
}

}  // namespace
}  // namespace kv
