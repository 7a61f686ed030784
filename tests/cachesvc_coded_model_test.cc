// What clients' models and profiles take is charged, shared, bounded in RAM and on the SSD, and
// goes back when the client goes. The yardstick in RAM is malloc itself.
#include <malloc.h>

#include <filesystem>

#include "cachesvc/core/coded_model.h"
#include "storage/inspect.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/support/proto_specs.h"

namespace kv {
namespace {

// Each part differs from all others, so each is a part group of its own.
ModelSpec hostile_model(uint32_t layers, uint32_t parts, uint8_t fingerprint = 9) {
  ModelSpec m = model_of(std::vector<LayerSpec>(layers), fingerprint);
  uint32_t number = 0;
  for (auto& layer : m.layers) {
    layer.parts.assign(parts, full_part(1));
    for (PartSpec& part : layer.parts) {
      part.window = ++number;
      part.label = "a label of more than fifteen bytes " + std::to_string(number);
    }
  }
  return m;
}

// As calibrated: means and gains of every key channel, 8 bytes a channel.
std::shared_ptr<const Profile> calibrated(const ModelSpec& model, float mean) {
  Profile p = *make_profile(model, 4);
  for (size_t l = 0; l < p.parts.size(); ++l) {
    for (size_t i = 0; i < p.parts[l].size(); ++i) {
      const PartSpec& part = model.layers[l].parts[i];
      p.parts[l][i].key_mean.assign(size_t{part.heads} * part.k_dim, mean);
      p.parts[l][i].key_gain.assign(size_t{part.heads} * part.k_dim, 1.5f);
    }
  }
  return std::make_shared<const Profile>(std::move(p));
}

ModelSpec wide_model(uint32_t layers, uint32_t heads, uint8_t fingerprint = 7) {
  return model_of(std::vector<LayerSpec>(layers, LayerSpec{{full_part(heads, 128)}}), fingerprint);
}

uint64_t held_by_malloc() {
  struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

class ModelBytes : public ::testing::Test {
 protected:
  // Without an SSD tier if `ssd_limit` is 0.
  CacheOptions options(uint64_t budget, uint64_t ssd_limit = 0) const {
    CacheOptions o;
    o.ram_budget_bytes = budget;
    o.coding.block_tokens = 64;
    o.scrub_bytes_per_second = 0;
    if (ssd_limit == 0) return o;
    o.ssd_dir = dir_.store();
    o.ssd_limit_bytes = ssd_limit;
    o.ssd_min_free_bytes = 0;
    return o;
  }
  static std::unique_ptr<TieredCache> cache(const CacheOptions& options) {
    auto made = TieredCache::create(options, "main");
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }
  static std::unique_ptr<Client> client(TieredCache& cache, const std::string& ns) {
    auto made = cache.connect(ns);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }
  static Status open(Client& client, const ModelSpec& model,
                     std::shared_ptr<const Profile> profile) {
    OpenRequest request;
    request.model = model;
    request.profile = std::move(profile);
    return client.open(request, soon()).status();
  }
  // Workers end what nobody holds any more.
  static void expect_charged(Client& client, uint64_t bytes) {
    Deadline deadline = soon();
    while (stat_of(client, "ram_model_bytes") != bytes) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << stat_of(client, "ram_model_bytes");
    }
  }
  static void expect_all_back(Client& client) { expect_charged(client, 0); }
  uint64_t record_file_bytes() const {
    uint64_t bytes = 0;
    auto found = inspect_directory(dir_.store(), InspectDepth::headers);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    for (const InspectedFile& f : found->files) {
      if (f.kind == FileKind::profile || f.kind == FileKind::model_record) {
        bytes += std::filesystem::file_size(dir_.store() + "/" + f.path);
      }
    }
    return bytes;
  }

  TempDir dir_;
  std::mt19937 rng_{5};
};

TEST_F(ModelBytes, TheChargeIsWhatItHolds) {
  if (kSanitized) GTEST_SKIP() << "malloc is not the system's";
  auto pool = RamPool::create(1u << 30, 1u << 28);
  auto check = [&](const ModelSpec& spec, const Profile& profile, const std::string& what) {
    SCOPED_TRACE(what);
    auto charge = pool->try_charge(ChargeKind::model, 512u << 20);
    ASSERT_TRUE(charge.has_value());
    uint64_t before = held_by_malloc();
    auto made = make_coded_model(spec, profile, *charge);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    uint64_t held = held_by_malloc() - before, charged = (*made)->charge.bytes();
    EXPECT_GE(charged, held);
    EXPECT_LE(charged, held + held / 2 + (16u << 10));
    charge.reset();
    EXPECT_EQ(pool->used_bytes(ChargeKind::model), charged);
    auto part = part_of<const Profile>(*made, (*made)->profile);
    made = Status(StatusCode::not_found, "let go");
    EXPECT_EQ(pool->used_bytes(ChargeKind::model), charged) << "a part holds all of it";
    part.reset();
    EXPECT_EQ(pool->used_bytes(ChargeKind::model), 0u);
  };
  ModelSpec hostile = hostile_model(kMaxLayers, kMaxPartsPerLayer);
  check(hostile, *make_profile(hostile, 4, 64), "1,024 layers x 8 parts");
  ModelSpec wide = wide_model(126, 8);
  check(wide, *calibrated(wide, 0.5f), "126 layers, calibrated");
  ModelSpec huge = wide_model(1024, 15);
  check(huge, *calibrated(huge, 0.5f), "15 MiB of means and gains");
}

// The set, which the client's profile shared, and the matrices both ways once all sides have coded.
TEST_F(ModelBytes, TheChargeIsWhatTransformsHold) {
  if (kSanitized) GTEST_SKIP() << "malloc is not the system's";
  auto pool = RamPool::create(1u << 30, 1u << 28);
  const ModelSpec spec = wide_model(8, 2);
  ByteWriter encoded;
  encode(with_transforms(*make_profile(spec, 0), spec, 0.125f, true), encoded);
  auto charge = pool->try_charge(ChargeKind::model, 512u << 20);
  const uint64_t before = held_by_malloc();
  std::shared_ptr<CodedModel> made;
  {
    ByteReader in(encoded.span());
    auto profile = decode_profile(in);
    ASSERT_TRUE(profile.ok());
    auto coded = make_coded_model(spec, *profile, *charge);
    ASSERT_TRUE(coded.ok()) << coded.status().to_string();
    made = *coded;
  }
  const std::vector<float> row(256, 0.5f);
  for (uint32_t l = 0; l < 8; ++l) {
    for (Side side : {Side::k, Side::v}) {
      EXPECT_TRUE(made->codec->side(l, 0, side)->coder->encode(row, 4).has_value());
    }
  }
  const uint64_t held = held_by_malloc() - before, charged = made->charge.bytes();
  EXPECT_GE(held, 9 * encoded.size());
  EXPECT_GE(charged, held);
  EXPECT_LE(charged, held + held / 4);
}

TEST_F(ModelBytes, EqualModelsOfManyNamespacesAreChargedOnce) {
  auto main = cache(options(64u << 20));
  ModelSpec model = wide_model(30, 3);
  std::vector<std::unique_ptr<Client>> clients;
  uint64_t first = 0;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(client(*main, "ns" + std::to_string(i)));
    ASSERT_TRUE(open(*clients.back(), model, calibrated(model, 0.5f)).ok());
    if (i == 0) first = stat_of(*clients.back(), "ram_model_bytes");
    expect_charged(*clients.back(), first);
  }
  EXPECT_GT(first, 30u * 3 * 128 * 8);
  while (clients.size() > 1) clients.pop_back();
  expect_charged(*clients[0], first);  // one has it open still
  clients.clear();
  expect_all_back(*client(*main, "last"));
}

TEST_F(ModelBytes, ManyOpensStayInTheModelsShareAndGoBackWithTheirClient) {
  for (bool profiles : {true, false}) {
    SCOPED_TRACE(profiles ? "profiles of 15 MiB" : "models of 1,024 layers x 8 parts");
    constexpr uint64_t kBudget = 256u << 20;
    auto main = cache(options(kBudget));
    ModelSpec model =
        profiles ? wide_model(1024, 15) : hostile_model(kMaxLayers, kMaxPartsPerLayer);
    auto greedy = client(*main, "greedy"), other = client(*main, "other");
    int opened = 0, refused = 0;
    const int opens = profiles ? 12 : 40;
    for (int i = 0; i < opens; ++i) {
      model.fingerprint.bytes[0] = static_cast<uint8_t>(i + 1);
      Status s = open(*greedy, model, profiles ? calibrated(model, float(i)) : nullptr);
      ++(s.ok() ? opened : refused);
      if (s.ok()) continue;
      EXPECT_EQ(s.code(), StatusCode::busy);
      EXPECT_NE(s.message().find("models may take " + std::to_string(kBudget / 4)),
                std::string::npos)
          << s.message();
    }
    EXPECT_GT(opened, 0);
    EXPECT_GT(refused, 0);
    EXPECT_GT(stat_of(*other, "ram_model_bytes"), 0u);
    EXPECT_LE(stat_of(*other, "ram_model_bytes"), kBudget / 4);
    greedy.reset();
    expect_all_back(*other);
    EXPECT_TRUE(open(*other, plain_model(), nullptr).ok());
  }
}

TEST_F(ModelBytes, WhatCanNeverFitIsRefusedByName) {
  auto main = cache(options(16u << 20));
  auto c = client(*main, "test");
  ModelSpec model = wide_model(1024, 15);
  Status s = open(*c, model, calibrated(model, 1));
  EXPECT_EQ(s.code(), StatusCode::resource_exhausted);
  EXPECT_NE(s.message().find("models may take 4194304"), std::string::npos) << s.message();
  ModelSpec wider = wide_model(1024, 17);
  s = open(*c, wider, calibrated(wider, 1));
  EXPECT_EQ(s.code(), StatusCode::invalid_argument);
  EXPECT_NE(s.message().find("profile: "), std::string::npos) << s.message();
  EXPECT_NE(s.message().find("expected at most 16777216"), std::string::npos) << s.message();
  expect_all_back(*c);
}

TEST_F(ModelBytes, ANamespaceHasAShareOfTheModels) {
  auto main = cache(options(64u << 20));
  auto greedy = client(*main, "greedy"), other = client(*main, "other");
  ModelSpec model = plain_model();
  for (uint32_t i = 0; i < kMaxModelsPerNamespace; ++i) {
    model.fingerprint.bytes[1] = static_cast<uint8_t>(i + 1);
    ASSERT_TRUE(open(*greedy, model, nullptr).ok()) << i;
  }
  model.fingerprint.bytes[1] = 200;
  Status s = open(*greedy, model, nullptr);
  EXPECT_EQ(s.code(), StatusCode::busy);
  EXPECT_NE(s.message().find("namespace greedy: 64 models"), std::string::npos) << s.message();
  EXPECT_TRUE(open(*other, model, nullptr).ok());
}

// The profile in force stays so when its last client goes, in this run and the next.
TEST_F(ModelBytes, AModelThatRestsKeepsItsProfile) {
  ModelSpec model = wide_model(4, 2);
  auto own = calibrated(model, 0.25f);
  for (int run = 0; run < 2; ++run) {
    auto main = cache(options(64u << 20, 64u << 20));
    for (int round = 0; round < 3; ++round) {
      SCOPED_TRACE(std::to_string(run) + " " + std::to_string(round));
      auto c = client(*main, "test");
      expect_all_back(*c);
      bool first = run + round == 0;
      auto b = Bench::open(*c, model, first ? own : nullptr);
      EXPECT_EQ(b.opened.realm.profile, own->id());
      EXPECT_EQ(*b.opened.profile, *own);
      EXPECT_EQ(b.stat("models"), 1u);
    }
  }
}

TEST_F(ModelBytes, RecordsHaveAShareOfTheSsdAndEvictNobody) {
  constexpr uint64_t kLimit = 12u << 20, kShare = kLimit / 16;
  ModelSpec model = model_of(std::vector<LayerSpec>(4, LayerSpec{{full_part(4, 64)}}), 3),
            big = wide_model(40, 8);  // 320 KiB a profile
  std::vector<Sequence> prompts;
  for (bool hold : {false, true}) {
    SCOPED_TRACE(hold ? "all stay open" : "each goes before the next");
    auto main = cache(options(64u << 20, kLimit));
    auto victim = client(*main, "victim");
    auto b = Bench::open(*victim, model);
    while (b.stat("ssd_used_bytes") + (4u << 20) < kLimit) {
      prompts.push_back(random_tokens(rng_, 640));
      ASSERT_EQ(b.store(prompts.back(), Durability::durable)->level, Durability::durable);
    }
    ASSERT_EQ(b.stat("ssd_evicted"), 0u);
    std::vector<std::unique_ptr<Client>> held;
    int opened = 0;
    for (int i = 0; i < 12; ++i) {
      auto greedy = client(*main, "greedy" + std::to_string(i));
      Status s = open(*greedy, big, calibrated(big, float(i + 20 * hold)));
      opened += s.ok();
      if (!s.ok()) {
        EXPECT_EQ(s.code(), StatusCode::busy);
        EXPECT_NE(s.message().find("they may take " + std::to_string(kShare)), std::string::npos)
            << s.message();
      }
      if (hold) held.push_back(std::move(greedy));
    }
    EXPECT_TRUE(hold ? opened > 0 && opened < 4 : opened == 12) << opened;
    EXPECT_EQ(b.stat("ssd_evicted"), 0u);
    held.clear();
    victim.reset();
    main.reset();
    EXPECT_LE(record_file_bytes(), kShare + (64u << 10));
    auto again = cache(options(64u << 20, kLimit));
    auto c = client(*again, "victim");
    auto after = Bench::open(*c, model);
    for (const Sequence& p : prompts) EXPECT_EQ(after.fetch(plus_one(p))->tokens, 640u);
    EXPECT_TRUE(open(*client(*again, "late"), big, calibrated(big, 90)).ok());
    EXPECT_EQ(after.stat("ssd_evicted"), 0u);
  }
}

}  // namespace
}  // namespace kv
