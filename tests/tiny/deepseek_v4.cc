// See deepseek_v4.h; formulas: transformers 5.23, models/deepseek_v4.
#include "tests/tiny/deepseek_v4.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kv::tiny {
namespace {

constexpr uint32_t kHeads = 4, kDim = 32, kRotated = 16, kQueryRank = 32, kWindow = 20;
constexpr uint32_t kGroups = 2, kOutRank = 32;
constexpr uint32_t kHeavyRate = 128, kSparseRate = 4;
constexpr uint32_t kIndexHeads = 64, kIndexDim = 32, kChosen = 8;
constexpr uint32_t kExperts = 4, kUsedExperts = 2, kExpertInner = 32;
constexpr float kExpertLimit = 10.0f, kRoutedFactor = 1.5f;

}  // namespace

DeepseekV4::Layer DeepseekV4::make_layer(const Formula& f, uint32_t layer, Kind kind) {
  std::string at = "model.layers." + std::to_string(layer), self = at + ".self_attn";
  std::string mlp = at + ".mlp", compressor = self + ".compressor";
  Layer w{.kind = kind,
          .attention_norm = f.tensor(at + ".input_layernorm.weight", {kWidth}),
          .feed_norm = f.tensor(at + ".post_attention_layernorm.weight", {kWidth}),
          .q_norm = f.tensor(self + ".q_a_norm.weight", {kQueryRank}),
          .kv_norm = f.tensor(self + ".kv_norm.weight", {kDim}),
          .sinks = f.tensor(self + ".sinks", {kHeads}),
          .q_a = {f, self + ".q_a_proj.weight", kQueryRank, kWidth},
          .q_b = {f, self + ".q_b_proj.weight", kHeads * kDim, kQueryRank},
          .kv = {f, self + ".kv_proj.weight", kDim, kWidth},
          .o_a = {f, self + ".o_a_proj.weight", kGroups * kOutRank, kHeads * kDim / kGroups},
          .o_b = {f, self + ".o_b_proj.weight", kWidth, kGroups * kOutRank},
          .compressor = {},
          .indexer = {},
          .attention_streams = {f, at + ".attn_hc"},
          .feed_streams = {f, at + ".ffn_hc"},
          .router = {f, mlp + ".gate.weight", kExperts, kWidth},
          .router_bias = {},
          .experts_of = {},
          .experts = {f, mlp + ".experts", kExperts, kWidth, kExpertInner, kExpertLimit},
          .shared = {f, mlp + ".shared_experts", kWidth, kExpertInner, kExpertLimit}};
  if (layer == 0) {
    w.experts_of = f.integers(mlp + ".gate.tid2eid", kVocabulary * kUsedExperts, kExperts);
  } else {
    w.router_bias = f.tensor(mlp + ".gate.e_score_correction_bias", {kExperts});
  }
  PartSpec window;
  window.kind = PartKind::window;
  window.dtype = DType::f32;
  window.heads = 1;
  window.k_dim = kDim;
  window.window = kWindow;
  LayerSpec spec{{window}};
  if (kind != Kind::window) {
    bool sparse = kind == Kind::sparse;
    w.compressor.emplace(f, compressor, sparse ? kSparseRate : kHeavyRate, kDim, sparse);
    spec.parts.push_back(w.compressor->part());
    if (sparse) {
      std::string index = compressor + ".indexer";
      w.indexer.emplace(
          Indexer{{f, index, kSparseRate, kIndexDim, true},
                  {f, index + ".q_b_proj.weight", kIndexHeads * kIndexDim, kQueryRank},
                  {f, index + ".scorer.weights_proj.weight", kIndexHeads, kWidth}});
      spec.parts.push_back(w.indexer->rows.part());
    }
  }
  spec_.layers.push_back(std::move(spec));
  return w;
}

DeepseekV4::DeepseekV4(uint64_t seed)
    : TinyModel("deepseek_v4", seed),
      ends_(Formula(seed)),
      stream_head_(Formula(seed)),
      rope_(1e4f, kRotated, kPositions),
      compressed_rope_(1.6e5f, kRotated, kPositions) {
  for (Kind kind : {Kind::sparse, Kind::window, Kind::heavy, Kind::sparse}) {
    layers_.push_back(make_layer(Formula(seed), static_cast<uint32_t>(layers_.size()), kind));
  }
}

Result<std::vector<uint32_t>> DeepseekV4::choose(uint32_t layer, const std::vector<float>& x,
                                                 const std::vector<float>& low,
                                                 KvCache& cache) const {
  const Layer& w = layers_[layer];
  uint32_t position = cache.tokens();
  KV_RETURN_IF_ERROR(w.compressor->add(layer, 1, x.data(), compressed_rope_, cache));
  std::vector<uint32_t> all(cache.values(layer, 1).end);
  std::iota(all.begin(), all.end(), 0u);
  if (!w.indexer) return all;
  KV_RETURN_IF_ERROR(w.indexer->rows.add(layer, 2, x.data(), compressed_rope_, cache));
  if (all.size() <= kChosen) return all;
  ValueRows rows = cache.values(layer, 2);
  std::vector<float> q(kIndexHeads * kIndexDim), weights(kIndexHeads);
  std::vector<float> dot(rows.end), scores(rows.end);
  w.indexer->q_b.apply(low.data(), q.data());
  w.indexer->weights.apply(x.data(), weights.data());
  float scale = 1.0f / std::sqrt(static_cast<float>(kIndexDim * kIndexHeads));
  for (uint32_t h = 0; h < kIndexHeads; ++h) {
    float* head = q.data() + h * kIndexDim;
    compressed_rope_.pairs(position, head + kIndexDim - kRotated);
    dots(rows.values, rows.end, kIndexDim, head, dot.data());
    for (uint32_t r = 0; r < rows.end; ++r) {
      scores[r] += std::max(dot[r], 0.0f) * weights[h] * scale;
    }
  }
  std::vector<uint32_t> chosen = largest(scores, kChosen);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

Status DeepseekV4::attention(uint32_t layer, const std::vector<float>& x, KvCache& cache,
                             float* out) const {
  const Layer& w = layers_[layer];
  uint32_t position = cache.tokens(), first = position + 1 - std::min(kWindow, position + 1);
  const Rope& turn = rope(w.kind);
  std::vector<float> low(kQueryRank), q(kHeads * kDim), row(kDim), heads(kHeads * kDim);
  w.q_a.apply(x.data(), low.data());
  rms_norm(low, w.q_norm);
  w.q_b.apply(low.data(), q.data());
  w.kv.apply(x.data(), row.data());
  rms_norm(row, w.kv_norm);
  turn.pairs(position, row.data() + kDim - kRotated);
  KV_RETURN_IF_ERROR(cache.append_rows(layer, 0, 1, row.data()));
  // The rows seen, side by side: the window's, then the compressed ones.
  std::vector<float> seen;
  auto see = [&](const float* r) { seen.insert(seen.end(), r, r + kDim); };
  ValueRows window = cache.values(layer, 0);
  for (uint32_t r = first; r <= position; ++r) see(window.row(r));
  if (w.compressor) {
    KV_ASSIGN_OR_RETURN(auto chosen, choose(layer, x, low, cache));
    ValueRows pooled = cache.values(layer, 1);
    for (uint32_t r : chosen) see(pooled.row(r));
  }
  auto count = static_cast<uint32_t>(seen.size() / kDim);
  std::vector<float> scores(count);
  for (uint32_t h = 0; h < kHeads; ++h) {
    auto query = std::span(q).subspan(h * kDim, kDim);
    float* sum = heads.data() + h * kDim;
    rms_norm(query, {});
    turn.pairs(position, query.data() + kDim - kRotated);
    dots(seen.data(), count, kDim, query.data(), scores.data());
    for (float& s : scores) s /= std::sqrt(static_cast<float>(kDim));
    softmax(scores, &w.sinks[h]);
    add_rows(seen.data(), count, kDim, scores.data(), sum);
    turn.pairs(position, sum + kDim - kRotated, true);  // the values carry their keys' rotation
  }
  std::vector<float> mid(kGroups * kOutRank);
  constexpr uint32_t kGroupWidth = kHeads * kDim / kGroups;
  for (uint32_t g = 0; g < kGroups; ++g) {
    dots(w.o_a.weights.data() + size_t{g} * kOutRank * kGroupWidth, kOutRank, kGroupWidth,
         heads.data() + g * kGroupWidth, mid.data() + g * kOutRank);
  }
  w.o_b.apply(mid.data(), out);
  return {};
}

// Experts by the token's id in the first layer, else the best by score + bias.
Route DeepseekV4::route(const Layer& w, Token token, const std::vector<float>& x) {
  std::vector<float> scores(kExperts), choice(kExperts);
  w.router.apply(x.data(), scores.data());
  for (float& s : scores) s = std::sqrt(softplus(s));
  Route route;
  if (!w.experts_of.empty()) {
    const uint32_t* of = w.experts_of.data() + static_cast<size_t>(token) * kUsedExperts;
    route.experts.assign(of, of + kUsedExperts);
  } else {
    for (uint32_t e = 0; e < kExperts; ++e) choice[e] = scores[e] + w.router_bias[e];
    route.experts = largest(choice, kUsedExperts);
  }
  for (uint32_t e : route.experts) route.weights.push_back(scores[e]);
  route.normalise(kRoutedFactor);
  return route;
}

Status DeepseekV4::compute(Token token, KvCache& cache, std::span<float> logits) const {
  Streams streams;
  for (uint32_t s = 0; s < kStreams; ++s) {
    auto x = ends_.embed(token);
    streams.insert(streams.end(), x.begin(), x.end());
  }
  for (uint32_t l = 0; l < layers_.size(); ++l) {
    const Layer& w = layers_[l];
    std::vector<float> out(kWidth);
    Mixing mixing = w.attention_streams.open(streams);
    rms_norm(mixing.collapsed, w.attention_norm);
    KV_RETURN_IF_ERROR(attention(l, mixing.collapsed, cache, out.data()));
    StreamMixer::close(mixing, out.data(), streams);
    mixing = w.feed_streams.open(streams);
    rms_norm(mixing.collapsed, w.feed_norm);
    std::fill(out.begin(), out.end(), 0.0f);
    w.shared.add(mixing.collapsed.data(), 1.0f, out.data());
    w.experts.add(mixing.collapsed.data(), route(w, token, mixing.collapsed), out.data());
    StreamMixer::close(mixing, out.data(), streams);
  }
  std::vector<float> x = stream_head_.collapse(streams);
  ends_.logits(x, logits);
  return {};
}

}  // namespace kv::tiny
