// Loading of a Llama-family model: shape, weights, rope table, identity. See model.h.
#include "engine/model.h"

#include <cmath>
#include <limits>
#include <set>

#include "codec/codec.h"
#include "codec/kernels.h"
#include "engine/attention_kinds.h"

namespace kv {
namespace {

constexpr uint32_t kMaxWidth = 1u << 16;
constexpr uint32_t kMaxVocab = 1u << 20;
constexpr uint32_t kMaxContext = 1u << 17;  // rope table: 64 MB at head_dim 128

Status read_count(const GgufFile& file, const char* key, uint32_t limit, uint32_t& out) {
  KV_ASSIGN_OR_RETURN(uint64_t value, file.integer(key));
  if (value == 0 || value > limit) {
    return corruption("GGUF: metadata '" + std::string(key) + "' " + std::to_string(value) +
                      " outside 1.." + std::to_string(limit));
  }
  out = static_cast<uint32_t>(value);
  return {};
}

// Everything under which this engine would compute something else than the model means.
Status refuse_variants(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(auto arch, file.text("general.architecture"));
  if (arch != "llama") {
    return unsupported("GGUF architecture '" + std::string(arch) + "' (known: llama)");
  }
  if (file.has("llama.rope.scaling.type")) {
    KV_ASSIGN_OR_RETURN(auto scaling, file.text("llama.rope.scaling.type"));
    if (scaling != "none") return unsupported("rope scaling '" + std::string(scaling) + "'");
  }
  if (file.has("llama.expert_count")) {
    KV_ASSIGN_OR_RETURN(uint64_t experts, file.integer("llama.expert_count"));
    if (experts != 0) return unsupported("mixture of experts");
  }
  return check_attention_keys(file, arch);
}

}  // namespace

Status Model::read_shape() {
  KV_RETURN_IF_ERROR(refuse_variants(file_));
  ModelShape& s = shape_;
  KV_RETURN_IF_ERROR(read_count(file_, "llama.block_count", kMaxLayers, s.layers));
  KV_RETURN_IF_ERROR(read_count(file_, "llama.embedding_length", kMaxWidth, s.width));
  KV_RETURN_IF_ERROR(read_count(file_, "llama.feed_forward_length", kMaxWidth, s.ffn));
  KV_RETURN_IF_ERROR(read_count(file_, "llama.attention.head_count", kMaxHeads, s.heads));
  s.kv_heads = s.heads;
  if (file_.has("llama.attention.head_count_kv")) {
    KV_RETURN_IF_ERROR(read_count(file_, "llama.attention.head_count_kv", kMaxHeads, s.kv_heads));
  }
  KV_RETURN_IF_ERROR(read_count(file_, "llama.context_length", 1u << 30, s.context));
  s.context = std::min(s.context, kMaxContext);
  s.vocab = tokenizer_->vocab_size();
  if (s.vocab == 0 || s.vocab > kMaxVocab) return corruption("GGUF: vocabulary size");
  s.head_dim = s.width / s.heads;
  if (file_.has("llama.attention.key_length")) {
    KV_RETURN_IF_ERROR(read_count(file_, "llama.attention.key_length", 512, s.head_dim));
  }
  if (!codable_dim(s.head_dim)) {
    return unsupported("head_dim " + std::to_string(s.head_dim) + " (known: " + kCodableDims + ")");
  }
  if (s.heads % s.kv_heads != 0) {
    return corruption("GGUF: head_count " + std::to_string(s.heads) +
                      " is no multiple of head_count_kv " + std::to_string(s.kv_heads));
  }
  uint32_t rope_dims = s.head_dim;
  if (file_.has("llama.rope.dimension_count")) {
    KV_RETURN_IF_ERROR(read_count(file_, "llama.rope.dimension_count", 256, rope_dims));
  }
  if (rope_dims != s.head_dim) {
    return unsupported("rope over " + std::to_string(rope_dims) + " of " +
                       std::to_string(s.head_dim) + " values per head");
  }
  double base = 10000.0;  // ggml's default
  if (file_.has("llama.rope.freq_base")) {
    KV_ASSIGN_OR_RETURN(base, file_.number("llama.rope.freq_base"));
  }
  KV_ASSIGN_OR_RETURN(double eps, file_.number("llama.attention.layer_norm_rms_epsilon"));
  if (!(base > 1.0 && base < 1e12) || !(eps > 0 && eps < 1)) {
    return corruption("GGUF: rope.freq_base or layer_norm_rms_epsilon out of range");
  }
  s.rope_base = static_cast<float>(base);
  s.rms_eps = static_cast<float>(eps);
  return {};
}

Status Model::read_weights() {
  const ModelShape& s = shape_;
  std::set<std::string, std::less<>> used;
  auto matrix = [&](const std::string& name, uint32_t rows, uint32_t columns,
                    Matrix& out) -> Status {
    used.insert(name);
    KV_ASSIGN_OR_RETURN(out, as_matrix(file_, name, rows, columns));
    return {};
  };
  auto vector = [&](const std::string& name, std::span<const float>& out) -> Status {
    used.insert(name);
    KV_ASSIGN_OR_RETURN(out, as_vector(file_, name, s.width));
    return {};
  };
  uint32_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  KV_RETURN_IF_ERROR(matrix("token_embd.weight", s.vocab, s.width, embedding_));
  output_ = embedding_;
  if (file_.tensor("output.weight") != nullptr) {
    KV_RETURN_IF_ERROR(matrix("output.weight", s.vocab, s.width, output_));
  }
  KV_RETURN_IF_ERROR(vector("output_norm.weight", output_norm_));
  layers_.resize(s.layers);
  for (uint32_t i = 0; i < s.layers; ++i) {
    std::string at = "blk." + std::to_string(i) + ".";
    LayerWeights& l = layers_[i];
    KV_RETURN_IF_ERROR(vector(at + "attn_norm.weight", l.attn_norm));
    KV_RETURN_IF_ERROR(vector(at + "ffn_norm.weight", l.ffn_norm));
    KV_RETURN_IF_ERROR(matrix(at + "attn_q.weight", q_width, s.width, l.q));
    KV_RETURN_IF_ERROR(matrix(at + "attn_k.weight", kv_width, s.width, l.k));
    KV_RETURN_IF_ERROR(matrix(at + "attn_v.weight", kv_width, s.width, l.v));
    KV_RETURN_IF_ERROR(matrix(at + "attn_output.weight", s.width, q_width, l.o));
    KV_RETURN_IF_ERROR(matrix(at + "ffn_gate.weight", s.ffn, s.width, l.gate));
    KV_RETURN_IF_ERROR(matrix(at + "ffn_up.weight", s.ffn, s.width, l.up));
    KV_RETURN_IF_ERROR(matrix(at + "ffn_down.weight", s.width, s.ffn, l.down));
  }
  for (const GgufTensor& t : file_.tensors()) {
    if (used.find(t.name) == used.end()) {
      return unsupported("tensor '" + std::string(t.name) + "' (not part of a plain llama)");
    }
  }
  return {};
}

// Angle of pair i at position p: p * base^(-2i / head_dim); pairs are neighbours (2i, 2i + 1).
void Model::make_rope() {
  uint32_t pairs = shape_.head_dim / 2;
  rope_.resize(size_t{shape_.context} * shape_.head_dim);
  for (uint32_t i = 0; i < pairs; ++i) {
    double step = std::pow(static_cast<double>(shape_.rope_base), -2.0 * i / shape_.head_dim);
    for (uint32_t p = 0; p < shape_.context; ++p) {
      float* at = rope_.data() + (size_t{p} * pairs + i) * 2;
      at[0] = static_cast<float>(std::cos(p * step));
      at[1] = static_cast<float>(std::sin(p * step));
    }
  }
}

std::span<const float> Model::rope(uint32_t position) const {
  KV_CHECK(position < shape_.context);
  return std::span<const float>(rope_).subspan(size_t{position} * shape_.head_dim, shape_.head_dim);
}

void Model::make_spec() {
  ByteWriter identity;
  identity.string("cachesvc llama 1");
  const ModelShape& s = shape_;
  for (uint32_t v : {s.layers, s.width, s.ffn, s.heads, s.kv_heads, s.head_dim, s.vocab}) {
    identity.u32(v);
  }
  identity.f32(s.rope_base);
  identity.f32(s.rms_eps);
  for (const GgufTensor& t : file_.tensors()) {
    identity.string(t.name);
    identity.u32(static_cast<uint32_t>(t.type));
    identity.array(std::span<const uint64_t>(t.dims));
    identity.raw(sha256(t.data).bytes);
  }
  spec_.fingerprint = sha256(identity.span());
  spec_.name = "llama";
  if (auto name = file_.text("general.name"); name.ok()) {
    spec_.name = std::string((*name).substr(0, kMaxModelNameBytes));
  }
  PartSpec part;
  part.kind = PartKind::full;
  part.dtype = DType::f16;
  part.heads = s.kv_heads;
  part.k_dim = part.v_dim = s.head_dim;
  spec_.layers.assign(s.layers, LayerSpec{{part}});
}

Result<std::shared_ptr<const Model>> Model::load(GgufFile file) {
  if (auto kernels = select_kernels(); !kernels.ok()) return kernels.status();
  std::shared_ptr<Model> model(new Model(std::move(file)));
  KV_RETURN_IF_ERROR(refuse_variants(model->file_));
  KV_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::load(model->file_));
  model->tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  KV_RETURN_IF_ERROR(model->read_shape());
  KV_RETURN_IF_ERROR(model->read_weights());
  model->make_rope();
  model->make_spec();
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> Model::load(const std::string& path) {
  KV_ASSIGN_OR_RETURN(auto file, GgufFile::open(path));
  return load(std::move(file));
}

}  // namespace kv
