// cachectl kinds: what a cache is made of, from a configuration, a GGUF file or the table of
// models.
#include "tests/support/cachectl_store.h"
#include "tests/support/tiny_gguf.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::AllOf;

// A nested text config of windows and full layers, one of latents, one of a kind that isn't known.
TEST_F(Cachectl, KindsSaysWhatACacheIsMadeOfBeforeAnythingIsStored) {
  auto config = [&](const json& c) {
    spew(dir_.path() + "/config.json", c.dump());
    return "kinds --coding tq4 " + dir_.path() + "/config.json";
  };
  json text = {{"model_type", "gemma3_text"}, {"num_hidden_layers", 6},   {"sliding_window", 512},
               {"num_attention_heads", 4},    {"num_key_value_heads", 1}, {"head_dim", 256}};
  std::string command = config({{"model_type", "gemma3"}, {"text_config", text}});
  EXPECT_THAT(
      run(command).out,
      AllOf(HasSubstr("6 layers"),
            HasSubstr("layers 0-4 part 0 window of 512, 1 head, K 256 V 256"),
            HasSubstr("layers 5 part 0 full, 1 head, K 256 V 256"),
            HasSubstr("layers 0-4 part 0 window K: requested tq4, active tq4"),
            HasSubstr("1024 tokens take 908.7 KiB, 908 B a token, 1153 in a GiB, ends kept every "
                      "256 tokens at most 651.3 KiB"),
            HasSubstr("16384 tokens take 4.7 MiB, "), HasSubstr("ends kept every 2048 tokens")));
  command = config({{"model_type", "deepseek_v3"},
                    {"num_hidden_layers", 3},
                    {"kv_lora_rank", 512},
                    {"qk_rope_head_dim", 64}});
  EXPECT_THAT(run(command).out,
              AllOf(HasSubstr("layers 0-2 part 0 latent, 1 head, K and V in one storage of 576"),
                    HasSubstr("latent other: requested tq4, active raw: latent")));
  json found = run(command + " --json").parsed();
  EXPECT_EQ(found["ends"][0]["end_interval"], 0) << "any length is served";
  EXPECT_EQ(found["ends"][1]["entry_bytes"], 4096 * 3 * 576 * 2);
  EXPECT_EQ(found["parts"][2]["kind"], "latent");
  EXPECT_EQ(found["parts"][2]["k_dim"], 576);
  EXPECT_EQ(found["coding"][2]["active"], "raw");
  Ran refused = run(config({{"model_type", "rwkv9"}, {"num_hidden_layers", 3}}));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("unknown kind of attention: model_type \"rwkv9\""));
  refused = run("kinds Qwen/Qwen9");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("Qwen/Qwen9: no readable file, and no name of the table"));
  EXPECT_EQ(run(config(text) + " --coding tq5").code, 2);
}

// Bytes by hand: layers x heads x (K and V) x dim x 2, of the rows that a part keeps. The numbers
// of Mistral-7B-v0.1, DeepSeek-V3, Qwen3-Next, Jamba and ERNIE-4.5, and of gpt-oss but its layers,
// are the defaults of transformers' configuration classes, which name these models; the others' are
// known from their config.json alone.
TEST_F(Cachectl, KindsHasATableOfKnownModels) {
  json known = run("kinds --json").parsed();
  auto row = [&](const std::string& name) {
    for (const json& m : known) {
      if (m["model"] == name) return m;
    }
    ADD_FAILURE() << name;
    return json();
  };
  EXPECT_EQ(row("meta-llama/Llama-3.1-8B")["lossless_bytes_per_token"], 32 * 8 * 2 * 128 * 2);
  EXPECT_EQ(row("Qwen/Qwen2.5-7B")["lossless_bytes_per_token"], 28 * 4 * 2 * 128 * 2);
  EXPECT_EQ(row("Qwen/Qwen3-8B")["kinds"], "full");
  EXPECT_EQ(row("baidu/ERNIE-4.5-21B-A3B-PT")["lossless_bytes_per_token"], 28 * 4 * 2 * 128 * 2);
  EXPECT_EQ(row("mistralai/Mistral-7B-v0.1")["kinds"], "window 4096");
  EXPECT_EQ(row("google/gemma-3-27b-it")["kinds"], "window 1024 + full");
  EXPECT_EQ(row("google/gemma-3-27b-it")["lossless_bytes_per_token"],
            16 * 2 * 128 * 2 * (10 * 4096 + 52 * 1023) / 4096);
  EXPECT_EQ(row("deepseek-ai/DeepSeek-V3")["lossless_bytes_per_token"], 61 * 576 * 2);
  EXPECT_EQ(row("deepseek-ai/DeepSeek-V3")["bytes_per_token"], 61 * 576 * 2) << "never coded";
  EXPECT_EQ(row("Qwen/Qwen3-Next-80B-A3B-Instruct")["kinds"], "state + full");
  // 28 recurrent layers of 8,192 values, each with a state of 16 and 3 taps before it.
  const uint64_t jamba = 28 * 8192 * (16 + 3) * 4;
  EXPECT_EQ(row("ai21labs/Jamba-v0.1")["state_bytes"], jamba);
  EXPECT_EQ(row("ai21labs/Jamba-v0.1")["lossless_bytes_per_token"],
            4 * 8 * 2 * 128 * 2 + jamba / 4096);
  EXPECT_EQ(row("Qwen/Qwen3-Next-80B-A3B-Instruct")["state_bytes"],
            36 * (4096 * 128 + 3 * (4096 + 2 * 16 * 128)) * 4);
  EXPECT_EQ(row("Qwen/Qwen3-8B")["state_bytes"], 0);
  EXPECT_EQ(row("LGAI-EXAONE/EXAONE-4.0-32B")["kinds"], "window 4096 + full");
  EXPECT_EQ(row("tiiuae/Falcon-H1-7B-Instruct")["kinds"], "state + full");
  EXPECT_EQ(row("tiiuae/Falcon-H1-7B-Instruct")["state_bytes"],
            44 * (3072 * 256 + 3 * (3072 + 2 * 256)) * 4);
  EXPECT_EQ(row("meta-llama/Llama-3.1-8B")["prompts_per_gib"], 5);
  EXPECT_GT(row("meta-llama/Llama-3.1-8B")["lossless_bytes_per_token"],
            row("meta-llama/Llama-3.1-8B")["bytes_per_token"]);
  EXPECT_THAT(run("kinds").out,
              AllOf(HasSubstr("meta-llama/Llama-3.1-8B"), HasSubstr("config.json")));
  EXPECT_THAT(run("kinds ai21labs/Jamba-v0.1").out,
              AllOf(HasSubstr("16.6 MiB of it states"), HasSubstr("ends kept: its own")));
  EXPECT_THAT(run("kinds Qwen/Qwen3-8B").out, HasSubstr("layers 0-35 part 0 full, 8 heads"));
}

TEST_F(Cachectl, KindsReadsAGgufToo) {
  TinyGguf gguf;
  gguf.architecture = "gemma3";
  gguf.layers = 3;
  auto kinds = [&] {
    std::vector<uint8_t> bytes = gguf.write();
    spew(dir_.path() + "/tiny.gguf", {bytes.begin(), bytes.end()});
    return run("kinds " + dir_.path() + "/tiny.gguf");
  };
  EXPECT_THAT(kinds().out, AllOf(HasSubstr("layers 0-1 part 0 window of 40, 1 head, K 32 V 32"),
                                 HasSubstr("layers 2 part 0 full, 1 head, K 32 V 32"),
                                 HasSubstr("layers 0-1 part 0 window K: requested int8")));
  gguf.extra_key = "gemma3.attention.kv_lora_rank";
  Ran refused = kinds();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("gemma3.attention.kv_lora_rank"));
}

}  // namespace
}  // namespace kv
