// The fields of published config.json files that decide what a cache is made of.
#include "tools/cachectl_kinds.h"

namespace kv::cachectl {
namespace {

constexpr KnownConfig kKnown[] = {
    {"HuggingFaceTB/SmolLM2-135M-Instruct",
     R"({"model_type": "llama", "num_hidden_layers": 30, "num_attention_heads": 9,
         "num_key_value_heads": 3, "hidden_size": 576})"},
    {"meta-llama/Llama-3.1-8B",
     R"({"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "hidden_size": 4096})"},
    {"meta-llama/Llama-3.3-70B-Instruct",
     R"({"model_type": "llama", "num_hidden_layers": 80, "num_attention_heads": 64,
         "num_key_value_heads": 8, "hidden_size": 8192})"},
    {"Qwen/Qwen2.5-7B",
     R"({"model_type": "qwen2", "num_hidden_layers": 28, "num_attention_heads": 28,
         "num_key_value_heads": 4, "hidden_size": 3584})"},
    {"Qwen/Qwen3-8B",
     R"({"model_type": "qwen3", "num_hidden_layers": 36, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128})"},
    {"Qwen/Qwen3-30B-A3B",
     R"({"model_type": "qwen3_moe", "num_hidden_layers": 48, "num_attention_heads": 32,
         "num_key_value_heads": 4, "head_dim": 128})"},
    {"mistralai/Mistral-7B-v0.1",
     R"({"model_type": "mistral", "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "hidden_size": 4096, "sliding_window": 4096})"},
    {"mistralai/Mistral-Small-24B-Instruct-2501",
     R"({"model_type": "mistral", "num_hidden_layers": 40, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "sliding_window": null})"},
    {"LGAI-EXAONE/EXAONE-4.0-32B",
     R"({"model_type": "exaone4", "num_hidden_layers": 64, "num_attention_heads": 40,
         "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 4096,
         "sliding_window_pattern": "LLLG"})"},
    {"google/gemma-2-9b",
     R"({"model_type": "gemma2", "num_hidden_layers": 42, "num_attention_heads": 16,
         "num_key_value_heads": 8, "head_dim": 256, "sliding_window": 4096})"},
    {"google/gemma-3-270m-it",
     R"({"model_type": "gemma3_text", "num_hidden_layers": 18, "num_attention_heads": 4,
         "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512})"},
    {"google/gemma-3-27b-it",
     R"({"model_type": "gemma3_text", "num_hidden_layers": 62, "num_attention_heads": 32,
         "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024})"},
    {"openai/gpt-oss-20b",
     R"({"model_type": "gpt_oss", "num_hidden_layers": 24, "num_attention_heads": 64,
         "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128})"},
    {"baidu/ERNIE-4.5-21B-A3B-PT",
     R"({"model_type": "ernie4_5_moe", "num_hidden_layers": 28, "num_attention_heads": 20,
         "num_key_value_heads": 4, "hidden_size": 2560})"},
    {"deepseek-ai/DeepSeek-V3",
     R"({"model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512,
         "qk_rope_head_dim": 64})"},
    {"Qwen/Qwen3-Next-80B-A3B-Instruct",
     R"({"model_type": "qwen3_next", "num_hidden_layers": 48, "num_attention_heads": 16,
         "num_key_value_heads": 2, "head_dim": 256})"},
    {"ai21labs/Jamba-v0.1",
     R"({"model_type": "jamba", "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "hidden_size": 4096, "attn_layer_period": 8,
         "attn_layer_offset": 4})"},
    {"tiiuae/Falcon-H1-7B-Instruct",
     R"({"model_type": "falcon_h1", "num_hidden_layers": 44, "num_attention_heads": 12,
         "num_key_value_heads": 2, "head_dim": 128, "hidden_size": 3072, "mamba_d_ssm": 3072,
         "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4})"},
};

}  // namespace

std::span<const KnownConfig> known_configs() { return kKnown; }

}  // namespace kv::cachectl
