// tiny_gguf: writes a GGUF file of a tiny random llama into memory, for tests that need a whole
// model and no download: 2 layers, width 64, 2 heads over 1 kv head of 32, 300 tokens, all tensor
// types.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codec/float16.h"
#include "engine/gguf.h"

namespace kv {

struct TinyGguf {
  std::string architecture = "llama";
  uint32_t layers = 2, width = 64, heads = 2, kv_heads = 1, ffn = 96, context = 2048;
  uint32_t window = 40, full_every = 3;  ///< of architecture "gemma3" only
  uint32_t seed = 1;
  uint32_t embedding_type = 8;  ///< ggml's number, also an unknown one
  std::string rope_scaling;     ///< written if not empty
  std::string extra_key;        ///< a u32 of 1 under this key, if not empty
  std::string extra_tensor;     ///< an F32 vector of `width` under this name, if not empty

  /// Not empty: a SentencePiece vocabulary instead: specials, 256 bytes, then these pieces with
  /// scores -1, -2, ….
  std::vector<std::string> sentencepiece;
  bool space_prefix = false, add_bos = true;  ///< its settings
  static constexpr int32_t kBegin = 2, kTwoLines = 4, kThreeLines = 5, kFirstByte = 6,
                           kFirstPiece = 262;

  /// Byte tokens 0 … 255, merges 256 …, then specials; eos is "<|end|>".
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;

  std::vector<uint8_t> write() {
    make_vocabulary();
    meta_.clear();
    values_ = 0;
    text("general.architecture", architecture);
    text("general.name", "tiny");
    number(architecture + ".block_count", layers);
    number(architecture + ".context_length", context);
    number(architecture + ".embedding_length", width);
    number(architecture + ".feed_forward_length", ffn);
    number(architecture + ".attention.head_count", heads);
    number(architecture + ".attention.head_count_kv", kv_heads);
    real(architecture + ".rope.freq_base", 10000.0f);
    real(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    if (!rope_scaling.empty()) text(architecture + ".rope.scaling.type", rope_scaling);
    if (!extra_key.empty()) number(extra_key, 1);
    if (gemma()) {
      number("gemma3.attention.sliding_window", window);
      number("gemma3.attention.sliding_window_pattern", full_every);
    }
    write_vocabulary();
    make_tensors();
    return finish();
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    std::vector<uint8_t> data;
  };

  bool gemma() const { return architecture == "gemma3"; }
  static std::string symbol(uint32_t c) {
    if (c < 0x80) return {static_cast<char>(c)};
    return {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
  }
  void make_vocabulary() {
    tokens.clear();
    merges.clear();
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      tokens.push_back(symbol(printable ? b : next++));
    }
    std::string space = symbol(0x120);
    for (auto [a, b] : std::vector<std::pair<std::string, std::string>>{{"t", "h"},
                                                                        {"th", "e"},
                                                                        {space, "a"},
                                                                        {space, "the"},
                                                                        {"i", "n"},
                                                                        {"in", "g"},
                                                                        {"a", "n"},
                                                                        {"e", "r"},
                                                                        {space, space}}) {
      merges.push_back(a + " " + b);
      tokens.push_back(a + b);
    }
    types.assign(tokens.size(), 1);
    for (const char* special : {"<|start|>", "<|end|>"}) {
      tokens.push_back(special);
      types.push_back(3);
    }
  }

  void make_sentencepiece() {
    tokens = {"<unk>", "<|end|>", "<|begin|>", "<|start|>", "\n\n", "\n\n\n"};
    types = {3, 3, 3, 3, 4, 4};
    for (int b = 0; b < 256; ++b) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", b);
      tokens.push_back(name);
      types.push_back(6);
    }
    tokens.insert(tokens.end(), sentencepiece.begin(), sentencepiece.end());
    types.resize(tokens.size(), 1);
  }
  void write_vocabulary() {
    bool pieces = !sentencepiece.empty();
    if (pieces) make_sentencepiece();
    text("tokenizer.ggml.model", pieces ? "llama" : "gpt2");
    text("tokenizer.ggml.pre", pieces ? "default" : "smollm");
    texts("tokenizer.ggml.tokens", tokens);
    key("tokenizer.ggml.token_type", 9);
    u32(5);
    u64(types.size());
    for (int32_t t : types) u32(static_cast<uint32_t>(t));
    if (!pieces) {
      texts("tokenizer.ggml.merges", merges);
      number("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(tokens.size() - 1));
      return;
    }
    key("tokenizer.ggml.scores", 9);
    u32(6);
    u64(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      float score = i < kFirstPiece ? 0.0f : -static_cast<float>(i - kFirstPiece + 1);
      append(meta_, &score, 4);
    }
    number("tokenizer.ggml.eos_token_id", 1);
    number("tokenizer.ggml.bos_token_id", kBegin);
    flag("tokenizer.ggml.add_bos_token", add_bos);
    flag("tokenizer.ggml.add_space_prefix", space_prefix);
  }

  void u32(uint32_t v) { append(meta_, &v, 4); }
  void u64(uint64_t v) { append(meta_, &v, 8); }
  static void append(std::vector<uint8_t>& to, const void* data, size_t size) {
    auto* p = static_cast<const uint8_t*>(data);
    to.insert(to.end(), p, p + size);
  }
  void raw_text(const std::string& s) {
    u64(s.size());
    append(meta_, s.data(), s.size());
  }
  void key(const std::string& name, uint32_t type) {
    raw_text(name);
    u32(type);
    ++values_;
  }
  void text(const std::string& name, const std::string& value) {
    key(name, 8);
    raw_text(value);
  }
  void number(const std::string& name, uint32_t value) {
    key(name, 4);
    u32(value);
  }
  void flag(const std::string& name, bool value) {
    key(name, 7);
    meta_.push_back(value ? 1 : 0);
  }
  void real(const std::string& name, float value) {
    key(name, 6);
    append(meta_, &value, 4);
  }
  void texts(const std::string& name, const std::vector<std::string>& values) {
    key(name, 9);
    u32(8);
    u64(values.size());
    for (const auto& v : values) raw_text(v);
  }

  static void append_half(std::vector<uint8_t>& to, float value) {
    const uint16_t half = float_to_half(value);
    append(to, &half, 2);
  }
  // Random packed rows; the scale keeps activations near 1.
  void tensor(const std::string& name, uint64_t columns, uint64_t rows, uint32_t type) {
    Tensor t{name,
             rows == 0 ? std::vector<uint64_t>{columns} : std::vector<uint64_t>{columns, rows},
             type,
             {}};
    uint64_t values = columns * std::max<uint64_t>(rows, 1);
    std::normal_distribution<float> normal(0, 1.0f / std::sqrt(static_cast<float>(columns)));
    if (type == 0) {
      for (uint64_t i = 0; i < values; ++i) {
        float v = rows == 0 ? 1.0f + normal(random_) : normal(random_);
        append(t.data, &v, 4);
      }
    } else if (type == 1) {
      for (uint64_t i = 0; i < values; ++i) append_half(t.data, normal(random_));
    } else {
      for (uint64_t g = 0; g < values / 32; ++g) {
        float step = 0.2f / std::sqrt(static_cast<float>(columns));
        append_half(t.data, type == 3 ? step : step / 16);
        if (type == 3) append_half(t.data, -7.5f * step);
        for (int i = 0; i < (type == 3 ? 16 : 32); ++i) {
          t.data.push_back(static_cast<uint8_t>(random_()));
        }
      }
    }
    t.data.resize((t.data.size() + 31) / 32 * 32);
    tensors_.push_back(std::move(t));
  }
  void make_tensors() {
    random_.seed(seed);
    tensors_.clear();
    uint32_t head_dim = width / heads;
    tensor("token_embd.weight", width, tokens.size(), embedding_type);
    tensor("output_norm.weight", width, 0, 0);
    for (uint32_t l = 0; l < layers; ++l) {
      std::string at = "blk." + std::to_string(l) + ".";
      tensor(at + "attn_norm.weight", width, 0, 0);
      tensor(at + "ffn_norm.weight", width, 0, 0);
      tensor(at + "attn_q.weight", width, width, 3);
      tensor(at + "attn_k.weight", width, kv_heads * head_dim, 0);
      tensor(at + "attn_v.weight", width, kv_heads * head_dim, 1);
      tensor(at + "attn_output.weight", width, width, 8);
      tensor(at + "ffn_gate.weight", width, ffn, 3);
      tensor(at + "ffn_up.weight", width, ffn, 3);
      tensor(at + "ffn_down.weight", ffn, width, 8);
      if (!gemma()) continue;
      tensor(at + "attn_q_norm.weight", head_dim, 0, 0);
      tensor(at + "attn_k_norm.weight", head_dim, 0, 0);
      tensor(at + "post_attention_norm.weight", width, 0, 0);
      tensor(at + "post_ffw_norm.weight", width, 0, 0);
    }
    if (!extra_tensor.empty()) tensor(extra_tensor, width, 0, 0);
  }
  std::vector<uint8_t> finish() {
    std::vector<uint8_t> values = std::move(meta_);
    meta_.clear();
    u32(0x46554747);
    u32(3);
    u64(tensors_.size());
    u64(values_);
    append(meta_, values.data(), values.size());
    uint64_t offset = 0;
    for (const Tensor& t : tensors_) {
      raw_text(t.name);
      u32(static_cast<uint32_t>(t.dims.size()));
      for (uint64_t d : t.dims) u64(d);
      u32(t.type);
      u64(offset);
      offset += t.data.size();
    }
    meta_.resize((meta_.size() + 31) / 32 * 32);
    for (const Tensor& t : tensors_) append(meta_, t.data.data(), t.data.size());
    return std::move(meta_);
  }

  std::mt19937 random_;
  std::vector<uint8_t> meta_;
  uint64_t values_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace kv
