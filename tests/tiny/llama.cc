// See llama.h.
#include "tests/tiny/llama.h"

#include <cmath>

namespace kv::tiny {
namespace {

constexpr uint32_t kHeads = 4, kKvHeads = 2, kHeadDim = 32, kInner = 96;

}  // namespace

Llama::Llama(const std::string& name, uint64_t seed, const std::vector<PartSpec>& parts)
    : TinyModel(name, seed), ends_(Formula(seed)), rope_(1e4f, kHeadDim, kPositions) {
  Formula f(seed);
  for (PartSpec part : parts) {
    part.heads = kKvHeads;
    part.k_dim = part.v_dim = kHeadDim;
    std::string at = "model.layers." + std::to_string(layers_.size());
    spec_.layers.push_back({{part}});
    layers_.push_back({f.tensor(at + ".input_layernorm.weight", {kWidth}),
                       f.tensor(at + ".post_attention_layernorm.weight", {kWidth}),
                       {f, at + ".self_attn.q_proj.weight", kHeads * kHeadDim, kWidth},
                       {f, at + ".self_attn.k_proj.weight", kKvHeads * kHeadDim, kWidth},
                       {f, at + ".self_attn.v_proj.weight", kKvHeads * kHeadDim, kWidth},
                       {f, at + ".self_attn.o_proj.weight", kWidth, kHeads * kHeadDim},
                       {f, at + ".mlp", kWidth, kInner}});
  }
}

Status Llama::attention(uint32_t layer, const std::vector<float>& x, KvCache& cache,
                        float* out) const {
  const Layer& w = layers_[layer];
  uint32_t position = cache.tokens();
  std::vector<float> q(w.q.rows), k(w.k.rows), v(w.v.rows), heads(w.q.rows);
  w.q.apply(x.data(), q.data());
  w.k.apply(x.data(), k.data());
  w.v.apply(x.data(), v.data());
  for (uint32_t h = 0; h < kHeads; ++h) rope_.halves(position, q.data() + h * kHeadDim);
  for (uint32_t h = 0; h < kKvHeads; ++h) rope_.halves(position, k.data() + h * kHeadDim);
  KV_RETURN_IF_ERROR(cache.append(layer, 0, 1, k.data(), v.data()));
  attend_part(cache.rows(layer, 0), position, q, heads);
  w.o.apply(heads.data(), out);
  return {};
}

Status Llama::compute(Token token, KvCache& cache, std::span<float> logits) const {
  std::vector<float> x = ends_.embed(token), y(kWidth), add(kWidth);
  for (uint32_t l = 0; l < layers_.size(); ++l) {
    y = x;
    rms_norm(y, layers_[l].attention_norm);
    KV_RETURN_IF_ERROR(attention(l, y, cache, add.data()));
    for (uint32_t i = 0; i < kWidth; ++i) x[i] += add[i];
    y = x;
    rms_norm(y, layers_[l].feed_norm);
    layers_[l].feed.add(y.data(), 1.0f, x.data());
  }
  ends_.logits(x, logits);
  return {};
}

}  // namespace kv::tiny
