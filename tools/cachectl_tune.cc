// cachectl tune MODEL.gguf --budget R: bits for every layer and side within R of fp16's bytes, by
// measured sensitivity, as a profile file.
//
// Every side of every layer is coded alone at 4 bits and the divergence of the model's predictions
// measured (the hit protocol of engine/teacher.h); keys with each of three strengths of the
// calibrated gain, of which the best stays. Other widths are taken to scale with the codes'
// distortion. codec/bit_plan.h chooses; the plan is measured beside plain 4 bits at the end.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "codec/bit_plan.h"
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
// Powers of the calibrated gain: 0 is the mean alone.
constexpr float kGainPowers[] = {0.0f, 0.5f, 1.0f};

struct Options {
  std::string model, out;
  std::vector<std::string> texts;
  std::vector<double> budgets = {0.27};
  uint32_t threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxEngineThreads);
};

// What one side of one layer costs.
struct Sensitivity {
  uint32_t layer = 0;
  Side side = Side::k;
  float gain_power = 1;   // keys: the best of kGainPowers
  double divergence = 0;  // coded alone at kMeasuredBits
};

// Divergence means over the texts, of a coding that changes only what its profile codes.
class Meter {
 public:
  Meter(const CalibratedModel& model, uint32_t threads)
      : model_(model), teacher_(model.model, threads) {}

  Status add_text(std::string_view text) {
    KV_ASSIGN_OR_RETURN(auto tokens, model_.model->tokenizer().encode(text));
    if (tokens.size() < 3 * kTeacherBlock) {
      return invalid_argument("a text of " + std::to_string(tokens.size()) +
                              " tokens, expected at least " + std::to_string(3 * kTeacherBlock));
    }
    tokens.resize(
        std::min({tokens.size(), size_t{kMostTokens}, size_t{model_.model->shape().context}}));
    // Half is coded, half is predicted on it.
    const auto blocks = static_cast<uint32_t>(tokens.size()) / kTeacherBlock;
    KV_ASSIGN_OR_RETURN(ExactText exact, teacher_.exact(tokens, blocks / 2 * kTeacherBlock));
    texts_.push_back(std::move(exact));
    return {};
  }

  Result<ProtocolResult> measure(const Profile& profile) {
    KV_ASSIGN_OR_RETURN(
        auto codec, Codec::create(model_.model->spec(), std::make_shared<const Profile>(profile)));
    ProtocolResult result;
    for (const ExactText& text : texts_) {
      KV_ASSIGN_OR_RETURN(LayerRows rows, Teacher::coded_prefix(text, coder_of(codec)));
      std::vector<std::vector<float>> hidden(1);
      KV_ASSIGN_OR_RETURN(hidden[0], teacher_.hit(text, rows));
      result.add(teacher_.compare(text, text.prefix, hidden)[0]);
    }
    return result;
  }

 private:
  static constexpr uint32_t kMostTokens = 4096;  // of one text
  const CalibratedModel& model_;
  Teacher teacher_;
  std::vector<ExactText> texts_;
};

// All sides raw, in fp32: nothing changes.
Profile exact_profile(const CalibratedModel& model) {
  Profile profile = model.profile;
  profile.raw_dtype = DType::f32;
  for (auto& parts : profile.parts) {
    for (PartCoding& part : parts) part.k_bits = part.v_bits = 0;
  }
  return profile;
}

void set_gain(PartCoding& part, const PartCoding& calibrated, float power) {
  part.key_gain = calibrated.key_gain;
  for (float& gain : part.key_gain) gain = power == 1.0f ? gain : std::pow(gain, power);
}

Result<Sensitivity> measure_side(Meter& meter, const CalibratedModel& model, uint32_t layer,
                                 Side side) {
  Profile profile = exact_profile(model);
  PartCoding& part = profile.parts[layer][0];
  (side == Side::k ? part.k_bits : part.v_bits) = kMeasuredBits;
  Sensitivity best{layer, side, 1, INFINITY};
  for (float power : kGainPowers) {
    if (side == Side::v && power != 1.0f) continue;  // values have no gain
    set_gain(part, model.profile.parts[layer][0], power);
    KV_ASSIGN_OR_RETURN(ProtocolResult found, meter.measure(profile));
    if (found.mean_kld() < best.divergence) best = {layer, side, power, found.mean_kld()};
  }
  return best;
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

Result<Profile> choose(const CalibratedModel& model, std::span<const Sensitivity> sides,
                       double budget) {
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
  Profile profile = model.profile;
  profile.requested_k_bits = profile.requested_v_bits = kMeasuredBits;
  for (size_t i = 0; i < sides.size(); ++i) {
    PartCoding& part = profile.parts[sides[i].layer][0];
    const uint8_t bits = kWidths[taken[i]].bits;
    (sides[i].side == Side::k ? part.k_bits : part.v_bits) = bits;
    if (sides[i].side == Side::k) {
      set_gain(part, model.profile.parts[sides[i].layer][0], sides[i].gain_power);
    }
  }
  return profile;
}

std::string bits_text(uint8_t bits) { return bits == 0 ? "raw" : std::to_string(bits); }

// Why: each side's share of the divergence, and what it got.
void print_plan(std::span<const Sensitivity> sides, const Profile& plan) {
  double total = 0;
  for (const Sensitivity& s : sides) total += s.divergence;
  Table table({"layer", "K share", "gain", "K bits", "V share", "V bits"}, 0);
  for (uint32_t l = 0; l < plan.parts.size(); ++l) {
    const Sensitivity &k = sides[2 * l], &v = sides[2 * l + 1];
    table.add({std::to_string(l), number(100 * k.divergence / total, "%.1f%%"),
               number(static_cast<double>(k.gain_power), "%g"), bits_text(plan.parts[l][0].k_bits),
               number(100 * v.divergence / total, "%.1f%%"), bits_text(plan.parts[l][0].v_bits)});
  }
  table.print();
  std::printf("share: of the divergence that each side alone adds at %d bits, all sides %.5f\n",
              kMeasuredBits, total);
}

Status print_result(Meter& meter, const CalibratedModel& model, const Profile& plan) {
  Profile uniform = model.profile;
  for (auto& parts : uniform.parts) {
    for (PartCoding& part : parts) part.k_bits = part.v_bits = kMeasuredBits;
  }
  Table table({"coding", "x fp16", "KLD", "p99", "agree"}, 1);
  using Named = std::pair<const char*, const Profile*>;
  for (const auto& [name, profile] : {Named("tq4", &uniform), Named("this plan", &plan)}) {
    KV_ASSIGN_OR_RETURN(ProtocolResult found, meter.measure(*profile));
    table.add({name, number(stored_ratio(model.model->spec(), *profile, kBudgetTokens), "%.4f"),
               number(found.mean_kld(), "%.5f"), number(found.p99_kld(), "%.4f"),
               number(found.agreement(), "%.4f")});
  }
  table.print();
  return {};
}

Status tune(const Options& options) {
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
  std::vector<Sensitivity> sides;
  const uint32_t layers = model.model->shape().layers;
  for (uint32_t l = 0; l < layers; ++l) {
    line.show("layer " + std::to_string(l) + " of " + std::to_string(layers));
    for (Side side : {Side::k, Side::v}) {
      KV_ASSIGN_OR_RETURN(Sensitivity found, measure_side(meter, model, l, side));
      sides.push_back(found);
    }
  }
  line.show("");
  for (double budget : options.budgets) {
    KV_ASSIGN_OR_RETURN(Profile plan, choose(model, sides, budget));
    print_plan(sides, plan);
    KV_RETURN_IF_ERROR(print_result(meter, model, plan));
    if (options.out.empty()) continue;
    const std::string file =
        options.budgets.size() == 1 ? options.out : options.out + "." + number(budget, "%g");
    KV_RETURN_IF_ERROR(write_profile_file(file, model.model->spec(), model.profile.id(), plan));
    std::printf("wrote %s, profile %s\n", file.c_str(), plan.id().hex().substr(0, 12).c_str());
  }
  return {};
}

}  // namespace

void add_tune(CLI::App& app, std::function<Exit()>& chosen) {
  CLI::App* sub = app.add_subcommand(
      "tune", "find bits per layer and side for a byte budget, by measured sensitivity");
  auto options = std::make_shared<Options>();
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
