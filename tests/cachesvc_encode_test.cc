// What a store may not bring and a fetch may not get: planes, carries and states that don't fit
// their declared kind, values that aren't finite, media that differ, states of another position.
#include <filesystem>

#include "storage/inspect.h"
#include "tests/support/cachesvc_oracle.h"

namespace kv {
namespace {

// One put of the first need of `kind`, spoilt by `spoil`; what the service says.
template <typename Spoil>
Status spoilt_put(const PartSpec& part, ObjectKind kind, Spoil spoil) {
  auto cache = open_cache(small_options());
  ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{part}}});
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 42);
  auto reserved = b.reserve(tokens);
  EXPECT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    if (need.kind != kind) continue;
    PutRequest put = make_put(model, 16, tokens, need, reserved->reservation);
    spoil(put.object, prefix_hashes(tokens));
    return b.client.put(std::move(put), soon());
  }
  ADD_FAILURE() << "no such need";
  return {};
}

void expect_refused(const Status& s, const std::vector<std::string>& words) {
  EXPECT_EQ(s.code(), StatusCode::invalid_argument) << s.to_string();
  for (const std::string& word : words) {
    EXPECT_NE(s.message().find(word), std::string::npos) << s.message() << " lacks " << word;
  }
}

TEST(Input, APlaneThatDoesNotFitItsKindIsRefusedWithLayerPartExpectedAndGiven) {
  struct Kind {
    PartSpec part;
    ObjectKind object;
  };
  auto sup = ObjectKind::supplement;
  for (const Kind& k :
       {Kind{full_part(1), ObjectKind::block}, Kind{latent_part(), ObjectKind::block},
        Kind{pooled_part(4, true), ObjectKind::block}, Kind{window_part(9, 2), sup},
        Kind{chunk_part(32), sup}}) {
    SCOPED_TRACE(to_string(k.part.kind));
    auto own = [](Object& o) -> Plane& {
      return *std::find_if(o.planes.begin(), o.planes.end(),
                           [](const Plane& p) { return p.layer == 1; });
    };
    auto twice_as_wide = [&](Object& o, const auto& hashes) {
      Plane& p = own(o);
      ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{k.part}}});
      p = exact_rows(model, hashes, 1, 0, {p.side, p.heads, p.dim * 2}, p.first_row, p.end_row());
    };
    expect_refused(spoilt_put(k.part, k.object, twice_as_wide),
                   {"layer 1 part 0", "dim", "expected", "given"});
    auto a_row_short = [&](Object& o, const auto&) {
      Plane& p = own(o);
      p = *slice_rows(p, p.first_row, p.end_row() - 1);
    };
    expect_refused(spoilt_put(k.part, k.object, a_row_short),
                   {"layer 1 part 0", "expected rows [", "given ["});
    auto absent = [&](Object& o, const auto&) { std::erase(o.planes, Plane(own(o))); };
    expect_refused(spoilt_put(k.part, k.object, absent),
                   {"layer 1 part 0", "expected rows [", "given no plane"});
    auto twice = [&](Object& o, const auto&) { o.planes.push_back(own(o)); };
    expect_refused(spoilt_put(k.part, k.object, twice), {"layer 1 part 0", "twice"});
    auto bytes_short = [&](Object& o, const auto&) {
      Plane& p = own(o);
      p.bytes = p.bytes.slice(0, p.bytes.size() - 2);
    };
    expect_refused(spoilt_put(k.part, k.object, bytes_short),
                   {"layer 1 part 0", "bytes", "expected", "given"});
    auto other_dtype = [&](Object& o, const auto&) { own(o).dtype = DType::bf16; };
    expect_refused(spoilt_put(k.part, k.object, other_dtype),
                   {"layer 1 part 0", "dtype", "expected f16", "given bf16"});
  }
}

TEST(Input, ACarryOrStateThatDoesNotFitItsKindIsRefused) {
  auto moved = [](Object& o, const auto&) { o.name.first_row = o.name.end_row = 7; };
  auto sup = ObjectKind::supplement;
  expect_refused(spoilt_put(pooled_part(4, true), sup, moved),
                 {"layer 1 part 0 (pooled)", "expected one position inside (", "given rows [7, "});
  expect_refused(spoilt_put(window_part(9, 2), sup, moved),
                 {"layer 1 part 0 (window)", "expected rows inside tokens [", "given rows [7, 7)"});
  auto absent = [](Object& o, const auto&) { o.states.clear(); };
  auto twice = [](Object& o, const auto&) { o.states.push_back(o.states[0]); };
  auto stranger = [](Object& o, const auto&) { o.states[0].layer = 0; };
  PartSpec at_checkpoint = state_part(SnapshotPlace::checkpoint);
  PartSpec at_block_end = state_part(SnapshotPlace::block_end);
  for (const auto& [part, kind] : {std::pair(pooled_part(4, true), sup),
                                   {at_block_end, sup},
                                   {at_checkpoint, ObjectKind::snapshot}}) {
    expect_refused(spoilt_put(part, kind, absent),
                   {"layer 1 part 0", "expected 1 state", "given 0"});
    expect_refused(spoilt_put(part, kind, twice),
                   {"layer 1 part 0", "expected 1 state", "given 2"});
    expect_refused(spoilt_put(part, kind, stranger), {"layer 1 part 0", "expected 1", "given 0"});
  }
  auto odd = [](Object& o, const auto&) { o.states[0].bytes = o.states[0].bytes.slice(0, 47); };
  auto none = [](Object& o, const auto&) { o.states[0].bytes = Bytes(); };
  for (const auto& [part, kind] :
       {std::pair(at_block_end, sup), {at_checkpoint, ObjectKind::snapshot}}) {
    expect_refused(spoilt_put(part, kind, odd),
                   {"layer 1 part 0 (state)", "f16", "expected a multiple of 2", "given 47"});
    expect_refused(spoilt_put(part, kind, none), {"layer 1 part 0 (state)", "given 0"});
  }
}

TEST(Input, CarriesOfOneGroupHaveOneSize) {
  LayerSpec pooled{{pooled_part(4, true)}};
  ModelSpec model = model_of({LayerSpec{{full_part()}}, pooled, pooled});
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 20);
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    PutRequest put = make_put(model, 16, tokens, need, reserved->reservation);
    if (put.object.states.empty()) continue;
    ASSERT_EQ(put.object.states.size(), 2u);
    PutRequest spoilt = make_put(model, 16, tokens, need, reserved->reservation);
    spoilt.object.states[1].bytes = spoilt.object.states[1].bytes.slice(0, 40);
    expect_refused(b.client.put(std::move(spoilt), soon()),
                   {"layer 2 part 0 (pooled)", "expected a carry of 48 bytes, as of layer 1 part 0",
                    "given 40"});
    Status good = b.client.put(std::move(put), soon());
    EXPECT_TRUE(good.ok()) << good.to_string();
  }
}

Bytes with_nan(const Bytes& given) {
  std::vector<uint8_t> bytes(given.span().begin(), given.span().end());
  bytes[6] = 0x00;
  bytes[7] = 0x7E;  // f16 NaN
  return Bytes::owning(std::move(bytes));
}

// Stores with a NaN in the first plane of every object and in every state of a `state` part.
Result<CommitReply> store_with_nan(Bench& b, const std::vector<Token>& tokens) {
  KV_ASSIGN_OR_RETURN(ReserveReply reserved, b.reserve(tokens));
  for (const Need& need : reserved.needs) {
    PutRequest put = make_put(b.model, 16, tokens, need, reserved.reservation);
    for (Plane& p : put.object.planes) p.bytes = with_nan(p.bytes);
    for (StateBlob& s : put.object.states) s.bytes = with_nan(s.bytes);
    KV_RETURN_IF_ERROR(b.client.put(std::move(put), soon()));
  }
  return b.client.commit(reserved.reservation, Durability::durable, soon());
}

TEST(Input, NotFiniteIsRefusedOrKeptAsGivenBySettingAndCounted) {
  std::mt19937 rng(2);
  auto tokens = random_tokens(rng, 40);
  std::vector<LayerSpec> layers{LayerSpec{{full_part()}}, LayerSpec{{window_part(9, 2)}},
                                LayerSpec{{latent_part()}}};
  for (auto part : {state_part(SnapshotPlace::checkpoint), full_part()}) {
    auto cache = open_cache(small_options());
    ModelSpec model = model_of({LayerSpec{{part}}});
    auto b = Bench::open(*cache, model, make_profile(model, 4));
    auto refused = store_with_nan(b, tokens);
    expect_refused(refused.status(), {"layer 0", "not finite"});
    EXPECT_EQ(b.stat("nonfinite_planes"), 1u) << to_string(part.kind) << ": the first ends it";
  }
  layers.push_back(LayerSpec{{state_part(SnapshotPlace::checkpoint)}});
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.nonfinite = Nonfinite::raw;
  ModelSpec model = model_of(layers);
  for (bool restart : {false, true}) {
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, model, make_profile(model, 4));
    if (!restart) {
      auto stored = store_with_nan(b, tokens);
      ASSERT_TRUE(stored.ok()) << stored.status().to_string();
      EXPECT_EQ(stored->level, Durability::durable);
      EXPECT_GT(b.stat("nonfinite_planes"), 8u);
    }
    auto query = tokens;
    query.push_back(-1);
    auto hit = b.fetch(query);
    ASSERT_TRUE(hit.ok());
    ASSERT_EQ(hit->tokens, 40u) << hit->reason;
    for (const auto& o : hit->lease.prefix().objects) {
      for (const Plane& p : o.object->planes) {
        ASSERT_EQ(p.runs.size(), 1u);
        EXPECT_EQ(p.runs[0].form, RunForm::exact) << "layer " << p.layer;
        EXPECT_EQ(p.bytes.data()[7], 0x7E) << "as it was given";
      }
      for (const StateBlob& s : o.object->states) EXPECT_EQ(s.bytes.data()[7], 0x7E);
    }
  }
}

// The same rows as f32, with a NaN in the first of each.
PutRequest as_f32_with_nan(PutRequest put) {
  for (Plane& p : put.object.planes) {
    p = as_f32(std::move(p));
    std::vector<uint8_t> bytes(p.bytes.span().begin(), p.bytes.span().end());
    const float nan = std::nanf("");
    std::memcpy(&bytes[12], &nan, sizeof nan);
    p.bytes = Bytes::owning(std::move(bytes));
  }
  return put;
}

TEST(Input, NotFiniteInF32IsRefusedOrKeptInTheStoredDtypeAndCounted) {
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 40);
  for (Nonfinite policy : {Nonfinite::refuse, Nonfinite::raw}) {
    CacheOptions options = small_options();
    options.nonfinite = policy;
    auto cache = open_cache(options);
    ModelSpec model = plain_model(1);
    auto b = Bench::open(*cache, model, make_profile(model, 4));
    auto reserved = b.reserve(tokens);
    ASSERT_TRUE(reserved.ok());
    for (const Need& need : reserved->needs) {
      PutRequest put = as_f32_with_nan(make_put(model, 16, tokens, need, reserved->reservation));
      Status status = b.client.put(std::move(put), soon());
      if (policy == Nonfinite::refuse) {
        expect_refused(status, {"layer 0", "not finite"});
      } else {
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
    }
    EXPECT_GE(b.stat("nonfinite_planes"), reserved->needs.size());
    if (policy == Nonfinite::refuse) continue;
    ASSERT_TRUE(b.client.commit(reserved->reservation, Durability::accepted, soon()).ok());
    auto hit = b.fetch(plus_one(tokens));
    ASSERT_EQ(hit->tokens, 40u) << hit->reason;
    for (const auto& o : hit->lease.prefix().objects) {
      for (const Plane& p : o.object->planes) {
        ASSERT_EQ(p.dtype, DType::f16);
        uint16_t half;
        std::memcpy(&half, p.bytes.data() + 6, 2);
        EXPECT_TRUE(std::isnan(half_to_float(half)));
      }
    }
  }
}

TEST(Input, AModelWhoseBlockCanNeverBePutIsRefusedAtOpen) {
  CacheOptions options = small_options();
  options.max_put_bytes = 100 << 10;
  auto cache = open_cache(options);
  OpenRequest request;
  request.model = plain_model(40);  // 256 bytes a token and layer in f16: 160 KiB a block
  expect_refused(cache->open(request, soon()).status(),
                 {"test-7", "block of 16 tokens has 163840 bytes", "102400"});
  request.model = plain_model(24, 8);
  EXPECT_TRUE(cache->open(request, soon()).ok());
  options.max_put_bytes = UINT64_MAX;
  options.ram_budget_bytes = 1 << 20;
  auto small = open_cache(options);
  request.model = model_of({LayerSpec{{full_part(64, 256)}}}, 9);
  expect_refused(small->open(request, soon()).status(), {"block of 16 tokens has 1048576 bytes"});
}

// Every call that asks for rows names what it takes them for: the handle's profile, if no other.
TEST(Input, AfterAReplaceEveryQuestionIsProfileChanged) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model(1);
  auto b = Bench::open(*cache, model, make_profile(model, 4));
  std::mt19937 rng(4);
  auto tokens = random_tokens(rng, 40);
  ASSERT_TRUE(b.store(tokens).ok());
  OpenRequest request;
  request.model = model;
  request.profile = make_profile(model, 8);
  request.replace = true;
  auto other = cache->connect("test");
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE((*other)->open(request, soon()).ok());
  auto expect_changed = [&](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::profile_changed) << status.to_string();
    EXPECT_NE(status.message().find(request.profile->id().hex()), std::string::npos)
        << "names the one in force: " << status.message();
  };
  for (FetchForm form : {FetchForm::stored, FetchForm::f32}) {
    expect_changed(b.fetch(plus_one(tokens), form).status());
  }
  QueryRequest question{b.opened.model, {plus_one(tokens), {}}};
  expect_changed(cache->lookup(question, soon()).status());
  expect_changed(cache->prefetch({question.model, question.query}, soon()).status());
  expect_changed(cache->erase_entry(question, soon()).status());
  expect_changed(b.reserve(tokens).status());
  question.profile = request.profile->id();
  EXPECT_EQ(cache->lookup(question, soon())->tokens, 0u);
  auto anew = Bench::open(*cache, model);
  EXPECT_EQ(anew.fetch(plus_one(tokens))->tokens, 0u) << "codes of the other profile";
}

TEST(Input, NothingSpilledIsNoWritePercent) {
  TempDir dir;
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, plain_model(1));
  EXPECT_GT(b.stat("ssd_written_bytes"), 0u) << "the model's records";
  EXPECT_EQ(b.stat("ssd_write_percent"), 0u);
}

TEST(Input, MediaAdapterAndTenantArePartOfTheIdentity) {
  TempDir dir;
  auto cache = open_cache(small_options(dir.store()), "tenant-a");
  auto other_tenant = cache->connect("tenant-b");
  ASSERT_TRUE(other_tenant.ok());
  ModelSpec model = plain_model();
  auto a = Bench::open(*cache, model);
  auto b = Bench::open(**other_tenant, model);
  ModelSpec with_adapter = model;
  with_adapter.fingerprint.bytes[1] = 1;  // the fingerprint covers the adapter
  auto adapted = Bench::open(*cache, with_adapter);
  std::mt19937 rng(3);
  Query query{random_tokens(rng, 50), {{20, {1, 2}}, {20, {3}}, {33, {4}}}};
  for (int i = 18; i < 24; ++i) query.tokens[i] = 7;  // placeholders: equal for every picture
  auto hashes = query_hashes(query);
  auto reserved = a.client.reserve({a.opened.model, a.opened.realm.profile, query}, soon());
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    auto put = make_put(model, 16, query.tokens, hashes, need, reserved->reservation);
    ASSERT_TRUE(a.client.put(std::move(put), soon()).ok());
  }
  ASSERT_TRUE(a.client.commit(reserved->reservation, Durability::accepted, soon()).ok());
  auto served = [&](Bench& who, const Query& q) {
    FetchRequest request;
    request.model = who.opened.model;
    request.query = q;
    auto hit = who.client.fetch(request, soon());
    EXPECT_TRUE(hit.ok()) << hit.status().to_string();
    return hit.ok() ? hit->tokens : 0;
  };
  EXPECT_EQ(served(a, query), 49u);
  EXPECT_EQ(served(b, query), 0u) << "another tenant";
  EXPECT_EQ(served(adapted, query), 0u) << "another adapter";
  Query none{query.tokens, {}}, other = query, one_less = query, salted = query;
  other.extras[1].bytes = {5};
  one_less.extras.erase(one_less.extras.begin() + 1);
  salted.extras.insert(salted.extras.begin(), Extra{0, {9}});
  EXPECT_EQ(served(a, none), 20u) << "equal up to the picture";
  EXPECT_EQ(served(a, other), 20u);
  EXPECT_EQ(served(a, one_less), 20u);
  EXPECT_EQ(served(a, salted), 0u) << "a salt at position 0 keeps tenants apart";
}

TEST(Input, ExtrasOutOfOrderAreRefusedByEveryCall) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(4);
  Query query{random_tokens(rng, 50), {{33, {4}}, {20, {1}}}};
  const std::vector<std::string> words{"extras[1].position", "ascending"};
  FetchRequest fetch;
  fetch.model = b.opened.model;
  fetch.query = query;
  expect_refused(b.client.reserve({b.opened.model, b.opened.realm.profile, query}, soon()).status(),
                 words);
  expect_refused(b.client.fetch(fetch, soon()).status(), words);
  expect_refused(b.client.lookup({b.opened.model, query}, soon()).status(), words);
  expect_refused(b.client.prefetch({b.opened.model, query}, soon()).status(), words);
}

TEST(Input, AHitShorterThanTheMinimumIsAMissThatSaysSo) {
  CacheOptions options = small_options();
  options.min_prefix_tokens = 20;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(5);
  auto tokens = random_tokens(rng, 40);
  ASSERT_TRUE(b.store(tokens).ok());
  auto query = [&](uint32_t shared) {
    std::vector<Token> q(tokens.begin(), tokens.begin() + shared);
    q.push_back(-1);
    return q;
  };
  EXPECT_EQ(b.fetch(query(20))->tokens, 20u);
  auto hit = b.fetch(query(19));
  EXPECT_EQ(hit->tokens, 0u);
  EXPECT_EQ(hit->common, 19u);
  EXPECT_NE(hit->reason.find("min_tokens"), std::string::npos) << hit->reason;
  EXPECT_EQ(b.client.lookup({b.opened.model, {query(19), {}}}, soon())->tokens, 0u);
}

// Two snapshots change places on the disk: each is whole, and of the other's position.
TEST(Input, ASnapshotOfAnotherPositionIsAMiss) {
  TempDir dir;
  ModelSpec model =
      model_of({LayerSpec{{full_part()}}, LayerSpec{{state_part(SnapshotPlace::checkpoint)}}});
  std::mt19937 rng(6);
  auto tokens = random_tokens(rng, 44);
  std::vector<Token> turn(tokens.begin(), tokens.begin() + 40);
  {
    auto cache = open_cache(small_options(dir.store()));
    auto b = Bench::open(*cache, model);
    ASSERT_TRUE(b.store(turn, Durability::durable).ok());
    ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    tokens.push_back(-1);
    ASSERT_EQ(b.fetch(tokens)->tokens, 44u);
  }
  std::vector<std::string> paths;
  auto inspection = inspect_directory(dir.store(), InspectDepth::headers);
  ASSERT_TRUE(inspection.ok());
  for (const auto& f : inspection->files) {
    if (f.kind == FileKind::snapshot) paths.push_back(dir.store() + "/" + f.path);
  }
  ASSERT_EQ(paths.size(), 2u);
  std::filesystem::rename(paths[0], paths[0] + ".x");
  std::filesystem::rename(paths[1], paths[0]);
  std::filesystem::rename(paths[0] + ".x", paths[1]);
  auto cache = open_cache(small_options(dir.store()));
  auto b = Bench::open(*cache, model);
  turn.push_back(-1);
  for (const auto& query : {tokens, turn}) {
    auto hit = b.fetch(query);
    ASSERT_TRUE(hit.ok());
    EXPECT_EQ(hit->tokens, 0u) << "no state of this position is left";
  }
  EXPECT_EQ(b.stat("quarantined"), 2u);
}

}  // namespace
}  // namespace kv
