// Batches on a tiny random model: every row's tokens, logits and rows are those of its own run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/plan.h"
#include "engine/batch.h"
#include "engine/batch_attention.h"
#include "engine/model_network.h"
#include "engine/prompt.h"
#include "proto/demand.h"
#include "tests/support/tiny_gguf.h"

namespace kv {
namespace {

constexpr uint32_t kBlock = 256;
constexpr Token kPoison = 299;  // its embedding isn't finite

// The tiny model with one embedding row whose scales are infinite; with windows of 40 in two of
// three layers.
std::shared_ptr<const Model> poisoned_model(bool windows = false) {
  static std::shared_ptr<const Model> models[2];
  std::shared_ptr<const Model>& model = models[windows ? 1 : 0];
  if (model) return model;
  model = [windows] {
    TinyGguf tiny;
    if (windows) {
      tiny.architecture = "gemma3";
      tiny.layers = 3;
    }
    tiny.kv_heads = 2;
    tiny.heads = 4;
    tiny.width = 128;
    auto bytes = tiny.write();
    auto file = GgufFile::parse(Bytes::owning(std::vector<uint8_t>(bytes)));
    KV_CHECK(file.ok());
    auto rows = file->tensor("token_embd.weight")->data;
    auto found = std::search(bytes.begin(), bytes.end(), rows.begin(), rows.end());
    KV_CHECK(found != bytes.end());
    const uint64_t row = row_bytes(TensorType::q8_0, tiny.width);
    const auto poison = std::min<uint64_t>(kPoison, tiny.tokens.size() - 1);
    for (uint64_t at = poison * row; at < (poison + 1) * row; at += 34) {
      found[static_cast<ptrdiff_t>(at)] = 0;
      found[static_cast<ptrdiff_t>(at + 1)] = 0x7c;
    }
    file = GgufFile::parse(Bytes::owning(std::move(bytes)));
    KV_CHECK(file.ok());
    auto loaded = Model::load(std::move(*file));
    KV_CHECK(loaded.ok());
    return *loaded;
  }();
  return model;
}

Token poison() { return static_cast<Token>(poisoned_model()->shape().vocab) - 1; }

struct Coding {
  const char* name;
  uint8_t k_bits, v_bits;
  DType raw = DType::f16;
  PrefillMode prefill = PrefillMode::exact;
  bool windows = false;
};
constexpr Coding kCodings[] = {{"raw f32", 0, 0, DType::f32},
                               {"raw f16", 0, 0},
                               {"tq4", 4, 4},
                               {"tq3", 3, 3},
                               {"tq2", 2, 2},
                               {"k8v4", 8, 4},
                               {"k4 v raw", 4, 0},
                               {"tq4 coded prefill", 4, 4, DType::f16, PrefillMode::coded},
                               {"windows raw f32", 0, 0, DType::f32, PrefillMode::exact, true},
                               {"windows tq4", 4, 4, DType::f16, PrefillMode::exact, true}};

std::shared_ptr<const Codec> codec_of(const Coding& coding) {
  CodingSettings settings;
  settings.k_bits = coding.k_bits;
  settings.v_bits = coding.v_bits;
  settings.raw_dtype = coding.raw;
  settings.prefill = coding.prefill;
  const ModelSpec& model = poisoned_model(coding.windows)->spec();
  auto codec =
      Codec::create(model, std::make_shared<const Profile>(*plain_profile(model, settings)));
  KV_CHECK(codec.ok());
  return *codec;
}

KvCache empty_cache(const std::shared_ptr<const Codec>& codec) {
  return KvCache(codec, {"test", codec->model().fingerprint, codec->profile().id()});
}

// What a cache would serve: sequences that restore it share the objects' bytes.
struct Stored {
  std::vector<Token> tokens;
  std::vector<ObjectPtr> objects;
};

Lease lease_of(const Stored& stored) {
  Prefix prefix;
  prefix.tokens = static_cast<uint32_t>(stored.tokens.size());
  for (const ObjectPtr& o : stored.objects) prefix.objects.push_back({o, o->end_token()});
  return Lease(std::move(prefix), nullptr);
}

KvCache cache_of(const std::shared_ptr<const Codec>& codec, const Stored& stored) {
  KvCache cache = empty_cache(codec);
  auto tokens = stored.tokens;
  tokens.push_back(0);
  KV_CHECK(stored.tokens.empty() || cache.restore(lease_of(stored), tokens).ok());
  return cache;
}

// The rows of windows that a prefix of n tokens needs, block by block.
void add_supplements(const KvCache& cache, const ModelSpec& model, uint32_t n,
                     std::vector<ObjectPtr>& objects) {
  auto groups = part_groups(model);
  for (uint16_t g = 0; g < groups.size(); ++g) {
    if (groups[g].spec.rows_in_block()) continue;
    for (RowRange rows : demanded_rows(groups[g].spec, n)) {
      while (!rows.empty()) {
        const uint32_t block = rows.first / kBlock, end = std::min(rows.end, (block + 1) * kBlock);
        auto made =
            cache.object({ObjectKind::supplement, block, g, rows.first, end}, cache.tokens());
        KV_CHECK(made.ok() && *made);
        objects.push_back(*made);
        rows.first = end;
      }
    }
  }
}

Stored store(Network& network, KvCache cache, std::vector<Token> tokens) {
  KV_CHECK(compute_prompt(network, tokens, cache, Deadline::max()).ok());
  Stored stored{std::move(tokens), cache.blocks()};
  auto tail = cache.tail(cache.tokens());
  KV_CHECK(tail.ok());
  if (*tail) stored.objects.push_back(*tail);
  add_supplements(cache, network.spec(), cache.tokens(), stored.objects);
  return stored;
}

std::vector<Token> tokens_of(std::mt19937& random, size_t n) {
  std::vector<Token> out(n);
  for (Token& t : out) t = static_cast<Token>(random() % 256);
  return out;
}

// Prefixes with common beginnings: none, one token, round block ends, branches.
std::vector<Stored> make_prefixes(Network& network, const std::shared_ptr<const Codec>& codec,
                                  std::mt19937& random) {
  std::vector<Stored> out;
  for (size_t n : {0u, 1u, 254u, 255u, 256u, 300u}) {
    out.push_back(store(network, empty_cache(codec), tokens_of(random, n)));
  }
  const Stored base = store(network, empty_cache(codec), tokens_of(random, 2 * kBlock));
  out.push_back(base);
  for (size_t more : {1u, 200u, 255u, 300u}) {
    auto tokens = base.tokens;
    for (Token t : tokens_of(random, more)) tokens.push_back(t);
    out.push_back(store(network, cache_of(codec, base), std::move(tokens)));
  }
  return out;
}

// One row's life: what it began with, what it was fed, what came out.
struct Life {
  const Stored* prefix = nullptr;
  std::vector<Token> fed;
  std::vector<std::vector<float>> logits;
};

// The poisoned token's logit is no number.
std::vector<float> known(std::vector<float> logits) {
  if (!logits.empty()) logits.back() = 0;
  return logits;
}

void expect_same(const Object& a, const Object& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.planes, b.planes);
}

void expect_own_run(Network& network, const std::shared_ptr<const Codec>& codec, const Life& life,
                    const KvCache& cache) {
  KvCache own = cache_of(codec, *life.prefix);
  std::vector<float> logits(network.vocab());
  for (size_t i = 0; i < life.fed.size(); ++i) {
    ASSERT_TRUE(network.step(life.fed[i], own, logits).ok());
    ASSERT_TRUE(settle_block(network, own, Deadline::max()).ok());
    if (!life.logits[i].empty()) {
      ASSERT_EQ(life.logits[i], known(logits))
          << "token " << i << " after " << life.prefix->tokens.size();
    }
  }
  ASSERT_EQ(cache.tokens(), own.tokens());
  ASSERT_EQ(cache.blocks().size(), own.blocks().size());
  for (size_t i = 0; i < own.blocks().size(); ++i) {
    expect_same(*cache.blocks()[i], *own.blocks()[i]);
  }
  auto tail = cache.tail(cache.tokens()), own_tail = own.tail(own.tokens());
  ASSERT_TRUE(tail.ok() && own_tail.ok());
  ASSERT_EQ(*tail == nullptr, *own_tail == nullptr);
  if (*tail) expect_same(**tail, **own_tail);
}

class RandomBatch {
 public:
  RandomBatch(Network& network, Network& single, std::shared_ptr<const Codec> codec, uint32_t seed)
      : network_(network), single_(single), codec_(std::move(codec)), random_(seed) {
    prefixes_ = make_prefixes(single_, codec_, random_);
  }

  void run(int steps) {
    Batch batch(network_), other(network_);
    for (int i = 0; i < steps; ++i) {
      const uint32_t dice = random_() % 8;
      if (dice < 3) join(batch);
      if (dice == 3) join(other);
      if (dice == 4) leave(batch);
      if (dice == 5) {
        ASSERT_TRUE(batch.merge(other).ok());
      }
      step(batch);
      step(other);
    }
    while (!batch.rows().empty()) leave(batch);
    while (!other.rows().empty()) leave(other);
    EXPECT_GT(most_, 4u);
  }

 private:
  void join(Batch& batch) {
    const Stored& prefix = prefixes_[random_() % prefixes_.size()];
    auto row = std::make_unique<Batch::Row>(cache_of(codec_, prefix), 0);
    Batch::Row* key = row.get();
    if (lives_.size() == kMaxBatchRows) return;  // so that the two batches can merge
    ASSERT_TRUE(batch.join(std::move(row)).ok());
    lives_[key] = {&prefix, {}, {}};
  }
  void leave(Batch& batch) {
    if (batch.rows().empty()) return;
    auto row = batch.leave(batch.rows()[random_() % batch.rows().size()].get());
    expect_own_run(single_, codec_, lives_[row.get()], row->cache);
    lives_.erase(row.get());
  }
  void step(Batch& batch) {
    for (auto& row : batch.rows()) {
      row->token = static_cast<Token>(random_() % 256);
      row->keep_logits = random_() % 4 != 0;
    }
    most_ = std::max(most_, batch.rows().size());
    ASSERT_EQ(batch.step(), batch.rows().size());
    for (auto& row : batch.rows()) {
      Life& life = lives_[row.get()];
      life.fed.push_back(row->token);
      life.logits.push_back(known(row->logits));
    }
  }

  Network& network_;
  Network& single_;
  std::shared_ptr<const Codec> codec_;
  std::mt19937 random_;
  std::vector<Stored> prefixes_;
  std::map<const Batch::Row*, Life> lives_;
  size_t most_ = 0;
};

class EngineBatch : public testing::TestWithParam<Coding> {};

TEST_P(EngineBatch, RowsThatJoinAndLeaveGetTheirOwnRunsLogits) {
  auto model = poisoned_model(GetParam().windows);
  auto network = *make_network(model, 2), single = *make_network(model, 1);
  auto codec = codec_of(GetParam());
  for (uint32_t seed : {1u, 2u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomBatch(*network, *single, codec, seed).run(60);
  }
}

std::string name_of(const testing::TestParamInfo<Coding>& coding) {
  std::string name = coding.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Codings, EngineBatch, testing::ValuesIn(kCodings), name_of);

TEST(BestToken, IsTheFirstOfTheHighestAndNeverNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  for (size_t size : {1u, 31u, 32u, 33u, 100u}) {
    std::vector<float> logits(size, -1.0f);
    EXPECT_EQ(best_token(logits), 0);
    for (size_t at : {size_t{0}, size / 2, size - 1}) {
      auto higher = logits;
      higher[at] = higher[size - 1] = 2.0f;
      EXPECT_EQ(best_token(higher), static_cast<Token>(at)) << size;
      for (size_t nan = 0; nan < size; ++nan) {
        auto with = higher;
        if (nan == at || nan == size - 1) continue;
        with[nan] = NAN;
        ASSERT_EQ(best_token(with), static_cast<Token>(at)) << size << " NaN at " << nan;
      }
      higher[at] = inf;
      EXPECT_EQ(best_token(higher), static_cast<Token>(at)) << size;
    }
    EXPECT_EQ(best_token(std::vector<float>(size, -inf)), 0);
    EXPECT_EQ(best_token(std::vector<float>(size, NAN)), 0);
  }
}

// 16 rows whose open block becomes complete in the same step, half of them over one prefix.
TEST(EngineBatchRows, BlocksThatEndInTheSameStep) {
  auto network = *make_network(poisoned_model(), 2);
  auto codec = codec_of({"tq4", 4, 4});
  std::mt19937 random(5);
  const Stored shared = store(*network, empty_cache(codec), tokens_of(random, 2 * kBlock - 2));
  std::vector<Stored> prefixes(kMaxBatchRows / 2, shared);
  while (prefixes.size() < kMaxBatchRows) {
    prefixes.push_back(store(*network, empty_cache(codec), tokens_of(random, kBlock - 2)));
  }
  Batch batch(*network);
  std::vector<Life> lives;
  for (const Stored& prefix : prefixes) {
    auto row = std::make_unique<Batch::Row>(cache_of(codec, prefix), 0);
    ASSERT_TRUE(batch.join(std::move(row)).ok());
    lives.push_back({&prefix, {}, {}});
  }
  for (int i = 0; i < 5; ++i) {
    for (auto& row : batch.rows()) row->token = static_cast<Token>(random() % 256);
    ASSERT_EQ(batch.step(), kMaxBatchRows);
    for (size_t r = 0; r < lives.size(); ++r) {
      lives[r].fed.push_back(batch.rows()[r]->token);
      lives[r].logits.push_back(known(batch.rows()[r]->logits));
    }
  }
  for (size_t r = 0; r < lives.size(); ++r) {
    expect_own_run(*network, codec, lives[r], batch.rows()[r]->cache);
  }
}

TEST(EngineBatchRows, ARowThatFailsLeavesTheOthersAlone) {
  auto network = *make_network(poisoned_model(), 2);
  auto codec = codec_of({"tq4", 4, 4});
  std::mt19937 random(6);
  const Stored prefix = store(*network, empty_cache(codec), tokens_of(random, 300));
  Stored full =
      store(*network, empty_cache(codec), tokens_of(random, poisoned_model()->shape().context));
  Batch batch(*network);
  std::vector<Life> lives(5, Life{&prefix, {}, {}});
  for (int i = 0; i < 5; ++i) {
    auto cache = cache_of(codec, i == 4 ? full : prefix);
    ASSERT_TRUE(batch.join(std::make_unique<Batch::Row>(std::move(cache), 7)).ok());
  }
  batch.rows()[1]->token = poison();
  batch.rows()[2]->token = 100000;
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(batch.step(), 2u);
    for (size_t i : {0u, 3u}) {
      lives[i].fed.push_back(7);
      lives[i].logits.push_back(known(batch.rows()[i]->logits));
    }
  }
  for (size_t i : {0u, 3u}) expect_own_run(*network, codec, lives[i], batch.rows()[i]->cache);
  using ::testing::HasSubstr;
  EXPECT_THAT(batch.rows()[1]->status.to_string(), HasSubstr("finite"));
  EXPECT_THAT(batch.rows()[2]->status.to_string(), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(batch.rows()[4]->status.to_string(), HasSubstr("context"));
}

TEST(EngineBatchRows, EmptyAndFullBatchesMerge) {
  auto network = *make_network(poisoned_model(), 1);
  auto codec = codec_of({"tq4", 4, 4});
  Batch a(*network), b(*network);
  EXPECT_EQ(a.step(), 0u);
  ASSERT_TRUE(a.merge(b).ok());
  auto fill = [&](Batch& batch, size_t rows) {
    while (batch.rows().size() < rows) {
      ASSERT_TRUE(batch.join(std::make_unique<Batch::Row>(empty_cache(codec), 1)).ok());
    }
  };
  fill(b, kMaxBatchRows);
  auto extra = std::make_unique<Batch::Row>(empty_cache(codec), 1);
  EXPECT_EQ(b.join(std::move(extra)).status().code(), StatusCode::resource_exhausted);
  ASSERT_TRUE(a.merge(b).ok());
  EXPECT_TRUE(b.rows().empty());
  fill(b, 1);
  EXPECT_EQ(a.merge(b).code(), StatusCode::resource_exhausted);
  EXPECT_EQ(a.rows().size(), kMaxBatchRows);
  EXPECT_EQ(b.rows().size(), 1u);
  Batch::Row* first = a.rows()[0].get();
  EXPECT_EQ(a.leave(first).get(), first);
  ASSERT_TRUE(a.merge(b).ok());
  EXPECT_EQ(a.step(), kMaxBatchRows);
}

// Rows over one prefix take each of its chunks once, whatever order they stand in.
TEST(EngineBatchRows, SharedBlocksAreReadOnce) {
  auto network = *make_network(poisoned_model(), 1);
  auto codec = codec_of({"tq4", 4, 4});
  std::mt19937 random(8);
  const Stored a = store(*network, empty_cache(codec), tokens_of(random, 4 * kBlock));
  const Stored b = store(*network, empty_cache(codec), tokens_of(random, 2 * kBlock));
  auto longer = a.tokens;
  longer.resize(2 * kBlock);
  const Stored part{longer, {a.objects[0], a.objects[1]}};
  std::vector<KvCache> caches;
  for (const Stored* s : {&a, &b, &part, &a, &b, &part}) {
    caches.push_back(cache_of(codec, *s));
    ASSERT_TRUE(network->step(1, caches.back(), {}).ok());  // a chunk of its own
  }
  const ModelShape& shape = poisoned_model()->shape();
  Threads threads(2);
  BatchAttention attention(threads);
  std::vector<const AttentionRows*> held;
  std::vector<BatchAttention::Row> rows;
  std::vector<float> q(shape.width, 0.5f);
  std::vector<std::vector<float>> out(caches.size(), std::vector<float>(shape.width));
  for (size_t i = 0; i < caches.size(); ++i) {
    held.push_back(&caches[i].rows(0, 0));
    rows.push_back({held.back(), q.data(), out[i].data(), {}});
  }
  attention.arrange(held);
  attention.run(rows, shape.heads, 1.0f);
  EXPECT_EQ(attention.passes(), 4u + 2u + 6u);  // of a, of b, own ones
  rows[0].rows = nullptr;
  attention.run(rows, shape.heads, 1.0f);
  EXPECT_EQ(attention.passes(), 4u + 2u + 5u);
}

}  // namespace
}  // namespace kv
