// Two clients, one replaces the profile: whatever comes between, the other one's tokens are those
// of a run that never asked a cache. Over the socket of a real daemon, on old connections, on new
// ones and after restarts, and in process.
#include <gtest/gtest.h>

#include "codec/plan.h"
#include "engine/batch.h"
#include "engine/generator.h"
#include "engine/model_network.h"
#include "tests/support/cachesvc_server.h"
#include "tests/support/engine_memory_client.h"
#include "tests/support/tiny_model.h"

namespace kv {
namespace {

using ProfilePtr = std::shared_ptr<const Profile>;

class EngineReplaced : public ServerTest {
 protected:
  EngineReplaced() {
    for (uint32_t i = 0; i < 3; ++i) {
      std::mt19937 rng(100 + i);
      prompts_.emplace_back();
      for (uint32_t t = 0; t < 75 + 30 * i; ++t) prompts_[i].push_back(rng() % 256);
    }
    // Of equal bits, which no shape tells apart; and others.
    add_profile(4, 32, [](Profile&) {});
    add_profile(4, 32, [](Profile& p) { p.rotation_seed = 4711; });
    add_profile(4, 32, [](Profile& p) { each_key(p, 0.25f, 1.0f); });
    add_profile(4, 32, [](Profile& p) { each_key(p, 0.0f, 1.75f); });
    add_profile(8, 32, [](Profile&) {});
    add_profile(4, 16, [](Profile&) {});
  }
  static void each_key(Profile& profile, float mean, float gain) {
    const ModelSpec& model = tiny_model()->spec();
    for (size_t l = 0; l < profile.parts.size(); ++l) {
      const PartSpec& part = model.layers[l].parts[0];
      profile.parts[l][0].key_mean.assign(size_t{part.heads} * part.k_dim, mean);
      profile.parts[l][0].key_gain.assign(size_t{part.heads} * part.k_dim, gain);
    }
  }
  void add_profile(uint8_t bits, uint32_t block_tokens, void (*change)(Profile&)) {
    CodingSettings settings;
    settings.k_bits = settings.v_bits = bits;
    settings.block_tokens = block_tokens;
    auto profile = plain_profile(tiny_model()->spec(), settings);
    ASSERT_TRUE(profile.ok());
    change(*profile);
    profiles_.push_back(std::make_shared<const Profile>(std::move(*profile)));
    ids_.push_back(profiles_.back()->id());
  }

  static void replace(Client& client, const ProfilePtr& profile) {
    auto reply = client.open({tiny_model()->spec(), profile, true, PrefillMode::exact}, soon());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    ASSERT_EQ(reply->realm.profile, profile->id());
  }
  static std::unique_ptr<Generator> generator(Client& client) {
    CodingOptions coding;
    coding.calibrate = false;
    auto made = Generator::open(tiny_model(), client, coding, 1, soon());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  static GenerateOptions options() {
    GenerateOptions o;
    o.cache_waits.least = std::chrono::minutes(1);
    o.max_new_tokens = 4;
    o.keep_logits = true;
    o.stop_at_eos = false;
    o.commit_answer = false;
    o.deadline = soon();
    return o;
  }
  // The logits of a cold run under profile `id`.
  const std::vector<float>& exact(const Id& id, size_t prompt) {
    auto& known = exact_[{id, prompt}];
    if (!known.empty()) return known;
    auto at = std::find(ids_.begin(), ids_.end(), id);
    KV_CHECK(at != ids_.end());
    MemoryClient client;
    replace(client, profiles_[static_cast<size_t>(at - ids_.begin())]);
    auto result = generator(client)->generate(prompts_[prompt], options());
    KV_CHECK(result.ok());
    return known = result->logits;
  }
  // One answer, or several rows together: bit for bit those of the profile they began under.
  void expect_exact(Generator& g, size_t prompt, bool must_hit = false) {
    auto result = g.generate(prompts_[prompt], options());
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->logits, exact(g.opened().realm.profile, prompt))
        << "prompt " << prompt << ", " << result->reused_tokens << " reused, "
        << result->cache_error;
    if (!must_hit) return;
    EXPECT_EQ(result->reused_tokens + 1, prompts_[prompt].size());
  }
  void expect_some_profile_exact(const GenerateResult& result, size_t prompt) {
    bool same = std::any_of(ids_.begin(), ids_.end(),
                            [&](const Id& id) { return result.logits == exact(id, prompt); });
    EXPECT_TRUE(same) << "prompt " << prompt << ": the logits of no profile";
  }
  // B replaces and stores, A fetches: for all pairs of profiles.
  template <typename Between>
  void expect_replaced(Client& a, Client& b, Between&& between) {
    replace(b, profiles_[0]);
    auto mine = generator(a), others = generator(b);
    for (size_t next = 1; next <= profiles_.size(); ++next) {
      size_t prompt = next % prompts_.size();
      expect_exact(*mine, prompt);
      replace(b, profiles_[next % profiles_.size()]);
      expect_exact(*others, prompt);
      between();
      expect_exact(*others, prompt);
      expect_exact(*mine, prompt, true);
      EXPECT_EQ(mine->opened().realm.profile, ids_[next % ids_.size()]);
    }
  }
  // Any of two engines' turns, replacements and `restart`, in any order.
  template <typename Restart>
  void walk(uint32_t seed, int steps, Client& a, Client& b, Restart&& restart) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    replace(b, profiles_[0]);
    std::unique_ptr<Generator> engines[] = {generator(a), generator(b), generator(a)};
    for (int step = 0; step < steps && !HasFailure(); ++step) {
      size_t what = rng() % 16;
      if (what == 0) restart();
      if (what < 5) replace(rng() % 2 ? a : b, profiles_[rng() % profiles_.size()]);
      expect_exact(*engines[rng() % 3], rng() % prompts_.size());
    }
  }
  void restart() {
    ASSERT_EQ(daemon_->stop(), 0);
    start();
  }

  std::vector<std::vector<Token>> prompts_;
  std::vector<ProfilePtr> profiles_;
  std::vector<Id> ids_;
  std::map<std::pair<Id, size_t>, std::vector<float>> exact_;
};

TEST_F(EngineReplaced, OnAnOldConnection) {
  start();
  auto a = connect(), b = connect();
  expect_replaced(*a, *b, [] {});
}

TEST_F(EngineReplaced, OnANewConnection) {
  start({}, {"idle_timeout=100"});
  auto a = connect(), b = connect();
  expect_replaced(*a, *b, [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
}

TEST_F(EngineReplaced, AfterARestart) {
  start();
  auto a = connect(), b = connect();
  expect_replaced(*a, *b, [&] { restart(); });
}

TEST_F(EngineReplaced, TwoEnginesOverOneClient) {
  start();
  auto client = connect();
  expect_replaced(*client, *client, [] {});
}

TEST_F(EngineReplaced, InProcess) {
  auto options = small_options(dir_.store());
  auto cache = open_cache(options);
  expect_replaced(*cache, *cache, [] {});
}

TEST_F(EngineReplaced, InAnyOrder) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    start();
    auto a = connect(), b = connect();
    walk(seed, 60, *a, *b, [&] { restart(); });
    daemon_->stop();
    std::filesystem::remove_all(dir_.store());
    auto cache = open_cache(small_options());
    walk(seed, 60, *cache, *cache, [] {});
  }
}

// Rows that decode side by side may have begun under different profiles.
TEST_F(EngineReplaced, InOneBatch) {
  auto cache = open_cache(small_options());
  replace(*cache, profiles_[0]);
  auto mine = generator(*cache);
  std::mt19937 rng(5);
  for (int round = 0; round < 4; ++round) {
    auto prompts = prompts_;
    prompts.insert(prompts.end(), prompts_.begin(), prompts_.end());
    auto results = mine->generate_all(prompts, options(), 2);
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_TRUE(results[i].ok()) << results[i].status().to_string();
      expect_some_profile_exact(*results[i], i % prompts_.size());
    }
    replace(*cache, profiles_[rng() % profiles_.size()]);
  }
}

// Also of one profile that came back: each open has a codec of its own.
TEST_F(EngineReplaced, RowsOfTwoOpensInOneBatch) {
  MemoryClient client;
  replace(client, profiles_[0]);
  auto network = *make_network(tiny_model(), 1);
  CodingOptions coding;
  coding.calibrate = false;
  std::vector<StoredPrompts> opens;
  Batch batch(*network);
  for (int i = 0; i < 4; ++i) {
    if (i < 2) opens.push_back(*StoredPrompts::open(*network, client, coding, soon()));
    KvCache cache = opens[i % 2].new_cache(0);
    ASSERT_TRUE(network->prefill(std::span(prompts_[0]).first(74), cache, soon()).ok());
    auto row = batch.join(std::make_unique<Batch::Row>(std::move(cache), prompts_[0].back()));
    ASSERT_TRUE(row.ok());
  }
  EXPECT_EQ(batch.step(), 4u);
  for (const auto& row : batch.rows()) EXPECT_EQ(row->logits, batch.rows()[0]->logits);
}

// What the socket client holds a handle for is never another profile's objects.
TEST_F(EngineReplaced, AHandleIsOfOneProfile) {
  start();
  auto a = connect(), b = connect();
  ModelSpec model = plain_model();
  auto before = make_profile(model, 4), after = make_profile(model, 8);
  auto old = Bench::open(*a, model, before);
  auto tokens = random_tokens(rng_, 64);
  ASSERT_TRUE(b->open({model, after, true, PrefillMode::exact}, soon()).ok());
  auto others = Bench::open(*b, model);
  ASSERT_TRUE(others.store(tokens).ok());
  EXPECT_EQ(old.fetch(plus_one(tokens)).status().code(), StatusCode::profile_changed);
  EXPECT_EQ(old.fetch(plus_one(tokens), FetchForm::f32).status().code(),
            StatusCode::profile_changed);
  auto anew = Bench::open(*a, model);
  EXPECT_NE(anew.opened.model, old.opened.model);
  auto reply = anew.fetch(plus_one(tokens));
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->tokens, 64u);
  anew.expect_serves(tokens, *reply);
  EXPECT_EQ(old.fetch(plus_one(tokens)).status().code(), StatusCode::profile_changed);
}

// Objects of another namespace, model or profile, however alike, are refused before they are read.
TEST_F(EngineReplaced, ForeignObjectsAreNotTakenOver) {
  MemoryClient client;
  replace(client, profiles_[0]);
  auto stored = generator(client)->generate(prompts_[0], options());
  ASSERT_TRUE(stored.ok());
  auto codec = *Codec::create(tiny_model()->spec(), profiles_[0]);
  Realm realm{"test", tiny_model()->spec().fingerprint, ids_[0]};
  auto restore = [&](void (*change)(Object&)) {
    Prefix prefix;
    for (const ObjectName& name : stored->prompt_objects) {
      auto object = std::make_shared<Object>(*client.objects.at(name.id));
      prefix.objects.push_back({object, object->end_token()});
      prefix.tokens = object->end_token();
      if (prefix.objects.size() == 2) change(*object);
    }
    KvCache cache(codec, realm);
    return cache.restore(Lease(std::move(prefix), nullptr), prompts_[0]).code();
  };
  EXPECT_EQ(restore([](Object&) {}), StatusCode::ok);
  EXPECT_EQ(restore([](Object& o) { o.profile.bytes[31] ^= 1; }), StatusCode::profile_changed);
  EXPECT_EQ(restore([](Object& o) { o.fingerprint.bytes[0] ^= 1; }), StatusCode::corruption);
  EXPECT_EQ(restore([](Object& o) { o.ns += "x"; }), StatusCode::corruption);
}

}  // namespace
}  // namespace kv
