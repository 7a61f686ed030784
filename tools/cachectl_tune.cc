// cachectl tune MODEL.gguf --budget R: bits for every layer and side within R of fp16's bytes, by
// measured sensitivity, as a profile file.
//
// Key means and gains come from the exact keys and queries of all texts. Of some gains, each layer
// takes the one that leaves its attention output the most exact. Then every side of every layer is
// coded alone at 4 bits and the divergence of the model's predictions measured (the hit protocol of
// engine/teacher.h); other widths are taken to scale with the codes' distortion. codec/bit_plan.h
// chooses; the plan is measured beside plain 4 bits at the end.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "codec/bit_plan.h"
#include "codec/calibrate.h"
#include "codec/plan.h"
#include "codec/preset.h"
#include "codec/profile_file.h"
#include "engine/calibration.h"
#include "tools/cachectl_quality.h"
#include "tools/cachectl_quality_settings.h"

namespace kv::cachectl {
namespace {

constexpr uint32_t kBudgetTokens = 3072;  // the budget counts the complete blocks of so many
constexpr uint8_t kMeasuredBits = 4;

struct Width {
  uint8_t bits;
  double distortion;  // relative squared error on Gaussian input: codec/TURBOQUANT.md
};
constexpr Width kWidths[] = {{2, 0.1175}, {3, 0.03455}, {4, 0.0095}, {8, 0.0000417}, {0, 0}};
// Gains that are tried: powers of the calibrated one, from keys alone or with queries.
struct GainChoice {
  const char* name;
  bool queries;
  float power;
};
constexpr GainChoice kGains[] = {{"none", false, 0.0f},
                                 {"keys^.5", false, 0.5f},
                                 {"keys", false, 1.0f},
                                 {"queries^.5", true, 0.5f},
                                 {"queries", true, 1.0f}};

struct TuneOptions {
  std::string model, out;
  std::vector<std::string> texts;
  std::vector<double> budgets = {0.27};
  uint32_t threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxEngineThreads);
};

// What one side of one layer costs.
struct Sensitivity {
  uint32_t layer = 0;
  Side side = Side::k;
  double divergence = 0;  // coded alone at kMeasuredBits
};

// Exact runs of the texts, and what codings do to them.
class Meter {
 public:
  Meter(const CalibratedModel& model, uint32_t threads)
      : model_(model),
        teacher_(model.model, threads),
        keys_(model.model->spec()),
        queries_(model.model->spec()) {}

  Status add_text(std::string_view text);
  /// Means over the texts of codings that change a prefix.
  Result<std::vector<ProtocolResult>> measure(std::span<const RowCoder> codings);
  /// Per layer: mean over the texts of the attention error of coded keys.
  Result<std::vector<double>> key_errors(const RowCoder& coding);
  /// `base` with means and gains of all texts' keys, gains with queries too if asked for.
  Result<Profile> calibrated(const Profile& base, bool queries) const {
    return (queries ? queries_ : keys_).calibrated(base);
  }

 private:
  static constexpr uint32_t kMostTokens = 4096;  // of one text
  const CalibratedModel& model_;
  Teacher teacher_;
  KeyStatistics keys_, queries_;
  std::vector<ExactText> texts_;
};

Status Meter::add_text(std::string_view text) {
  const ModelShape& s = model_.model->shape();
  KV_ASSIGN_OR_RETURN(auto tokens, model_.model->tokenizer().encode(text));
  if (tokens.size() < 3 * kTeacherBlock) {
    return invalid_argument("a text of " + std::to_string(tokens.size()) +
                            " tokens, expected at least " + std::to_string(3 * kTeacherBlock));
  }
  tokens.resize(std::min({tokens.size(), size_t{kMostTokens}, size_t{s.context}}));
  const auto blocks = static_cast<uint32_t>(tokens.size()) / kTeacherBlock;
  // Predictions of the last block: what lies before it is coded.
  KV_ASSIGN_OR_RETURN(ExactText exact, teacher_.exact(tokens, (blocks - 1) * kTeacherBlock));
  for (uint32_t l = 0; l < s.layers; ++l) {
    KV_RETURN_IF_ERROR(keys_.add_keys(l, 0, 0, exact.rows.k[l]));
    KV_RETURN_IF_ERROR(queries_.add_keys(l, 0, 0, exact.rows.k[l]));
    KV_RETURN_IF_ERROR(
        queries_.add_queries(l, 0, exact.sampled[0], s.heads / s.kv_heads, exact.queries[l]));
  }
  texts_.push_back(std::move(exact));
  return {};
}

Result<std::vector<ProtocolResult>> Meter::measure(std::span<const RowCoder> codings) {
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

Result<std::vector<double>> Meter::key_errors(const RowCoder& coding) {
  std::vector<double> mean(model_.model->shape().layers);
  for (const ExactText& text : texts_) {
    KV_ASSIGN_OR_RETURN(LayerRows rows, Teacher::coded_prefix(text, coding));
    KV_ASSIGN_OR_RETURN(auto errors, teacher_.attention_errors(text, rows));
    for (size_t l = 0; l < mean.size(); ++l) {
      mean[l] += errors[l].k / static_cast<double>(texts_.size());
    }
  }
  return mean;
}

Result<RowCoder> profile_coder(const CalibratedModel& model, const Profile& profile) {
  KV_ASSIGN_OR_RETURN(auto codec,
                      Codec::create(model.model->spec(), std::make_shared<const Profile>(profile)));
  return coder_of(std::move(codec));
}

Profile uniform(Profile profile) {
  for (auto& parts : profile.parts) {
    for (PartCoding& part : parts) part.k_bits = part.v_bits = kMeasuredBits;
  }
  return profile;
}

// All sides at kMeasuredBits, every layer with the best of kGains; `names` gets which.
Result<Profile> with_best_gains(Meter& meter, const CalibratedModel& model,
                                std::vector<const char*>& names) {
  Profile best = uniform(model.profile);
  std::vector<double> least(best.parts.size(), INFINITY);
  names.assign(best.parts.size(), "");
  for (const GainChoice& choice : kGains) {
    KV_ASSIGN_OR_RETURN(Profile tried, meter.calibrated(uniform(model.profile), choice.queries));
    for (auto& parts : tried.parts) {
      for (float& gain : parts[0].key_gain) gain = std::pow(gain, choice.power);
    }
    KV_ASSIGN_OR_RETURN(RowCoder coder, profile_coder(model, tried));
    KV_ASSIGN_OR_RETURN(auto errors, meter.key_errors(coder));
    for (size_t l = 0; l < errors.size(); ++l) {
      if (errors[l] >= least[l]) continue;
      least[l] = errors[l];
      best.parts[l] = tried.parts[l];
      names[l] = choice.name;
    }
  }
  return best;
}

// Both sides of every layer in order, K first.
Result<std::vector<Sensitivity>> measure_sides(Meter& meter, const CalibratedModel& model,
                                               const Profile& coded) {
  KV_ASSIGN_OR_RETURN(RowCoder coder, profile_coder(model, coded));
  std::vector<Sensitivity> sides;
  std::vector<RowCoder> codings;
  for (uint32_t l = 0; l < model.model->shape().layers; ++l) {
    for (Side side : {Side::k, Side::v}) {
      sides.push_back({l, side, 0});
      codings.push_back([=](uint32_t layer, Side s, uint32_t first, std::span<float> rows) {
        return layer == l && s == side ? coder(layer, s, first, rows) : Status();
      });
    }
  }
  KV_ASSIGN_OR_RETURN(auto found, meter.measure(codings));
  for (size_t i = 0; i < sides.size(); ++i) sides[i].divergence = found[i].mean_kld();
  return sides;
}

// Bytes of kBudgetTokens rows of one side.
uint64_t side_bytes(const ModelShape& s, const Profile& profile, uint8_t bits) {
  const uint64_t row = uint64_t{2} * s.kv_heads * s.head_dim;
  if (bits == 0) return kBudgetTokens * row;
  const uint64_t coded = s.kv_heads * (code_bytes(s.head_dim, bits) + 2);
  return profile.exact_tokens * row + (kBudgetTokens - profile.exact_tokens) * coded;
}

Status check_budget(const CalibratedModel& model, double budget) {
  const ModelShape& s = model.model->shape();
  const double least = static_cast<double>(side_bytes(s, model.profile, kWidths[0].bits)) /
                       static_cast<double>(side_bytes(s, model.profile, 0));
  if (budget >= least) return {};
  char text[96];
  std::snprintf(text, sizeof(text), "--budget %.4f: this model takes at least %.4f", budget, least);
  return invalid_argument(text);
}

// `coded` with the bits that a budget allows.
Result<Profile> choose(const CalibratedModel& model, const Profile& coded,
                       std::span<const Sensitivity> sides, double budget) {
  const ModelShape& s = model.model->shape();
  std::vector<std::vector<BitChoice>> items;
  for (const Sensitivity& side : sides) {
    auto& item = items.emplace_back();
    for (const Width& width : kWidths) {
      item.push_back({side_bytes(s, model.profile, width.bits),
                      side.divergence * width.distortion / kWidths[2].distortion});
    }
  }
  const auto whole = static_cast<double>(sides.size() * side_bytes(s, model.profile, 0));
  KV_ASSIGN_OR_RETURN(auto taken, best_choices(items, static_cast<uint64_t>(budget * whole)));
  Profile profile = coded;
  profile.requested_k_bits = profile.requested_v_bits = kMeasuredBits;
  for (size_t i = 0; i < sides.size(); ++i) {
    PartCoding& part = profile.parts[sides[i].layer][0];
    const uint8_t bits = kWidths[taken[i]].bits;
    (sides[i].side == Side::k ? part.k_bits : part.v_bits) = bits;
  }
  return profile;
}

std::string bits_text(uint8_t bits) { return bits == 0 ? "raw" : std::to_string(bits); }

// Why: each side's share of the divergence, and what it got.
void print_plan(std::span<const Sensitivity> sides, std::span<const char* const> gains,
                const Profile& plan) {
  double total = 0;
  for (const Sensitivity& s : sides) total += s.divergence;
  Table table({"layer", "K share", "gain", "K bits", "V share", "V bits"}, 0);
  for (uint32_t l = 0; l < plan.parts.size(); ++l) {
    const Sensitivity &k = sides[2 * l], &v = sides[2 * l + 1];
    table.add({std::to_string(l), number(100 * k.divergence / total, "%.1f%%"), gains[l],
               bits_text(plan.parts[l][0].k_bits), number(100 * v.divergence / total, "%.1f%%"),
               bits_text(plan.parts[l][0].v_bits)});
  }
  table.print();
  std::printf("share: of the divergence that each side alone adds at %d bits, all sides %.5f\n",
              kMeasuredBits, total);
}

Status print_results(Meter& meter, const CalibratedModel& model,
                     std::span<const std::pair<std::string, Profile>> plans) {
  std::vector<RowCoder> codings;
  for (const auto& [name, plan] : plans) {
    KV_ASSIGN_OR_RETURN(RowCoder coder, profile_coder(model, plan));
    codings.push_back(std::move(coder));
  }
  KV_ASSIGN_OR_RETURN(auto found, meter.measure(codings));
  Table table({"coding", "x fp16", "KLD", "p99", "agree"}, 1);
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto& [name, plan] = plans[i];
    table.add({name, number(stored_ratio(model.model->spec(), plan, kBudgetTokens), "%.4f"),
               number(found[i].mean_kld(), "%.5f"), number(found[i].p99_kld(), "%.4f"),
               number(found[i].agreement(), "%.4f")});
  }
  table.print();
  return {};
}

Status tune(const TuneOptions& options) {
  StatusLine line;
  line.show("loading and calibrating");
  KV_ASSIGN_OR_RETURN(CalibratedModel model, load_calibrated(options.model, options.threads));
  for (double budget : options.budgets) KV_RETURN_IF_ERROR(check_budget(model, budget));
  Meter meter(model, options.threads);
  if (options.texts.empty()) KV_RETURN_IF_ERROR(meter.add_text(kCalibrationText));
  for (const std::string& path : options.texts) {
    KV_ASSIGN_OR_RETURN(std::string text, read_text(path));
    KV_RETURN_IF_ERROR(meter.add_text(text));
  }
  line.show("gains");
  std::vector<const char*> gains;
  KV_ASSIGN_OR_RETURN(Profile coded, with_best_gains(meter, model, gains));
  line.show("sides of layers");
  KV_ASSIGN_OR_RETURN(auto sides, measure_sides(meter, model, coded));
  std::vector<std::pair<std::string, Profile>> plans = {{"tq4", uniform(model.profile)},
                                                        {"4 bits, these gains", coded}};
  for (double budget : options.budgets) {
    KV_ASSIGN_OR_RETURN(Profile plan, choose(model, coded, sides, budget));
    line.show("");
    std::printf("budget %g\n", budget);
    print_plan(sides, gains, plan);
    plans.emplace_back("budget " + number(budget, "%g"), plan);
    if (options.out.empty()) continue;
    const std::string file =
        options.budgets.size() == 1 ? options.out : options.out + "." + number(budget, "%g");
    KV_RETURN_IF_ERROR(write_profile_file(file, model.model->spec(), model.profile.id(), plan));
    std::printf("wrote %s, profile %s\n", file.c_str(), plan.id().hex().substr(0, 12).c_str());
  }
  line.show("plans");
  KV_RETURN_IF_ERROR(print_results(meter, model, plans));
  return {};
}

}  // namespace

void add_tune(CLI::App& app, std::function<Exit()>& chosen) {
  CLI::App* sub = app.add_subcommand(
      "tune", "find bits per layer and side for a byte budget, by measured sensitivity");
  auto options = std::make_shared<TuneOptions>();
  sub->add_option("MODEL", options->model, "a GGUF file")->required();
  sub->add_option("--budget", options->budgets,
                  "bytes of complete blocks over fp16; with several, one plan each")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(0.05, 1.0));
  sub->add_option("--text", options->texts,
                  "text files to measure on, the first 4,096 tokens of each; else one of our own");
  sub->add_option("--out", options->out,
                  "write the profile to this file; with several budgets, FILE.BUDGET");
  sub->add_option("--threads", options->threads)->check(CLI::Range(1u, kMaxEngineThreads));
  sub->callback([options, &chosen] { chosen = [options] { return exit_of(tune(*options)); }; });
}

}  // namespace kv::cachectl
