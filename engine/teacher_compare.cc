// Divergence of predictions and of attention outputs between an exact and a coded run. teacher.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/attention.h"
#include "codec/plan.h"
#include "engine/kernels.h"
#include "engine/layer_ops.h"
#include "engine/teacher.h"

namespace kv {
namespace {

constexpr uint32_t kTile = 128;      // rows of the output matrix widened at a time
constexpr uint32_t kPositions = 64;  // rows of one product task
constexpr float kNoLogit = -1e30f;   // fills a tile up to whole registers
constexpr uint32_t kLanes = 8;

// A softmax over tiles of the vocabulary, folded one by one.
struct Fold {
  float top = kNoLogit;
  double sum = 0;  // of e^(logit - top)
  uint32_t best = 0;
  float best_logit = kNoLogit;
  float next = 0;    // the next token's logit
  double cross = 0;  // coded runs: sum over tokens of e^(exact - exact top) (exact - coded)

  // Makes room for a tile; returns what earlier sums shrink by.
  double raise(float tile_top) {
    const float higher = std::max(top, tile_top);
    const double keep = std::exp(static_cast<double>(top) - higher);
    top = higher;
    sum *= keep;
    return keep;
  }
  void note(const float* logits, uint32_t first, uint32_t count, Token token) {
    const float* largest = std::max_element(logits, logits + count);
    if (*largest > best_logit) {
      best_logit = *largest;
      best = first + static_cast<uint32_t>(largest - logits);
    }
    const auto id = static_cast<uint32_t>(token);
    if (token >= 0 && id >= first && id < first + count) next = logits[id - first];
  }
  double log_sum() const { return top + std::log(sum); }
};

// One position's share of a tile: the exact logits x and every coded run's y, `count` of `stride`
// values (filled up with kNoLogit). x and y are destroyed.
void fold_tile(const Kernels& kernels, std::span<Fold> folds, std::span<float* const> logits,
               uint32_t first, uint32_t count, uint32_t stride, Token next, float* work) {
  Fold& exact = folds[0];
  exact.note(logits[0], first, count, next);
  const double keep = exact.raise(kernels.largest(logits[0], stride));
  std::copy_n(logits[0], stride, work);
  exact.sum += static_cast<double>(kernels.exp_weights(work, stride, exact.top));
  for (size_t r = 1; r < folds.size(); ++r) {
    Fold& coded = folds[r];
    float* y = logits[r];
    coded.note(y, first, count, next);
    double cross = 0;
    for (uint32_t i = 0; i < count; ++i) {
      cross += static_cast<double>(work[i]) * (static_cast<double>(logits[0][i]) - y[i]);
    }
    coded.cross = coded.cross * keep + cross;
    coded.raise(kernels.largest(y, stride));
    coded.sum += static_cast<double>(kernels.exp_weights(y, stride, coded.top));
  }
}

Divergence divergence_of(std::span<const Fold> folds, size_t runs, size_t run,
                         std::span<const Token> next) {
  Divergence out;
  for (size_t p = 0; p < next.size(); ++p) {
    const Fold &exact = folds[p * runs], &coded = folds[p * runs + run];
    const double kld = coded.cross / exact.sum - exact.log_sum() + coded.log_sum();
    out.kld.push_back(static_cast<float>(std::max(kld, 0.0)));
    out.agreements += exact.best == coded.best;
    if (next[p] < 0) continue;
    ++out.predicted;
    out.exact_nll += exact.log_sum() - exact.next;
    out.coded_nll += coded.log_sum() - coded.next;
  }
  return out;
}

}  // namespace

void Divergence::append(const Divergence& more) {
  kld.insert(kld.end(), more.kld.begin(), more.kld.end());
  agreements += more.agreements;
  predicted += more.predicted;
  exact_nll += more.exact_nll;
  coded_nll += more.coded_nll;
}

std::vector<Divergence> compare_logits(std::span<const std::vector<float>> runs, uint32_t vocab,
                                       std::span<const Token> next) {
  for (const auto& run : runs) KV_CHECK(run.size() == next.size() * vocab);
  std::vector<Fold> folds(next.size() * runs.size());
  std::vector<float> tiles(runs.size() * kTile), work(kTile);
  std::vector<float*> at;
  for (size_t r = 0; r < runs.size(); ++r) at.push_back(tiles.data() + r * kTile);
  for (size_t p = 0; p < next.size(); ++p) {
    for (uint32_t tile = 0; tile < vocab; tile += kTile) {
      const uint32_t count = std::min(kTile, vocab - tile);
      std::ranges::fill(tiles, kNoLogit);
      for (size_t r = 0; r < runs.size(); ++r) {
        std::copy_n(runs[r].data() + p * vocab + tile, count, at[r]);
      }
      fold_tile(engine_codec_kernels(), std::span(folds).subspan(p * runs.size(), runs.size()), at,
                tile, count, kTile, next[p], work.data());
    }
  }
  std::vector<Divergence> out;
  for (size_t r = 1; r < runs.size(); ++r) {
    out.push_back(divergence_of(folds, runs.size(), r, next));
  }
  return out;
}

std::vector<float> Teacher::normed(std::span<const float> hidden) const {
  const size_t width = model_->shape().width;
  std::vector<float> out(hidden.size());
  for (size_t at = 0; at < hidden.size(); at += width) {
    rms_norm(hidden.data() + at, model_->output_norm(), model_->shape().rms_eps, out.data() + at);
  }
  return out;
}

std::vector<Divergence> Teacher::compare(const ExactText& text, uint32_t first,
                                         std::span<const std::vector<float>> coded) {
  if (coded.empty()) return {};
  const ModelShape& s = model_->shape();
  const Matrix& output = model_->output();
  const size_t runs = coded.size() + 1;
  const auto positions = static_cast<uint32_t>(text.tokens.size()) - first;
  std::vector<std::vector<float>> inputs;
  inputs.push_back(normed(std::span(text.hidden).subspan(size_t{first} * s.width)));
  for (const auto& hidden : coded) {
    KV_CHECK(hidden.size() == inputs[0].size());
    inputs.push_back(normed(hidden));
  }
  std::vector<Token> next(text.tokens.begin() + first + 1, text.tokens.end());
  next.push_back(-1);
  std::vector<Fold> folds(positions * runs);
  Floats weights(size_t{kTile} * s.width);  // as bands
  struct Scratch {
    std::vector<float> logits, work;
  };
  std::vector<Scratch> scratch(threads_.count());
  for (uint32_t tile = 0; tile < s.vocab; tile += kTile) {
    const uint32_t count = std::min(kTile, s.vocab - tile);
    const uint32_t stride = (count + kLanes - 1) / kLanes * kLanes;
    threads_.run((count - 1) / kBandColumns + 1, [&](uint32_t band, uint32_t) {
      widen_band(output, tile + band * kBandColumns, {0, s.width},
                 weights.data() + size_t{band} * kBandColumns * s.width);
    });
    threads_.run((positions + kPositions - 1) / kPositions, [&](uint32_t task, uint32_t worker) {
      const uint32_t from = task * kPositions, rows = std::min(kPositions, positions - from);
      Scratch& t = scratch[worker];
      t.logits.assign(runs * rows * stride, kNoLogit);
      t.work.resize(std::max<size_t>(t.work.size(), stride));
      for (size_t r = 0; r < runs; ++r) {
        for (uint32_t column = 0; column < count; column += kBandColumns) {
          engine_kernels().band_product({inputs[r].data() + size_t{from} * s.width, s.width,
                                         weights.data() + size_t{column} * s.width, kBandColumns,
                                         t.logits.data() + r * rows * stride + column, stride, rows,
                                         s.width, std::min(kBandColumns, count - column)});
        }
      }
      std::vector<float*> at(runs);
      for (uint32_t p = 0; p < rows; ++p) {
        for (size_t r = 0; r < runs; ++r) at[r] = t.logits.data() + (r * rows + p) * stride;
        fold_tile(engine_codec_kernels(), std::span(folds).subspan((from + p) * runs, runs), at,
                  tile, count, stride, next[from + p], t.work.data());
      }
    });
  }
  std::vector<Divergence> out;
  for (size_t r = 1; r < runs; ++r) out.push_back(divergence_of(folds, runs, r, next));
  return out;
}

namespace {

// Attention outputs (samples, heads, dim) of one layer's sampled queries over these rows.
Result<std::vector<float>> attention_outputs(const std::shared_ptr<const Codec>& codec,
                                             const ModelShape& s, uint32_t layer,
                                             const ExactText& text, const std::vector<float>& k,
                                             const std::vector<float>& v) {
  AttentionRows rows(codec, layer, 0);
  KV_RETURN_IF_ERROR(
      rows.add_exact(DType::f32, k.data(), v.data(), 0, static_cast<uint32_t>(text.tokens.size())));
  const uint32_t group = s.heads / s.kv_heads;
  const size_t samples = text.sampled.size(), row = size_t{s.heads} * s.head_dim;
  std::vector<float> out, q(samples * group * s.head_dim), heads(q.size());
  std::vector<RowLimit> limits;
  for (uint32_t position : text.sampled) {
    RowLimit limit = row_limit(s, layer, position);
    limit.end = position + 1;
    limits.insert(limits.end(), group, limit);
  }
  PreparedQueries queries;
  AttentionScratch scratch;
  for (uint32_t h = 0; h < s.kv_heads; ++h) {
    for (size_t i = 0; i < samples; ++i) {
      const float* from = text.queries[layer].data() + i * row + size_t{h} * group * s.head_dim;
      std::copy_n(from, group * s.head_dim, q.data() + i * group * s.head_dim);
    }
    queries.prepare(*codec, layer, 0, h, q, attention_scale(s), limits);
    attend(queries, rows, scratch, heads);
    out.insert(out.end(), heads.begin(), heads.end());
  }
  return out;
}

double relative_error(const std::vector<float>& exact, const std::vector<float>& coded) {
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double d = static_cast<double>(coded[i]) - exact[i];
    error += d * d;
    size += static_cast<double>(exact[i]) * exact[i];
  }
  return size > 0 ? std::sqrt(error / size) : 0;
}

}  // namespace

Result<std::vector<AttentionError>> Teacher::attention_errors(const ExactText& text,
                                                              const LayerRows& coded) {
  const ModelShape& s = model_->shape();
  CodingSettings raw;
  raw.k_bits = raw.v_bits = 0;
  raw.raw_dtype = DType::f32;
  KV_ASSIGN_OR_RETURN(Profile profile, plain_profile(model_->spec(), raw));
  KV_ASSIGN_OR_RETURN(auto codec,
                      Codec::create(model_->spec(), std::make_shared<const Profile>(profile)));
  std::vector<AttentionError> out(s.layers);
  std::vector<Status> failed(s.layers);
  threads_.run(s.layers, [&](uint32_t l, uint32_t) {
    const auto &k = text.rows.k[l], &v = text.rows.v[l];
    auto exact = attention_outputs(codec, s, l, text, k, v);
    auto keys = attention_outputs(codec, s, l, text, coded.k[l], v);
    auto values = attention_outputs(codec, s, l, text, k, coded.v[l]);
    auto both = attention_outputs(codec, s, l, text, coded.k[l], coded.v[l]);
    for (auto* result : {&exact, &keys, &values, &both}) {
      if (!result->ok()) failed[l] = result->status();
    }
    if (!failed[l].ok()) return;
    out[l] = {relative_error(*exact, *keys), relative_error(*exact, *values),
              relative_error(*exact, *both)};
  });
  for (const Status& status : failed) KV_RETURN_IF_ERROR(status);
  return out;
}

}  // namespace kv
