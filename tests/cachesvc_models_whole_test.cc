// Models, profiles and realms come and go: what is open or stored of stays, what nothing names any
// more makes room, on the SSD too.
#include <fstream>
#include <set>

#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class Models : public ::testing::Test {
 protected:
  CacheOptions options(uint32_t max_models) const {
    CacheOptions o = small_options(dir_.store());
    o.max_models = max_models;
    return o;
  }
  // Only once the cache is closed: releasing ends on a worker.
  std::set<Id> on_disk(FileKind kind) const {
    std::set<Id> out;
    auto found = inspect_directory(dir_.store(), InspectDepth::headers);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    for (const InspectedFile& f : found->files) {
      if (f.kind == kind) out.insert(f.name.id);
    }
    return out;
  }
  static std::unique_ptr<Client> client(TieredCache& cache, const std::string& ns = "test") {
    auto made = cache.connect(ns);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }
  static Status open_status(Client& client, const ModelSpec& model) {
    OpenRequest request;
    request.model = model;
    return client.open(request, soon()).status();
  }

  TempDir dir_;
  std::mt19937 rng_{31};
  Sequence tokens_ = random_tokens(rng_, 40);
};

TEST_F(Models, ThreeTimesTheLimitComeAndGo) {
  constexpr uint32_t kLimit = 4;
  for (uint32_t round = 0; round < 2; ++round) {  // the second after a restart
    auto cache = open_cache(options(kLimit));
    for (uint8_t i = 1; i <= 3 * kLimit; ++i) {
      SCOPED_TRACE(std::to_string(round) + " " + std::to_string(i));
      auto c = client(*cache, "ns" + std::to_string(i % 3));
      ModelSpec model = plain_model(i, i);  // as many layers: each has a profile of its own
      ASSERT_TRUE(open_status(*c, model).ok());
      auto b = Bench::open(*c, model);
      ASSERT_EQ(b.store(tokens_, Durability::durable)->level, Durability::durable);
      EXPECT_EQ(b.fetch(plus_one(tokens_))->tokens, 40u);
      EXPECT_LE(b.stat("models"), kLimit);
      EXPECT_EQ(*c->erase(b.opened.model, {}, soon()), 3u);
    }
    cache.reset();
    EXPECT_LE(on_disk(FileKind::model_record).size(), kLimit);
    EXPECT_LE(on_disk(FileKind::profile).size(), kLimit);
  }
}

TEST_F(Models, WhatIsOpenOrStoredOfStays) {
  auto cache = open_cache(options(2));
  auto holder = client(*cache);
  auto held = Bench::open(*holder, plain_model(1, 1));  // open, and nothing is stored
  ModelSpec stored = plain_model(2, 2), third = plain_model(3, 3);
  {
    auto c = client(*cache);
    auto b = Bench::open(*c, stored, make_profile(stored, 4));
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  }
  auto other = client(*cache);
  Status full = open_status(*other, third);
  EXPECT_EQ(full.code(), StatusCode::busy);
  EXPECT_NE(full.message().find("max_models 2"), std::string::npos) << full.message();
  ASSERT_TRUE(held.store(tokens_).ok());
  EXPECT_EQ(held.fetch(plus_one(tokens_))->tokens, 40u);
  {
    auto c = client(*cache);
    auto b = Bench::open(*c, stored);
    EXPECT_EQ(b.opened.profile->requested_k_bits, 4) << "the profile in force stays";
    EXPECT_EQ(b.fetch(plus_one(tokens_))->tokens, 40u);
    ASSERT_EQ(*c->erase(b.opened.model, {}, soon()), 3u);
    EXPECT_EQ(open_status(*other, third).code(), StatusCode::busy) << "somebody has it open";
  }
  EXPECT_TRUE(open_status(*other, third).ok());
  EXPECT_EQ(held.stat("models"), 2u);
  EXPECT_EQ(held.fetch(plus_one(tokens_))->tokens, 40u);
}

// One directory under two keys and none: each owner finds its own again, whatever the others wrote.
TEST_F(Models, EachKeyFindsItsOwnModelsAndPromptsAgain) {
  ModelSpec model = plain_model(2, 2);
  std::vector<std::shared_ptr<const SealKey>> keys = {kv::testing::sample_key(1),
                                                      kv::testing::sample_key(2), nullptr};
  std::vector<Sequence> prompts;
  for (size_t i = 0; i < keys.size(); ++i) prompts.push_back(random_tokens(rng_, 40));
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < keys.size(); ++i) {
      SCOPED_TRACE("round " + std::to_string(round) + " key " + std::to_string(i));
      CacheOptions o = options(4);
      o.ssd_key = keys[i];
      auto cache = open_cache(o);
      auto c = client(*cache);
      auto b = Bench::open(*c, model);
      for (size_t of = 0; of < keys.size(); ++of) {
        // Plain ones can be read by all.
        bool there = round == 1 && (of == i || keys[of] == nullptr);
        EXPECT_EQ(b.fetch(plus_one(prompts[of]))->tokens, there ? 40u : 0u) << of;
      }
      EXPECT_EQ(b.stat("ssd_other_key_files") > 0, round + i > 0);
      if (round == 0) {
        ASSERT_EQ(b.store(prompts[i], Durability::durable)->level, Durability::durable);
      }
      EXPECT_EQ(b.fetch(plus_one(prompts[i]))->tokens, 40u);
      EXPECT_EQ(b.stat("quarantined"), 0u);
    }
  }
}

// Files that another key sealed hold no model in memory, and keep the plain records they need.
TEST_F(Models, FilesOfAnotherKeyHoldNoModelAndLoseNoRecord) {
  ModelSpec stored = plain_model(2, 2);
  CacheOptions plain = options(1), sealed = options(1), other = options(1);
  sealed.ssd_key = kv::testing::sample_key(1);
  other.ssd_key = kv::testing::sample_key(2);
  for (const CacheOptions* o : {&plain, &sealed}) {  // plain records, a sealed entry
    auto cache = open_cache(*o);
    auto c = client(*cache);
    auto b = Bench::open(*c, stored, make_profile(stored, 4));
    if (o == &sealed) {
      ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
      for (uint8_t bits : {3, 2, 4}) {  // its records' serials grow
        OpenRequest replace;
        replace.model = stored;
        replace.profile = make_profile(stored, bits);
        replace.replace = true;
        ASSERT_TRUE(c->open(replace, soon()).ok());
      }
    }
  }
  {
    auto cache = open_cache(other);
    for (uint8_t i = 3; i < 6; ++i) {
      EXPECT_TRUE(open_status(*client(*cache), plain_model(i, i)).ok()) << +i;
    }
  }
  {
    auto cache = open_cache(sealed);
    auto c = client(*cache);
    auto b = Bench::open(*c, stored);
    EXPECT_EQ(b.fetch(plus_one(tokens_))->tokens, 40u);
  }
  auto cache = open_cache(other);
  EXPECT_TRUE(open_status(*client(*cache), plain_model(6, 6)).ok());
  auto c = client(*cache);
  auto b = Bench::open(*c, stored);  // whose plain record is there still
  EXPECT_EQ(b.store(tokens_, Durability::durable)->level, Durability::durable);
}

// A file that changed its key id under its record is a miss, and gives way to what is stored anew.
TEST_F(Models, AFileThatCanNoLongerBeOpenedIsStoredAnew) {
  ModelSpec model = plain_model(2, 2);
  CacheOptions sealed = options(1);
  sealed.ssd_key = kv::testing::sample_key(1);
  for (int round = 0; round < 3; ++round) {
    auto cache = open_cache(sealed);
    auto c = client(*cache);
    auto b = Bench::open(*c, model);
    if (round == 1) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.store())) {
        if (entry.path().extension() != ".tail") continue;
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(24);  // FORMAT.md, "Sealed files": the key id
        file.put('?');
      }
      EXPECT_LT(b.fetch(plus_one(tokens_))->tokens, 40u);
    }
    if (round < 2) {
      EXPECT_EQ(b.store(tokens_, Durability::durable)->level, Durability::durable);
    }
    EXPECT_EQ(b.fetch(plus_one(tokens_))->tokens, 40u) << round;
  }
}

// An I/O error at the start must not cost a valid file the records that it needs.
TEST_F(Models, AFileThatCouldNotBeReadKeepsItsModel) {
  ModelSpec stored = plain_model(2, 2);
  {
    auto cache = open_cache(options(1));
    auto c = client(*cache);
    auto b = Bench::open(*c, stored, make_profile(stored, 4));
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  }
  for (const auto& entry : std::filesystem::directory_iterator(dir_.store())) {
    if (entry.path().filename().string().starts_with("catalog")) {
      std::filesystem::remove(entry.path());
    }
  }
  {
    testing::FaultFiles faults;
    faults.script = [](const char* call, const std::string& path) -> Status {
      bool object = path.ends_with(".block") || path.ends_with(".tail");
      if (std::string(call) != "open_read" || !object) return {};
      return {StatusCode::io_error, "injected"};
    };
    CacheOptions o = options(1);
    o.ssd_files = &faults;
    auto cache = open_cache(o);
    auto c = client(*cache);
    EXPECT_EQ(open_status(*c, plain_model(3, 3)).code(), StatusCode::busy);
  }
  auto cache = open_cache(options(1));
  auto c = client(*cache);
  auto b = Bench::open(*c, stored);
  EXPECT_EQ(b.opened.profile->requested_k_bits, 4);
  EXPECT_EQ(b.fetch(plus_one(tokens_))->tokens, 40u);
}

TEST_F(Models, AProfileGoesWithTheLastThatNamesIt) {
  ModelSpec model = plain_model();
  auto p2 = make_profile(model, 2), p3 = make_profile(model, 3), p4 = make_profile(model, 4);
  auto open = [&](Client& c, std::shared_ptr<const Profile> profile) {
    OpenRequest request;
    request.model = model;
    request.profile = profile;
    request.replace = profile != nullptr;
    auto reply = c.open(request, soon());
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply->realm.profile;
  };
  {
    auto cache = open_cache(options(8));
    auto a = client(*cache, "a"), b = client(*cache, "b");
    auto stores = Bench::open(*a, model, p4);
    ASSERT_TRUE(stores.store(tokens_, Durability::durable).ok());
    open(*b, p4);
    open(*a, p3);
  }
  EXPECT_EQ(on_disk(FileKind::profile), (std::set<Id>{p3->id(), p4->id()}));
  {
    auto cache = open_cache(options(8));
    auto a = client(*cache, "a");
    auto again = Bench::open(*a, model);
    EXPECT_EQ(again.opened.realm.profile, p3->id());
    ASSERT_EQ(*a->erase(again.opened.model, {}, soon()), 3u) << "of every profile";
  }
  EXPECT_EQ(on_disk(FileKind::profile), (std::set<Id>{p3->id(), p4->id()})) << "b's is in force";
  {
    auto cache = open_cache(options(8));
    auto b = client(*cache, "b");
    EXPECT_EQ(open(*b, nullptr), p4->id());
    EXPECT_EQ(open(*b, p2), p2->id());
  }
  EXPECT_EQ(on_disk(FileKind::profile), (std::set<Id>{p2->id(), p3->id()}));
}

TEST_F(Models, OrphansKeepTheirModelAndProfile) {
  ModelSpec model = plain_model();
  auto p3 = make_profile(model, 3), p4 = make_profile(model, 4);
  {
    auto cache = open_cache(options(1));
    auto b = Bench::open(*cache, model, p4);
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  }
  auto found = inspect_directory(dir_.store(), InspectDepth::headers);
  for (const InspectedFile& f : found->files) {
    bool first = f.kind == FileKind::block && f.header.first_token == 0;
    if (first) std::filesystem::remove(dir_.store() + "/" + f.path);
  }
  {
    auto cache = open_cache(options(1));
    EXPECT_EQ(open_status(*client(*cache), plain_model(3, 3)).code(), StatusCode::busy);
    OpenRequest request;
    request.model = model;
    request.profile = p3;
    request.replace = true;
    ASSERT_TRUE(cache->open(request, soon()).ok());
  }
  EXPECT_EQ(on_disk(FileKind::profile), (std::set<Id>{p3->id(), p4->id()}));
  EXPECT_EQ(on_disk(FileKind::model_record).size(), 1u);
}

// A reservation made before another profile came into force commits after it.
TEST_F(Models, AReservationKeepsItsRealm) {
  auto cache = open_cache(options(8));
  ModelSpec model = plain_model();
  auto b = Bench::open(*cache, model, make_profile(model, 4));
  auto reserved = b.reserve(tokens_);
  ASSERT_TRUE(reserved.ok());
  OpenRequest request;
  request.model = model;
  request.profile = make_profile(model, 3);
  request.replace = true;
  ASSERT_TRUE(cache->open(request, soon()).ok());
  for (const Need& need : reserved->needs) {
    auto put = make_put(model, 16, tokens_, need, reserved->reservation);
    ASSERT_TRUE(cache->put(std::move(put), soon()).ok());
  }
  auto commit = cache->commit(reserved->reservation, Durability::durable, soon());
  ASSERT_TRUE(commit.ok()) << commit.status().to_string();
  EXPECT_EQ(commit->level, Durability::durable);
  request.profile = make_profile(model, 4);
  ASSERT_TRUE(cache->open(request, soon()).ok());
  auto hit = b.fetch(plus_one(tokens_));
  EXPECT_EQ(hit->tokens, 40u);
  b.expect_serves(tokens_, *hit);
}

// A commit that its session left holds its model no longer, and nobody looks at it afterwards.
TEST_F(Models, ACommitThatItsSessionLeftHoldsNothing) {
  Stepped main(options(2));
  auto& core = *main.core;
  uint64_t own = main.session, gone = *core.connect("other");
  main.session = gone;
  auto b = Bench::open(main, plain_model(2, 2));
  auto reserved = b.reserve(tokens_);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    ASSERT_TRUE(main.put(make_put(b.model, 16, tokens_, need, reserved->reservation), soon()).ok());
  }
  Status commit;
  core.commit(gone, reserved->reservation, Durability::durable, soon(),
              [&](Result<CommitReply> reply) { commit = reply.status(); });
  main.run_loop();  // its objects are visible, and wait for a worker to write them
  core.disconnect(gone);
  EXPECT_EQ(commit.code(), StatusCode::unavailable);
  main.session = *core.connect("other");
  std::optional<Result<uint64_t>> erased;
  core.erase(main.session, 0, {}, soon(), [&](Result<uint64_t> n) { erased = n; });
  main.session = own;
  ASSERT_TRUE(open_status(main, plain_model(1, 1)).ok());
  ASSERT_TRUE(open_status(main, plain_model(3, 3)).ok()) << "the other's model made room";
  main.run();
  ASSERT_TRUE(erased.has_value() && erased->ok());
  EXPECT_EQ(**erased, 3u);
}

}  // namespace
}  // namespace kv
