// See deepseek_v3.h; formulas: transformers 5.23, models/deepseek_v3.
#include "tests/tiny/deepseek_v3.h"

#include <algorithm>
#include <cmath>

namespace kv::tiny {
namespace {

constexpr uint32_t kLayers = 4, kDenseLayers = 1, kHeads = 4;
constexpr uint32_t kQueryRank = 32, kRank = 32, kPlain = 16, kRotated = 16, kValue = 16;
constexpr uint32_t kRow = kRank + kRotated, kQuery = kPlain + kRotated;
constexpr uint32_t kInner = 96, kExpertInner = 32, kExperts = 8, kGroups = 4, kUsedGroups = 2;
constexpr uint32_t kUsedExperts = 3;
constexpr float kRoutedFactor = 2.5f;

// The rotation of pairs, its results as halves: (first of each pair …, second of each pair …).
void rotate_to_halves(const Rope& rope, uint32_t position, float* x) {
  float pairs[kRotated];
  std::copy_n(x, kRotated, pairs);
  rope.pairs(position, pairs);
  for (uint32_t i = 0; i < kRotated / 2; ++i) {
    x[i] = pairs[2 * i];
    x[i + kRotated / 2] = pairs[2 * i + 1];
  }
}

}  // namespace

DeepseekV3::DeepseekV3(uint64_t seed)
    : TinyModel("deepseek_v3", seed), ends_(Formula(seed)), rope_(1e4f, kRotated, kPositions) {
  Formula f(seed);
  PartSpec part;
  part.kind = PartKind::latent;
  part.dtype = DType::f32;
  part.heads = 1;
  part.k_dim = kRow;
  for (uint32_t l = 0; l < kLayers; ++l) {
    std::string at = "model.layers." + std::to_string(l), self = at + ".self_attn.";
    spec_.layers.push_back({{part}});
    Layer w;
    w.attention_norm = f.tensor(at + ".input_layernorm.weight", {kWidth});
    w.feed_norm = f.tensor(at + ".post_attention_layernorm.weight", {kWidth});
    w.q_norm = f.tensor(self + "q_a_layernorm.weight", {kQueryRank});
    w.latent_norm = f.tensor(self + "kv_a_layernorm.weight", {kRank});
    w.q_a = {f, self + "q_a_proj.weight", kQueryRank, kWidth};
    w.q_b = {f, self + "q_b_proj.weight", kHeads * kQuery, kQueryRank};
    w.kv_a = {f, self + "kv_a_proj_with_mqa.weight", kRow, kWidth};
    w.kv_b = {f, self + "kv_b_proj.weight", kHeads * (kPlain + kValue), kRank};
    w.o = {f, self + "o_proj.weight", kWidth, kHeads * kValue};
    w.routed = l >= kDenseLayers;
    if (w.routed) {
      w.feed = {f, at + ".mlp.shared_experts", kWidth, kExpertInner};
      w.router = {f, at + ".mlp.gate.weight", kExperts, kWidth};
      w.router_bias = f.tensor(at + ".mlp.gate.e_score_correction_bias", {kExperts});
      w.experts = {f, at + ".mlp.experts", kExperts, kWidth, kExpertInner};
    } else {
      w.feed = {f, at + ".mlp", kWidth, kInner};
    }
    layers_.push_back(std::move(w));
  }
}

// One head's output (kValue) for its query (kQuery).
void DeepseekV3::head(const Layer& w, uint32_t head, const float* q, const ValueRows& rows,
                      float* out) const {
  const float* keys = w.kv_b.weights.data() + size_t{head} * (kPlain + kValue) * kRank;
  const float* values = keys + size_t{kPlain} * kRank;
  std::vector<float> query(kRow, 0.0f), sum(kRow, 0.0f), scores(rows.end);
  add_rows(keys, kPlain, kRank, q, query.data());
  std::copy_n(q + kPlain, kRotated, query.begin() + kRank);
  dots(rows.values, rows.end, kRow, query.data(), scores.data());
  for (float& s : scores) s /= std::sqrt(static_cast<float>(kQuery));
  softmax(scores);
  add_rows(rows.values, rows.end, kRow, scores.data(), sum.data());
  dots(values, kValue, kRank, sum.data(), out);
}

Status DeepseekV3::attention(uint32_t layer, const std::vector<float>& x, KvCache& cache,
                             float* out) const {
  const Layer& w = layers_[layer];
  uint32_t position = cache.tokens();
  std::vector<float> low(kQueryRank), q(w.q_b.rows), row(kRow), heads(kHeads * kValue);
  w.q_a.apply(x.data(), low.data());
  rms_norm(low, w.q_norm);
  w.q_b.apply(low.data(), q.data());
  w.kv_a.apply(x.data(), row.data());
  rms_norm(std::span(row).first(kRank), w.latent_norm);
  rotate_to_halves(rope_, position, row.data() + kRank);
  KV_RETURN_IF_ERROR(cache.append_rows(layer, 0, 1, row.data()));
  ValueRows rows = cache.values(layer, 0);
  for (uint32_t h = 0; h < kHeads; ++h) {
    rotate_to_halves(rope_, position, q.data() + h * kQuery + kPlain);
    head(w, h, q.data() + h * kQuery, rows, heads.data() + h * kValue);
  }
  w.o.apply(heads.data(), out);
  return {};
}

// The best experts of the groups whose two best experts sum highest; weights without the bias.
Route DeepseekV3::route(const Layer& w, const std::vector<float>& x) {
  constexpr uint32_t kGroup = kExperts / kGroups;
  std::vector<float> scores(kExperts), choice(kExperts), groups(kGroups);
  w.router.apply(x.data(), scores.data());
  for (uint32_t e = 0; e < kExperts; ++e) {
    scores[e] = sigmoid(scores[e]);
    choice[e] = scores[e] + w.router_bias[e];
    groups[e / kGroup] += choice[e];  // groups of two: both are the best two
  }
  static_assert(kGroup == 2);
  std::vector<uint32_t> used = largest(groups, kUsedGroups);
  for (uint32_t e = 0; e < kExperts; ++e) {
    if (std::find(used.begin(), used.end(), e / kGroup) == used.end()) choice[e] = -INFINITY;
  }
  Route route;
  route.experts = largest(choice, kUsedExperts);
  for (uint32_t e : route.experts) route.weights.push_back(scores[e]);
  route.normalise(kRoutedFactor);
  return route;
}

Status DeepseekV3::compute(Token token, KvCache& cache, std::span<float> logits) const {
  std::vector<float> x = ends_.embed(token), y, add(kWidth);
  for (uint32_t l = 0; l < kLayers; ++l) {
    const Layer& w = layers_[l];
    y = x;
    rms_norm(y, w.attention_norm);
    KV_RETURN_IF_ERROR(attention(l, y, cache, add.data()));
    for (uint32_t i = 0; i < kWidth; ++i) x[i] += add[i];
    y = x;
    rms_norm(y, w.feed_norm);
    w.feed.add(y.data(), 1.0f, x.data());
    if (w.routed) w.experts.add(y.data(), route(w, y), x.data());
  }
  ends_.logits(x, logits);
  return {};
}

}  // namespace kv::tiny
