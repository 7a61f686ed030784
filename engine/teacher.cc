// Forced runs of a text. See teacher.h; comparing them: teacher_compare.cc.
#include "engine/teacher.h"

#include <algorithm>
#include <string>

namespace kv {

Teacher::Teacher(std::shared_ptr<const Model> model, uint32_t threads)
    : model_(std::move(model)), threads_(threads), prefill_(*model_, threads_, kTeacherBlock) {}

// Final hidden rows of tokens [first, …), one after the other.
Result<std::vector<float>> Teacher::run(std::span<const Token> tokens, uint32_t first,
                                        const LayerSource& source, const LayerSink& sink) {
  KV_RETURN_IF_ERROR(prefill_.run(tokens, first, source, sink, Deadline::max(), true));
  const size_t width = model_->shape().width;
  const float* from = prefill_.hidden(first);
  return std::vector<float>(from, from + (tokens.size() - first) * width);
}

Result<ExactText> Teacher::exact(std::span<const Token> tokens, uint32_t prefix) {
  const ModelShape& s = model_->shape();
  if (prefix == 0 || prefix % kTeacherBlock != 0 || prefix >= tokens.size()) {
    return invalid_argument("teacher: a prefix of " + std::to_string(prefix) + " tokens of " +
                            std::to_string(tokens.size()) + ", expected a multiple of " +
                            std::to_string(kTeacherBlock) + " below");
  }
  ExactText text;
  text.tokens.assign(tokens.begin(), tokens.end());
  text.prefix = prefix;
  const auto behind = static_cast<uint32_t>(tokens.size()) - prefix;
  for (uint32_t i = 0; i < std::min(behind, kSampledQueries); ++i) {
    text.sampled.push_back(
        prefix + static_cast<uint32_t>(uint64_t{i} * behind / std::min(behind, kSampledQueries)));
  }
  const size_t q_width = size_t{s.heads} * s.head_dim, width = size_t{s.kv_heads} * s.head_dim;
  text.queries.resize(s.layers);
  prefill_.watch_queries([&](uint32_t layer, const float* q) {
    for (uint32_t position : text.sampled) {
      const float* row = q + position * q_width;
      text.queries[layer].insert(text.queries[layer].end(), row, row + q_width);
    }
  });
  auto nothing = [](uint32_t, Side, uint32_t, float*) { return Status(); };
  auto keep = [&](uint32_t, uint32_t rows, float* k, float* v) {
    text.rows.k.emplace_back(k, k + rows * width);
    text.rows.v.emplace_back(v, v + rows * width);
    return Status();
  };
  auto hidden = run(tokens, 0, nothing, keep);
  prefill_.watch_queries(nullptr);
  if (!hidden.ok()) return hidden.status();
  text.hidden = std::move(*hidden);
  return text;
}

Result<LayerRows> Teacher::coded_prefix(const ExactText& text, const RowCoder& coder) {
  LayerRows out = text.rows;
  for (uint32_t l = 0; l < out.k.size(); ++l) {
    const size_t values = out.k[l].size() / text.tokens.size() * text.prefix;
    KV_RETURN_IF_ERROR(coder(l, Side::k, 0, std::span(out.k[l]).first(values)));
    KV_RETURN_IF_ERROR(coder(l, Side::v, 0, std::span(out.v[l]).first(values)));
  }
  return out;
}

Result<std::vector<float>> Teacher::hit(const ExactText& text, const LayerRows& prefix_rows) {
  const size_t width = size_t{model_->shape().kv_heads} * model_->shape().head_dim;
  auto source = [&](uint32_t layer, Side side, uint32_t from, float* out) {
    const auto& rows = side == Side::k ? prefix_rows.k[layer] : prefix_rows.v[layer];
    std::copy(rows.begin() + static_cast<ptrdiff_t>(from * width),
              rows.begin() + static_cast<ptrdiff_t>(text.prefix * width), out);
    return Status();
  };
  auto drop = [](uint32_t, uint32_t, float*, float*) { return Status(); };
  return run(text.tokens, text.prefix, source, drop);
}

Result<std::vector<float>> Teacher::whole_by_blocks(const ExactText& text, const RowCoder& coder) {
  const ModelShape& s = model_->shape();
  const size_t width = size_t{s.kv_heads} * s.head_dim;
  LayerRows rows;
  rows.k.resize(s.layers);
  rows.v.resize(s.layers);
  std::vector<float> out;
  const auto tokens = static_cast<uint32_t>(text.tokens.size());
  for (uint32_t first = 0; first < tokens; first += kTeacherBlock) {
    auto source = [&](uint32_t layer, Side side, uint32_t from, float* to) {
      const auto& held = side == Side::k ? rows.k[layer] : rows.v[layer];
      std::copy(held.begin() + static_cast<ptrdiff_t>(from * width), held.end(), to);
      return Status();
    };
    // Coded behind this block's own attention: the block sees its rows as they are.
    auto keep = [&](uint32_t layer, uint32_t count, float* k, float* v) -> Status {
      for (auto [held, given] : {std::pair(&rows.k[layer], k), std::pair(&rows.v[layer], v)}) {
        held->insert(held->end(), given, given + count * width);
        const Side side = given == k ? Side::k : Side::v;
        KV_RETURN_IF_ERROR(coder(layer, side, first, std::span(*held).last(size_t{count} * width)));
      }
      return {};
    };
    const uint32_t end = std::min(first + kTeacherBlock, tokens);
    KV_ASSIGN_OR_RETURN(auto hidden, run(std::span(text.tokens).first(end), first, source, keep));
    if (first > 0) out.insert(out.end(), hidden.begin(), hidden.end());
  }
  return out;
}

Result<std::vector<float>> Teacher::whole_by_rows(const ExactText& text, const RowCoder& coder) {
  const size_t width = size_t{model_->shape().kv_heads} * model_->shape().head_dim;
  auto nothing = [](uint32_t, Side, uint32_t, float*) { return Status(); };
  auto code = [&](uint32_t layer, uint32_t rows, float* k, float* v) -> Status {
    KV_RETURN_IF_ERROR(coder(layer, Side::k, 0, {k, rows * width}));
    return coder(layer, Side::v, 0, {v, rows * width});
  };
  KV_ASSIGN_OR_RETURN(auto hidden, run(text.tokens, 0, nothing, code));
  hidden.erase(hidden.begin(), hidden.begin() + static_cast<ptrdiff_t>(size_t{kTeacherBlock} *
                                                                       model_->shape().width));
  return hidden;
}

}  // namespace kv
