// A store under a profile with transforms: what is served in every form, what clients give as
// streams, what a restart serves, and whose profile is refused.
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/fitted_rows.h"

namespace kv {
namespace {

ModelSpec mixed_model() {
  return model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(20, 2)}}});
}

size_t streams_in(const FetchReply& reply) {
  size_t streams = 0;
  for (const FetchedObject& o : reply.lease.prefix().objects) {
    for (const Plane& p : o.object->planes) streams += coding_word(p) == kTransformWord ? 1 : 0;
  }
  return streams;
}

// All planes of a reply, decoded.
std::vector<std::vector<uint8_t>> rows_of(const Codec& codec, const FetchReply& reply, DType out) {
  std::vector<std::vector<uint8_t>> rows;
  for (const FetchedObject& o : reply.lease.prefix().objects) {
    for (const Plane& p : o.object->planes) {
      const Plane decoded = p.dtype == out && !has_coded_runs(p) ? p : *codec.decoded(p, out);
      rows.emplace_back(decoded.bytes.data(), decoded.bytes.data() + decoded.bytes.size());
    }
  }
  return rows;
}

TEST(Streams, EveryFormHasTheRowsThatTheStoredOneDecodesTo) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, mixed_model(), make_profile(mixed_model(), kTransformWord));
  for (const CodingReport& line : b.opened.parts) EXPECT_EQ(line.active_k_bits, kTransformWord);
  std::mt19937 rng(1);
  const auto tokens = random_tokens(rng, 70);
  ASSERT_TRUE(b.store(tokens).ok());
  auto stored = b.fetch(plus_one(tokens));
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->tokens, 70u);
  EXPECT_GE(streams_in(*stored), 2 * 4u);
  b.expect_serves(tokens, *stored);
  for (auto [form, dtype] : {std::pair(FetchForm::f16, DType::f16),
                             {FetchForm::f32, DType::f32},
                             {FetchForm::bf16, DType::bf16}}) {
    auto given = b.fetch(plus_one(tokens), form);
    ASSERT_TRUE(given.ok()) << given.status().to_string();
    EXPECT_EQ(streams_in(*given), 0u);
    EXPECT_EQ(rows_of(*b.codec, *given, dtype), rows_of(*b.codec, *stored, dtype));
  }
  FetchRequest heads = fetch_of(b, plus_one(tokens));
  heads.selection.heads = {1, 2};
  const Status refused = cache->fetch(heads, soon()).status();
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << refused.to_string();
  heads.form = FetchForm::f16;
  EXPECT_TRUE(cache->fetch(heads, soon()).ok());
}

TEST(Streams, AClientsOwnAreTakenAsTheyAreAndDamagedOnesRefused) {
  const auto profile = make_profile(plain_model(), kTransformWord);
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, plain_model(), profile);
  std::mt19937 rng(2);
  const auto tokens = random_tokens(rng, 16);
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  PutRequest put = make_put(b.model, 16, tokens, reserved->needs[0], reserved->reservation);
  std::vector<Plane> coded;
  for (const Plane& p : put.object.planes) coded.push_back(*b.codec->encode(p));
  for (bool damaged : {true, false}) {
    PutRequest given = put;
    given.object.planes = coded;
    if (damaged) {
      Plane& p = given.object.planes[1];
      std::vector<uint8_t> bytes(p.bytes.data(), p.bytes.data() + p.bytes.size());
      bytes[bytes.size() - p.runs.back().bytes] ^= 1;  // the number of its words
      p.bytes = Bytes::copy_of(bytes);
    }
    const Status s = cache->put(std::move(given), soon());
    EXPECT_EQ(s.code(), damaged ? StatusCode::corruption : StatusCode::ok) << s.to_string();
  }
  ASSERT_TRUE(cache->commit(reserved->reservation, Durability::accepted, soon()).ok());
  auto hit = b.fetch(plus_one(tokens));
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->lease.prefix().objects.at(0).object->planes, coded);
}

TEST(Streams, ARestartServesTheSameBytesAndKeepsTheProfile) {
  TempDir dir;
  const auto profile = make_profile(mixed_model(), kTransformWord);
  std::mt19937 rng(3);
  const auto tokens = random_tokens(rng, 90);
  std::vector<std::vector<uint8_t>> before;
  {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, mixed_model(), profile);
    EXPECT_GE(b.stat("ram_model_bytes"), encoded_bytes(*profile));
    ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());
    before = rows_of(*b.codec, *b.fetch(plus_one(tokens)), DType::f32);
  }
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, mixed_model(), make_profile(mixed_model(), 4));
  EXPECT_EQ(*b.opened.profile, *profile) << "what is in force stays";
  FetchRequest waits = fetch_of(b, plus_one(tokens));
  waits.wait = true;
  auto hit = cache->fetch(waits, soon());
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 90u);
  EXPECT_EQ(hit->tier, Tier::ssd);
  EXPECT_GE(streams_in(*hit), 4u);
  EXPECT_EQ(rows_of(*b.codec, *hit, DType::f32), before);
}

// A store of one sequence whose rows are of a kind.
void store_kind(Bench& b, const RowKind& kind, const Sequence& tokens) {
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    PutRequest put =
        make_put(b.model, b.opened.profile->block_tokens, tokens, need, reserved->reservation);
    kind.fill(put.object.planes);
    const Status s = b.client.put(std::move(put), soon());
    ASSERT_TRUE(s.ok()) << s.to_string();
  }
  ASSERT_TRUE(b.client.commit(reserved->reservation, Durability::accepted, soon()).ok());
}

// What stats say of the model's rows.
std::string said_of(Client& client) {
  auto stats = client.stats(soon());
  EXPECT_TRUE(stats.ok() && stats->models.size() == 1);
  return stats->models.at(0).second.at(0).reason;
}

TEST(Streams, TransformsThatDoNotFitTheRowsAreToldOnce) {
  const ModelSpec model = plain_model(1);
  const auto base = make_profile(model, 0, 256);
  const auto profile = std::make_shared<const Profile>(fitted_to({1}, *base, model));
  struct {
    RowKind kind;
    const char* said;
  } cases[] = {{{1}, ""},
               {{1, 1.2f}, ""},
               {{2}, "the transforms do not fit them"},
               {{1, 0.25f}, "the steps are too coarse for them"}};
  for (const auto& [kind, said] : cases) {
    SCOPED_TRACE(said);
    std::vector<std::string> told;
    CacheOptions options = small_options();
    options.on_event = [&told](const CacheEvent& e) {
      if (e.kind == EventKind::transforms_misfit) told.push_back(e.text);
    };
    Stepped client(options);
    auto b = Bench::open(client, model, profile);
    std::mt19937 rng(4);
    store_kind(b, kind, random_tokens(rng, 1024));
    EXPECT_EQ(said_of(client), "") << "too few rows to judge";
    for (int i = 0; i < 2; ++i) store_kind(b, kind, random_tokens(rng, 1280));
    const std::string words = said_of(client);
    if (std::string(said).empty()) {
      EXPECT_EQ(words, "");
      EXPECT_TRUE(told.empty());
      continue;
    }
    EXPECT_NE(words.find(said), words.npos) << words;
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].find("model " + model.name + ": its rows take 0."), 0u) << told[0];
    EXPECT_NE(told[0].find(said), told[0].npos) << told[0];
  }
}

TEST(Streams, AProfileOfAnotherModelIsRefused) {
  auto cache = open_cache(small_options());
  OpenRequest request;
  request.model = model_of({LayerSpec{{full_part(2, 16)}}, LayerSpec{{window_part(20, 2)}}});
  request.profile = make_profile(mixed_model(), kTransformWord);
  auto opened = cache->open(request, soon());
  EXPECT_EQ(opened.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(opened.status().message().find("layer 0 part 0"), std::string::npos)
      << opened.status().to_string();
}

}  // namespace
}  // namespace kv
