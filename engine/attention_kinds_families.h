// The families of models whose caches are known: their layers, the sizes of their states, the keys
// that tell a kind of attention. Constants, for attention_kinds.cc alone; facts: transformers 5.23,
// models/*.
#pragma once

#include <cstdint>
#include <optional>

namespace kv {

enum class Attention : uint8_t { plain, latent, deepseek_v4, mamba, pattern, convolution };

// Layer types as transformers 5 writes them; "mamba" and "attention" are their former names.
inline constexpr const char *kRecurrent = "linear_attention", *kFull = "full_attention",
                            *kWindow = "sliding_attention";

/// Sizes of a recurrent layer's state, and what the family's configurations leave out: its values
/// are of[0] * of[1], the state of each of[2]; of[3] groups of keys as long; of[4] taps of the
/// convolution before. Without a key: 1 of of[0], else 0.
struct StateSizes {
  struct {
    const char* key;
    uint32_t usual;
  } of[5];
};
inline constexpr StateSizes kDeltaNet = {{{"linear_num_value_heads", 32},
                                          {"linear_value_head_dim", 128},
                                          {"linear_key_head_dim", 128},
                                          {"linear_num_key_heads", 16},
                                          {"linear_conv_kernel_dim", 4}}};
inline constexpr StateSizes kJamba = {{{"mamba_expand", 2},
                                       {"hidden_size", 0},
                                       {"mamba_d_state", 16},
                                       {nullptr, 0},
                                       {"mamba_d_conv", 4}}};
inline constexpr StateSizes kGroupedMamba = {{{"mamba_expand", 2},
                                              {"hidden_size", 0},
                                              {"mamba_d_state", 256},
                                              {"mamba_n_groups", 1},
                                              {"mamba_d_conv", 4}}};
inline constexpr StateSizes kMamba2 = {{{"num_heads", 128},
                                        {"head_dim", 64},
                                        {"state_size", 128},
                                        {"n_groups", 8},
                                        {"conv_kernel", 4}}};
inline constexpr StateSizes kNemotron = {{{"mamba_num_heads", 128},
                                          {"mamba_head_dim", 64},
                                          {"ssm_state_size", 128},
                                          {"n_groups", 8},
                                          {"conv_kernel", 4}}};
inline constexpr StateSizes kShortConvolution = {
    {{nullptr, 0}, {"hidden_size", 0}, {nullptr, 0}, {nullptr, 0}, {"conv_L_cache", 3}}};

/// The rule that tells a family's layers apart where the configuration has no layer_types.
struct Family {
  const char* name;          // model_type
  const char* architecture;  // up to "For…"
  Attention attention = Attention::plain;
  uint32_t full_every = 0;         // local or recurrent layers but each full_every-th; 0: all full
  bool window_everywhere = false;  // sliding_window, if any, holds in every layer
  bool state_beside = false;       // a state beside the rows of every layer
  const char* local = kWindow;
  const char* recurrent = nullptr;         // layer type of a recurrent layer
  const char* attention_layers = nullptr;  // key: the layers that are not recurrent
  const StateSizes* state = nullptr;
  uint32_t heads = 0, kv_heads = 0, head_dim = 0;  // what its nested configurations leave out
};

// clang-format off
inline constexpr Family kFamilies[] = {
    {.name = "llama", .architecture = "Llama"},
    {.name = "mistral", .architecture = "Mistral", .window_everywhere = true},
    {.name = "mixtral", .architecture = "Mixtral", .window_everywhere = true},
    {.name = "ministral", .architecture = "Ministral", .window_everywhere = true},
    {.name = "phi3", .architecture = "Phi3", .window_everywhere = true},
    {.name = "qwen2", .architecture = "Qwen2"},
    {.name = "qwen2_moe", .architecture = "Qwen2Moe"},
    {.name = "qwen3", .architecture = "Qwen3"},
    {.name = "qwen3_moe", .architecture = "Qwen3Moe"},
    {.name = "smollm3", .architecture = "SmolLM3"},
    {.name = "glm", .architecture = "Glm"},
    {.name = "glm4", .architecture = "Glm4"},
    {.name = "glm4_moe", .architecture = "Glm4Moe"},
    {.name = "granite", .architecture = "Granite"},
    {.name = "granitemoe", .architecture = "GraniteMoe"},
    {.name = "starcoder2", .architecture = "Starcoder2", .window_everywhere = true},
    {.name = "phi", .architecture = "Phi"},
    {.name = "stablelm", .architecture = "StableLm"},
    {.name = "seed_oss", .architecture = "SeedOss"},
    {.name = "hunyuan_v1_dense", .architecture = "HunYuanDenseV1"},
    {.name = "hunyuan_v1_moe", .architecture = "HunYuanMoEV1"},
    {.name = "gpt_neox", .architecture = "GPTNeoX"},
    {.name = "ernie4_5", .architecture = "Ernie4_5"},
    {.name = "ernie4_5_moe", .architecture = "Ernie4_5_Moe"},
    {.name = "falcon", .architecture = "Falcon"},
    {.name = "exaone4", .architecture = "Exaone4", .full_every = 4},
    {.name = "exaone_moe", .architecture = "ExaoneMoe", .full_every = 4},
    {.name = "olmo2", .architecture = "Olmo2"},
    {.name = "olmo3", .architecture = "Olmo3", .full_every = 4},
    {.name = "gemma", .architecture = "Gemma"},
    {.name = "gemma2", .architecture = "Gemma2", .full_every = 2},
    {.name = "gemma3_text", .architecture = "Gemma3", .full_every = 6,
     .heads = 8, .kv_heads = 4, .head_dim = 256},
    {.name = "cohere2", .architecture = "Cohere2", .full_every = 4},
    {.name = "gpt_oss", .architecture = "GptOss", .full_every = 2},
    {.name = "llama4_text", .architecture = "Llama4", .full_every = 4,
     .local = "chunked_attention"},
    {.name = "deepseek_v2", .architecture = "DeepseekV2", .attention = Attention::latent},
    {.name = "deepseek_v3", .architecture = "DeepseekV3", .attention = Attention::latent},
    {.name = "deepseek_v4", .architecture = "DeepseekV4", .attention = Attention::deepseek_v4},
    {.name = "qwen3_next", .architecture = "Qwen3Next", .full_every = 4,
     .local = kRecurrent, .recurrent = kRecurrent, .state = &kDeltaNet},
    {.name = "qwen3_5_text", .architecture = "Qwen3_5", .full_every = 4, .local = kRecurrent,
     .recurrent = kRecurrent, .state = &kDeltaNet},
    {.name = "qwen3_5_moe_text", .architecture = "Qwen3_5Moe", .full_every = 4,
     .local = kRecurrent, .recurrent = kRecurrent, .state = &kDeltaNet},
    {.name = "jamba", .architecture = "Jamba", .recurrent = kRecurrent, .state = &kJamba},
    {.name = "bamba", .architecture = "Bamba", .recurrent = kRecurrent,
     .attention_layers = "attn_layer_indices", .state = &kGroupedMamba},
    {.name = "granitemoehybrid", .architecture = "GraniteMoeHybrid", .recurrent = kRecurrent,
     .state = &kGroupedMamba},
    {.name = "falcon_h1", .architecture = "FalconH1", .state_beside = true,
     .state = &kGroupedMamba},
    {.name = "lfm2", .architecture = "Lfm2", .attention = Attention::convolution,
     .recurrent = "conv", .attention_layers = "full_attn_idxs", .state = &kShortConvolution},
    {.name = "mamba2", .architecture = "Mamba2", .attention = Attention::mamba,
     .recurrent = kRecurrent, .state = &kMamba2},
    {.name = "nemotron_h", .architecture = "NemotronH", .attention = Attention::pattern,
     .recurrent = kRecurrent, .state = &kNemotron},
};
// clang-format on

/// Keys that stand for a kind of attention, and which families may have them (null: none).
struct TellingKey {
  const char* key;
  std::optional<Attention> of;
};
inline constexpr TellingKey kTellingKeys[] = {
    {"kv_lora_rank", Attention::latent},
    {"compress_rates", Attention::deepseek_v4},
    {"compress_ratios", Attention::deepseek_v4},
    {"index_topk", Attention::deepseek_v4},
    {"state_size", Attention::mamba},
    {"ssm_cfg", std::nullopt},
    {"ssm_state_size", Attention::pattern},
    {"lru_width", std::nullopt},
    {"conv_L_cache", Attention::convolution},
    {"linear_attn_config", std::nullopt},
    {"hybrid_override_pattern", Attention::pattern},
    {"block_types", std::nullopt},
    {"attn_type_list", std::nullopt},
    {"sparse_config", std::nullopt},
    {"sparse_attention_config", std::nullopt},
    {"attention_sink_size", std::nullopt},
    {"cross_attention_layers", std::nullopt},
    {"cla_share_factor", std::nullopt},
    {"num_kv_shared_layers", std::nullopt},
};

}  // namespace kv
