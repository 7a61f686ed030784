// What a put may say and bring: whose object it is, rows copied from where, and what becomes of it
// when others store, erase or fail to be read beside it.
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using testing::FaultFiles;

// The put of the first need of a fresh reservation.
PutRequest put_of(Bench& b, const ReserveReply& reserved, const Sequence& tokens, size_t need = 0) {
  return make_put(b.model, 16, tokens, reserved.needs.at(need), reserved.reservation);
}

ModelSpec windowed_model() {
  return model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(9, 2)}}});
}

// One scale does not fit: its plane is longer than the place that was kept for its codes, and all
// that was coded in place before moves with it.
TEST(Put, APlaneThatStaysRawLiesAmongCodes) {
  Stepped client(small_options());
  CodingSettings settings;
  settings.block_tokens = 16;
  settings.k_bits = settings.v_bits = 4;
  settings.raw_dtype = DType::bf16;  // holds values whose scale is over fp16's range
  auto profile = plain_profile(plain_model(), settings);
  ASSERT_TRUE(profile.ok());
  auto b = Bench::open(client, plain_model(), std::make_shared<const Profile>(*profile));
  std::mt19937 rng(1);
  const auto tokens = random_tokens(rng, 16);
  for (size_t raw = 0; raw < 5; ++raw) {  // each plane in turn, at last none
    auto reserved = b.reserve(tokens);
    ASSERT_TRUE(reserved.ok());
    PutRequest put = put_of(b, *reserved, tokens);
    std::vector<Plane> wanted;
    for (size_t i = 0; i < 4; ++i) {
      Plane& plane = put.object.planes[i] = as_f32(put.object.planes[i]);
      std::vector<float> values(plane.bytes.size() / sizeof(float));
      std::memcpy(values.data(), plane.bytes.data(), plane.bytes.size());
      if (i == raw) values[10 * plane.heads * plane.dim] = 3e7f;
      plane.bytes = Bytes::copy_of(
          {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)});
      wanted.push_back(*b.codec->encode(plane));
      EXPECT_EQ(wanted.back().bits, i == raw ? 0 : 4);
    }
    const uint64_t before = b.stat("encode_raw_fallbacks");
    ASSERT_TRUE(client.put(std::move(put), soon()).ok());
    EXPECT_EQ(b.stat("encode_raw_fallbacks"), before + (raw < 4 ? 1 : 0));
    ASSERT_TRUE(client.commit(reserved->reservation, Durability::accepted, soon()).ok());
    auto hit = b.fetch(plus_one(tokens));
    ASSERT_TRUE(hit.ok());
    ASSERT_EQ(hit->lease.prefix().objects.size(), 1u) << "plane " << raw;
    EXPECT_EQ(hit->lease.prefix().objects[0].object->planes, wanted) << "plane " << raw;
    hit->lease = Lease();
    ASSERT_TRUE(client.erase(b.opened.model, {}, soon()).ok());
  }
}

// Codes of another seed, served as these, would be nonsense.
TEST(Put, AHeaderOfAnothersObjectIsRefusedWithItsField) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 40);
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  Id other;
  other.bytes[5] = 9;
  struct {
    const char* field;
    std::function<void(Object&)> spoil;
  } cases[] = {
      {"namespace", [](Object& o) { o.ns = "another"; }},
      {"fingerprint", [&](Object& o) { o.fingerprint = other; }},
      {"profile", [&](Object& o) { o.profile = other; }},
      {"parent", [&](Object& o) { o.parent = other; }},
      {"extras",
       [](Object& o) {
         o.extras = {{16, {1, 2, 3}}};
       }},
      {"tokens", [](Object& o) { o.tokens.assign(16, 7); }},
      {"id", [&](Object& o) { o.name.id = other; }},
  };
  for (const auto& c : cases) {
    PutRequest put = put_of(b, *reserved, tokens, 1);
    c.spoil(put.object);
    Status s = client.put(std::move(put), soon());
    EXPECT_EQ(s.code(), StatusCode::invalid_argument) << c.field;
    EXPECT_NE(s.message().find(c.field), std::string::npos) << s.message();
  }
  for (size_t i = 0; i < reserved->needs.size(); ++i) {  // zeros, or the very values
    PutRequest put = put_of(b, *reserved, tokens, i);
    if (i == 0) {
      put.object.ns = b.opened.realm.ns;
      put.object.fingerprint = b.opened.realm.fingerprint;
      put.object.profile = b.opened.realm.profile;
      put.object.tokens = slice(tokens, 0, 16);
    }
    Status s = client.put(std::move(put), soon());
    EXPECT_TRUE(s.ok()) << s.to_string();
  }
  EXPECT_TRUE(client.commit(reserved->reservation, Durability::accepted, soon()).ok());
}

// Rows depend on every token before them: those of an entry that begins with others are others.
TEST(Put, RowsAreCopiedOnlyFromTheSameTokens) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(2);
  auto one = random_tokens(rng, 48), two = one, three = one;
  two[40] += 1;
  three[3] += 1;  // the third block has the same tokens, after others
  ASSERT_TRUE(b.store(one).ok());
  auto hit = b.fetch(one);
  ASSERT_TRUE(hit.ok());
  ObjectName source = hit->lease.prefix().objects.at(2).object->name;
  auto put_copying = [&](const Sequence& tokens, size_t need, uint32_t first, uint32_t end) {
    auto reserved = b.reserve(tokens);
    EXPECT_TRUE(reserved.ok());
    PutRequest put = put_of(b, *reserved, tokens, need);
    for (Plane& p : put.object.planes) p = *slice_rows(p, end, 48);
    put.copies = {{source, first, end}};
    Status s = client.put(std::move(put), soon());
    EXPECT_TRUE(client.abort(reserved->reservation, soon()).ok());
    return s;
  };
  EXPECT_TRUE(put_copying(two, 0, 32, 40).ok());
  Status beyond = put_copying(two, 0, 32, 44), elsewhere = put_copying(three, 2, 32, 40);
  EXPECT_EQ(beyond.code(), StatusCode::invalid_argument);
  EXPECT_NE(beyond.message().find("shares only 40 tokens"), std::string::npos) << beyond.message();
  EXPECT_EQ(elsewhere.code(), StatusCode::invalid_argument);
  EXPECT_NE(elsewhere.message().find("rows [32, 40)"), std::string::npos) << elsewhere.message();
}

// Two stores of one prompt; the first's objects go before the second's commit.
TEST(Put, WhatAnotherStoreGaveIsNamedLostWhenItWent) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 40);
  auto first = b.reserve(tokens), second = b.reserve(tokens);
  ASSERT_TRUE(first.ok() && second.ok());
  for (size_t i = 0; i < first->needs.size(); ++i) {
    ASSERT_TRUE(client.put(put_of(b, *first, tokens, i), soon()).ok());
  }
  ASSERT_TRUE(client.commit(first->reservation, Durability::accepted, soon()).ok());
  for (size_t i = 0; i < second->needs.size(); ++i) {
    ASSERT_TRUE(client.put(put_of(b, *second, tokens, i), soon()).ok());
  }
  EXPECT_EQ(b.stat("puts_duplicate"), 3u);
  ASSERT_TRUE(client.erase(b.opened.model, {slice(tokens, 0, 1), {}}, soon()).ok());
  auto commit = client.commit(second->reservation, Durability::accepted, soon());
  ASSERT_TRUE(commit.ok()) << commit.status().to_string();
  EXPECT_EQ(commit->lost.size(), 1u) << "the first; all after it aren't stored";
  EXPECT_EQ(b.fetch(tokens)->tokens, 0u);
}

// What a put found there is pinned until its commit: a full RAM drops others first.
TEST(Put, WhatAnotherStoreGaveStaysUntilTheCommit) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 8ull << 20;
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(4);
  auto tokens = random_tokens(rng, 40);
  auto first = b.reserve(tokens), second = b.reserve(tokens);
  ASSERT_TRUE(first.ok() && second.ok());
  for (size_t i = 0; i < first->needs.size(); ++i) {
    ASSERT_TRUE(client.put(put_of(b, *first, tokens, i), soon()).ok());
  }
  ASSERT_TRUE(client.commit(first->reservation, Durability::accepted, soon()).ok());
  for (size_t i = 0; i < second->needs.size(); ++i) {
    ASSERT_TRUE(client.put(put_of(b, *second, tokens, i), soon()).ok());
  }
  for (int i = 0; b.stat("ram_evicted_dirty") < 50; ++i) {
    ASSERT_LT(i, 2000);
    ASSERT_TRUE(b.store(random_tokens(rng, 200)).ok());
  }
  auto commit = client.commit(second->reservation, Durability::accepted, soon());
  ASSERT_TRUE(commit.ok()) << commit.status().to_string();
  EXPECT_TRUE(commit->lost.empty());
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 39u);
  b.expect_serves(tokens, *hit);
}

class PutAfterFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 rng(5);
    tokens_ = random_tokens(rng, 46);
    longer_ = tokens_;
    for (Token t : random_tokens(rng, 6)) longer_.push_back(t);
    Stepped client(small_options(dir_.store()));
    auto b = Bench::open(client, windowed_model());
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  }
  // From now on files of supplements cannot be read.
  CacheOptions failing() {
    faults_.script = [](const char* call, const std::string& path) -> Status {
      bool hit = std::string(call) == "pread" && path.ends_with(".supplement");
      return hit ? Status(StatusCode::io_error, "injected") : Status();
    };
    CacheOptions options = small_options(dir_.store());
    options.ssd_files = &faults_;
    options.io_backoff = Milliseconds(3'600'000);
    return options;
  }
  TempDir dir_;
  FaultFiles faults_;
  Sequence tokens_, longer_;
};

TEST_F(PutAfterFaults, RowsThatTheReserveAsksForAgainAreTaken) {
  Stepped client(failing());
  auto b = Bench::open(client, windowed_model());
  EXPECT_LT(b.fetch(tokens_)->tokens, 45u);
  EXPECT_GT(b.stat("read_io_errors"), 0u);
  auto reserved = b.reserve(tokens_);
  ASSERT_TRUE(reserved.ok());
  EXPECT_FALSE(reserved->needs.empty());
  for (Need& need : reserved->needs) {  // a row more than asked for, where the block has one
    bool rows = need.kind == ObjectKind::supplement && need.first_row % 16 > 0;
    if (rows) --need.first_row;
  }
  for (size_t i = 0; i < reserved->needs.size(); ++i) {
    Status s = client.put(put_of(b, *reserved, tokens_, i), soon());
    EXPECT_TRUE(s.ok()) << s.to_string();
  }
  faults_.script = nullptr;
  auto commit = client.commit(reserved->reservation, Durability::durable, soon());
  ASSERT_TRUE(commit.ok()) << commit.status().to_string();
  EXPECT_TRUE(commit->lost.empty());
  EXPECT_EQ(commit->level, Durability::durable);
  auto hit = b.fetch(tokens_);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 45u);
  b.expect_serves(tokens_, *hit);
}

// A longer entry takes window rows over from the shorter one's supplement, which can't be read.
TEST_F(PutAfterFaults, RowsOfOthersThatWentAreNamedLostAndNotTheClientsFault) {
  Stepped client(failing());
  auto b = Bench::open(client, windowed_model());
  auto reserved = b.reserve(longer_);
  ASSERT_TRUE(reserved.ok());
  for (size_t i = 0; i < reserved->needs.size(); ++i) {
    Status s = client.put(put_of(b, *reserved, longer_, i), soon());
    EXPECT_TRUE(s.ok()) << s.to_string();
  }
  auto commit = client.commit(reserved->reservation, Durability::accepted, soon());
  ASSERT_TRUE(commit.ok()) << commit.status().to_string();
  EXPECT_GT(b.stat("read_io_errors"), 0u);
  EXPECT_FALSE(commit->lost.empty());
  faults_.script = nullptr;
  ASSERT_TRUE(b.store(longer_).ok());  // asks for what is wanting
  auto hit = b.fetch(longer_);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 51u);
  b.expect_serves(longer_, *hit);
}

}  // namespace
}  // namespace kv
