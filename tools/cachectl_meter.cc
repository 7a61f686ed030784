// Both meters. See cachectl_meter.h.
#include "tools/cachectl_meter.h"

#include <algorithm>
#include <utility>

#include "codec/calibrate.h"

namespace kv::cachectl {
namespace {

class EngineMeter : public Meter {
 public:
  EngineMeter(std::shared_ptr<const Model> model, uint32_t threads)
      : model_(std::move(model)),
        teacher_(model_, threads),
        keys_(model_->spec()),
        queries_(model_->spec()) {}

  Status add_text(std::string_view text) override;
  Result<std::vector<ProtocolResult>> measure(std::span<const RowCoder> codings) override;
  Result<std::vector<double>> key_errors(const RowCoder& coding) override;
  bool has_queries() const override { return true; }
  Result<Profile> calibrated(const Profile& base, bool queries) const override {
    return (queries ? queries_ : keys_).calibrated(base);
  }

 private:
  std::shared_ptr<const Model> model_;
  Teacher teacher_;
  KeyStatistics keys_, queries_;
  std::vector<ExactText> texts_;
};

Status EngineMeter::add_text(std::string_view text) {
  const ModelShape& s = model_->shape();
  KV_ASSIGN_OR_RETURN(auto tokens, model_->tokenizer().encode(text));
  tokens.resize(std::min({tokens.size(), size_t{kMostTokens}, size_t{s.context}}));
  KV_ASSIGN_OR_RETURN(const uint32_t prefix, prefix_of(tokens.size()));
  KV_ASSIGN_OR_RETURN(ExactText exact, teacher_.exact(tokens, prefix));
  for (uint32_t l = 0; l < s.layers; ++l) {
    KV_RETURN_IF_ERROR(keys_.add_keys(l, 0, 0, exact.rows.k[l]));
    KV_RETURN_IF_ERROR(queries_.add_keys(l, 0, 0, exact.rows.k[l]));
    KV_RETURN_IF_ERROR(
        queries_.add_queries(l, 0, exact.sampled[0], s.heads / s.kv_heads, exact.queries[l]));
  }
  texts_.push_back(std::move(exact));
  return {};
}

Result<std::vector<ProtocolResult>> EngineMeter::measure(std::span<const RowCoder> codings) {
  std::vector<ProtocolResult> results(codings.size());
  for (const ExactText& text : texts_) {
    std::vector<std::vector<float>> hidden;
    for (const RowCoder& coding : codings) {
      KV_ASSIGN_OR_RETURN(LayerRows rows, Teacher::coded_prefix(text, coding));
      KV_ASSIGN_OR_RETURN(auto found, teacher_.hit(text, rows));
      hidden.push_back(std::move(found));
    }
    const auto compared = teacher_.compare(text, text.prefix, hidden);
    for (size_t i = 0; i < results.size(); ++i) results[i].add(compared[i]);
  }
  return results;
}

Result<std::vector<double>> EngineMeter::key_errors(const RowCoder& coding) {
  std::vector<double> mean(model_->shape().layers);
  for (const ExactText& text : texts_) {
    KV_ASSIGN_OR_RETURN(LayerRows rows, Teacher::coded_prefix(text, coding));
    KV_ASSIGN_OR_RETURN(auto errors, teacher_.attention_errors(text, rows));
    for (size_t l = 0; l < mean.size(); ++l) {
      mean[l] += errors[l].k / static_cast<double>(texts_.size());
    }
  }
  return mean;
}

class TaughtMeter : public Meter {
 public:
  explicit TaughtMeter(TeacherLink& link) : link_(link), keys_(link.spec()) {}

  Status add_text(std::string_view text) override;
  Result<std::vector<ProtocolResult>> measure(std::span<const RowCoder> codings) override;
  Result<std::vector<double>> key_errors(const RowCoder& coding) override;
  bool has_queries() const override { return false; }
  Result<Profile> calibrated(const Profile& base, bool) const override {
    return keys_.calibrated(base);
  }

 private:
  TeacherLink& link_;
  KeyStatistics keys_;
  std::vector<TaughtText> texts_;
};

Status TaughtMeter::add_text(std::string_view text) {
  KV_ASSIGN_OR_RETURN(auto tokens, link_.encode(text, kMostTokens));
  KV_ASSIGN_OR_RETURN(const uint32_t prefix, prefix_of(tokens.size()));
  KV_ASSIGN_OR_RETURN(TaughtText exact,
                      link_.exact(static_cast<uint32_t>(texts_.size()), tokens, prefix));
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(link_.spec()));
  for (const RowPart& at : parts) {
    const uint32_t first = prefix_rows(at.spec, prefix).first;
    KV_RETURN_IF_ERROR(keys_.add_keys(at.layer, at.part, first, exact.rows.k[at.layer]));
  }
  texts_.push_back(std::move(exact));
  return {};
}

Result<std::vector<ProtocolResult>> TaughtMeter::measure(std::span<const RowCoder> codings) {
  std::vector<ProtocolResult> results(codings.size());
  for (const TaughtText& text : texts_) {
    for (size_t i = 0; i < codings.size(); ++i) {
      KV_ASSIGN_OR_RETURN(const Divergence found, link_.hit(text, codings[i]));
      results[i].add(found);
    }
  }
  return results;
}

Result<std::vector<double>> TaughtMeter::key_errors(const RowCoder& coding) {
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(link_.spec()));
  std::vector<RowCoder> codings;
  for (const RowPart& at : parts) codings.push_back(only(coding, at.layer, Side::k));
  KV_ASSIGN_OR_RETURN(auto found, measure(codings));
  std::vector<double> errors(link_.spec().layers.size());
  for (size_t i = 0; i < parts.size(); ++i) errors[parts[i].layer] = found[i].mean_kld();
  return errors;
}

}  // namespace

Result<uint32_t> Meter::prefix_of(size_t tokens) {
  if (tokens < 3 * kTeacherBlock) {
    return invalid_argument("a text of " + std::to_string(tokens) + " tokens, expected at least " +
                            std::to_string(3 * kTeacherBlock));
  }
  return static_cast<uint32_t>(tokens / kTeacherBlock - 1) * kTeacherBlock;
}

std::unique_ptr<Meter> engine_meter(std::shared_ptr<const Model> model, uint32_t threads) {
  return std::make_unique<EngineMeter>(std::move(model), threads);
}

std::unique_ptr<Meter> taught_meter(TeacherLink& link) {
  return std::make_unique<TaughtMeter>(link);
}

RowCoder only(RowCoder coder, uint32_t layer, Side side) {
  return [coder = std::move(coder), layer, side](uint32_t l, Side s, uint32_t first,
                                                 std::span<float> rows) {
    return l == layer && s == side ? coder(l, s, first, rows) : Status();
  };
}

}  // namespace kv::cachectl
