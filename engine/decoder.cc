// One step of a model. See decoder.h.
#include "engine/decoder.h"

#include <algorithm>

#include "engine/kernels.h"
#include "engine/layer_ops.h"
#include "engine/network.h"
#include "engine/strips.h"

namespace kv {
Decoder::Decoder(const Model& model, Threads& threads) : model_(model), threads_(threads) {
  const ModelShape& s = model.shape();
  uint32_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  for (auto* v : {&x_, &norm_}) v->resize(s.width);
  for (auto* v : {&q_, &heads_}) v->resize(q_width);
  for (auto* v : {&k_, &v_}) v->resize(kv_width);
  for (auto* v : {&gate_, &up_, &inner_}) v->resize(s.ffn);
  for (auto& rope : rope_) rope.resize(s.head_dim);
  queries_.resize(s.kv_heads);
  limits_.resize(s.heads / s.kv_heads);
  scratch_.resize(threads.count());
}

// All products of one input.
void Decoder::products(std::initializer_list<Product> list, const Floats& x) {
  const uint32_t columns = list.begin()->weights->columns;
  Activations input{x.data()};
  if (wants_rounding(list)) input = rounded_.round(input, columns);
  each_strip(threads_, list, [&](const Product& p, uint32_t first, uint32_t end, uint32_t) {
    multiply(*p.weights, input, first, end, p.out + first, 0);
  });
}

// heads_ (heads, head_dim) = attention of q_ over the rows; a task is one chunk of one kv head.
void Decoder::attend(const AttentionRows& rows, const RowLimit& limit) {
  const ModelShape& s = model_.shape();
  uint32_t group = s.heads / s.kv_heads, chunks = rows.end_chunk() - rows.first_chunk();
  size_t group_values = size_t{group} * s.head_dim;
  std::fill(limits_.begin(), limits_.end(), limit);
  for (uint32_t h = 0; h < s.kv_heads; ++h) {
    queries_[h].prepare(rows.codec(), rows.layer(), rows.part(), h,
                        std::span<const float>(q_).subspan(h * group_values, group_values),
                        attention_scale(s), limits_);
  }
  size_t floats = partial_floats(queries_[0], rows);
  partials_.resize(floats * chunks * s.kv_heads);
  std::span<float> partials(partials_);
  threads_.run(chunks * s.kv_heads, [&](uint32_t task, uint32_t worker) {
    attend_chunk(queries_[task / chunks], rows, rows.first_chunk() + task % chunks,
                 scratch_[worker], partials.subspan(task * floats, floats));
  });
  for (uint32_t h = 0; h < s.kv_heads; ++h) {
    merge_chunks(queries_[h], rows, partials.subspan(h * chunks * floats, chunks * floats),
                 scratch_[0], std::span<float>(heads_).subspan(h * group_values, group_values));
  }
}

void Decoder::feed_forward(const LayerWeights& layer) {
  const ModelShape& s = model_.shape();
  rms_norm(x_.data(), layer.ffn_norm, s.rms_eps, norm_.data());
  products({{&layer.gate, gate_.data()}, {&layer.up, up_.data()}}, norm_);
  gate_times(s, gate_.data(), up_.data(), inner_.data(), engine_codec_kernels());
  products({{&layer.down, norm_.data()}}, gate_);
  add_branch(s, layer.post_ffn_norm, norm_.data(), x_.data());
}

Status Decoder::attention(uint32_t l, KvCache& cache) {
  const ModelShape& s = model_.shape();
  const LayerWeights& layer = model_.layers()[l];
  rms_norm(x_.data(), layer.attn_norm, s.rms_eps, norm_.data());
  products({{&layer.q, q_.data()}, {&layer.k, k_.data()}, {&layer.v, v_.data()}}, norm_);
  const Floats& rope = rope_[s.windowed(l) ? 1 : 0];
  finish_heads(s, layer.q_norm, rope, s.heads, q_.data());
  finish_heads(s, layer.k_norm, rope, s.kv_heads, k_.data());
  KV_RETURN_IF_ERROR(cache.append(l, 0, 1, k_.data(), v_.data()));
  attend(cache.rows(l, 0), row_limit(s, l, cache.tokens()));
  products({{&layer.o, norm_.data()}}, heads_);
  add_branch(s, layer.post_attention_norm, norm_.data(), x_.data());
  return {};
}

Status check_step(const Model& model, Token token, const KvCache& cache) {
  const ModelShape& s = model.shape();
  if (cache.tokens() >= s.context) {
    return invalid_argument("position " + std::to_string(cache.tokens()) +
                            " beyond the model's context " + std::to_string(s.context));
  }
  if (token < 0 || static_cast<uint32_t>(token) >= s.vocab) {
    return invalid_argument("token id " + std::to_string(token) + " outside the vocabulary");
  }
  return {};
}

Status Decoder::step(Token token, KvCache& cache, std::span<float> logits) {
  const ModelShape& s = model_.shape();
  uint32_t position = cache.tokens();
  KV_RETURN_IF_ERROR(check_step(model_, token, cache));
  embed(model_, token, x_.data());
  model_.rope(false, position, rope_[0].data());
  model_.rope(true, position, rope_[1].data());
  for (uint32_t l = 0; l < s.layers; ++l) {
    KV_RETURN_IF_ERROR(attention(l, cache));
    feed_forward(model_.layers()[l]);
  }
  for (uint32_t l = 0; l < s.layers; ++l) KV_RETURN_IF_ERROR(cache.seal(l));
  cache.advance({&token, 1});
  if (!logits.empty()) logits_of(x_.data(), logits);
  return {};
}

void Decoder::logits_of(const float* hidden, std::span<float> logits) {
  KV_CHECK(logits.size() == model_.shape().vocab);
  rms_norm(hidden, model_.output_norm(), model_.shape().rms_eps, norm_.data());
  products({{&model_.output(), logits.data()}}, norm_);
}

}  // namespace kv
