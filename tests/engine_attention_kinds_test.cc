// What a configuration's cache looks like, family by family; what isn't known is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "codec/plan.h"
#include "engine/attention_kinds.h"
#include "engine/model.h"
#include "tests/support/tiny_gguf.h"
#include "tests/tiny/qwen3_next.h"
#include "tests/tiny/tiny_model.h"

namespace kv {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json plain(const std::string& type) {
  return {{"model_type", type},       {"num_hidden_layers", 4},   {"hidden_size", 64},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"dtype", "bfloat16"}};
}

// Layers as short texts: F full, W7 window, C7 chunk, L latent, P4+ pooled with overlap, S state.
std::string shape(const Result<ModelSpec>& spec) {
  if (!spec.ok()) return spec.status().to_string();
  std::string out;
  for (const LayerSpec& layer : spec->layers) {
    if (!out.empty()) out += ' ';
    for (const PartSpec& p : layer.parts) {
      switch (p.kind) {
        case PartKind::full:
          out += "F";
          break;
        case PartKind::window:
          out += "W" + std::to_string(p.window);
          break;
        case PartKind::chunk:
          out += "C" + std::to_string(p.chunk);
          break;
        case PartKind::latent:
          out += "L";
          break;
        case PartKind::pooled:
          out += "P" + std::to_string(p.rate) + (p.overlap ? "+" : "");
          break;
        case PartKind::state:
          out += "S";
          break;
        case PartKind::opaque:
          out += "O";
          break;
      }
      if (p.has_rows()) out += ":" + std::to_string(p.heads) + "x" + std::to_string(p.k_dim);
      if (p.v_dim != 0 && p.v_dim != p.k_dim) out += "/" + std::to_string(p.v_dim);
    }
  }
  return out;
}
std::string shape(const json& config) { return shape(spec_of_config(config.dump())); }

TEST(AttentionKinds, PlainFamiliesAreFull) {
  for (const char* type :
       {"llama", "qwen2", "qwen3", "glm4", "phi3", "gemma", "smollm3", "mistral", "granite",
        "glm4_moe", "starcoder2", "phi", "stablelm", "seed_oss", "hunyuan_v1_dense",
        "hunyuan_v1_moe", "gpt_neox", "ernie4_5", "ernie4_5_moe"}) {
    EXPECT_EQ(shape(plain(type)), "F:2x16 F:2x16 F:2x16 F:2x16") << type;
  }
  json c = plain("llama");
  c["head_dim"] = 32;
  c.erase("num_key_value_heads");
  EXPECT_EQ(shape(c), "F:4x32 F:4x32 F:4x32 F:4x32");
  EXPECT_EQ(spec_of_config(c.dump())->layers[0].parts[0].dtype, DType::bf16);
}

TEST(AttentionKinds, FalconsHeadsAndNemotronsLetters) {
  json c = plain("falcon");
  EXPECT_EQ(shape(c), "F:1x16 F:1x16 F:1x16 F:1x16") << "multi_query is its default";
  c["multi_query"] = false;
  EXPECT_EQ(shape(c), "F:4x16 F:4x16 F:4x16 F:4x16");
  c["new_decoder_architecture"] = true;
  c["num_kv_heads"] = 2;
  EXPECT_EQ(shape(c), "F:2x16 F:2x16 F:2x16 F:2x16");
  c = plain("nemotron_h");
  c["hybrid_override_pattern"] = "M-*M";
  c["ssm_state_size"] = 128;
  c["attention_head_dim"] = 8;
  EXPECT_EQ(shape(c), "S  F:2x8 S") << "a layer without a cache has no part";
  c["hybrid_override_pattern"] = "M-*";
  EXPECT_THAT(shape(c), HasSubstr("hybrid_override_pattern has no letter for every layer"));
  c["hybrid_override_pattern"] = "M-*X";
  EXPECT_THAT(shape(c), HasSubstr("a letter that is not known"));
  c = plain("llama");
  c["hybrid_override_pattern"] = "M-*M";
  EXPECT_THAT(shape(c), HasSubstr("not its kind of attention"));
}

TEST(AttentionKinds, WindowsByFamily) {
  auto with = [](const char* type) {
    json c = plain(type);
    c["sliding_window"] = 9;
    return c;
  };
  EXPECT_EQ(shape(with("mistral")), "W9:2x16 W9:2x16 W9:2x16 W9:2x16");
  EXPECT_EQ(shape(with("phi3")), "W9:2x16 W9:2x16 W9:2x16 W9:2x16");
  EXPECT_EQ(shape(with("starcoder2")), "W9:2x16 W9:2x16 W9:2x16 W9:2x16");
  EXPECT_EQ(shape(with("exaone4")), "W9:2x16 W9:2x16 W9:2x16 F:2x16");
  EXPECT_EQ(shape(with("gemma2")), "W9:2x16 F:2x16 W9:2x16 F:2x16");
  EXPECT_EQ(shape(with("gpt_oss")), "W9:2x16 F:2x16 W9:2x16 F:2x16");
  EXPECT_EQ(shape(with("cohere2")), "W9:2x16 W9:2x16 W9:2x16 F:2x16");
  EXPECT_EQ(shape(with("qwen2")), "F:2x16 F:2x16 F:2x16 F:2x16");  // use_sliding_window is off
  json c = with("qwen2");
  c["use_sliding_window"] = true;
  c["max_window_layers"] = 3;
  EXPECT_EQ(shape(c), "F:2x16 F:2x16 F:2x16 W9:2x16");
  c = with("gemma3_text");
  c["sliding_window_pattern"] = 2;
  c["head_dim"] = 8;
  EXPECT_EQ(shape(c), "W9:2x8 F:2x8 W9:2x8 F:2x8");
  c["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(shape(c), "F:2x8 W9:2x8 F:2x8 F:2x8");
}

// EXAONE-4 writes letters, and null where there is no window; Llama-4 a list of ones and zeros.
TEST(AttentionKinds, WindowsByLettersAndByLists) {
  json c = plain("exaone4");
  c["num_hidden_layers"] = 7;
  c["sliding_window"] = 9;
  c["sliding_window_pattern"] = "LLG";
  EXPECT_EQ(shape(c), "W9:2x16 W9:2x16 F:2x16 W9:2x16 W9:2x16 F:2x16 F:2x16") << "the last is full";
  for (const json& letters : {json(""), json("LLX"), json(0)}) {
    c["sliding_window_pattern"] = letters;
    EXPECT_THAT(shape(c), HasSubstr("sliding_window_pattern is " + letters.dump() + ", expected"));
  }
  c = plain("exaone4");
  c["sliding_window"] = nullptr;
  c["sliding_window_pattern"] = nullptr;
  EXPECT_EQ(shape(c), "F:2x16 F:2x16 F:2x16 F:2x16");
  c["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(shape(c), HasSubstr("sliding_window is missing"));
  c = plain("llama4_text");
  c["attention_chunk_size"] = 6;
  c["no_rope_layers"] = {1, 0, 0, 1};
  EXPECT_EQ(shape(c), "C6:2x16 F:2x16 F:2x16 C6:2x16");
  c["no_rope_layers"] = {1, 0, 2, 1};
  EXPECT_THAT(shape(c), HasSubstr("no_rope_layers has an entry not 0 or 1"));
  c["no_rope_layers"] = {1, 0};
  EXPECT_THAT(shape(c), HasSubstr("no_rope_layers is no list of num_hidden_layers 4"));
}

// Each family's own way of saying which layers are recurrent, with both names of a layer type.
TEST(AttentionKinds, RecurrentLayersAmongOthers) {
  const std::string mixed = "S F:2x16 S S";
  json c = plain("jamba");
  c["layers_block_type"] = {"mamba", "attention", "mamba", "mamba"};
  EXPECT_EQ(shape(c), mixed);
  c["layers_block_type"] = {"linear_attention", "full_attention", "mamba", "linear_attention"};
  EXPECT_EQ(shape(c), mixed);
  c["layers_block_type"] = {"mamba", "moe", "mamba", "mamba"};
  EXPECT_THAT(shape(c), HasSubstr("layers_block_type has 'moe', which is no layer of jamba"));
  c = plain("bamba");
  EXPECT_THAT(shape(c), HasSubstr("attn_layer_indices is missing"));
  c["attn_layer_indices"] = {1};
  EXPECT_EQ(shape(c), mixed);
  c = plain("granitemoehybrid");
  EXPECT_THAT(shape(c), HasSubstr("layer_types is missing"));
  c["layer_types"] = {"mamba", "attention", "mamba", "mamba"};
  EXPECT_EQ(shape(c), mixed);
  c = plain("lfm2");
  c["conv_L_cache"] = 3;
  c["full_attn_idxs"] = {1};
  EXPECT_EQ(shape(c), mixed);
  c["layer_types"] = {"conv", "full_attention", "conv", "conv"};
  EXPECT_EQ(shape(c), mixed);
  c = plain("qwen3_5_text");
  EXPECT_EQ(shape({{"model_type", "qwen3_5"}, {"text_config", c}}), "S S S F:2x16");
  c = plain("nemotron_h");
  c.erase("num_hidden_layers");
  c["layers_block_type"] = {"linear_attention", "mlp", "full_attention", "moe"};
  EXPECT_EQ(shape(c), "S  F:2x16 ") << "as many layers as the list has";
  c = plain("falcon_h1");
  c["attn_layer_indices"] = nullptr;
  EXPECT_EQ(shape(c), "F:2x16S F:2x16S F:2x16S F:2x16S");
}

TEST(AttentionKinds, NestedTextConfigsAreFound) {
  json c = {{"model_type", "gemma3"},
            {"torch_dtype", "float32"},
            {"text_config",
             {{"model_type", "gemma3_text"}, {"num_hidden_layers", 6}, {"sliding_window", 5}}}};
  EXPECT_EQ(shape(c), "W5:4x256 W5:4x256 W5:4x256 W5:4x256 W5:4x256 F:4x256");
  EXPECT_EQ(spec_of_config(c.dump())->layers[0].parts[0].dtype, DType::f32);
  json inner = plain("llama4_text");
  inner["attention_chunk_size"] = 6;
  EXPECT_EQ(shape({{"model_type", "llama4"}, {"text_config", inner}}),
            "C6:2x16 C6:2x16 C6:2x16 F:2x16");
  json latent = {{"model_type", "deepseek_v3"},
                 {"num_hidden_layers", 1},
                 {"kv_lora_rank", 32},
                 {"qk_rope_head_dim", 16}};
  EXPECT_EQ(shape({{"model_type", "kimi_vl"},
                   {"thinker_config", {{"language_config", {{"llm_config", latent}}}}}}),
            "L:1x48");
}

TEST(AttentionKinds, LatentsByTypeAndByArchitecture) {
  json c = plain("deepseek_v3");
  c["kv_lora_rank"] = 512;
  c["qk_rope_head_dim"] = 64;
  EXPECT_EQ(shape(c), "L:1x576 L:1x576 L:1x576 L:1x576");
  c["model_type"] = "deepseek_v2";
  EXPECT_EQ(shape(c), "L:1x576 L:1x576 L:1x576 L:1x576");
  c["model_type"] = "kimi_k2";
  c["architectures"] = {"DeepseekV3ForCausalLM"};
  EXPECT_EQ(shape(c), "L:1x576 L:1x576 L:1x576 L:1x576");
  c["model_type"] = "llama";
  EXPECT_THAT(shape(c), HasSubstr("disagree"));
  c.erase("architectures");
  EXPECT_THAT(shape(c), HasSubstr("llama with kv_lora_rank"));
  json outer = {{"kv_lora_rank", 512}, {"text_config", plain("llama")}};
  EXPECT_THAT(shape(outer), HasSubstr("llama with kv_lora_rank"));
}

TEST(AttentionKinds, LatentsStayRawWhateverIsAskedFor) {
  json c = plain("deepseek_v3");
  c["kv_lora_rank"] = 64;
  c["qk_rope_head_dim"] = 64;  // 128 values: a length that the codec could take
  auto spec = spec_of_config(c.dump());
  ASSERT_TRUE(spec.ok());
  spec->fingerprint.bytes[0] = 1;
  auto profile = plain_profile(*spec, CodingSettings());
  ASSERT_TRUE(profile.ok());
  for (const PartReport& line : report(*spec, *profile)) {
    EXPECT_EQ(line.requested_bits, 4);
    EXPECT_EQ(line.active_bits, 0);
    EXPECT_THAT(line.reason, HasSubstr("latent"));
  }
}

TEST(AttentionKinds, CompressedAndRecurrent) {
  json c = plain("deepseek_v4");
  c["head_dim"] = 32;
  c["index_head_dim"] = 16;
  c["sliding_window"] = 20;
  c["compress_ratios"] = {0, 4, 128, 4, 0};
  std::string v4 = "W20:1x32 W20:1x32P4+:1x32P4+:1x16 W20:1x32P128:1x32 W20:1x32P4+:1x32P4+:1x16";
  EXPECT_EQ(shape(c), v4);
  c["layer_types"] = {"sliding_attention", "compressed_sparse_attention",
                      "heavily_compressed_attention", "compressed_sparse_attention"};
  EXPECT_EQ(shape(c), v4);
  EXPECT_EQ(shape(plain("qwen3_next")), "S S S F:2x16");
  EXPECT_EQ(shape(plain("mamba2")), "S S S S");
  c = plain("jamba");
  c["attn_layer_period"] = 2;
  c["attn_layer_offset"] = 0;
  EXPECT_EQ(shape(c), "F:2x16 S F:2x16 S");
}

TEST(AttentionKinds, WhatIsNotKnownIsRefusedByName) {
  auto refused = [](const json& c, const std::string& by) {
    auto spec = spec_of_config(c.dump());
    ASSERT_FALSE(spec.ok()) << by;
    EXPECT_THAT(spec.status().to_string(), HasSubstr(by));
  };
  refused(plain("rwkv9"), "rwkv9");
  json c = plain("deepseek_v32");
  c["architectures"] = {"DeepseekV32ForCausalLM"};
  refused(c, "DeepseekV32ForCausalLM");
  c = plain("llama");
  c["layer_types"] = {"full_attention", "full_attention", "telepathic_attention", "full_attention"};
  refused(c, "telepathic_attention");
  c = plain("llama");
  c["index_topk"] = 8;
  refused(c, "index_topk");
  for (const char* type : {"dynamic", "longrope"}) {
    c = plain("phi3");
    c["rope_scaling"] = {{"type", type}};
    refused(c, type);
  }
  refused({{"model_type", "llama"}}, "num_hidden_layers is missing");
  c = plain("llama");
  for (const json& bad : {json(0), json(-1), json(1e9), json("4"), json(2.5), json(5000)}) {
    c["num_hidden_layers"] = bad;
    refused(c, "num_hidden_layers");
  }
  for (const char* text : {"", "[]", "{", "null", "\xff"}) {
    EXPECT_EQ(spec_of_config(text).status().code(), StatusCode::invalid_argument) << text;
  }
}

// Wrong types anywhere: an answer or a refusal, never more.
TEST(AttentionKinds, AnyShapeOfConfigIsSafe) {
  std::mt19937 random(11);
  const json values[] = {nullptr,       0, -3, 1ull << 40, 0.5, "x", json::array({1, "y"}),
                         json::object()};
  json whole = plain("gemma3_text");
  for (const char* key :
       {"sliding_window", "layer_types", "head_dim", "rope_scaling", "architectures",
        "compress_ratios", "compress_rates", "text_config", "no_rope_layers", "layers_block_type",
        "sliding_window_pattern", "attn_layer_indices", "full_attn_idxs", "mamba_d_ssm"}) {
    whole[key] = 3;
  }
  std::vector<std::string> keys;
  for (auto& [key, value] : whole.items()) keys.push_back(key);
  const char* types[] = {"llama",       "gemma3_text", "llama4_text", "deepseek_v3",
                         "deepseek_v4", "qwen3_next",  "jamba",       "mamba2",
                         "exaone4",     "bamba",       "lfm2",        "falcon_h1"};
  for (int i = 0; i < 4000; ++i) {
    json c = plain(types[random() % 12]);
    for (int k = 0; k < 3; ++k) c[keys[random() % keys.size()]] = values[random() % 8];
    (void)spec_of_config(c.dump());
    (void)state_bytes_of_config(c.dump());
  }
}

// The tiny models' kinds and sizes are what their configurations say: the ones from which
// transformers computes what they must give (tests/scripts/make_tiny_golden.py).
TEST(AttentionKinds, TheTinyModelsAreWhatTheirConfigurationsSay) {
  json v3 = {{"num_hidden_layers", 4}, {"kv_lora_rank", 32}, {"qk_rope_head_dim", 16}};
  json v4 = {{"num_hidden_layers", 4},
             {"head_dim", 32},
             {"sliding_window", 20},
             {"index_head_dim", 32},
             {"index_topk", 8}};
  v4["layer_types"] = {"compressed_sparse_attention", "sliding_attention",
                       "heavily_compressed_attention", "compressed_sparse_attention"};
  json next = {{"num_hidden_layers", 4},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"head_dim", 32}};
  next["layer_types"] = {"linear_attention", "linear_attention", "full_attention",
                         "linear_attention"};
  for (auto& [name, config] :
       {std::pair("deepseek_v3", v3), {"deepseek_v4", v4}, {"qwen3_next", next}}) {
    json c = config;
    c["model_type"] = name;
    c["dtype"] = "float32";
    auto said = spec_of_config(c.dump());
    ASSERT_TRUE(said.ok()) << said.status().to_string();
    auto tiny = tiny::make_tiny(name, 1);
    ASSERT_TRUE(tiny.ok());
    ModelSpec own = (*tiny)->spec();
    for (ModelSpec* spec : {&*said, &own}) {
      for (LayerSpec& layer : spec->layers) {
        for (PartSpec& p : layer.parts) {
          p.label.clear();
          p.dtype = DType::f32;  // rows that may be coded have the profile's
        }
      }
    }
    EXPECT_EQ(said->layers, own.layers) << name << ": " << shape(said) << " and " << shape(own);
  }
}

TEST(AttentionKinds, StatesTakeWhatTheirSizesSay) {
  auto bytes = [](const json& c) { return *state_bytes_of_config(c.dump()); };
  EXPECT_EQ(bytes(plain("llama")), 0u);
  json next = plain("qwen3_next");  // as the tiny model: three recurrent layers of four
  next.update(json{{"linear_num_value_heads", 4},
                   {"linear_value_head_dim", 16},
                   {"linear_key_head_dim", 16},
                   {"linear_num_key_heads", 2}});
  EXPECT_EQ(bytes(next), 3 * sizeof(float) * tiny::kRecurrentFloats);
  json jamba = plain("jamba");
  jamba["layer_types"] = {"mamba", "full_attention", "mamba", "mamba"};
  EXPECT_EQ(bytes(jamba), 3 * sizeof(float) * (3 * 128 + 128 * 16));
  json mamba = plain("mamba2");  // 3 taps before, 8192 values and 2 * 8 groups of 128 keys
  EXPECT_EQ(bytes(mamba), 4 * sizeof(float) * (3 * (8192 + 2048) + 8192 * 128));
  mamba["conv_kernel"] = 0;
  EXPECT_THAT(state_bytes_of_config(mamba.dump()).status().to_string(), HasSubstr("conv_kernel"));
  json falcon = plain("falcon_h1");  // its own width, and one group of 256 keys
  falcon["mamba_d_ssm"] = 96;
  EXPECT_EQ(bytes(falcon), 4 * sizeof(float) * (3 * (96 + 2 * 256) + 96 * 256));
  json convolution = plain("lfm2");  // two taps of 64 values, and nothing else
  convolution["full_attn_idxs"] = {0, 1, 2};
  EXPECT_EQ(bytes(convolution), 1 * sizeof(float) * 2 * 64);
}

TEST(AttentionKinds, KeysOfOtherKindsAreRefusedInAKnownFamily) {
  for (const char* key :
       {"ssm_state_size", "lru_width", "conv_L_cache", "linear_attn_config", "block_types",
        "hybrid_override_pattern", "attn_type_list", "sparse_config", "sparse_attention_config",
        "attention_sink_size", "cla_share_factor", "num_kv_shared_layers"}) {
    json c = plain("llama");
    c[key] = 4;
    EXPECT_THAT(shape(c), HasSubstr("llama with " + std::string(key)));
  }
}

TEST(AttentionKinds, AGgufWithAnotherKindOfAttentionIsRefused) {
  for (const char* key :
       {"llama.attention.kv_lora_rank", "llama.ssm.state_size", "llama.attention.sliding_window"}) {
    TinyGguf gguf;
    gguf.extra_key = key;
    auto file = GgufFile::parse(Bytes::owning(gguf.write()));
    ASSERT_TRUE(file.ok());
    auto model = Model::load(std::move(*file));
    ASSERT_FALSE(model.ok()) << key;
    EXPECT_EQ(model.status().code(), StatusCode::unsupported);
    EXPECT_THAT(model.status().to_string(), HasSubstr(key));
  }
  TinyGguf deepseek;
  deepseek.architecture = "deepseek2";
  auto file = GgufFile::parse(Bytes::owning(deepseek.write()));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(Model::load(std::move(*file)).status().to_string(), HasSubstr("deepseek2"));
}

}  // namespace
}  // namespace kv
