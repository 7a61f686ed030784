// The families and their layers. See attention_kinds.h; facts: transformers 5.23, models/*.
#include "engine/attention_kinds.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/attention_kinds_families.h"

namespace kv {
namespace {

using nlohmann::json;

constexpr uint32_t kMaxTokensOfWindow = 1u << 24;
constexpr uint32_t kMostOfState = 1u << 16;  // of each size of a recurrent layer's state
constexpr int kMaxNesting = 3;

Status bad_field(const std::string& key, const std::string& what) {
  return invalid_argument("config: " + key + " " + what);
}

bool present(const json& c, const char* key) { return c.contains(key) && !c[key].is_null(); }

// A whole number in 1 … most. `otherwise` where it is missing; 0: it must be there.
Result<uint32_t> number(const json& c, const char* key, uint32_t most, uint32_t otherwise = 0) {
  if (!present(c, key)) {
    if (otherwise == 0) return bad_field(key, "is missing");
    return otherwise;
  }
  const json& v = c[key];
  if (!v.is_number_unsigned() || v.get<uint64_t>() < 1 || v.get<uint64_t>() > most) {
    return bad_field(key, "is " + v.dump().substr(0, 40) + ", expected a whole number in 1.." +
                              std::to_string(most));
  }
  return v.get<uint32_t>();
}

// The text model's configuration: the deepest nested one.
const json& text_model(const json& whole) {
  const json* c = &whole;
  for (int depth = 0; depth < kMaxNesting; ++depth) {
    const json* inner = nullptr;
    for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"}) {
      if (inner == nullptr && c->contains(key) && (*c)[key].is_object()) inner = &(*c)[key];
    }
    if (inner == nullptr) break;
    c = inner;
  }
  return *c;
}

const Family* by_type(const json& c) {
  if (!c.contains("model_type") || !c["model_type"].is_string()) return nullptr;
  for (const Family& f : kFamilies) {
    if (c["model_type"] == f.name) return &f;
  }
  return nullptr;
}

// "DeepseekV3ForCausalLM" is DeepseekV3.
const Family* by_architecture(const json& c) {
  if (!c.contains("architectures") || !c["architectures"].is_array()) return nullptr;
  for (const json& a : c["architectures"]) {
    if (!a.is_string()) continue;
    std::string name = a.get<std::string>();
    size_t end = name.find("For");
    if (end == name.npos) continue;
    for (const Family& f : kFamilies) {
      if (name.compare(0, end, f.architecture) == 0) return &f;
    }
  }
  return nullptr;
}

std::string claimed(const json& c) {
  std::string out = "model_type " + c.value("model_type", json()).dump();
  if (c.contains("architectures")) out += ", architectures " + c["architectures"].dump();
  return out.substr(0, 200);
}

Result<const Family*> family_of(const json& whole, const json& c) {
  const Family *type = by_type(c), *architecture = by_architecture(c);
  if (type == nullptr && architecture == nullptr) architecture = by_architecture(whole);
  const Family* f = type != nullptr ? type : architecture;
  if (f == nullptr) return unsupported("config: unknown kind of attention: " + claimed(c));
  if (architecture != nullptr && architecture->attention != f->attention) {
    return unsupported("config: model_type and architecture disagree: " + claimed(c));
  }
  for (const TellingKey& t : kTellingKeys) {
    if ((present(c, t.key) || present(whole, t.key)) && t.of != f->attention) {
      return unsupported("config: " + std::string(f->name) + " with " + t.key +
                         ": not its kind of attention");
    }
  }
  return f;
}

// Rows must be a function of the prefix: no rotation that changes as the sequence grows.
Status check_rotation(const json& c) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!c.contains(key) || !c[key].is_object()) continue;
    for (const char* name : {"rope_type", "type"}) {
      json type = c[key].value(name, json());
      if (type == "dynamic" || type == "longrope" || type == "su") {
        return unsupported("config: " + std::string(key) + " " + type.dump() +
                           ": rows depend on the sequence's total length");
      }
    }
  }
  if (c.value("use_bidirectional_attention", json()) == true) {
    return unsupported("config: use_bidirectional_attention: rows depend on later tokens");
  }
  return {};
}

Result<DType> dtype_of(const json& whole, const json& c) {
  for (const json* from : {&c, &whole}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!present(*from, key)) continue;
      if ((*from)[key] == "float32") return DType::f32;
      if ((*from)[key] == "bfloat16") return DType::bf16;
      if ((*from)[key] == "float16") return DType::f16;
      return unsupported("config: " + std::string(key) + " " + (*from)[key].dump().substr(0, 40));
    }
  }
  return DType::f16;
}

// Jamba's period; its offset may be 0.
Result<bool> is_jambas_attention(const json& c, uint32_t layer) {
  KV_ASSIGN_OR_RETURN(uint32_t period, number(c, "attn_layer_period", kMaxLayers, 8));
  uint32_t offset = 0;
  if (!present(c, "attn_layer_offset") || c["attn_layer_offset"] != 0) {
    KV_ASSIGN_OR_RETURN(offset, number(c, "attn_layer_offset", kMaxLayers, 4));
  }
  return layer % period == offset;
}

// "LLLG": windows and a full layer, again and again; the last layer is full.
Result<std::string> lettered_layer(const json& letters, uint32_t layer, uint32_t layers) {
  const std::string text = letters.get<std::string>();
  const bool known = !text.empty() && text.find_first_not_of("LG") == text.npos;
  if (!known) {
    return bad_field("sliding_window_pattern",
                     "is " + letters.dump().substr(0, 40) + ", expected letters L and G");
  }
  return std::string(text[layer % text.size()] == 'L' && layer + 1 < layers ? kWindow : kFull);
}

// One layer in every `full_every`, or what the configuration says instead.
Result<std::string> layer_of_period(const Family& f, const json& c, uint32_t layer,
                                    uint32_t layers) {
  const bool windows = f.local == std::string(kWindow);
  if (windows && c.contains("sliding_window") && c["sliding_window"].is_null()) {
    return std::string(kFull);
  }
  const json pattern = c.value("sliding_window_pattern", json());
  if (windows && pattern.is_string()) return lettered_layer(pattern, layer, layers);
  uint32_t every = f.full_every;
  for (const char* key :
       {"sliding_window_pattern", "full_attention_interval", "no_rope_layer_interval"}) {
    KV_ASSIGN_OR_RETURN(every, number(c, key, kMaxLayers, every));
  }
  return std::string((layer + 1) % every == 0 ? kFull : f.local);
}

// Name of a layer's type in a family without layer_types.
Result<std::string> usual_layer(const Family& f, const json& c, uint32_t layer, uint32_t layers) {
  if (f.attention == Attention::mamba) return std::string(f.recurrent);
  if (f.state_beside) return std::string("hybrid");
  if (f.name == std::string("jamba")) {
    KV_ASSIGN_OR_RETURN(const bool attention, is_jambas_attention(c, layer));
    return std::string(attention ? kFull : f.recurrent);
  }
  if (f.full_every > 0) return layer_of_period(f, c, layer, layers);
  if (f.recurrent != nullptr && f.attention_layers == nullptr) {
    return bad_field("layer_types", "is missing");
  }
  if (f.attention_layers != nullptr && present(c, f.attention_layers)) {
    const json& chosen = c[f.attention_layers];
    if (!chosen.is_array()) return bad_field(f.attention_layers, "is no list of layers");
    const bool full = std::find(chosen.begin(), chosen.end(), json(layer)) != chosen.end();
    return std::string(full ? kFull : f.recurrent);
  }
  if (f.attention_layers != nullptr) return bad_field(f.attention_layers, "is missing");
  bool window = f.window_everywhere && present(c, "sliding_window");
  if (c.value("use_sliding_window", json()) == true && present(c, "sliding_window")) {
    KV_ASSIGN_OR_RETURN(uint32_t full, number(c, "max_window_layers", kMaxLayers));
    window = layer >= full;
  }
  return std::string(window ? kWindow : kFull);
}

// The list of layer types, by the name that the configuration gives it; null: it has none.
const char* types_key(const json& c) {
  for (const char* key : {"layer_types", "layers_block_type"}) {
    if (present(c, key)) return key;
  }
  return nullptr;
}

Result<std::vector<std::string>> listed_types(const json& c, const char* key, uint32_t layers) {
  const json& types = c[key];
  if (!types.is_array() || types.size() != layers) {
    return bad_field(key, "is no list of num_hidden_layers " + std::to_string(layers));
  }
  std::vector<std::string> out;
  for (const json& t : types) {
    if (!t.is_string()) return bad_field(key, "has an entry that is no text");
    out.push_back(t == "mamba" ? kRecurrent : t == "attention" ? kFull : t.get<std::string>());
  }
  return out;
}

// Llama-4's list where it has no layer_types: 1 for a chunked layer, 0 for a full one.
Result<std::vector<std::string>> rotated_types(const Family& f, const json& c, uint32_t layers) {
  const json& list = c["no_rope_layers"];
  if (!list.is_array() || list.size() != layers) {
    return bad_field("no_rope_layers", "is no list of num_hidden_layers " + std::to_string(layers));
  }
  std::vector<std::string> out;
  for (const json& rotated : list) {
    if (rotated != 0 && rotated != 1) return bad_field("no_rope_layers", "has an entry not 0 or 1");
    out.push_back(rotated == 1 ? f.local : kFull);
  }
  return out;
}

Result<std::vector<std::string>> layer_types(const Family& f, const json& c, uint32_t layers) {
  const char* key = types_key(c);
  if (key != nullptr) return listed_types(c, key, layers);
  if (present(c, "no_rope_layers") && !c["no_rope_layers"].empty() && f.full_every > 0) {
    return rotated_types(f, c, layers);
  }
  std::vector<std::string> out;
  for (uint32_t l = 0; l < layers; ++l) {
    KV_ASSIGN_OR_RETURN(std::string type, usual_layer(f, c, l, layers));
    out.push_back(std::move(type));
  }
  return out;
}

constexpr const char* kNoCache = "no cache";

PartSpec state_part(const Family& f) {
  PartSpec p;
  p.kind = PartKind::state;
  p.label = f.name;
  return p;
}

// Falcon's words for the heads of K and V.
Result<uint32_t> falcon_heads(const json& c, uint32_t heads) {
  if (c.value("new_decoder_architecture", json()) == true) {
    return number(c, "num_kv_heads", kMaxHeads, heads);
  }
  return c.value("multi_query", json(true)) == true ? 1 : heads;
}

// Layers of a model that names each by a letter: M recurrent, * attention, - and E without a cache.
Result<std::vector<std::string>> pattern_types(const Family& f, const json& c, uint32_t layers) {
  if (const char* key = types_key(c); key != nullptr) {
    KV_ASSIGN_OR_RETURN(std::vector<std::string> types, listed_types(c, key, layers));
    for (std::string& type : types) {
      if (type == "mlp" || type == "moe") type = kNoCache;
    }
    return types;
  }
  const json letters = c.value("hybrid_override_pattern", json());
  if (!letters.is_string() || letters.get<std::string>().size() != layers) {
    return bad_field("hybrid_override_pattern", "has no letter for every layer");
  }
  std::vector<std::string> out;
  for (const char letter : letters.get<std::string>()) {
    const bool known = letter == 'M' || letter == '*' || letter == '-' || letter == 'E';
    if (!known) return bad_field("hybrid_override_pattern", "has a letter that is not known");
    out.push_back(letter == 'M' ? f.recurrent : letter == '*' ? kFull : kNoCache);
  }
  return out;
}

// K and V rows of a plain layer.
Result<PartSpec> plain_part(const Family& f, const json& c) {
  PartSpec p;
  KV_ASSIGN_OR_RETURN(uint32_t heads, number(c, "num_attention_heads", kMaxHeads, f.heads));
  uint32_t other = f.kv_heads > 0 ? f.kv_heads : heads;
  if (f.name == std::string("falcon")) {
    KV_ASSIGN_OR_RETURN(p.heads, falcon_heads(c, heads));
  } else {
    KV_ASSIGN_OR_RETURN(p.heads, number(c, "num_key_value_heads", kMaxHeads, other));
  }
  uint32_t dim = f.head_dim;
  const char* key = present(c, "attention_head_dim") ? "attention_head_dim" : "head_dim";
  if (dim == 0 && !present(c, key)) {
    KV_ASSIGN_OR_RETURN(uint32_t width, number(c, "hidden_size", 1u << 20));
    if (width % heads != 0) return bad_field("hidden_size", "is no multiple of the heads");
    dim = width / heads;
  }
  KV_ASSIGN_OR_RETURN(p.k_dim, number(c, key, kMaxDim, dim));
  p.v_dim = p.k_dim;
  return p;
}

Status unknown_layer(const json& c, const std::string& family, const std::string& type) {
  const char* key = types_key(c);
  return unsupported("config: " + std::string(key != nullptr ? key : "layer_types") + " has '" +
                     type.substr(0, 60) + "', which is no layer of " + family);
}

Result<LayerSpec> plain_layer(const Family& f, const json& c, const std::string& type) {
  if (f.attention == Attention::pattern && type == kNoCache) return LayerSpec{};
  if (f.recurrent != nullptr && type == f.recurrent) return LayerSpec{{state_part(f)}};
  KV_ASSIGN_OR_RETURN(PartSpec p, plain_part(f, c));
  if (f.state_beside && type == "hybrid") return LayerSpec{{p, state_part(f)}};
  if (type == kWindow) {
    p.kind = PartKind::window;
    KV_ASSIGN_OR_RETURN(p.window, number(c, "sliding_window", kMaxTokensOfWindow));
  } else if (type == "chunked_attention") {
    p.kind = PartKind::chunk;
    KV_ASSIGN_OR_RETURN(p.chunk, number(c, "attention_chunk_size", kMaxTokensOfWindow));
  } else if (type != kFull || f.state_beside) {
    return unknown_layer(c, f.name, type);
  }
  return LayerSpec{{p}};
}

Result<LayerSpec> latent_layer(const Family& f, const json& c) {
  PartSpec p;
  p.kind = PartKind::latent;
  p.heads = 1;
  KV_ASSIGN_OR_RETURN(uint32_t rank, number(c, "kv_lora_rank", kMaxDim / 2));
  KV_ASSIGN_OR_RETURN(uint32_t rotated, number(c, "qk_rope_head_dim", kMaxDim / 2));
  p.k_dim = rank + rotated;
  p.label = f.name;
  return LayerSpec{{p}};
}

PartSpec pooled_part(uint32_t dim, uint32_t rate, bool overlap) {
  PartSpec p;
  p.kind = PartKind::pooled;
  p.heads = 1;
  p.k_dim = dim;
  p.rate = rate;
  p.overlap = overlap;
  return p;
}

constexpr const char *kSparse = "compressed_sparse_attention",
                     *kHeavy = "heavily_compressed_attention";

// Layer types of DeepSeek-V4: layer_types, or the rates of compress_ratios (0, 4, 128).
Result<std::vector<std::string>> compressed_types(const json& c, uint32_t layers) {
  if (present(c, "layer_types")) return layer_types({"deepseek_v4", ""}, c, layers);
  if (!present(c, "compress_ratios")) return bad_field("layer_types", "is missing");
  const json& ratios = c["compress_ratios"];
  if (!ratios.is_array() || ratios.size() < layers) {
    return bad_field("compress_ratios", "has no entry for every layer");
  }
  std::vector<std::string> out;
  for (uint32_t l = 0; l < layers; ++l) {
    const json& r = ratios[l];
    if (r != 0 && r != 4 && r != 128) return bad_field("compress_ratios", "has " + r.dump());
    out.push_back(r == 0 ? kWindow : r == 4 ? kSparse : kHeavy);
  }
  return out;
}

Result<LayerSpec> compressed_layer(const json& c, const std::string& type) {
  json rates = c.value("compress_rates", json::object());
  if (!rates.is_object()) return bad_field("compress_rates", "is no object");
  PartSpec window;
  window.kind = PartKind::window;
  window.heads = 1;
  KV_ASSIGN_OR_RETURN(window.k_dim, number(c, "head_dim", kMaxDim));
  KV_ASSIGN_OR_RETURN(window.window, number(c, "sliding_window", kMaxTokensOfWindow));
  LayerSpec layer{{window}};
  if (type == kHeavy) {
    KV_ASSIGN_OR_RETURN(uint32_t rate, number(rates, kHeavy, kMaxBlockTokens, 128));
    layer.parts.push_back(pooled_part(window.k_dim, rate, false));
  } else if (type == kSparse) {
    KV_ASSIGN_OR_RETURN(uint32_t rate, number(rates, kSparse, kMaxBlockTokens, 4));
    KV_ASSIGN_OR_RETURN(uint32_t index, number(c, "index_head_dim", kMaxDim));
    layer.parts.push_back(pooled_part(window.k_dim, rate, true));
    layer.parts.push_back(pooled_part(index, rate, true));
  } else if (type != kWindow) {
    return unknown_layer(c, "deepseek_v4", type);
  }
  return layer;
}

// The number of a list's layers; 0: there is none, or one of too many.
uint32_t number_listed(const json& c) {
  const char* key = types_key(c);
  if (key == nullptr || !c[key].is_array() || c[key].size() > kMaxLayers) return 0;
  return static_cast<uint32_t>(c[key].size());
}

Result<LayerSpec> layer_of(const Family& f, const json& c, const std::string& type) {
  if (f.attention == Attention::latent) return latent_layer(f, c);
  if (f.attention == Attention::deepseek_v4) return compressed_layer(c, type);
  return plain_layer(f, c, type);
}

}  // namespace

Result<ModelSpec> spec_of_config(std::string_view config) {
  if (config.size() > kMaxConfigBytes) {
    return invalid_argument("config: over " + std::to_string(kMaxConfigBytes) + " bytes");
  }
  json whole = json::parse(config, nullptr, false);
  if (!whole.is_object()) return invalid_argument("config: no JSON object");
  const json& c = text_model(whole);
  KV_ASSIGN_OR_RETURN(const Family* family, family_of(whole, c));
  KV_RETURN_IF_ERROR(check_rotation(c));
  KV_ASSIGN_OR_RETURN(DType dtype, dtype_of(whole, c));
  const uint32_t listed = number_listed(c);
  KV_ASSIGN_OR_RETURN(uint32_t layers, number(c, "num_hidden_layers", kMaxLayers, listed));
  std::vector<std::string> types(layers, kFull);
  if (family->attention == Attention::deepseek_v4) {
    KV_ASSIGN_OR_RETURN(types, compressed_types(c, layers));
  } else if (family->attention == Attention::pattern) {
    KV_ASSIGN_OR_RETURN(types, pattern_types(*family, c, layers));
  } else if (family->attention != Attention::latent) {
    KV_ASSIGN_OR_RETURN(types, layer_types(*family, c, layers));
  }
  ModelSpec spec;
  for (const std::string& type : types) {
    KV_ASSIGN_OR_RETURN(LayerSpec layer, layer_of(*family, c, type));
    for (PartSpec& p : layer.parts) p.dtype = dtype;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

Result<uint64_t> state_bytes_of_config(std::string_view config) {
  KV_ASSIGN_OR_RETURN(ModelSpec spec, spec_of_config(config));
  const auto states = std::count_if(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) {
    return !l.parts.empty() && !l.parts.back().has_rows();
  });
  if (states == 0) return uint64_t{0};
  const json whole = json::parse(config);
  const json& c = text_model(whole);
  KV_ASSIGN_OR_RETURN(const Family* family, family_of(whole, c));
  if (family->state == nullptr) {
    return unsupported(std::string("config: the size of states of ") + family->name);
  }
  uint64_t n[5] = {};
  for (size_t i = 0; i < 5; ++i) {
    const auto& size = family->state->of[i];
    if (size.key == nullptr) continue;
    KV_ASSIGN_OR_RETURN(n[i], number(c, size.key, kMostOfState, size.usual));
  }
  uint64_t values = std::max<uint64_t>(n[0], 1) * n[1];
  if (present(c, "mamba_d_ssm")) {
    KV_ASSIGN_OR_RETURN(values, number(c, "mamba_d_ssm", kMostOfState));
  }
  const uint64_t history = (n[4] - 1) * (values + 2 * n[3] * n[2]);
  return static_cast<uint64_t>(states) * (history + values * n[2]) * sizeof(float);
}

Status check_attention_keys(const GgufFile& file, std::string_view architecture) {
  for (const char* key :
       {"attention.kv_lora_rank", "attention.q_lora_rank", "attention.key_length_mla",
        "attention.indexer.head_count", "attention.indexer.top_k", "attention.chunk_size",
        "attention.compress_ratios", "attention.recurrent_layers", "attention.shared_kv_layers",
        "ssm.state_size", "ssm.conv_kernel", "wkv.head_size", "full_attention_interval"}) {
    std::string whole = std::string(architecture) + "." + key;
    if (file.has(whole)) {
      return unsupported("GGUF: key '" + whole + "' stands for a kind of attention that is not " +
                         std::string(architecture) + "'s");
    }
  }
  if (architecture == "llama" && file.has("llama.attention.sliding_window")) {
    return unsupported("GGUF: key 'llama.attention.sliding_window': windows of this architecture");
  }
  return {};
}

}  // namespace kv
