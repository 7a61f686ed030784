// TieredCache on real tiers and the real codec: what is stored comes back, for every kind of part.
#include <filesystem>
#include <fstream>
#include <memory>
#include <stop_token>
#include <thread>

#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

std::vector<Token> first(const std::vector<Token>& tokens, size_t n) {
  return {tokens.begin(), tokens.begin() + static_cast<long>(n)};
}
std::vector<Token> plus(std::vector<Token> tokens, const std::vector<Token>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

TEST(Tiered, RawRoundTrip) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 53);
  auto stored = b.store(tokens);
  ASSERT_TRUE(stored.ok()) << stored.status().to_string();
  EXPECT_EQ(stored->level, Durability::accepted);
  auto same = b.fetch(tokens);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->tokens, 52u);  // the last token is always computed
  EXPECT_EQ(same->form, HitForm::exact_tail);
  EXPECT_EQ(same->tier, Tier::ram);
  b.expect_serves(tokens, *same);
  auto longer = b.fetch(plus(tokens, {1, 2}));
  ASSERT_TRUE(longer.ok());
  EXPECT_EQ(longer->tokens, 53u);
  b.expect_serves(tokens, *longer);
}

TEST(Tiered, CodedRoundTripAndForms) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  auto b = Bench::open(*cache, model, make_profile(model, 4));
  std::mt19937 rng(2);
  auto tokens = random_tokens(rng, 40);
  ASSERT_TRUE(b.store(tokens).ok());
  auto hit = b.fetch(plus(tokens, {5}));
  ASSERT_TRUE(hit.ok());
  ASSERT_EQ(hit->tokens, 40u);
  b.expect_serves(tokens, *hit);
  const Object& block = *hit->lease.prefix().objects[1].object;
  EXPECT_EQ(block.name.kind, ObjectKind::block);
  EXPECT_EQ(block.planes[0].bits, 4);
  for (FetchForm form : {FetchForm::f32, FetchForm::f16, FetchForm::bf16}) {
    auto decoded = b.fetch(plus(tokens, {5}), form);
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    DType out = form == FetchForm::f32   ? DType::f32
                : form == FetchForm::f16 ? DType::f16
                                         : DType::bf16;
    for (size_t i = 0; i < hit->lease.prefix().objects.size(); ++i) {
      const Object& coded = *hit->lease.prefix().objects[i].object;
      const Object& plain = *decoded->lease.prefix().objects[i].object;
      for (size_t p = 0; p < coded.planes.size(); ++p) {
        auto expected = b.codec->decoded(coded.planes[p], out);
        ASSERT_TRUE(expected.ok());
        EXPECT_EQ(*expected, plain.planes[p]);
      }
    }
  }
  EXPECT_GT(b.stat("encoded_planes"), 0u);
}

TEST(Tiered, EntriesShareBlocksAndHitMidBlock) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(3);
  auto shared = random_tokens(rng, 40);
  auto one = plus(shared, random_tokens(rng, 30)), two = plus(shared, random_tokens(rng, 30));
  ASSERT_TRUE(b.store(one).ok());
  auto reserved = b.reserve(two);
  ASSERT_TRUE(reserved.ok());
  for (const Need& n : reserved->needs) EXPECT_GE(n.block_index, 2u) << "blocks 0 and 1 are shared";
  ASSERT_TRUE(b.client.abort(reserved->reservation, soon()).ok());
  ASSERT_TRUE(b.store(two).ok());
  auto third = plus(shared, {-1, -2, -3});
  auto hit = b.fetch(third);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 40u);  // in the middle of block 2, out of either entry's block
  EXPECT_EQ(hit->common, 40u);
  b.expect_serves(third, *hit);
  EXPECT_EQ(b.stat("ram_objects"), 2u + 2 * 3u);
}

TEST(Tiered, TrimSharesBytes) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(4);
  auto tokens = random_tokens(rng, 50);
  ASSERT_TRUE(b.store(tokens).ok());
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  auto trimmed = hit->lease.prefix().trimmed(20);
  ASSERT_TRUE(trimmed.ok());
  EXPECT_EQ(trimmed->objects.size(), 2u);
  EXPECT_EQ(trimmed->objects[1].end_token, 20u);
  EXPECT_EQ(trimmed->objects[1].object, hit->lease.prefix().objects[1].object);
}

TEST(Tiered, RestartServesFromSsdBytewiseEqual) {
  for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
    TempDir dir;
    ModelSpec model = plain_model();
    std::mt19937 rng(5);
    auto tokens = random_tokens(rng, 70);
    std::vector<Object> before;
    {
      auto cache = open_cache(small_options(dir.store()));
      auto b = Bench::open(*cache, model, make_profile(model, bits));
      auto stored = b.store(tokens, Durability::durable);
      ASSERT_TRUE(stored.ok()) << stored.status().to_string();
      EXPECT_EQ(stored->level, Durability::durable);
      auto hit = b.fetch(tokens);
      ASSERT_TRUE(hit.ok());
      for (auto& o : hit->lease.prefix().objects) before.push_back(*o.object);
    }
    CacheOptions options = small_options(dir.store());
    options.drain_timeout = Milliseconds(0);
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, model);  // the profile in force comes from the model record
    EXPECT_EQ(b.opened.profile->requested_k_bits, bits);
    auto hit = b.fetch(tokens);
    ASSERT_TRUE(hit.ok());
    EXPECT_EQ(hit->tokens, 69u);
    EXPECT_EQ(hit->tier, Tier::ssd);
    EXPECT_EQ(hit->form, HitForm::exact_tail);
    ASSERT_EQ(hit->lease.prefix().objects.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(hit->lease.prefix().objects[i].object->planes, before[i].planes);
    }
    b.expect_serves(tokens, *hit);
    auto again = b.fetch(tokens);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->tier, Tier::ram);
    auto stored = b.store(tokens, Durability::durable);  // nothing travels, and the level holds
    ASSERT_TRUE(stored.ok());
    EXPECT_EQ(stored->level, Durability::durable);
  }
}

// Zeros pack well, random rows don't: files with both kinds of pieces come back as they were.
TEST(Tiered, PackedAndRawPiecesOfOneFileComeBack) {
  TempDir dir;
  std::mt19937 rng(6);
  auto tokens = random_tokens(rng, 40);
  std::vector<Object> before;
  {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, plain_model(4));
    auto reserved = b.reserve(tokens);
    ASSERT_TRUE(reserved.ok());
    for (const Need& need : reserved->needs) {
      PutRequest put = make_put(b.model, 16, tokens, need, reserved->reservation);
      for (Plane& p : put.object.planes) {
        if (p.layer % 2 == 1) p.bytes = Bytes::owning(std::vector<uint8_t>(p.bytes.size()));
      }
      ASSERT_TRUE(b.client.put(std::move(put), soon()).ok());
    }
    ASSERT_TRUE(b.client.commit(reserved->reservation, Durability::durable, soon()).ok());
    uint64_t raw = b.stat("spill_raw_bytes"), packed = b.stat("spill_packed_bytes");
    EXPECT_LT(packed, raw * 6 / 10) << "the zeros";
    EXPECT_GT(packed, raw * 4 / 10) << "not the rest";
    for (const auto& file : std::filesystem::recursive_directory_iterator(dir.store())) {
      if (file.path().extension() != ".block") continue;
      std::ifstream in(file.path(), std::ios::binary);
      EXPECT_EQ(in.seekg(8).get(), 4) << "exact rows are split: the version that says so";
    }
    auto hit = b.fetch(tokens);
    ASSERT_TRUE(hit.ok());
    for (auto& o : hit->lease.prefix().objects) before.push_back(*o.object);
  }
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, plain_model(4));
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tier, Tier::ssd);
  ASSERT_EQ(hit->lease.prefix().objects.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(hit->lease.prefix().objects[i].object->planes, before[i].planes);
  }
}

TEST(Tiered, SixtyFourFetchesOneReadPerObject) {
  TempDir dir;
  ModelSpec model = plain_model();
  std::mt19937 rng(6);
  auto tokens = random_tokens(rng, 70);
  {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, model);
    ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());
  }
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, model);
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&] {
      auto hit = b.fetch(tokens);
      if (hit.ok() && hit->tokens == 69) ++good;
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(good.load(), 64);
  EXPECT_EQ(b.stat("promotions"), 5u);  // four blocks and a tail
  EXPECT_EQ(b.stat("promotion_failures"), 0u);
}

TEST(Tiered, PendingInsteadOfWaiting) {
  TempDir dir;
  ModelSpec model = plain_model();
  std::mt19937 rng(7);
  auto tokens = random_tokens(rng, 40);
  {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, model);
    ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());
  }
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, model);
  auto advice = b.client.prefetch({b.opened.model, {tokens, {}}}, soon());
  ASSERT_TRUE(advice.ok());
  EXPECT_EQ(advice->tokens, 39u);
  EXPECT_EQ(advice->tier, Tier::ssd);
  FetchRequest request;
  request.model = b.opened.model;
  request.query.tokens = tokens;
  request.wait = false;
  bool pending = true;
  for (int i = 0; i < 1'000'000 && pending; ++i) {
    auto hit = b.client.fetch(request, soon());
    ASSERT_TRUE(hit.ok());
    pending = hit->pending;
    EXPECT_EQ(hit->tokens, 39u);
    EXPECT_EQ(hit->lease.prefix().tokens, pending ? 0u : 39u);
  }
  EXPECT_FALSE(pending);
}

TEST(Tiered, OtherFingerprintNamespaceOrProfileMisses) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(8);
  auto tokens = random_tokens(rng, 40);
  ASSERT_TRUE(b.store(tokens).ok());
  auto other_model = Bench::open(*cache, plain_model(2, 9));
  EXPECT_EQ(other_model.fetch(tokens)->tokens, 0u);
  auto other_client = cache->connect("other");
  ASSERT_TRUE(other_client.ok());
  auto other_ns = Bench::open(**other_client, model);
  EXPECT_EQ(other_ns.fetch(tokens)->tokens, 0u);
  OpenRequest replace{model, make_profile(model, 4), true, PrefillMode::exact};
  auto replaced = b.client.open(replace, soon());
  ASSERT_TRUE(replaced.ok());
  EXPECT_NE(replaced->realm.profile, b.opened.realm.profile);
  EXPECT_EQ(b.fetch(tokens)->tokens, 0u);
  auto stale = b.reserve(tokens);
  EXPECT_EQ(stale.status().code(), StatusCode::profile_changed);
}

TEST(Tiered, OpenRefusals) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  auto b = Bench::open(*cache, model);
  OpenRequest coded{model, nullptr, false, PrefillMode::coded};
  auto refused = b.client.open(coded, soon());
  EXPECT_EQ(refused.status().code(), StatusCode::unsupported);
  EXPECT_NE(refused.status().message().find("prefill"), std::string::npos);
  ModelSpec other = plain_model(3);
  EXPECT_EQ(b.client.open({other, nullptr, false, PrefillMode::exact}, soon()).status().code(),
            StatusCode::invalid_argument);
  ModelSpec odd = model_of({LayerSpec{{pooled_part(7, false)}}}, 11);
  EXPECT_EQ(b.client.open({odd, nullptr, false, PrefillMode::exact}, soon()).status().code(),
            StatusCode::unsupported);
}

TEST(Tiered, EqualStoresFromTwoClients) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(9);
  auto tokens = random_tokens(rng, 20);
  auto one = b.reserve(tokens), two = b.reserve(tokens);
  ASSERT_TRUE(one.ok() && two.ok());
  for (auto* r : {&one, &two}) {
    for (const Need& need : (*r)->needs) {
      ASSERT_TRUE(b.client.put(make_put(model, 16, tokens, need, (*r)->reservation), soon()).ok());
    }
  }
  EXPECT_EQ(b.fetch(tokens)->tokens, 0u) << "invisible before its commit";
  auto first_commit = b.client.commit(one->reservation, Durability::accepted, soon());
  auto second_commit = b.client.commit(two->reservation, Durability::accepted, soon());
  ASSERT_TRUE(first_commit.ok() && second_commit.ok());
  EXPECT_TRUE(first_commit->foreign.empty());
  EXPECT_EQ(second_commit->foreign.size(), 2u);
  EXPECT_EQ(b.fetch(tokens)->tokens, 19u);
}

TEST(Tiered, CoverageIsChecked) {
  auto cache = open_cache(small_options());
  ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(8, 2)}}});
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(10);
  auto tokens = random_tokens(rng, 40);
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  PutRequest bad = make_put(model, 16, tokens, reserved->needs[1], reserved->reservation);
  bad.object.planes[1] = exact_rows(model, prefix_hashes(tokens), 0, 0, {Side::v, 2, 32}, 16, 31);
  Status short_plane = b.client.put(std::move(bad), soon());
  EXPECT_EQ(short_plane.code(), StatusCode::invalid_argument);
  const char* text = "layer 0 part 0 side V: expected rows [16, 32), given [16, 31)";
  EXPECT_NE(short_plane.message().find(text), std::string::npos) << short_plane.message();
  PutRequest wide = make_put(model, 16, tokens, reserved->needs[1], reserved->reservation);
  wide.object.planes[0] = exact_rows(model, prefix_hashes(tokens), 0, 0, {Side::k, 2, 64}, 16, 32);
  Status shape = b.client.put(std::move(wide), soon());
  EXPECT_EQ(shape.code(), StatusCode::invalid_argument);
  EXPECT_NE(shape.message().find("layer 0"), std::string::npos) << shape.message();
  for (const Need& need : reserved->needs) {
    if (need.kind == ObjectKind::supplement) continue;
    auto put = make_put(model, 16, tokens, need, reserved->reservation);
    ASSERT_TRUE(b.client.put(std::move(put), soon()).ok());
  }
  auto refused = b.client.commit(reserved->reservation, Durability::accepted, soon());
  EXPECT_EQ(refused.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(refused.status().message().find("layer 1 part 0 (window)"), std::string::npos)
      << refused.status().message();
  EXPECT_EQ(b.fetch(tokens)->tokens, 0u);
  EXPECT_EQ(b.stat("reservations"), 0u);  // a commit that fails ends it too
  EXPECT_EQ(b.stat("pins"), 0u);
  EXPECT_EQ(b.stat("ram_stored_bytes"), 0u);
  auto again = b.client.commit(reserved->reservation, Durability::accepted, soon());
  EXPECT_EQ(again.status().code(), StatusCode::not_found);
  ASSERT_TRUE(b.store(tokens).ok());
  EXPECT_EQ(b.fetch(tokens)->tokens, 39u);
}

TEST(Tiered, NotFiniteIsRefused) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
    ModelSpec own = plain_model(2, static_cast<uint8_t>(20 + bits));
    auto b = Bench::open(*cache, own, make_profile(own, bits));
    std::mt19937 rng(11);
    auto tokens = random_tokens(rng, 20);
    auto reserved = b.reserve(tokens);
    ASSERT_TRUE(reserved.ok());
    for (const Need& need : reserved->needs) {
      PutRequest put = make_put(own, 16, tokens, need, reserved->reservation);
      auto given = put.object.planes[2].bytes.span();
      std::vector<uint8_t> bytes(given.begin(), given.end());
      bytes[7 * 2] = 0x00;
      bytes[7 * 2 + 1] = 0x7E;  // f16 NaN
      put.object.planes[2].bytes = Bytes::owning(std::move(bytes));
      Status s = b.client.put(std::move(put), soon());
      EXPECT_EQ(s.code(), StatusCode::invalid_argument);
      EXPECT_NE(s.message().find("layer 1"), std::string::npos) << s.message();
    }
  }
}

// The rows that do travel come as they are stored, or as f32.
void expect_rows_copied(uint8_t bits, bool f32) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  auto b = Bench::open(*cache, model, make_profile(model, bits));
  std::mt19937 rng(12);
  auto one = random_tokens(rng, 48);
  auto two = first(one, 40);  // diverges in the middle of block 2
  two = plus(two, random_tokens(rng, 8));
  ASSERT_TRUE(b.store(one).ok());
  auto hit = b.fetch(two);
  ASSERT_TRUE(hit.ok());
  ASSERT_EQ(hit->tokens, 40u);
  ObjectName source = hit->lease.prefix().objects[2].object->name;
  auto reserved = b.reserve(two);
  ASSERT_TRUE(reserved.ok());
  ASSERT_EQ(reserved->needs.size(), 1u);
  PutRequest put = make_put(model, 16, two, reserved->needs[0], reserved->reservation);
  for (Plane& p : put.object.planes) p = *slice_rows(p, 40, 48);
  for (Plane& p : put.object.planes) {
    if (f32) p = as_f32(p);
  }
  put.copies = {{source, 32, 40}};
  Status s = b.client.put(std::move(put), soon());
  ASSERT_TRUE(s.ok()) << s.to_string();
  ASSERT_TRUE(b.client.commit(reserved->reservation, Durability::accepted, soon()).ok());
  auto served = b.fetch(plus(two, {1}));
  ASSERT_TRUE(served.ok());
  ASSERT_EQ(served->tokens, 48u);
  b.expect_serves(two, *served);
}

TEST(Tiered, RowsCopiedFromABlockDoNotTravel) {
  for (uint8_t bits : {0, 4}) {
    for (bool f32 : {false, true}) expect_rows_copied(bits, f32);
  }
}

TEST(Tiered, EraseByPrefixAndModel) {
  TempDir dir;
  ModelSpec model = plain_model();
  std::mt19937 rng(13);
  auto shared = random_tokens(rng, 32);
  auto one = plus(shared, random_tokens(rng, 20)), two = plus(shared, random_tokens(rng, 20));
  {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, model);
    ASSERT_TRUE(b.store(one, Durability::spilled).ok());
    ASSERT_TRUE(b.store(two, Durability::accepted).ok());  // its spill races the erase
    auto erased = b.client.erase(b.opened.model, {one, {}}, soon());
    ASSERT_TRUE(erased.ok()) << erased.status().to_string();
    EXPECT_EQ(*erased, 1u);  // its tail; all else begins other entries too
    EXPECT_EQ(b.fetch(plus(one, {1}))->tokens, 48u);
    EXPECT_EQ(b.fetch(plus(two, {1}))->tokens, 52u);
    auto all = b.client.erase(b.opened.model, {}, soon());
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(*all, 2u + 1 + 2);
    EXPECT_EQ(b.fetch(two)->tokens, 0u);
    EXPECT_EQ(b.stat("ram_objects") + b.stat("ssd_objects"), 0u);
  }
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, model);
  EXPECT_EQ(b.stat("recovered_objects"), 0u);
  EXPECT_EQ(b.fetch(two)->tokens, 0u);
}

TEST(Tiered, ReservationsAndPinsEndWithTheirSession) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(14);
  auto tokens = random_tokens(rng, 40);
  ASSERT_TRUE(b.store(tokens).ok());
  {
    auto second = cache->connect("test");
    ASSERT_TRUE(second.ok());
    auto other = Bench::open(**second, model);
    ASSERT_TRUE(other.reserve(plus(tokens, tokens)).ok());
    EXPECT_GT(b.stat("pins"), 0u);
    EXPECT_EQ(b.stat("reservations"), 1u);
  }
  EXPECT_EQ(b.stat("pins"), 0u);
  EXPECT_EQ(b.stat("reservations"), 0u);
  {
    auto hit = b.fetch(plus_one(tokens));
    EXPECT_EQ(hit->tokens, 40u);
    EXPECT_GE(b.stat("pins"), hit->lease.prefix().objects.size()) << "all that is leased";
  }
  EXPECT_EQ(b.stat("pins"), 0u);
  EXPECT_EQ(b.stat("ram_staging_bytes"), 0u);
}

TEST(Tiered, AStopEndsACallThatWaitsAndNoneAfterIt) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.durable_group_delay = Milliseconds(60'000);
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(3);
  const auto tokens = random_tokens(rng, 40);
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    ASSERT_TRUE(
        cache->put(make_put(b.model, 16, tokens, need, reserved->reservation), soon()).ok());
  }
  const auto stop = std::make_unique<std::stop_source>();  // on the stack GCC 12 warns at -Og
  Status ended;
  std::thread commit([&] {
    ended = cache->commit(reserved->reservation, Durability::durable, {soon(), stop->get_token()})
                .status();
  });
  while (stat_of(*cache, "waiting_calls") < 2) std::this_thread::yield();  // and that of the stats
  stop->request_stop();
  commit.join();
  EXPECT_EQ(ended.code(), StatusCode::cancelled);
  EXPECT_EQ(cache->stats({soon(), stop->get_token()}).status().code(), StatusCode::cancelled);
  auto hit = b.fetch(plus(tokens, {1}));
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 40u) << "a commit that had begun goes on";
}

}  // namespace
}  // namespace kv
