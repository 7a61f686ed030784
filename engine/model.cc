// Loading of a model: weights, rope, identity. See model.h.
#include "engine/model.h"

#include <algorithm>
#include <cmath>

#include "codec/kernels.h"
#include "engine/fingerprint.h"

namespace kv {

Status Model::read_layer(const GgufFile& file, uint32_t index, std::vector<std::string>& used) {
  const ModelShape& s = shape_;
  LayerWeights& l = layers_[index];
  std::string at = "blk." + std::to_string(index) + ".";
  auto matrix = [&](const char* name, uint32_t rows, uint32_t columns, Matrix& out) -> Status {
    used.push_back(at + name);
    KV_ASSIGN_OR_RETURN(out, as_matrix(file, used.back(), rows, columns));
    return {};
  };
  auto vector = [&](const char* name, uint32_t size, std::vector<float>& out) -> Status {
    used.push_back(at + name);
    KV_ASSIGN_OR_RETURN(out, as_vector(file, used.back(), size));
    return {};
  };
  uint32_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  KV_RETURN_IF_ERROR(vector("attn_norm.weight", s.width, l.attn_norm));
  KV_RETURN_IF_ERROR(vector("ffn_norm.weight", s.width, l.ffn_norm));
  KV_RETURN_IF_ERROR(matrix("attn_q.weight", q_width, s.width, l.q));
  KV_RETURN_IF_ERROR(matrix("attn_k.weight", kv_width, s.width, l.k));
  KV_RETURN_IF_ERROR(matrix("attn_v.weight", kv_width, s.width, l.v));
  KV_RETURN_IF_ERROR(matrix("attn_output.weight", s.width, q_width, l.o));
  KV_RETURN_IF_ERROR(matrix("ffn_gate.weight", s.ffn, s.width, l.gate));
  KV_RETURN_IF_ERROR(matrix("ffn_up.weight", s.ffn, s.width, l.up));
  KV_RETURN_IF_ERROR(matrix("ffn_down.weight", s.width, s.ffn, l.down));
  if (s.architecture != Architecture::gemma3) return {};
  KV_RETURN_IF_ERROR(vector("attn_q_norm.weight", s.head_dim, l.q_norm));
  KV_RETURN_IF_ERROR(vector("attn_k_norm.weight", s.head_dim, l.k_norm));
  KV_RETURN_IF_ERROR(vector("post_attention_norm.weight", s.width, l.post_attention_norm));
  return vector("post_ffw_norm.weight", s.width, l.post_ffn_norm);
}

Status Model::read_weights(const GgufFile& file) {
  const ModelShape& s = shape_;
  std::vector<std::string> used = {"token_embd.weight", "output.weight", "output_norm.weight"};
  KV_ASSIGN_OR_RETURN(embedding_, as_matrix(file, used[0], s.vocab, s.width));
  if (file.tensor(used[1]) != nullptr) {
    KV_ASSIGN_OR_RETURN(output_, as_matrix(file, used[1], s.vocab, s.width));
  }
  KV_ASSIGN_OR_RETURN(output_norm_, as_vector(file, used[2], s.width));
  layers_.resize(s.layers);
  for (uint32_t i = 0; i < s.layers; ++i) KV_RETURN_IF_ERROR(read_layer(file, i, used));
  std::sort(used.begin(), used.end());
  for (const GgufTensor& t : file.tensors()) {
    if (!std::binary_search(used.begin(), used.end(), t.name)) {
      return unsupported("tensor '" + std::string(t.name) + "' (not part of a plain " +
                         to_string(s.architecture) + ")");
    }
  }
  return {};
}

void Model::make_panels() {
  std::vector<Matrix*> matrices = {&embedding_};
  if (output_.data != nullptr) matrices.push_back(&output_);
  for (LayerWeights& l : layers_) {
    matrices.insert(matrices.end(), {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down});
  }
  panels_ = kv::make_panels(matrices);
  if (output_.panels == nullptr) output_ = embedding_;
}

void Model::make_rope() {
  for (int kind = 0; kind < 2; ++kind) {
    auto base = static_cast<double>(kind == 0 ? shape_.rope_base : shape_.local_rope_base);
    for (uint32_t i = 0; base > 0 && i < shape_.head_dim / 2; ++i) {
      rope_steps_[kind].push_back(std::pow(base, -2.0 * i / shape_.head_dim));
    }
  }
}

void Model::rope(bool windowed, uint32_t position, float* out) const {
  for (double step : rope_steps_[windowed ? 1 : 0]) {
    *out++ = static_cast<float>(std::cos(position * step));
    *out++ = static_cast<float>(std::sin(position * step));
  }
}

void Model::make_spec(const GgufFile& file) {
  const ModelShape& s = shape_;
  spec_.fingerprint = fingerprint(file);
  spec_.name = to_string(s.architecture);
  if (auto name = file.text("general.name"); name.ok()) {
    spec_.name = std::string((*name).substr(0, kMaxModelNameBytes));
  }
  PartSpec full;
  full.dtype = DType::f16;
  full.heads = s.kv_heads;
  full.k_dim = full.v_dim = s.head_dim;
  PartSpec window = full;
  window.kind = PartKind::window;
  window.window = s.window;
  for (uint32_t l = 0; l < s.layers; ++l) {
    spec_.layers.push_back(LayerSpec{{s.windowed(l) ? window : full}});
  }
}

Result<std::shared_ptr<const Model>> Model::load(GgufFile file) {
  if (auto kernels = select_kernels(); !kernels.ok()) return kernels.status();
  std::shared_ptr<Model> model(new Model());
  if (auto known = read_architecture(file); !known.ok()) return known.status();
  KV_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::load(file));
  model->tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  KV_ASSIGN_OR_RETURN(model->shape_, read_shape(file, model->tokenizer_->vocab_size()));
  KV_RETURN_IF_ERROR(model->read_weights(file));
  model->make_rope();
  model->make_spec(file);
  model->make_panels();
  file.drop_data();
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> Model::load(const std::string& path) {
  KV_ASSIGN_OR_RETURN(auto file, GgufFile::open(path));
  return load(std::move(file));
}

}  // namespace kv
