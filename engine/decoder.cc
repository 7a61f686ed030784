// One step of a model. See decoder.h.
#include "engine/decoder.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/kernels.h"
#include "engine/layer_ops.h"
#include "engine/strips.h"

namespace kv {
Decoder::Decoder(const Model& model, Threads& threads)
    : model_(model), threads_(threads), attention_(threads), strips_(threads.count()) {}

Status Decoder::check(Token token, const KvCache& cache) const {
  const ModelShape& s = model_.shape();
  if (cache.tokens() >= s.context) {
    return invalid_argument("position " + std::to_string(cache.tokens()) +
                            " beyond the model's context " + std::to_string(s.context));
  }
  if (token < 0 || static_cast<uint32_t>(token) >= s.vocab) {
    return invalid_argument("token id " + std::to_string(token) + " outside the vocabulary");
  }
  return {};
}

template <typename Body>
void Decoder::each_row(const Body& body) {
  threads_.run(static_cast<uint32_t>(rows_.size()), [&](uint32_t row, uint32_t) { body(row); });
}

// Refuses what Network::step does, and gives each other row its place. Returns whether one is left.
bool Decoder::start(std::span<StepRow> rows) {
  const ModelShape& s = model_.shape();
  KV_CHECK(rows.size() <= kMaxBatchRows);
  rows_.clear();
  std::vector<const AttentionRows*> held;
  for (StepRow& row : rows) {
    KV_CHECK(row.logits.empty() || row.logits.size() == s.vocab);
    row.status = check(row.token, *row.cache);
    if (!row.status.ok()) continue;
    rows_.push_back(&row);
    held.push_back(&row.cache->rows(0, 0));
  }
  attention_.arrange(held);
  attended_.assign(rows_.size(), {});
  const size_t count = rows_.size(), q_width = size_t{s.heads} * s.head_dim;
  for (auto* v : {&x_, &norm_, &out_}) v->resize(count * s.width);
  for (auto* v : {&q_, &heads_}) v->resize(count * q_width);
  for (auto* v : {&k_, &v_}) v->resize(count * s.kv_heads * s.head_dim);
  for (auto* v : {&gate_, &up_, &inner_}) v->resize(count * s.ffn);
  for (auto& rope : rope_) rope.resize(count * s.head_dim);
  return count > 0;
}

// All products of one input.
void Decoder::products(std::initializer_list<Product> list, const Floats& x) {
  const uint32_t columns = list.begin()->weights->columns;
  Activations input{x.data(), columns, static_cast<uint32_t>(rows_.size())};
  if (wants_rounding(list)) input = rounded_.round(input, columns);
  each_strip(threads_, list, [&](const Product& p, uint32_t first, uint32_t end, uint32_t) {
    multiply(*p.weights, input, first, end, p.out->data() + first, p.weights->rows);
  });
}

// norm_ = normed x_, to which out_, the branch before, is added first.
void Decoder::norm(std::span<const float> weight, std::span<const float> branch_norm, bool add) {
  const size_t width = model_.shape().width;
  each_row([&](uint32_t row) {
    float* x = x_.data() + row * width;
    if (add) add_branch(model_.shape(), branch_norm, out_.data() + row * width, x);
    rms_norm(x, weight, model_.shape().rms_eps, norm_.data() + row * width);
  });
}

// Rotates the rows' q and k and appends their keys and values: what each of them attends to.
void Decoder::append(uint32_t layer) {
  const ModelShape& s = model_.shape();
  const size_t q_width = size_t{s.heads} * s.head_dim, kv_width = size_t{s.kv_heads} * s.head_dim;
  each_row([&](uint32_t row) {
    StepRow& r = *rows_[row];
    attended_[row] = {};
    if (!r.status.ok()) return;
    float *q = q_.data() + row * q_width, *k = k_.data() + row * kv_width;
    const LayerWeights& weights = model_.layers()[layer];
    const auto rope = std::span<const float>(rope_[s.windowed(layer) ? 1 : 0])
                          .subspan(size_t{row} * s.head_dim, s.head_dim);
    finish_heads(s, weights.q_norm, rope, s.heads, q);
    finish_heads(s, weights.k_norm, rope, s.kv_heads, k);
    r.status = r.cache->append(layer, 0, 1, k, v_.data() + row * kv_width);
    if (!r.status.ok()) return;
    attended_[row] = {&r.cache->rows(layer, 0), q, heads_.data() + row * q_width,
                      row_limit(s, layer, r.cache->tokens())};
  });
}

void Decoder::feed_forward(const LayerWeights& layer) {
  const uint32_t ffn = model_.shape().ffn;
  norm(layer.ffn_norm, layer.post_attention_norm, true);
  products({{&layer.gate, &gate_}, {&layer.up, &up_}}, norm_);
  each_row([&](uint32_t row) {
    const size_t at = size_t{row} * ffn;
    gate_times(model_.shape(), gate_.data() + at, up_.data() + at, inner_.data() + at,
               engine_codec_kernels());
  });
  products({{&layer.down, &out_}}, gate_);
}

void Decoder::step(std::span<StepRow> rows) {
  if (!start(rows)) return;
  each_row([&](uint32_t row) {
    embed(model_, rows_[row]->token, x_.data() + size_t{row} * model_.shape().width);
    for (int kind = 0; kind < 2; ++kind) {
      model_.rope(kind != 0, rows_[row]->cache->tokens(),
                  rope_[kind].data() + size_t{row} * model_.shape().head_dim);
    }
  });
  for (uint32_t l = 0; l < model_.shape().layers; ++l) {
    const LayerWeights& layer = model_.layers()[l];
    norm(layer.attn_norm, model_.layers()[l > 0 ? l - 1 : 0].post_ffn_norm, l > 0);
    products({{&layer.q, &q_}, {&layer.k, &k_}, {&layer.v, &v_}}, norm_);
    append(l);
    attention_.run(attended_, model_.shape().heads, attention_scale(model_.shape()));
    products({{&layer.o, &out_}}, heads_);
    feed_forward(layer);
  }
  finish();
  logits();
}

Status Decoder::step(Token token, KvCache& cache, std::span<float> logits) {
  StepRow row{token, &cache, logits, {}};
  step({&row, 1});
  return row.status;
}

// Seals what each row appended and makes the token part of its sequence.
void Decoder::finish() {
  each_row([&](uint32_t row) {
    StepRow& r = *rows_[row];
    for (uint32_t l = 0; r.status.ok() && l < model_.shape().layers; ++l) {
      r.status = r.cache->seal(l);
    }
    if (r.status.ok()) r.cache->advance({&r.token, 1});
  });
}

// The logits of the rows that ask for them.
void Decoder::logits() {
  const ModelShape& s = model_.shape();
  std::vector<std::span<float>> logits;
  for (uint32_t row = 0; row < rows_.size(); ++row) {
    if (!rows_[row]->status.ok() || rows_[row]->logits.empty()) continue;
    const size_t at = size_t{row} * s.width;
    add_branch(s, model_.layers().back().post_ffn_norm, out_.data() + at, x_.data() + at);
    std::memmove(x_.data() + logits.size() * s.width, x_.data() + at, s.width * sizeof(float));
    logits.push_back(rows_[row]->logits);
  }
  logits_of(x_.data(), logits);
}

void Decoder::logits_of(const float* hidden, std::span<const std::span<float>> logits) {
  const ModelShape& s = model_.shape();
  const auto count = static_cast<uint32_t>(logits.size());
  if (count == 0) return;
  norm_.resize(size_t{count} * s.width);
  for (size_t i = 0; i < count; ++i) {
    rms_norm(hidden + i * s.width, model_.output_norm(), s.rms_eps, norm_.data() + i * s.width);
  }
  Activations input{norm_.data(), s.width, count};
  const std::initializer_list<Product> head = {{&model_.output(), nullptr}};
  if (wants_rounding(head)) input = rounded_.round(input, s.width);
  each_strip(threads_, head, [&](const Product& p, uint32_t first, uint32_t end, uint32_t worker) {
    const uint32_t n = end - first;
    Floats& strip = strips_[worker];
    strip.resize(std::max(strip.size(), size_t{count} * n));
    multiply(*p.weights, input, first, end, strip.data(), n);
    for (uint32_t i = 0; i < count; ++i) {
      std::copy_n(strip.data() + size_t{i} * n, n, logits[i].data() + first);
    }
  });
}

}  // namespace kv
