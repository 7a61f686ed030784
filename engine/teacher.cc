// Forced runs of a text. See teacher.h; comparing them: teacher_compare.cc.
#include "engine/teacher.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "codec/plan.h"

namespace kv {
namespace {

// The outcome of each layer's rows, and the fp32 rows before them.
class ForcedRows : public PrefillRows {
 public:
  using Own = std::function<Status(uint32_t layer, uint32_t rows, float* k, float* v)>;
  /// `before` holds `first` rows once `own` was called.
  ForcedRows(std::shared_ptr<const Codec> raw, const LayerRows* before, uint32_t first, Own own)
      : raw_(std::move(raw)), before_(before), first_(first), own_(std::move(own)) {}

  Result<const AttentionRows*> take(uint32_t layer, uint32_t rows, float* k, float* v) override {
    KV_RETURN_IF_ERROR(own_(layer, rows, k, v));
    if (first_ == 0) return nullptr;
    view_.emplace(raw_, layer, 0);
    KV_RETURN_IF_ERROR(view_->add_exact(DType::f32, before_->k[layer].data(),
                                        before_->v[layer].data(), 0, first_));
    return &*view_;
  }

 private:
  std::shared_ptr<const Codec> raw_;
  const LayerRows* before_;
  const uint32_t first_;
  Own own_;
  std::optional<AttentionRows> view_;
};

}  // namespace

Teacher::Teacher(std::shared_ptr<const Model> model, uint32_t threads)
    : model_(std::move(model)), threads_(threads), prefill_(*model_, threads_) {
  CodingSettings settings;
  settings.k_bits = settings.v_bits = 0;
  auto profile = plain_profile(model_->spec(), settings);
  KV_CHECK(profile.ok());
  auto raw = Codec::create(model_->spec(), std::make_shared<const Profile>(std::move(*profile)));
  KV_CHECK(raw.ok());
  raw_ = std::move(*raw);
}

// Final hidden rows of tokens [first, …), one after the other.
Result<std::vector<float>> Teacher::run(std::span<const Token> tokens, uint32_t first,
                                        PrefillRows& rows) {
  KV_RETURN_IF_ERROR(prefill_.run(tokens, first, rows, Deadline::max(), true));
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
  prefill_.watch_queries([&](uint32_t layer, RowRange positions, const float* q) {
    for (uint32_t position : text.sampled) {
      if (position < positions.first || position >= positions.end) continue;
      const float* row = q + (position - positions.first) * q_width;
      text.queries[layer].insert(text.queries[layer].end(), row, row + q_width);
    }
  });
  ForcedRows keep(raw_, nullptr, 0, [&](uint32_t, uint32_t rows, float* k, float* v) {
    text.rows.k.emplace_back(k, k + rows * width);
    text.rows.v.emplace_back(v, v + rows * width);
    return Status();
  });
  auto hidden = run(tokens, 0, keep);
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
  ForcedRows drop(raw_, &prefix_rows, text.prefix,
                  [](uint32_t, uint32_t, float*, float*) { return Status(); });
  return run(text.tokens, text.prefix, drop);
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
    // Coded behind this block's own attention: the block sees its rows as they are.
    auto code = [&](uint32_t layer, uint32_t count, float* k, float* v) -> Status {
      for (auto [held, given] : {std::pair(&rows.k[layer], k), std::pair(&rows.v[layer], v)}) {
        held->insert(held->end(), given, given + count * width);
        const Side side = given == k ? Side::k : Side::v;
        KV_RETURN_IF_ERROR(coder(layer, side, first, std::span(*held).last(size_t{count} * width)));
      }
      return {};
    };
    ForcedRows keep(raw_, &rows, first, code);
    const uint32_t end = std::min(first + kTeacherBlock, tokens);
    KV_ASSIGN_OR_RETURN(auto hidden, run(std::span(text.tokens).first(end), first, keep));
    if (first > 0) out.insert(out.end(), hidden.begin(), hidden.end());
  }
  return out;
}

Result<std::vector<float>> Teacher::whole_by_rows(const ExactText& text, const RowCoder& coder) {
  const size_t width = size_t{model_->shape().kv_heads} * model_->shape().head_dim;
  auto code = [&](uint32_t layer, uint32_t rows, float* k, float* v) -> Status {
    KV_RETURN_IF_ERROR(coder(layer, Side::k, 0, {k, rows * width}));
    return coder(layer, Side::v, 0, {v, rows * width});
  };
  ForcedRows coded(raw_, nullptr, 0, code);
  KV_ASSIGN_OR_RETURN(auto hidden, run(text.tokens, 0, coded));
  hidden.erase(hidden.begin(), hidden.begin() + static_cast<ptrdiff_t>(size_t{kTeacherBlock} *
                                                                       model_->shape().width));
  return hidden;
}

}  // namespace kv
