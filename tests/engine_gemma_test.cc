// Gemma-3 on a tiny random model: what a window reaches, prefill against single steps, batches, and
// what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/plan.h"
#include "engine/model_network.h"
#include "tests/support/tiny_gguf.h"

namespace kv {
namespace {

using ::testing::HasSubstr;

Result<std::shared_ptr<const Model>> load(TinyGguf tiny) {
  tiny.architecture = "gemma3";
  KV_ASSIGN_OR_RETURN(auto file, GgufFile::parse(Bytes::owning(tiny.write())));
  return Model::load(std::move(file));
}

std::unique_ptr<Network> network_of(TinyGguf tiny, uint32_t threads = 1) {
  auto model = load(std::move(tiny));
  KV_CHECK(model.ok());
  auto network = make_network(*model, threads);
  KV_CHECK(network.ok());
  return std::move(*network);
}

TinyGguf three_layers() {
  TinyGguf tiny;
  tiny.layers = 3;
  return tiny;
}

std::shared_ptr<const Codec> codec_of(const Network& network, uint8_t bits = 0) {
  CodingSettings settings;
  settings.k_bits = settings.v_bits = bits;
  settings.raw_dtype = bits == 0 ? DType::f32 : DType::f16;
  auto profile = std::make_shared<const Profile>(*plain_profile(network.spec(), settings));
  auto codec = Codec::create(network.spec(), profile);
  KV_CHECK(codec.ok());
  return *codec;
}

KvCache empty_gemma_cache(const std::shared_ptr<const Codec>& codec) {
  return KvCache(codec, {"test", codec->model().fingerprint, codec->profile().id()});
}

std::vector<Token> tokens_of(size_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<Token> out(n);
  for (Token& t : out) t = static_cast<Token>(random() % 256);
  return out;
}

// Logits after the last token: `prefilled` tokens at once, the others one by one.
std::vector<float> logits_of(Network& network, const std::vector<Token>& tokens,
                             std::initializer_list<size_t> prefilled) {
  KvCache cache = empty_gemma_cache(codec_of(network));
  std::span<const Token> all(tokens);
  for (size_t n : prefilled) {
    KV_CHECK(network.prefill(all.first(n), cache, Deadline::max()).ok());
  }
  std::vector<float> logits(network.vocab());
  for (size_t i = cache.tokens(); i < tokens.size(); ++i) {
    KV_CHECK(network.step(tokens[i], cache, logits).ok());
  }
  return logits;
}

TEST(EngineGemma, SpecNamesWindowsAndFullLayers) {
  auto model = load(three_layers());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const ModelSpec& spec = (*model)->spec();
  ASSERT_EQ(spec.layers.size(), 3u);
  for (int l : {0, 1}) {
    EXPECT_EQ(spec.layers[l].parts[0].kind, PartKind::window);
    EXPECT_EQ(spec.layers[l].parts[0].window, 40u);
  }
  EXPECT_EQ(spec.layers[2].parts[0].kind, PartKind::full);
  EXPECT_TRUE(validate(spec, 256).ok());
  TinyGguf wider = three_layers();
  wider.window = 41;
  EXPECT_NE((*load(wider))->spec().fingerprint, spec.fingerprint);
}

// With one windowed layer the last query sees itself and the 39 positions before, no older one.
TEST(EngineGemma, AWindowReachesItsSizeAndNoFurther) {
  TinyGguf tiny;
  tiny.layers = 1;
  auto network = network_of(tiny);
  for (size_t length : {41u, 300u, 560u}) {
    auto tokens = tokens_of(length);
    for (size_t prefilled : {size_t{0}, length - 1}) {
      auto logits = [&] {
        return prefilled == 0 ? logits_of(*network, tokens, {})
                              : logits_of(*network, tokens, {prefilled});
      };
      auto before = logits();
      tokens[length - 41] ^= 1;
      EXPECT_EQ(logits(), before) << length;
      tokens[length - 40] ^= 1;
      EXPECT_NE(logits(), before) << length;
    }
  }
}

TEST(EngineGemma, PrefillIsCloseToSingleSteps) {
  auto network = network_of(three_layers(), 2);
  for (size_t length : {30u, 41u, 257u, 600u}) {
    auto tokens = tokens_of(length, 3);
    auto steps = logits_of(*network, tokens, {});
    auto whole = logits_of(*network, tokens, {length - 1});
    auto twice = logits_of(*network, tokens, {length / 3, length - 1});
    for (size_t i = 0; i < steps.size(); ++i) {
      ASSERT_NEAR(whole[i], steps[i], 1e-4) << length;
      ASSERT_NEAR(twice[i], steps[i], 1e-4) << length;
    }
  }
}

TEST(EngineGemma, ABatchedRowIsItsOwnRunBitForBit) {
  auto network = network_of(three_layers(), 2);
  for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
    auto codec = codec_of(*network, bits);
    std::vector<KvCache> alone, batched;
    for (size_t length : {1u, 39u, 40u, 300u}) {
      for (auto* caches : {&alone, &batched}) {
        caches->push_back(empty_gemma_cache(codec));
        auto tokens = tokens_of(length, 5);
        ASSERT_TRUE(network->prefill(tokens, caches->back(), Deadline::max()).ok());
      }
    }
    for (Token token : tokens_of(6, 7)) {
      std::vector<std::vector<float>> logits(4, std::vector<float>(network->vocab()));
      std::vector<StepRow> rows(4);
      for (size_t r = 0; r < 4; ++r) {
        rows[r].token = token;
        rows[r].cache = &batched[r];
        rows[r].logits = logits[r];
      }
      network->step_rows(rows);
      std::vector<float> own(network->vocab());
      for (size_t r = 0; r < 4; ++r) {
        ASSERT_TRUE(rows[r].status.ok()) << rows[r].status.to_string();
        ASSERT_TRUE(network->step(token, alone[r], own).ok());
        EXPECT_EQ(logits[r], own) << "row " << r;
      }
    }
  }
}

TEST(EngineGemma, RefusesWhatItDoesNotHonourByName) {
  auto message = [](const char* key) {
    TinyGguf tiny = three_layers();
    tiny.extra_key = key;
    Status status = load(tiny).status();
    EXPECT_EQ(status.code(), StatusCode::unsupported) << key;
    return std::string(status.message());
  };
  EXPECT_THAT(message("gemma3.final_logit_softcapping"), HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(message("gemma3.attn_logit_softcapping"), HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(message("gemma3.rope.scaling.factor"), HasSubstr("rope.scaling.factor"));
  EXPECT_THAT(message("gemma3.attention.temperature"), HasSubstr("attention.temperature"));
  EXPECT_THAT(message("gemma3.attention.value_length"), HasSubstr("per head"));
  TinyGguf scaled = three_layers();
  scaled.rope_scaling = "linear";
  EXPECT_THAT(load(scaled).status().message(), HasSubstr("linear"));
  TinyGguf many = three_layers();
  many.layers = 62;
  EXPECT_THAT(load(many).status().message(), HasSubstr("62 layers"));
}

}  // namespace
}  // namespace kv
