// Why a request was not served whole: each reason is produced for real and read back as a record
// and in words; the ring and the memory of departures keep their bounds; who may see what.
#include <filesystem>
#include <fstream>

#include "cachesvc/core/why.h"
#include "storage/file_names.h"
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

constexpr uint64_t kLater = 5000;  // ms after a record's since_ms

class WhyTest : public ::testing::Test {
 protected:
  WhyTest() { start(); }
  void start(std::optional<ModelSpec> spec = {}, std::optional<std::string> ssd = {}) {
    core_.reset();
    CacheOptions options = small_options(ssd.value_or(dir_.store()));
    options.ssd_files = &faults_;
    options.room_wait = Milliseconds(20);
    options.quotas = quotas_;
    options.wall_clock = [this] {
      return std::chrono::system_clock::time_point(std::chrono::seconds(wall_.load()));
    };
    core_ = std::make_unique<CoreOwners>(options);
    core_->open_model(spec.value_or(model_of({LayerSpec{{full_part()}}})));
    core_->run_all();
    session_ = core_->connect();
  }
  std::vector<Token> fresh(size_t n) { return random_tokens(rng_, n); }
  std::vector<Token> stored(size_t n, Durability level = Durability::accepted) {
    auto tokens = fresh(n);
    core_->store(session_, tokens, level);
    return tokens;
  }
  Result<WhyReply> ask(const WhyRequest& request, uint64_t session = 0) {
    auto reply = core_->call<Result<WhyReply>>([&](auto done) {
      core_->why_missed.why(session ? session : session_, request, soon(), done);
    });
    KV_CHECK(reply.has_value());
    return std::move(*reply);
  }
  /// The record of a fetch.
  RequestRecord fetched(const std::vector<Token>& tokens) {
    auto reply = core_->fetch(session_, tokens);
    KV_CHECK(reply && reply->ok());
    auto why = ask({});
    KV_CHECK(why.ok() && !why->records.empty());
    const RequestRecord& r = why->records.front();
    EXPECT_EQ(r.served(), (*reply)->tokens);
    EXPECT_EQ(r.number, why->newest);
    return r;
  }
  /// What a question about the tokens is told, which is what a fetch is told.
  RequestRecord asked(const std::vector<Token>& tokens) {
    WhyRequest request;
    request.tokens = tokens;
    auto why = ask(request);
    KV_CHECK(why.ok() && !why->records.empty());
    return why->records.front();
  }
  /// Somebody of this share needs RAM: the object used least recently goes.
  void evict_last(ShareId share) {
    RamPool& pool = *core_->env->pool;
    Charge all = *pool.try_charge(ChargeKind::stored, pool.free_bytes());
    Room room;
    room.stored = 1;
    room.share = share;
    EXPECT_TRUE(core_->room.room_now(room)) << "the last object goes";
  }
  std::vector<Record*> path(const std::vector<Token>& tokens) {
    RealmState& realm = *core_->model->realm;
    std::vector<Record*> out;
    for (NodeId node : realm.tree.find_path(tokens, {})) out.push_back(realm.nodes.at(node).main);
    return out;
  }
  /// Both ways tell the same.
  void expect(const std::vector<Token>& tokens, Missing missing, uint32_t from, const char* say) {
    for (const RequestRecord& r : {fetched(tokens), asked(tokens)}) {
      EXPECT_STREQ(to_string(r.missing), to_string(missing));
      EXPECT_EQ(r.missing_from, from);
      std::string text;
      for (const std::string& line : words(r, r.since_ms + kLater)) text += line + "\n";
      EXPECT_NE(text.find(say), std::string::npos) << text;
    }
  }

  TempDir dir_;
  testing::FaultFiles faults_;
  std::atomic<int64_t> wall_{1'000'000};
  std::map<std::string, NamespaceQuota> quotas_;
  std::unique_ptr<CoreOwners> core_;
  uint64_t session_ = 0;
  std::mt19937 rng_{7};
};

TEST_F(WhyTest, AWholeHitMissesNothing) {
  const auto tokens = stored(40);
  const RequestRecord r = fetched(tokens);
  EXPECT_EQ(r.missing, Missing::nothing);
  EXPECT_EQ(r.ram_tokens, 39u);
  EXPECT_EQ(r.ns, "test");
  EXPECT_EQ(words(r, r.at_ms).front(), "served: 39 of 39 tokens (100 %) from RAM");
}

TEST_F(WhyTest, WhatNobodyStored) {
  auto tokens = stored(40);
  auto longer = tokens;
  longer.resize(32);
  const auto more = fresh(30);
  longer.insert(longer.end(), more.begin(), more.end());
  expect(longer, Missing::never_stored, 32, "never stored in the 5");
  expect(fresh(20), Missing::never_stored, 0, "served: 0 of 19 tokens (0 %)");
}

TEST_F(WhyTest, WhatLeftRamUnderPressure) {
  start({}, "");
  const auto tokens = stored(40);
  evict_last(kCommonShare);
  expect(plus_one(tokens), Missing::evicted_ram, 32, "evicted from RAM 5 s ago by pressure");
}

TEST_F(WhyTest, WhoNeededTheRoomIsToldToWhoMaySeeThem) {
  quotas_["greedy"].ram_bytes = 1 << 20;
  start({}, "");
  const auto tokens = stored(40);
  evict_last(core_->env->namespaces.share("greedy"));
  EXPECT_EQ(fetched(plus_one(tokens)).by, "greedy");
  const uint64_t own = *core_->calls.connect("test", Right::own);
  EXPECT_EQ(ask({}, own)->records.front().by, "");
}

TEST_F(WhyTest, WhatTheIndexHadNoRoomFor) {
  start({}, "");
  const auto tokens = stored(40);
  RamPool& pool = *core_->env->pool;
  Charge most = *pool.try_charge(ChargeKind::index,
                                 core_->room.index_limit() - pool.used_bytes(ChargeKind::index));
  Room room;
  room.index = 1;
  EXPECT_TRUE(core_->room.room_now(room)) << "the last object goes";
  most.release();
  expect(plus_one(tokens), Missing::evicted_index, 32, "evicted 5 s ago: the index was full");
}

TEST_F(WhyTest, WhatMadeRoomOnTheSsd) {
  const auto tokens = stored(40, Durability::durable);
  core_->recency.leave_ram(*path(tokens).back());
  core_->lane.run_with_room(
      1, [] { return Status(); }, [](Status) {});
  core_->run_all();
  expect(plus_one(tokens), Missing::evicted_ssd, 32, "evicted from SSD 5 s ago by pressure");
}

TEST_F(WhyTest, WhatWasErasedOrExpired) {
  auto tokens = stored(40, Durability::durable);
  auto erased = core_->call<Result<uint64_t>>([&](auto done) {
    core_->eraser.erase_entry(session_, {1, {tokens, {}}}, soon(), done);
  });
  EXPECT_EQ(**erased, 3u);
  expect(tokens, Missing::erased, 0, "erased 5 s ago");
  tokens = stored(40, Durability::durable);
  core_->expirer.begin();
  const ExpireRequest request{1, {tokens, {}}, {}, false, std::chrono::seconds(1)};
  core_->call<Result<ExpireReply>>(
      [&](auto done) { core_->expirer.expire(session_, request, soon(), done); });
  wall_ += 10;
  core_->expirer.begin();
  core_->run_for(Milliseconds(20));
  core_->run_all();
  expect(tokens, Missing::expired, 0, "expired 5 s ago");
}

TEST_F(WhyTest, WhatIsDamagedOrGoneOrCannotBeRead) {
  auto on_ssd_alone = [&] {
    auto tokens = stored(40, Durability::durable);
    for (Record* r : path(tokens)) core_->recency.leave_ram(*r);
    return tokens;
  };
  auto file_of = [&](const std::vector<Token>& tokens, size_t at) {
    const ObjectName& name = path(tokens)[at]->name;
    return dir_.store() + "/" + name.id.hex().substr(0, 1) + "/" + file_name(name);
  };
  auto tokens = on_ssd_alone();
  std::fstream(file_of(tokens, 1)).seekp(300).write("damage", 6);
  expect(tokens, Missing::damaged, 16, "damaged: dropped 5 s ago");
  tokens = on_ssd_alone();
  ASSERT_TRUE(std::filesystem::remove(file_of(tokens, 0)));
  expect(tokens, Missing::file_gone, 0, "its file was gone 5 s ago");
  tokens = on_ssd_alone();
  faults_.script = [](const char* name, const std::string&) -> Status {
    return std::string(name) == "pread" ? Status(StatusCode::io_error, "injected") : Status();
  };
  expect(tokens, Missing::unreadable, 0, "its file can't be read; tried again soon");
  faults_.script = nullptr;
}

TEST_F(WhyTest, WhatBelongsToABlockThatIsThere) {
  start(model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(10, 0)}}}));
  const auto tokens = stored(40);
  auto shorter = std::vector<Token>(tokens.begin(), tokens.begin() + 20);
  const RequestRecord r = fetched(shorter);
  EXPECT_EQ(r.missing, Missing::part);
  EXPECT_NE(words(r, r.at_ms).back().find("ook"), std::string::npos);  // "took"
  EXPECT_NE(r.reason.find("rows"), std::string::npos) << r.reason;
}

TEST_F(WhyTest, WhatAnotherModelOrProfileHas) {
  const auto tokens = stored(64);
  RealmState& first = *core_->model->realm;
  ModelSpec other = model_of({LayerSpec{{full_part()}}});
  other.fingerprint = sha256(std::span<const uint8_t>());
  core_->open_model(other);
  session_ = core_->connect();
  const RequestRecord r = fetched(tokens);
  EXPECT_EQ(r.missing, Missing::other_model);
  EXPECT_EQ(r.other, first.realm.fingerprint);
  EXPECT_EQ(r.other_tokens, 64u);
  EXPECT_EQ(miss_words(r, 0), "the same tokens (64) are stored under fingerprint 07000000..");
  WhyRequest request;
  request.tokens = tokens;
  auto of_each = ask(request)->records;  // of the one that has them first
  ASSERT_EQ(of_each.size(), 2u);
  EXPECT_EQ(of_each[0].missing, Missing::nothing);
  EXPECT_EQ(of_each[1].missing, Missing::other_model);
}

TEST_F(WhyTest, WhatTheProfileBeforeHas) {
  const auto tokens = stored(64);
  const Id before = core_->model->realm->realm.profile;
  const ModelSpec& spec = *core_->model->realm->model;
  auto charge = core_->env->pool->try_charge(ChargeKind::model, 8u << 20);
  auto coded = make_coded_model(spec, *make_profile(spec, 0, 32), *charge);
  core_->model = core_->models.put_in_force("test", core_->models.shared(std::move(*coded)), {});
  session_ = core_->connect();
  expect(tokens, Missing::other_profile, 0,
         ("the same tokens (64) are stored under profile " + before.hex().substr(0, 8)).c_str());
}

TEST_F(WhyTest, WhatRamHasNoRoomForAndWhatIsBeingRead) {
  const auto tokens = stored(40, Durability::durable);
  for (Record* r : path(tokens)) core_->recency.leave_ram(*r);
  RamPool& pool = *core_->env->pool;
  Charge all = *pool.try_charge(ChargeKind::session, pool.free_bytes());
  const RequestRecord r = fetched(tokens);
  EXPECT_EQ(r.missing, Missing::no_room);
  EXPECT_NE(r.reason, "");
  all.release();
  FetchRequest request;
  request.model = 1;
  request.query.tokens = tokens;
  request.wait = false;
  core_->call<Result<FetchReply>>(
      [&](auto done) { core_->fetches.fetch(session_, request, soon(), done); });
  EXPECT_EQ(ask({})->records.front().missing, Missing::pending);
  EXPECT_EQ(fetched(tokens).missing, Missing::nothing);
}

// However often a client asks for what is being read, it asked once, and the SSD served it.
TEST_F(WhyTest, WhatIsAskedAgainIsOneRequest) {
  const auto tokens = stored(40, Durability::durable);
  for (Record* r : path(tokens)) core_->recency.leave_ram(*r);
  const Counters before = core_->env->count;
  const uint64_t requests = ask({})->newest;
  FetchRequest request;
  request.model = 1;
  request.query.tokens = plus_one(tokens);
  request.wait = false;
  const auto asked = [&] {
    auto reply = core_->call<Result<FetchReply>>(
        [&](auto done) { core_->fetches.fetch(session_, request, soon(), done); });
    EXPECT_TRUE(reply && reply->ok());
    return std::move(**reply);
  };
  core_->hangs = true;
  for (int polls = 0; polls < 3; ++polls) {
    EXPECT_TRUE(asked().pending);
    EXPECT_EQ(ask({})->newest, requests + 1);
  }
  core_->hangs = false;
  core_->run_all();
  const FetchReply reply = asked();
  EXPECT_EQ(reply.tokens, 40u);
  EXPECT_EQ(reply.tier, Tier::ssd);
  EXPECT_EQ(ask({})->newest, requests + 1);
  const RequestRecord record = ask({})->records.front();
  EXPECT_EQ(record.missing, Missing::nothing);
  EXPECT_EQ(record.ssd_tokens, 40u);
  EXPECT_EQ(core_->env->count.fetches, before.fetches + 1);
  EXPECT_EQ(core_->env->count.hit_tokens_ssd, before.hit_tokens_ssd + 40);
  EXPECT_EQ(core_->env->count.hit_tokens_ram, before.hit_tokens_ram);
}

// Adapters look up first, and fetch only what they find.
TEST_F(WhyTest, ALookUpThatFindsNothingIsAMissAndIsCountedOnce) {
  const auto tokens = fresh(40);
  const Counters before = core_->env->count;
  auto looked = core_->call<Result<LookupReply>>([&](auto done) {
    core_->fetches.lookup(session_, QueryRequest{1, {tokens, {}}}, soon(), done);
  });
  ASSERT_TRUE(looked && looked->ok());
  EXPECT_EQ(core_->env->count.miss_tokens, before.miss_tokens + 40);
  EXPECT_EQ(core_->env->count.fetch_misses, before.fetch_misses + 1);
  (void)fetched(tokens);
  EXPECT_EQ(core_->env->count.miss_tokens, before.miss_tokens + 40);
  EXPECT_EQ(core_->env->count.fetch_misses, before.fetch_misses + 1);
  (void)fetched(tokens);
  EXPECT_EQ(core_->env->count.miss_tokens, before.miss_tokens + 80);
}

TEST_F(WhyTest, WhatWasReadHasItsTimeAndTier) {
  const auto tokens = stored(40, Durability::durable);
  core_->recency.leave_ram(*path(tokens)[1]);
  const RequestRecord r = fetched(plus_one(tokens));
  EXPECT_EQ(r.ssd_tokens, 16u);
  EXPECT_EQ(r.ram_tokens, 24u);
  EXPECT_GT(r.read_us, 0u);
  EXPECT_LE(r.read_us + r.wait_us, r.total_us);
}

TEST_F(WhyTest, TheRequestItselfMayWantLess) {
  const auto tokens = stored(40);
  FetchRequest request;
  request.model = 1;
  request.query.tokens = tokens;
  request.max_tokens = 20;
  core_->call<Result<FetchReply>>(
      [&](auto done) { core_->fetches.fetch(session_, request, soon(), done); });
  EXPECT_EQ(ask({})->records.front().missing, Missing::asked_less);
}

TEST_F(WhyTest, ItTellsTheNearestLabelAndWhatThePrefillCosts) {
  const auto tokens = fresh(40);
  const ReserveRequest request{
      1, core_->model->realm->realm.profile, {tokens, {}}, {}, {400, "system prompt"}};
  auto reserved = core_->call<Result<ReserveReply>>(
      [&](auto done) { core_->reservations.reserve(session_, request, soon(), done); });
  core_->put(session_, tokens, **reserved);
  core_->commit(session_, **reserved);
  auto longer = tokens;
  const auto more = fresh(20);
  longer.insert(longer.end(), more.begin(), more.end());
  const RequestRecord r = fetched(longer);
  EXPECT_EQ(r.label, "system prompt");
  EXPECT_EQ(r.end, 40u);
  EXPECT_EQ(r.saved_ms, 400u);
  EXPECT_EQ(r.missed_ms, 190u);  // 19 tokens of 10 ms
}

TEST_F(WhyTest, LookupsAreToldTooAndOneNumberAlone) {
  const auto tokens = stored(40);
  core_->call<Result<LookupReply>>([&](auto done) {
    core_->fetches.lookup(session_, QueryRequest{1, {tokens, {}}}, soon(), done);
  });
  fetched(fresh(9));
  WhyRequest request;
  request.number = 1;
  ASSERT_EQ(ask(request)->records.size(), 1u);
  EXPECT_EQ(ask(request)->records[0].kind, RequestKind::lookup);
  request.number = 3;
  EXPECT_EQ(ask(request).status().code(), StatusCode::not_found);
  request = {};
  EXPECT_EQ(ask(request)->records.size(), 2u);
  request.missed = true;
  EXPECT_EQ(ask(request)->records.size(), 1u);
  request.limit = 0;
  EXPECT_EQ(ask(request).status().code(), StatusCode::invalid_argument);
}

TEST_F(WhyTest, OthersSeeTheirOwnNamespaceAlone) {
  stored(40);
  fetched(fresh(9));
  const uint64_t other = *core_->calls.connect("other", Right::own);
  EXPECT_EQ(ask({}, other)->records.size(), 0u);
  WhyRequest request;
  request.ns = "test";
  EXPECT_EQ(ask(request, other).status().code(), StatusCode::invalid_argument);
  request = {};
  request.tokens = fresh(9);
  EXPECT_EQ(ask(request, other)->records.size(), 0u);
  request.number = 1;
  request.tokens.clear();
  EXPECT_EQ(ask(request, other).status().code(), StatusCode::not_found);
  const uint64_t admin = *core_->calls.connect("admin", Right::all);
  EXPECT_EQ(ask({}, admin)->records.size(), 1u);
}

TEST_F(WhyTest, TheRingKeepsTheLastAndCountsAll) {
  const size_t most = kMaxWhyRecords;
  for (size_t i = 0; i < most + 5; ++i) fetched(fresh(9));
  EXPECT_EQ(core_->ring.size(), most);
  EXPECT_EQ(core_->ring.newest(), most + 5);
  EXPECT_EQ(core_->ring.find(5), nullptr);
  ASSERT_NE(core_->ring.find(6), nullptr);
  EXPECT_EQ(core_->ring.count(Missing::never_stored), most + 5);
}

TEST(Departures, ForgetTheOldestAndSayHowFarTheyGoBack) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 32u << 20;
  CoreOwners core(options);
  Departures& departures = core.departures;
  constexpr size_t many = 8192;  // it has room for 2,048
  const uint64_t before = departures.complete_since_ms();
  auto name = [](size_t i) {
    ObjectName out;
    out.id = sha256(std::span(reinterpret_cast<const uint8_t*>(&i), sizeof(i)));
    return out;
  };
  const auto first = static_cast<uint32_t>(before / 1000 + 1);
  for (size_t i = 0; i < many; ++i) {
    departures.note(name(i), {Missing::evicted_ssd}, first + static_cast<uint32_t>(i));
  }
  EXPECT_FALSE(departures.find(name(0).id, ObjectKind::block).has_value());
  const auto last = departures.find(name(many - 1).id, ObjectKind::block);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->at_ms, (first + many - 1) * 1000);
  EXPECT_FALSE(departures.find(name(many - 1).id, ObjectKind::supplement).has_value());
  const uint64_t since = departures.complete_since_ms();
  EXPECT_GT(since, before);
  for (size_t i = 0; i < many; ++i) {  // all that is later than that is remembered
    const uint64_t at = (first + i) * 1000;
    EXPECT_TRUE(at <= since || departures.find(name(i).id, ObjectKind::block)) << i;
  }
}

}  // namespace
}  // namespace kv
