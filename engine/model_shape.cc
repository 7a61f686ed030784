// A model's shape from its GGUF metadata, and what is refused. See model.h.
#include <algorithm>
#include <cmath>

#include "codec/codec.h"
#include "engine/attention_kinds.h"
#include "engine/model.h"
#include "engine/tokenizer.h"

namespace kv {
namespace {

constexpr uint32_t kMaxWidth = 1u << 16;
constexpr uint32_t kMaxContext = 1u << 17;
constexpr uint32_t kMaxWindow = 1u << 17;
constexpr uint32_t kGemmaFullEvery = 6;
constexpr double kGemmaLocalBase = 10000.0;

// Keys after "llama." or "gemma3." whose meaning the engine honours, or that change nothing.
constexpr std::string_view kCommonKeys[] = {"block_count",
                                            "context_length",
                                            "embedding_length",
                                            "feed_forward_length",
                                            "vocab_size",
                                            "attention.head_count",
                                            "attention.head_count_kv",
                                            "attention.key_length",
                                            "attention.value_length",
                                            "attention.layer_norm_rms_epsilon",
                                            "rope.dimension_count",
                                            "rope.freq_base",
                                            "rope.scaling.type",  // "none" only
                                            "expert_count",       // 0 only
                                            "expert_used_count",  // 0 only
                                            "tensor_data_layout"};
constexpr std::string_view kGemmaKeys[] = {"attention.sliding_window",
                                           "attention.sliding_window_pattern", "rope.freq_base_swa",
                                           "attn_logit_softcapping",    // 0 only
                                           "final_logit_softcapping"};  // 0 only

// Reads "<architecture>.<name>" keys.
class Keys {
 public:
  Keys(const GgufFile& file, Architecture architecture)
      : file_(file), prefix_(std::string(to_string(architecture)) + ".") {}

  bool has(std::string_view name) const { return file_.has(key(name)); }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  /// A count in 1 … limit; left as it is where the key is missing and `optional`.
  Status count(std::string_view name, uint32_t limit, uint32_t& out, bool optional = false) const {
    if (optional && !has(name)) return {};
    KV_ASSIGN_OR_RETURN(uint64_t value, file_.integer(key(name)));
    if (value == 0 || value > limit) {
      return corruption("GGUF: metadata '" + key(name) + "' " + std::to_string(value) +
                        " outside 1.." + std::to_string(limit));
    }
    out = static_cast<uint32_t>(value);
    return {};
  }

  /// A float in (least, most), or `otherwise` where the key is missing and that isn't 0.
  Status real(std::string_view name, double least, double most, double otherwise,
              float& out) const {
    double value = otherwise;
    if (has(name) || otherwise == 0) {
      KV_ASSIGN_OR_RETURN(value, file_.number(key(name)));
    }
    if (!(value > least && value < most)) {
      return corruption("GGUF: metadata '" + key(name) + "' out of range");
    }
    out = static_cast<float>(value);
    return {};
  }

  /// Refuses a key that is there and not 0.
  Status zero(std::string_view name) const {
    if (!has(name)) return {};
    auto number = file_.number(key(name));
    auto integer = file_.integer(key(name));
    bool none = (number.ok() && *number == 0) || (integer.ok() && *integer == 0);
    return none ? Status() : unsupported("GGUF: metadata '" + key(name) + "'");
  }

  Status refuse_unknown(bool gemma) const {
    for (std::string_view given : file_.keys()) {
      if (given.substr(0, prefix_.size()) != prefix_) continue;
      auto name = given.substr(prefix_.size());
      auto among = [&](auto& known) {
        return std::find(std::begin(known), std::end(known), name) != std::end(known);
      };
      if (among(kCommonKeys) || (gemma && among(kGemmaKeys))) continue;
      return unsupported("GGUF: metadata '" + std::string(given) + "' is not known");
    }
    return {};
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// Everything under which this engine would compute something else than the model means.
Status refuse_variants(const GgufFile& file, const Keys& keys, Architecture architecture) {
  KV_RETURN_IF_ERROR(check_attention_keys(file, to_string(architecture)));
  KV_RETURN_IF_ERROR(keys.zero("expert_count"));
  KV_RETURN_IF_ERROR(keys.zero("expert_used_count"));
  KV_RETURN_IF_ERROR(keys.zero("attn_logit_softcapping"));
  KV_RETURN_IF_ERROR(keys.zero("final_logit_softcapping"));
  if (keys.has("rope.scaling.type")) {
    KV_ASSIGN_OR_RETURN(auto scaling, file.text(keys.key("rope.scaling.type")));
    if (scaling != "none") return unsupported("rope scaling '" + std::string(scaling) + "'");
  }
  return keys.refuse_unknown(architecture == Architecture::gemma3);
}

Status read_heads(const Keys& keys, ModelShape& s) {
  KV_RETURN_IF_ERROR(keys.count("attention.head_count", kMaxHeads, s.heads));
  s.kv_heads = s.heads;
  KV_RETURN_IF_ERROR(keys.count("attention.head_count_kv", kMaxHeads, s.kv_heads, true));
  s.head_dim = s.width / s.heads;
  KV_RETURN_IF_ERROR(keys.count("attention.key_length", 512, s.head_dim, true));
  if (!codable_dim(s.head_dim)) {
    return unsupported("head_dim " + std::to_string(s.head_dim) + " (known: " + kCodableDims + ")");
  }
  if (s.heads % s.kv_heads != 0) {
    return corruption("GGUF: head_count " + std::to_string(s.heads) +
                      " is no multiple of head_count_kv " + std::to_string(s.kv_heads));
  }
  uint32_t value_dim = s.head_dim, rope_dims = s.head_dim;
  KV_RETURN_IF_ERROR(keys.count("attention.value_length", 1u << 16, value_dim, true));
  KV_RETURN_IF_ERROR(keys.count("rope.dimension_count", 512, rope_dims, true));
  if (value_dim != s.head_dim) {
    return unsupported("values of " + std::to_string(value_dim) + " and keys of " +
                       std::to_string(s.head_dim) + " per head");
  }
  if (rope_dims != s.head_dim) {
    return unsupported("rope over " + std::to_string(rope_dims) + " of " +
                       std::to_string(s.head_dim) + " values per head");
  }
  return {};
}

Status read_gemma(const Keys& keys, ModelShape& s) {
  // The 27B's query scale, 1 / sqrt(width / heads), stands in no key.
  if (s.layers == 62) return unsupported("gemma3 with 62 layers: its query scale");
  KV_RETURN_IF_ERROR(keys.count("attention.sliding_window", kMaxWindow, s.window));
  s.full_every = kGemmaFullEvery;
  KV_RETURN_IF_ERROR(
      keys.count("attention.sliding_window_pattern", kMaxLayers, s.full_every, true));
  return keys.real("rope.freq_base_swa", 1.0, 1e12, kGemmaLocalBase, s.local_rope_base);
}

}  // namespace

const char* to_string(Architecture architecture) {
  return architecture == Architecture::gemma3 ? "gemma3" : "llama";
}

Result<Architecture> read_architecture(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(auto name, file.text("general.architecture"));
  for (Architecture known : {Architecture::llama, Architecture::gemma3}) {
    if (name == to_string(known)) return known;
  }
  return unsupported("GGUF architecture '" + std::string(name) + "' (known: llama, gemma3)");
}

Result<ModelShape> read_shape(const GgufFile& file, uint32_t vocab) {
  ModelShape s;
  KV_ASSIGN_OR_RETURN(s.architecture, read_architecture(file));
  Keys keys(file, s.architecture);
  bool gemma = s.architecture == Architecture::gemma3;
  KV_RETURN_IF_ERROR(refuse_variants(file, keys, s.architecture));
  KV_RETURN_IF_ERROR(keys.count("block_count", kMaxLayers, s.layers));
  KV_RETURN_IF_ERROR(keys.count("embedding_length", kMaxWidth, s.width));
  KV_RETURN_IF_ERROR(keys.count("feed_forward_length", kMaxWidth, s.ffn));
  KV_RETURN_IF_ERROR(keys.count("context_length", 1u << 30, s.context));
  s.context = std::min(s.context, kMaxContext);
  s.vocab = vocab;
  if (s.vocab == 0 || s.vocab > kMaxVocab) return corruption("GGUF: vocabulary size");
  KV_RETURN_IF_ERROR(read_heads(keys, s));
  KV_RETURN_IF_ERROR(keys.real("rope.freq_base", 1.0, 1e12, 10000.0, s.rope_base));
  KV_RETURN_IF_ERROR(keys.real("attention.layer_norm_rms_epsilon", 0, 1, 0, s.rms_eps));
  if (gemma) KV_RETURN_IF_ERROR(read_gemma(keys, s));
  return s;
}

}  // namespace kv
