// See qwen3_next.h; formulas: transformers 5.23, models/qwen3_next (the recurrent form of the
// rule).
#include "tests/tiny/qwen3_next.h"

#include <algorithm>
#include <cmath>

#include "tests/tiny/state.h"

namespace kv::tiny {
namespace {

constexpr uint32_t kLayers = 4, kFullLayer = 2, kDenseLayers = 1;
constexpr uint32_t kHeads = 4, kKvHeads = 2, kHeadDim = 32, kRotated = 16;
constexpr uint32_t kKeyHeads = 2, kValueHeads = 4, kKeyDim = 16, kValueDim = 16;
constexpr uint32_t kKeys = kKeyHeads * kKeyDim, kValues = kValueHeads * kValueDim;
constexpr uint32_t kMixed = 2 * kKeys + kValues, kTaps = 4;
constexpr uint32_t kShare = kValueHeads / kKeyHeads;  // value heads of one key head
constexpr uint32_t kHistory = (kTaps - 1) * kMixed, kMatrix = kKeyDim * kValueDim;
constexpr uint32_t kInner = 96, kExpertInner = 32, kExperts = 4, kUsedExperts = 2;

static_assert(kRecurrentFloats == kHistory + kValueHeads * kMatrix);

void scale_to_unit(std::span<float> x, float factor) {
  float squares = 0;
  for (float v : x) squares += v * v;
  float by = factor / std::sqrt(squares + 1e-6f);
  for (float& v : x) v *= by;
}

// One token of one value head: the matrix decays, takes in the value's correction, and is read.
void delta_rule(float* matrix, const float* q, const float* k, const float* v, float decay,
                float beta, float* out) {
  float known[kValueDim] = {};
  for (uint32_t i = 0; i < kMatrix; ++i) matrix[i] *= decay;
  for (uint32_t i = 0; i < kKeyDim; ++i) {
    for (uint32_t j = 0; j < kValueDim; ++j) known[j] += matrix[i * kValueDim + j] * k[i];
  }
  std::fill_n(out, kValueDim, 0.0f);
  for (uint32_t i = 0; i < kKeyDim; ++i) {
    for (uint32_t j = 0; j < kValueDim; ++j) {
      float& m = matrix[i * kValueDim + j];
      m += k[i] * ((v[j] - known[j]) * beta);
      out[j] += m * q[i];
    }
  }
}

}  // namespace

Qwen3Next::Layer Qwen3Next::make_layer(const Formula& f, uint32_t layer) {
  std::string at = "model.layers." + std::to_string(layer);
  Layer w;
  w.attention_norm = f.tensor(at + ".input_layernorm.weight", {kWidth});
  w.feed_norm = f.tensor(at + ".post_attention_layernorm.weight", {kWidth});
  PartSpec part;
  if (layer == kFullLayer) {
    part.heads = kKvHeads;
    part.k_dim = part.v_dim = kHeadDim;
    at += ".self_attn.";
    w.attention = Attention{{f, at + "q_proj.weight", 2 * kHeads * kHeadDim, kWidth},
                            {f, at + "k_proj.weight", kKvHeads * kHeadDim, kWidth},
                            {f, at + "v_proj.weight", kKvHeads * kHeadDim, kWidth},
                            {f, at + "o_proj.weight", kWidth, kHeads * kHeadDim},
                            f.tensor(at + "q_norm.weight", {kHeadDim}),
                            f.tensor(at + "k_norm.weight", {kHeadDim})};
  } else {
    part.kind = PartKind::state;
    part.dtype = DType::f32;
    at += ".linear_attn.";
    w.delta = DeltaNet{{f, at + "in_proj_qkvz.weight", 2 * kKeys + 2 * kValues, kWidth},
                       {f, at + "in_proj_ba.weight", 2 * kValueHeads, kWidth},
                       {f, at + "out_proj.weight", kWidth, kValues},
                       f.tensor(at + "conv1d.weight", {kMixed, 1, kTaps}),
                       f.tensor(at + "dt_bias", {kValueHeads}),
                       f.tensor(at + "A_log", {kValueHeads}),
                       f.tensor(at + "norm.weight", {kValueDim})};
  }
  spec_.layers.push_back({{part}});
  at = "model.layers." + std::to_string(layer) + ".mlp";
  w.routed = layer >= kDenseLayers;
  if (!w.routed) {
    w.feed = {f, at, kWidth, kInner};
    return w;
  }
  w.feed = {f, at + ".shared_expert", kWidth, kExpertInner};
  w.router = {f, at + ".gate.weight", kExperts, kWidth};
  w.shared_gate = f.tensor(at + ".shared_expert_gate.weight", {1, kWidth});
  w.experts = {f, at + ".experts", kExperts, kWidth, kExpertInner};
  return w;
}

Qwen3Next::Qwen3Next(uint64_t seed)
    : TinyModel("qwen3_next", seed),
      ends_(Formula(seed, true), true),
      rope_(1e4f, kRotated, kPositions) {
  for (uint32_t l = 0; l < kLayers; ++l) layers_.push_back(make_layer(Formula(seed, true), l));
}

Status Qwen3Next::attend(uint32_t layer, const std::vector<float>& x, KvCache& cache,
                         float* out) const {
  const Attention& w = *layers_[layer].attention;
  uint32_t position = cache.tokens();
  std::vector<float> both(w.q.rows), k(w.k.rows), v(w.v.rows), heads(kHeads * kHeadDim), q;
  w.q.apply(x.data(), both.data());
  w.k.apply(x.data(), k.data());
  w.v.apply(x.data(), v.data());
  for (uint32_t h = 0; h < kHeads; ++h) {
    auto query = std::span(both).subspan(h * 2 * kHeadDim, kHeadDim);
    rms_norm(query, w.q_norm, true);
    rope_.halves(position, query.data());
    q.insert(q.end(), query.begin(), query.end());
  }
  for (uint32_t h = 0; h < kKvHeads; ++h) {
    auto key = std::span(k).subspan(h * kHeadDim, kHeadDim);
    rms_norm(key, w.k_norm, true);
    rope_.halves(position, key.data());
  }
  KV_RETURN_IF_ERROR(cache.append(layer, 0, 1, k.data(), v.data()));
  attend_part(cache.rows(layer, 0), position, q, heads);
  for (uint32_t i = 0; i < heads.size(); ++i) {
    uint32_t head = i / kHeadDim;
    heads[i] *= sigmoid(both[(2 * head + 1) * kHeadDim + i % kHeadDim]);
  }
  w.o.apply(heads.data(), out);
  return {};
}

Status Qwen3Next::recur(uint32_t layer, const std::vector<float>& x, KvCache& cache,
                        float* out) const {
  const DeltaNet& w = *layers_[layer].delta;
  KV_ASSIGN_OR_RETURN(auto state, load_state(cache, layer, 0));
  std::vector<float> qkvz(w.in_qkvz.rows), ba(w.in_ba.rows), mixed(kMixed), heads(kValues);
  w.in_qkvz.apply(x.data(), qkvz.data());
  w.in_ba.apply(x.data(), ba.data());
  // Per key head: query, key, its value heads' values, then their gates z.
  constexpr uint32_t kHead = 2 * kKeyDim + 2 * kShare * kValueDim;
  for (uint32_t h = 0; h < kKeyHeads; ++h) {
    const float* from = qkvz.data() + h * kHead;
    std::copy_n(from, kKeyDim, mixed.begin() + h * kKeyDim);
    std::copy_n(from + kKeyDim, kKeyDim, mixed.begin() + kKeys + h * kKeyDim);
    std::copy_n(from + 2 * kKeyDim, kShare * kValueDim,
                mixed.begin() + 2 * kKeys + h * kShare * kValueDim);
  }
  std::vector<float> conv(kMixed);
  for (uint32_t c = 0; c < kMixed; ++c) {
    const float* taps = w.convolution.data() + c * kTaps;
    float sum = mixed[c] * taps[kTaps - 1];
    for (uint32_t t = 0; t + 1 < kTaps; ++t) sum += state[t * kMixed + c] * taps[t];
    conv[c] = silu(sum);
  }
  std::copy(state.begin() + kMixed, state.begin() + kHistory, state.begin());
  std::copy(mixed.begin(), mixed.end(), state.begin() + (kHistory - kMixed));
  for (uint32_t h = 0; h < kKeyHeads; ++h) {
    scale_to_unit(std::span(conv).subspan(h * kKeyDim, kKeyDim),
                  1.0f / std::sqrt(static_cast<float>(kKeyDim)));
    scale_to_unit(std::span(conv).subspan(kKeys + h * kKeyDim, kKeyDim), 1.0f);
  }
  for (uint32_t h = 0; h < kValueHeads; ++h) {
    uint32_t key = h / kShare, of_key = h % kShare;
    const float* gates = ba.data() + key * 2 * kShare;  // of its heads: beta's, then decay's
    float decay = std::exp(-std::exp(w.a_log[h]) * softplus(gates[kShare + of_key] + w.dt_bias[h]));
    auto y = std::span(heads).subspan(h * kValueDim, kValueDim);
    delta_rule(state.data() + kHistory + h * kMatrix, conv.data() + key * kKeyDim,
               conv.data() + kKeys + key * kKeyDim, conv.data() + 2 * kKeys + h * kValueDim, decay,
               sigmoid(gates[of_key]), y.data());
    rms_norm(y, w.norm);
    const float* z = qkvz.data() + key * kHead + 2 * kKeyDim + (kShare + of_key) * kValueDim;
    for (uint32_t i = 0; i < kValueDim; ++i) y[i] *= silu(z[i]);
  }
  w.out.apply(heads.data(), out);
  store_state(cache, layer, 0, state);
  return {};
}

void Qwen3Next::feed_forward(const Layer& w, const std::vector<float>& x, float* out) {
  if (!w.routed) return w.feed.add(x.data(), 1.0f, out);
  std::vector<float> scores(kExperts);
  w.router.apply(x.data(), scores.data());
  softmax(scores);
  Route route;
  route.experts = largest(scores, kUsedExperts);
  for (uint32_t e : route.experts) route.weights.push_back(scores[e]);
  route.normalise(1.0f);
  w.experts.add(x.data(), route, out);
  float gate;
  dots(w.shared_gate.data(), 1, kWidth, x.data(), &gate);
  w.feed.add(x.data(), sigmoid(gate), out);
}

Status Qwen3Next::compute(Token token, KvCache& cache, std::span<float> logits) const {
  std::vector<float> x = ends_.embed(token), y, add(kWidth);
  for (uint32_t l = 0; l < kLayers; ++l) {
    const Layer& w = layers_[l];
    y = x;
    rms_norm(y, w.attention_norm, true);
    KV_RETURN_IF_ERROR(w.attention ? attend(l, y, cache, add.data())
                                   : recur(l, y, cache, add.data()));
    for (uint32_t i = 0; i < kWidth; ++i) x[i] += add[i];
    y = x;
    rms_norm(y, w.feed_norm, true);
    feed_forward(w, y, x.data());
  }
  ends_.logits(x, logits);
  return {};
}

}  // namespace kv::tiny
