// cachectl tune MODEL.gguf --budget R: bits for every layer and side within R of fp16's bytes, by
// measured sensitivity, as a profile file.
//
// Key means and gains come from the exact keys and queries of all texts. Of some gains, each layer
// takes the one under which its coded keys do the least (Meter::key_errors). Then every side of
// every layer is coded alone at 4 bits and the divergence of the model's predictions measured (the
// hit protocol of engine/teacher.h); other widths are taken to scale with the codes' distortion.
// codec/bit_plan.h chooses; the plan is measured beside plain 4 bits at the end.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "codec/bit_plan.h"
#include "codec/plan.h"
#include "codec/preset.h"
#include "codec/profile_file.h"
#include "engine/calibration.h"
#include "tools/cachectl_meter.h"
#include "tools/cachectl_quality.h"
#include "tools/cachectl_teacher.h"
#include "tools/cachectl_transform_fit.h"
#include "tools/cachectl_transforms.h"

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
  std::string model, out, teacher, coding = "tq";
  std::vector<std::string> texts;
  std::vector<double> budgets = {0.27};
  uint32_t threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxEngineThreads);
};

// The cost of one side of one layer.
struct Sensitivity {
  RowPart at;
  Side side = Side::k;
  double divergence = 0;  // coded alone at kMeasuredBits
};

Result<RowCoder> profile_coder(const CalibratedModel& model, const Profile& profile) {
  KV_ASSIGN_OR_RETURN(auto codec,
                      Codec::create(model.spec, std::make_shared<const Profile>(profile)));
  return coder_of(std::move(codec));
}

// The calibrated profile with kMeasuredBits on every side that may be coded.
Result<Profile> uniform(const CalibratedModel& model) {
  KV_ASSIGN_OR_RETURN(auto rows, row_parts(model.spec));
  Profile profile = model.profile;
  for (const RowPart& at : rows) {
    PartCoding& part = profile.parts[at.layer][at.part];
    part.k_bits = part.v_bits = kMeasuredBits;
  }
  return profile;
}

// All sides at kMeasuredBits, every layer with the best of kGains; `names` gets which.
Result<Profile> with_best_gains(Meter& meter, const CalibratedModel& model,
                                std::vector<const char*>& names) {
  KV_ASSIGN_OR_RETURN(Profile plain, uniform(model));
  KV_ASSIGN_OR_RETURN(auto rows, row_parts(model.spec));
  Profile best = plain;
  std::vector<double> least(best.parts.size(), INFINITY);
  names.assign(best.parts.size(), "");
  for (const GainChoice& choice : kGains) {
    if (choice.queries && !meter.has_queries()) continue;
    KV_ASSIGN_OR_RETURN(Profile tried, meter.calibrated(plain, choice.queries));
    for (const RowPart& at : rows) {
      for (float& gain : tried.parts[at.layer][at.part].key_gain) {
        gain = std::pow(gain, choice.power);
      }
    }
    KV_ASSIGN_OR_RETURN(RowCoder coder, profile_coder(model, tried));
    KV_ASSIGN_OR_RETURN(auto errors, meter.key_errors(coder));
    for (const RowPart& at : rows) {
      const uint32_t l = at.layer;
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
  KV_ASSIGN_OR_RETURN(auto rows, row_parts(model.spec));
  std::vector<Sensitivity> sides;
  std::vector<RowCoder> codings;
  for (const RowPart& at : rows) {
    for (Side side : {Side::k, Side::v}) {
      sides.push_back({at, side, 0});
      codings.push_back(only(coder, at.layer, side));
    }
  }
  KV_ASSIGN_OR_RETURN(auto found, meter.measure(codings));
  for (size_t i = 0; i < sides.size(); ++i) sides[i].divergence = found[i].mean_kld();
  return sides;
}

// Bytes of kBudgetTokens rows of one side.
uint64_t side_bytes(const Sensitivity& side, const Profile& profile, uint8_t bits) {
  const PartSpec& part = side.at.spec;
  const uint32_t dim = side.side == Side::k ? part.k_dim : part.v_dim;
  const uint64_t row = uint64_t{2} * part.heads * dim;
  if (bits == 0) return kBudgetTokens * row;
  const uint64_t coded = part.heads * (code_bytes(dim, bits) + 2);
  return profile.exact_tokens * row + (kBudgetTokens - profile.exact_tokens) * coded;
}

// The same of all sides of the model.
Result<uint64_t> model_bytes(const CalibratedModel& model, uint8_t bits) {
  KV_ASSIGN_OR_RETURN(auto rows, row_parts(model.spec));
  uint64_t sum = 0;
  for (const RowPart& at : rows) {
    for (Side side : {Side::k, Side::v}) sum += side_bytes({at, side, 0}, model.profile, bits);
  }
  return sum;
}

Status check_budget(const CalibratedModel& model, double budget) {
  KV_ASSIGN_OR_RETURN(const uint64_t coded, model_bytes(model, kWidths[0].bits));
  KV_ASSIGN_OR_RETURN(const uint64_t whole, model_bytes(model, 0));
  const double least = static_cast<double>(coded) / static_cast<double>(whole);
  if (budget >= least) return {};
  char text[96];
  std::snprintf(text, sizeof(text), "--budget %.4f: this model takes at least %.4f", budget, least);
  return invalid_argument(text);
}

// `coded` with the bits that a budget allows.
Result<Profile> choose(const CalibratedModel& model, const Profile& coded,
                       std::span<const Sensitivity> sides, double budget) {
  std::vector<std::vector<BitChoice>> items;
  for (const Sensitivity& side : sides) {
    auto& item = items.emplace_back();
    for (const Width& width : kWidths) {
      item.push_back({side_bytes(side, model.profile, width.bits),
                      side.divergence * width.distortion / kWidths[2].distortion});
    }
  }
  KV_ASSIGN_OR_RETURN(const uint64_t whole, model_bytes(model, 0));
  KV_ASSIGN_OR_RETURN(
      auto taken, best_choices(items, static_cast<uint64_t>(budget * static_cast<double>(whole))));
  Profile profile = coded;
  profile.requested_k_bits = profile.requested_v_bits = kMeasuredBits;
  for (size_t i = 0; i < sides.size(); ++i) {
    PartCoding& part = profile.parts[sides[i].at.layer][sides[i].at.part];
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
  for (size_t i = 0; i < sides.size(); i += 2) {
    const Sensitivity &k = sides[i], &v = sides[i + 1];
    const PartCoding& part = plan.parts[k.at.layer][k.at.part];
    table.add({std::to_string(k.at.layer), number(100 * k.divergence / total, "%.1f%%"),
               gains[k.at.layer], bits_text(part.k_bits),
               number(100 * v.divergence / total, "%.1f%%"), bits_text(part.v_bits)});
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
    table.add({name, number(stored_ratio(model.spec, plan, kBudgetTokens), "%.4f"),
               number(found[i].mean_kld(), "%.5f"), number(found[i].p99_kld(), "%.4f"),
               number(found[i].agreement(), "%.4f")});
  }
  table.print();
  return {};
}

std::string out_file(const TuneOptions& options, double budget) {
  return options.budgets.size() == 1 ? options.out : options.out + "." + number(budget, "%g");
}

// A plan for each budget, shown, written and measured.
Status plan_all(const TuneOptions& options, const CalibratedModel& model, Meter& meter,
                StatusLine& line) {
  line.show("gains");
  std::vector<const char*> gains;
  KV_ASSIGN_OR_RETURN(Profile coded, with_best_gains(meter, model, gains));
  line.show("sides of layers");
  KV_ASSIGN_OR_RETURN(auto sides, measure_sides(meter, model, coded));
  KV_ASSIGN_OR_RETURN(Profile plain, uniform(model));
  std::vector<std::pair<std::string, Profile>> plans = {{"tq4", plain},
                                                        {"4 bits, these gains", coded}};
  for (double budget : options.budgets) {
    KV_ASSIGN_OR_RETURN(Profile plan, choose(model, coded, sides, budget));
    line.show("");
    std::printf("budget %g\n", budget);
    print_plan(sides, gains, plan);
    plans.emplace_back("budget " + number(budget, "%g"), plan);
    if (options.out.empty()) continue;
    const std::string file = out_file(options, budget);
    KV_RETURN_IF_ERROR(write_profile_file(file, model.spec, model.profile.id(), plan));
    std::printf("wrote %s, profile %s\n", file.c_str(), plan.id().hex().substr(0, 12).c_str());
  }
  line.show("plans");
  KV_RETURN_IF_ERROR(print_results(meter, model, plans));
  return {};
}

// Transforms for each budget, written and measured.
Status transform_all(const TuneOptions& options, const CalibratedModel& model, Meter& meter,
                     std::vector<Rotation> told, StatusLine& line) {
  TransformFitter fitter(model, meter, std::move(told));
  KV_RETURN_IF_ERROR(fitter.measure(line));
  std::vector<RowCoder> codings;
  std::vector<std::shared_ptr<CodedBytes>> bytes;
  for (double budget : options.budgets) {
    line.show("steps for budget " + number(budget, "%g"));
    KV_ASSIGN_OR_RETURN(TransformSet set, fitter.fit(budget));
    KV_ASSIGN_OR_RETURN(const Profile profile, transform_profile(model, std::move(set)));
    KV_ASSIGN_OR_RETURN(auto codec, Codec::create(model.spec, std::make_shared<Profile>(profile)));
    bytes.push_back(std::make_shared<CodedBytes>());
    KV_ASSIGN_OR_RETURN(RowCoder coder, coder_of(std::move(codec), bytes.back()));
    codings.push_back(std::move(coder));
    if (options.out.empty()) continue;
    const std::string file = out_file(options, budget);
    KV_RETURN_IF_ERROR(write_profile_file(file, model.spec, model.profile.id(), profile));
    line.show("");
    std::printf("wrote %s, profile %s, %.1f MB\n", file.c_str(),
                profile.id().hex().substr(0, 12).c_str(),
                static_cast<double>(encoded_bytes(profile)) / 1e6);
  }
  line.show("predictions");
  KV_ASSIGN_OR_RETURN(auto found, meter.measure(codings));
  line.show("");
  Table table({"coding", "x fp16", "KLD", "p99", "agree"}, 1);
  for (size_t i = 0; i < codings.size(); ++i) {
    const double ratio =
        static_cast<double>(bytes[i]->stored) / static_cast<double>(bytes[i]->whole);
    table.add({"tc, budget " + number(options.budgets[i], "%g"), number(ratio, "%.4f"),
               number(found[i].mean_kld(), "%.5f"), number(found[i].p99_kld(), "%.4f"),
               number(found[i].agreement(), "%.4f")});
  }
  table.print();
  return {};
}

Status tune(const TuneOptions& options) {
  StatusLine line;
  line.show("loading and calibrating");
  std::unique_ptr<TeacherProgram> teacher;
  CalibratedModel model;
  if (options.teacher.empty()) {
    KV_ASSIGN_OR_RETURN(model, load_calibrated(options.model, options.threads));
  } else {
    KV_ASSIGN_OR_RETURN(teacher, TeacherProgram::start(options.teacher, options.model));
    KV_ASSIGN_OR_RETURN(model, calibrated_by(teacher->link()));
  }
  const bool transform = options.coding == "tc";
  for (double budget : options.budgets) {
    if (!transform) KV_RETURN_IF_ERROR(check_budget(model, budget));
  }
  const auto owner = teacher == nullptr ? engine_meter(model.model, options.threads)
                                        : taught_meter(teacher->link());
  Meter& meter = *owner;
  if (options.texts.empty()) KV_RETURN_IF_ERROR(meter.add_text(kCalibrationText));
  for (const std::string& path : options.texts) {
    KV_ASSIGN_OR_RETURN(std::string text, read_text(path));
    KV_RETURN_IF_ERROR(meter.add_text(text));
  }
  if (!transform) return plan_all(options, model, meter, line);
  std::vector<Rotation> told;
  if (teacher != nullptr) told = teacher->link().rotations();
  return transform_all(options, model, meter, std::move(told), line);
}

}  // namespace

void add_tune(CLI::App& app, std::function<Exit()>& chosen) {
  CLI::App* sub = app.add_subcommand(
      "tune", "find bits per layer and side for a byte budget, by measured sensitivity");
  auto options = std::make_shared<TuneOptions>();
  sub->add_option("MODEL", options->model, "a GGUF file, or what the teacher takes")->required();
  sub->add_option("--teacher", options->teacher, kTeacherHelp);
  sub->add_option("--budget", options->budgets,
                  "bytes of complete blocks over fp16; with several, one plan each")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(0.05, 1.0));
  sub->add_option("--coding", options->coding, "tq: bits of TurboQuant; tc: transforms")
      ->capture_default_str()
      ->check(CLI::IsMember({"tq", "tc"}));
  sub->add_option("--text", options->texts,
                  "text files to measure on, the first 4,096 tokens of each; else one of our own");
  sub->add_option("--out", options->out,
                  "write the profile to this file; with several budgets, FILE.BUDGET");
  sub->add_option("--threads", options->threads)->check(CLI::Range(1u, kMaxEngineThreads));
  sub->callback([options, &chosen] { chosen = [options] { return exit_of(tune(*options)); }; });
}

}  // namespace kv::cachectl
