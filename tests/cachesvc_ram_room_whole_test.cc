// What happens when RAM has no room for all that is asked: the largest length that fits, at once
// and with the reason, never a promise that nobody keeps.
#include "cachesvc/core/index_bytes.h"
#include "cachesvc/core/object_index.h"
#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

constexpr uint64_t kRoomRam = 1ull << 20;

FetchRequest fetch_of(const Bench& b, const Sequence& tokens, bool wait) {
  FetchRequest r;
  r.model = b.opened.model;
  r.query.tokens = tokens;
  r.wait = wait;
  return r;
}

Sequence store_long_entry(const std::string& dir, std::mt19937& rng) {
  Stepped client(small_options(dir));
  auto b = Bench::open(client, plain_model(4));
  auto tokens = random_tokens(rng, 1000);  // 1 KiB each
  EXPECT_EQ(b.store(tokens, Durability::durable)->level, Durability::durable);
  return tokens;
}

// The blocks that fit beside the index and the largest of all while it is read and unpacked.
uint32_t largest_length(const std::string& dir, uint64_t room) {
  constexpr uint64_t kPayload = 16 * 1024;
  auto found = inspect_directory(dir, InspectDepth::headers);
  EXPECT_TRUE(found.ok());
  uint64_t largest = 0;
  for (const InspectedFile& f : found->files) {
    if (f.kind == FileKind::block) largest = std::max(largest, f.file_bytes + kPayload);
  }
  return static_cast<uint32_t>((room - largest) / RamPool::slab_bytes(kPayload) * 16);
}

TEST(Room, APathThatCanNeverFitIsServedAtTheLargestLengthThatDoes) {
  for (bool wait : {true, false}) {
    SCOPED_TRACE(wait);
    TempDir dir;
    std::mt19937 rng(1);
    auto tokens = store_long_entry(dir.store(), rng);
    CacheOptions options = small_options(dir.store());
    options.ram_budget_bytes = kRoomRam;
    Stepped client(options);
    auto b = Bench::open(client, plain_model(4));
    uint32_t expected = largest_length(
        dir.store(), kRoomRam - b.stat("ram_index_bytes") - b.stat("ram_model_bytes"));
    ASSERT_GT(expected, 256u);
    auto hit = client.fetch(fetch_of(b, tokens, wait), soon());
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->pending, !wait);
    EXPECT_EQ(hit->tokens, expected);
    if (!wait) {  // what was promised is what comes, however often it is asked
      client.run();
      hit = client.fetch(fetch_of(b, tokens, false), soon());
      ASSERT_TRUE(hit.ok());
      EXPECT_FALSE(hit->pending);
      EXPECT_EQ(hit->tokens, expected);
    }
    EXPECT_NE(hit->reason.find("bytes of RAM"), std::string::npos) << hit->reason;
    b.expect_serves(tokens, *hit);
    EXPECT_LE(b.stat("ram_peak_bytes"), kRoomRam);
  }
}

TEST(Room, WhatLeasesHoldIsNoRoomAndNobodyIsToldToWaitForIt) {
  for (bool wait : {true, false}) {
    SCOPED_TRACE(wait);
    TempDir dir;
    std::mt19937 rng(2);
    auto tokens = store_long_entry(dir.store(), rng);
    CacheOptions options = small_options(dir.store());
    options.ram_budget_bytes = kRoomRam;
    options.room_wait = Milliseconds(1);
    Stepped client(options);
    auto b = Bench::open(client, plain_model(4));
    auto other = random_tokens(rng, 640);
    ASSERT_TRUE(b.store(other, Durability::spilled).ok());
    auto lease = client.fetch(fetch_of(b, other, true), soon());
    ASSERT_TRUE(lease.ok());
    ASSERT_EQ(lease->tokens, 639u);
    uint32_t expected = largest_length(dir.store(), kRoomRam - b.stat("ram_used_bytes"));
    ASSERT_GT(expected, 32u);
    auto hit = client.fetch(fetch_of(b, tokens, wait), soon());
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->pending, !wait);
    EXPECT_EQ(hit->tokens, expected);
    if (!wait) {
      client.run();
      hit = client.fetch(fetch_of(b, tokens, false), soon());
      ASSERT_TRUE(hit.ok());
      EXPECT_FALSE(hit->pending);
      EXPECT_EQ(hit->tokens, expected);
    }
    EXPECT_FALSE(hit->reason.empty());
    b.expect_serves(tokens, *hit);
    EXPECT_LE(b.stat("ram_peak_bytes"), kRoomRam);
  }
}

// A client that polls while its rows are read would fill RAM with its own questions, and then be
// told of a miss.
TEST(Room, APollForWhatIsBeingReadTakesNoRoomAndIsPending) {
  for (FetchForm form : {FetchForm::stored, FetchForm::f32}) {
    SCOPED_TRACE(static_cast<int>(form));
    TempDir dir;
    std::mt19937 rng(9);
    const auto tokens = store_long_entry(dir.store(), rng);
    CacheOptions options = small_options(dir.store());
    options.ram_budget_bytes = 3 << 20;
    Stepped client(options);
    auto b = Bench::open(client, plain_model(4));
    FetchRequest request = fetch_of(b, tokens, false);
    request.form = form;
    client.hangs = true;
    auto hit = client.fetch(request, soon());
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    ASSERT_TRUE(hit->pending);
    ASSERT_EQ(hit->tokens, tokens.size() - 1);
    const uint64_t used = b.stat("ram_used_bytes");
    for (int i = 0; i < 5; ++i) {
      hit = client.fetch(request, soon());
      ASSERT_TRUE(hit.ok());
      EXPECT_TRUE(hit->pending);
      EXPECT_EQ(hit->tokens, tokens.size() - 1);
      EXPECT_EQ(b.stat("ram_used_bytes"), used);
    }
    client.hangs = false;
    client.run();
    hit = client.fetch(request, soon());
    ASSERT_TRUE(hit.ok());
    EXPECT_FALSE(hit->pending);
    EXPECT_EQ(hit->tokens, tokens.size() - 1);
    b.expect_serves(tokens, *hit);
  }
}

// Blocks as stored (16 KiB each) and as wanted fit together; the rest is not served.
uint32_t largest_decoded(uint64_t room, FetchForm form) {
  uint64_t block = 16 * 1024, decoded = form == FetchForm::f32 ? 2 * block : block;
  return static_cast<uint32_t>(room / (block + decoded) * 16);
}

void expect_decoded(const FetchReply& hit, FetchForm form) {
  for (const FetchedObject& o : hit.lease.prefix().objects) {
    for (const Plane& p : o.object->planes) {
      ASSERT_EQ(p.dtype, form == FetchForm::f32 ? DType::f32 : DType::bf16);
      ASSERT_EQ(p.runs.size(), 1u);
      ASSERT_EQ(p.runs[0].form, RunForm::exact);
    }
  }
}

// The rows lie in RAM as f16: each of these forms needs a copy.
TEST(Room, ADecodedFetchIsServedAtTheLargestLengthWhoseRowsFitToo) {
  for (FetchForm form : {FetchForm::bf16, FetchForm::f32}) {
    for (bool from_ssd : {false, true}) {
      for (bool wait : {true, false}) {
        SCOPED_TRACE(::testing::Message() << "form " << static_cast<int>(form) << " ssd "
                                          << from_ssd << " wait " << wait);
        TempDir dir;
        std::mt19937 rng(5);
        Sequence tokens;
        if (from_ssd) tokens = store_long_entry(dir.store(), rng);
        CacheOptions options = small_options(from_ssd ? dir.store() : "");
        options.ram_budget_bytes = kRoomRam;
        Stepped client(options);
        auto b = Bench::open(client, plain_model(4));
        if (!from_ssd) {
          tokens = random_tokens(rng, 641);
          ASSERT_TRUE(b.store({tokens.begin(), tokens.end() - 1}).ok());
        }
        uint32_t expected =
            largest_decoded(kRoomRam - b.stat("ram_index_bytes") - b.stat("ram_model_bytes"), form);
        ASSERT_GT(expected, 128u);
        FetchRequest request = fetch_of(b, tokens, wait);
        request.form = form;
        auto hit = client.fetch(request, soon());
        ASSERT_TRUE(hit.ok()) << hit.status().to_string();
        if (hit->pending) {
          EXPECT_TRUE(from_ssd && !wait);
          EXPECT_EQ(hit->tokens, expected);
          client.run();
          hit = client.fetch(request, soon());
          ASSERT_TRUE(hit.ok()) << hit.status().to_string();
        }
        EXPECT_EQ(hit->tokens, expected);
        EXPECT_NE(hit->reason.find("bytes of RAM"), std::string::npos) << hit->reason;
        expect_decoded(*hit, form);
        b.expect_serves(tokens, *hit);
        EXPECT_LE(b.stat("ram_peak_bytes"), kRoomRam);
        EXPECT_EQ(b.stat("hit_tokens_ram") + b.stat("hit_tokens_ssd"), expected);
      }
    }
  }
}

TEST(Room, ADecodedFetchWithoutRoomBesideLeasesIsShorterAndThenAMissButNoError) {
  for (bool wait : {true, false}) {
    for (uint32_t second : {400u, 464u}) {
      SCOPED_TRACE(::testing::Message() << "wait " << wait << " leased 432 and " << second);
      CacheOptions options = small_options();
      options.ram_budget_bytes = kRoomRam;
      options.room_wait = Milliseconds(1);
      Stepped client(options);
      auto b = Bench::open(client, plain_model(4));
      std::mt19937 rng(6);
      std::vector<FetchReply> leases;
      Sequence tokens;
      for (uint32_t n : {432u, second}) {
        tokens = random_tokens(rng, n + 1);
        ASSERT_TRUE(b.store({tokens.begin(), tokens.end() - 1}).ok());
        auto lease = client.fetch(fetch_of(b, tokens, true), soon());
        ASSERT_TRUE(lease.ok());
        ASSERT_EQ(lease->tokens, n);
        leases.push_back(std::move(*lease));
      }
      tokens.resize(81);  // of what is leased
      for (int again = 0; again < 2; ++again) {
        uint64_t room = kRoomRam - b.stat("ram_used_bytes"), before = b.stat("hit_tokens_ram");
        FetchRequest request = fetch_of(b, tokens, wait);
        request.form = FetchForm::f32;
        auto hit = client.fetch(request, soon());
        ASSERT_TRUE(hit.ok()) << hit.status().to_string();
        EXPECT_EQ(hit->tokens, room / (32 * 1024) * 16);
        EXPECT_EQ(hit->tokens > 0, again == 0) << "the first one's rows take the room";
        EXPECT_FALSE(hit->reason.empty());
        expect_decoded(*hit, FetchForm::f32);
        b.expect_serves(tokens, *hit);
        EXPECT_EQ(b.stat("hit_tokens_ram"), before + hit->tokens) << "counted once";
        leases.push_back(std::move(*hit));
      }
      EXPECT_LE(b.stat("ram_peak_bytes"), kRoomRam);
    }
  }
}

// Two puts whose bodies together leave no room to encode either: the second waits before it takes
// anything, and a put that holds its body never waits.
TEST(Room, APutReservesAllThatItNeedsBeforeItsBodyArrives) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = kRoomRam;  // a quarter of it for bytes in transit
  options.room_wait = Milliseconds(60'000);
  Stepped client(options);
  ModelSpec model = model_of({LayerSpec{{full_part(8, 128)}}, LayerSpec{{full_part(8, 128)}}});
  auto b = Bench::open(client, model);
  std::mt19937 rng(3);
  auto one = random_tokens(rng, 16), two = random_tokens(rng, 16);
  auto r1 = b.reserve(one), r2 = b.reserve(two);
  ASSERT_TRUE(r1.ok() && r2.ok());
  std::optional<Staging> first, second;
  auto ask = [&](std::optional<Staging>& into) {
    client.core->memory().allocate_staging(client.session, 100 * 1024, StagingFor::put, soon(),
                                           [&into](Result<Staging> got) {
                                             ASSERT_TRUE(got.ok()) << got.status().to_string();
                                             into = std::move(*got);
                                           });
  };
  ask(first);
  ask(second);
  client.run();
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(second.has_value()) << "its scratch would not fit beside the first";
  auto put = [&](std::optional<Staging>& staging, const ReserveReply& r, const Sequence& tokens) {
    auto room = std::move(staging->room);
    Status status = client.call<Status>([&](auto done) {
      client.core->put(client.session, make_put(model, 16, tokens, r.needs[0], r.reservation),
                       std::move(room), soon(), done);
    });
    staging.reset();
    return status;
  };
  Status done = put(first, *r1, one);
  EXPECT_TRUE(done.ok()) << done.to_string();
  client.run();
  ASSERT_TRUE(second.has_value());
  done = put(second, *r2, two);
  EXPECT_TRUE(done.ok()) << done.to_string();
  EXPECT_EQ(b.stat("ram_staging_bytes"), 0u);
  EXPECT_EQ(b.stat("busy"), 0u);
}

TEST(Room, AReservationPaysForItsQuery) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(4);
  auto tokens = random_tokens(rng, 4000);
  uint64_t before = b.stat("ram_index_bytes");
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  uint64_t names = 250 * most_index_bytes(16);
  EXPECT_GE(b.stat("ram_index_bytes"), before + names + 4000 * sizeof(Token));
  ASSERT_TRUE(client.abort(reserved->reservation, soon()).ok());
  EXPECT_EQ(b.stat("ram_index_bytes"), before);
}

}  // namespace
}  // namespace kv
