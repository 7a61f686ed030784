// cachectl quality MODEL.gguf: divergence from the exact cache, setting by setting.
//
// Every text is computed exactly once; then for each setting its prefix is coded (hit), the whole
// of it runs on coded rows (whole), and attention outputs are compared layer by layer. See
// engine/teacher.h for both protocols. A teacher's program (engine/TEACHER.md) in place of the
// engine measures hits only.
#include "tools/cachectl_quality.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "tools/cachectl_llama.h"
#include "tools/cachectl_quality_settings.h"
#include "tools/cachectl_teacher.h"
#include "tools/quality_texts/texts.h"

namespace kv::cachectl {
namespace {

constexpr uint32_t kMinTokens = 2 * kTeacherBlock;
constexpr uint32_t kMaxQualityTokens = 32'768;

struct QualityOptions {
  std::string model, settings = kDefaultSettings, llama, teacher, json, svg;
  std::vector<std::string> texts;
  uint32_t tokens = 4096;
  uint32_t threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxEngineThreads);
  bool hit_only = false;
};

struct Text {
  std::string name;
  std::vector<Token> tokens;
};

using Encode = std::function<Result<std::vector<Token>>(std::string_view text)>;

// The first `tokens` ids of each text; too short a text is refused.
Result<std::vector<Text>> load_texts(const QualityOptions& options, const Encode& encode) {
  std::vector<std::pair<std::string, std::string>> given;
  for (const std::string& path : options.texts) {
    KV_ASSIGN_OR_RETURN(std::string text, read_text(path));
    given.emplace_back(path, std::move(text));
  }
  if (given.empty()) {
    given = {{"story", std::string(kStoryText)},
             {"play", std::string(kPlayText)},
             {"code", std::string(kCodeText)},
             {"manual", std::string(kManualText)}};
  }
  std::vector<Text> out;
  for (const auto& [name, text] : given) {
    KV_ASSIGN_OR_RETURN(auto ids, encode(text));
    if (ids.size() < options.tokens) {
      return invalid_argument("text " + name + " has " + std::to_string(ids.size()) +
                              " tokens, --tokens asks for " + std::to_string(options.tokens));
    }
    ids.resize(options.tokens);
    out.push_back({name, std::move(ids)});
  }
  return out;
}

Result<std::vector<QualitySetting>> load_settings(const QualityOptions& options,
                                                  const CalibratedModel& model, uint32_t prefix) {
  std::vector<QualitySetting> out;
  for (size_t at = 0; at <= options.settings.size();) {
    const size_t end = std::min(options.settings.find(',', at), options.settings.size());
    KV_ASSIGN_OR_RETURN(QualitySetting setting,
                        make_setting(options.settings.substr(at, end - at), model, prefix));
    out.push_back(std::move(setting));
    at = end + 1;
  }
  return out;
}

// Three quarters of a text are restored by a hit, in whole blocks.
uint32_t prefix_of(uint32_t tokens) { return tokens * 3 / 4 / kTeacherBlock * kTeacherBlock; }

void add_layers(SettingResult& result, std::span<const AttentionError> errors, double share) {
  result.layers.resize(errors.size());
  for (size_t l = 0; l < errors.size(); ++l) {
    result.layers[l].k += share * errors[l].k;
    result.layers[l].v += share * errors[l].v;
    result.layers[l].both += share * errors[l].both;
  }
}

Status measure_text(Teacher& teacher, const Text& text, const QualityOptions& options,
                    std::span<const QualitySetting> settings, double share, StatusLine& line,
                    std::vector<SettingResult>& results) {
  line.show(text.name + ": exact");
  KV_ASSIGN_OR_RETURN(ExactText exact, teacher.exact(text.tokens, prefix_of(options.tokens)));
  std::vector<std::vector<float>> hits, wholes;
  for (size_t i = 0; i < settings.size(); ++i) {
    const QualitySetting& setting = settings[i];
    line.show(text.name + ": " + setting.name + " (" + std::to_string(i + 1) + " of " +
              std::to_string(settings.size()) + ")");
    KV_ASSIGN_OR_RETURN(LayerRows coded, Teacher::coded_prefix(exact, setting.coder));
    KV_ASSIGN_OR_RETURN(auto errors, teacher.attention_errors(exact, coded));
    add_layers(results[i], errors, share);
    KV_ASSIGN_OR_RETURN(auto hit, teacher.hit(exact, coded));
    hits.push_back(std::move(hit));
    if (options.hit_only) continue;
    auto whole = setting.by_rows ? teacher.whole_by_rows(exact, setting.coder)
                                 : teacher.whole_by_blocks(exact, setting.coder);
    KV_RETURN_IF_ERROR(whole.status());
    wholes.push_back(std::move(*whole));
  }
  line.show(text.name + ": predictions");
  auto compared = teacher.compare(exact, exact.prefix, hits);
  for (size_t i = 0; i < compared.size(); ++i) results[i].hit.add(compared[i]);
  compared = teacher.compare(exact, kTeacherBlock, wholes);
  for (size_t i = 0; i < compared.size(); ++i) results[i].whole.add(compared[i]);
  return {};
}

// The same by a teacher's program, hits alone.
Status measure_taught(TeacherLink& teacher, const Text& text, const QualityOptions& options,
                      std::span<const QualitySetting> settings, StatusLine& line,
                      std::vector<SettingResult>& results) {
  line.show(text.name + ": exact");
  KV_ASSIGN_OR_RETURN(TaughtText exact, teacher.exact(0, text.tokens, prefix_of(options.tokens)));
  for (size_t i = 0; i < settings.size(); ++i) {
    line.show(text.name + ": " + settings[i].name);
    KV_ASSIGN_OR_RETURN(const Divergence found, teacher.hit(exact, settings[i].coder));
    results[i].hit.add(found);
  }
  return {};
}

// llama.cpp's own predictions, into the results behind the settings'.
Status measure_llama(const Text& text, const QualityOptions& options, const ModelShape& shape,
                     std::span<SettingResult> results) {
  const LlamaProgram program{options.llama, options.model, options.threads, shape.vocab};
  KV_ASSIGN_OR_RETURN(auto compared, llama_divergences(program, text.tokens));
  for (size_t i = 0; i < compared.size(); ++i) results[i].whole.add(compared[i]);
  return {};
}

void add_columns(std::vector<std::string>& row, const ProtocolResult& r) {
  if (r.texts == 0) {
    row.insert(row.end(), 4, "-");
    return;
  }
  row.push_back(number(r.mean_kld(), "%.5f"));
  row.push_back(number(r.p99_kld(), "%.4f"));
  row.push_back(number(r.agreement(), "%.4f"));
  row.push_back(number(100 * (r.coded_perplexity() / r.exact_perplexity() - 1), "%+.2f%%"));
}

void print_table(std::span<const SettingResult> results, bool hit_only) {
  std::vector<std::string> head = {"setting", "x fp16",     "hit: KLD", "p99",        "agree",
                                   "ppl",     "attn err K", "V",        "worst layer"};
  if (!hit_only) head.insert(head.begin() + 6, {"whole: KLD", "p99", "agree", "ppl"});
  Table table(head, 1);
  for (const SettingResult& r : results) {
    std::vector<std::string> row = {r.name, number(r.ratio, "%.4f")};
    add_columns(row, r.hit);
    if (!hit_only) add_columns(row, r.whole);
    if (r.layers.empty()) {
      row.insert(row.end(), 3, "-");
      table.add(std::move(row));
      continue;
    }
    double k = 0, v = 0;
    size_t worst = 0;
    for (size_t l = 0; l < r.layers.size(); ++l) {
      k += r.layers[l].k / static_cast<double>(r.layers.size());
      v += r.layers[l].v / static_cast<double>(r.layers.size());
      if (r.layers[l].both > r.layers[worst].both) worst = l;
    }
    row.push_back(number(k, "%.4f"));
    row.push_back(number(v, "%.4f"));
    row.push_back(std::to_string(worst) + ": " + number(r.layers[worst].both, "%.3f"));
    table.add(std::move(row));
  }
  table.print();
}

Json json_of(const ProtocolResult& r) {
  return {{"kld", r.mean_kld()},
          {"kld_p99", r.p99_kld()},
          {"agreement", r.agreement()},
          {"perplexity_exact", r.exact_perplexity()},
          {"perplexity", r.coded_perplexity()}};
}

Json json_of(std::span<const SettingResult> results, const QualityOptions& options,
             const CalibratedModel& model, std::span<const Text> texts) {
  Json out = {{"model", model.spec.name},
              {"tokens", options.tokens},
              {"prefix", prefix_of(options.tokens)},
              {"texts", Json::array()},
              {"settings", Json::array()}};
  for (const Text& text : texts) out["texts"].push_back(text.name);
  for (const SettingResult& r : results) {
    Json layers = Json::array();
    for (const AttentionError& e : r.layers) {
      layers.push_back({{"k", e.k}, {"v", e.v}, {"both", e.both}});
    }
    Json one = {{"name", r.name}, {"ratio", r.ratio}};
    if (r.hit.texts > 0) one["hit"] = json_of(r.hit);
    if (r.whole.texts > 0) one["whole"] = json_of(r.whole);
    one["attention_error"] = std::move(layers);
    out["settings"].push_back(std::move(one));
  }
  return out;
}

Status check(const QualityOptions& options) {
  if (options.tokens < kMinTokens || options.tokens > kMaxQualityTokens) {
    return invalid_argument("--tokens " + std::to_string(options.tokens) + ": expected " +
                            std::to_string(kMinTokens) + " to " +
                            std::to_string(kMaxQualityTokens));
  }
  if (options.hit_only && !options.llama.empty()) {
    return invalid_argument("--llama measures the protocol that --hit-only leaves out");
  }
  if (!options.teacher.empty() && !options.llama.empty()) {
    return invalid_argument("--llama measures a protocol that no --teacher has");
  }
  return {};
}

// The model, calibrated, and whose it is: `teacher` is empty for the engine's.
Result<CalibratedModel> load_model(const QualityOptions& options,
                                   std::unique_ptr<TeacherProgram>& teacher) {
  if (options.teacher.empty()) return load_calibrated(options.model, options.threads);
  KV_ASSIGN_OR_RETURN(teacher, TeacherProgram::start(options.teacher, options.model));
  return calibrated_by(teacher->link());
}

Status measure_texts(const QualityOptions& options, const CalibratedModel& model,
                     TeacherProgram* taught, std::span<const Text> texts,
                     std::span<const QualitySetting> settings, StatusLine& line,
                     std::vector<SettingResult>& results) {
  std::optional<Teacher> teacher;
  if (taught == nullptr) teacher.emplace(model.model, options.threads);
  const double share = 1.0 / static_cast<double>(texts.size());
  for (const Text& text : texts) {
    KV_RETURN_IF_ERROR(
        taught == nullptr ? measure_text(*teacher, text, options, settings, share, line, results)
                          : measure_taught(taught->link(), text, options, settings, line, results));
    if (options.llama.empty()) continue;
    line.show(text.name + ": llama.cpp");
    KV_RETURN_IF_ERROR(measure_llama(text, options, model.model->shape(),
                                     std::span(results).subspan(settings.size())));
  }
  return {};
}

Status measure(const QualityOptions& options) {
  KV_RETURN_IF_ERROR(check(options));
  StatusLine line;
  line.show("loading and calibrating");
  std::unique_ptr<TeacherProgram> taught;
  KV_ASSIGN_OR_RETURN(const CalibratedModel model, load_model(options, taught));
  KV_ASSIGN_OR_RETURN(auto texts, load_texts(options, [&](std::string_view text) {
                        return taught == nullptr ? model.model->tokenizer().encode(text)
                                                 : taught->link().encode(text, options.tokens);
                      }));
  KV_ASSIGN_OR_RETURN(auto settings, load_settings(options, model, prefix_of(options.tokens)));
  std::vector<SettingResult> results;
  for (const QualitySetting& s : settings) results.push_back({s.name, s.ratio, {}, {}, {}});
  if (!options.llama.empty()) {
    for (const LlamaType& type : kLlamaTypes) {
      results.push_back({std::string("llama.cpp ") + type.name, type.ratio, {}, {}, {}});
    }
  }
  KV_RETURN_IF_ERROR(measure_texts(options, model, taught.get(), texts, settings, line, results));
  for (size_t i = 0; i < settings.size(); ++i) {
    const CodedBytes* bytes = settings[i].bytes.get();
    if (bytes == nullptr || bytes->whole == 0) continue;
    results[i].ratio = static_cast<double>(bytes->stored) / static_cast<double>(bytes->whole);
  }
  line.show("");
  print_table(results, options.hit_only || taught != nullptr);
  if (!options.json.empty()) {
    const Json json = json_of(results, options, model, texts);
    KV_RETURN_IF_ERROR(write_text(options.json, json.dump(1) + "\n"));
  }
  if (options.svg.empty()) return {};
  return write_text(options.svg, quality_svg(model.spec.name, results));
}

}  // namespace

void ProtocolResult::add(const Divergence& d) {
  double sum = 0;
  for (float x : d.kld) sum += static_cast<double>(x);
  kld.insert(kld.end(), d.kld.begin(), d.kld.end());
  const auto positions = static_cast<double>(d.kld.size());
  kld_of_texts += sum / positions;
  agreement_of_texts += d.agreements / positions;
  exact_nll += d.exact_nll;
  coded_nll += d.coded_nll;
  predicted += d.predicted;
  ++texts;
}

double ProtocolResult::p99_kld() const {
  std::vector<float> sorted = kld;
  auto at = sorted.begin() + static_cast<ptrdiff_t>((sorted.size() * 99 + 99) / 100 - 1);
  std::nth_element(sorted.begin(), at, sorted.end());
  return static_cast<double>(*at);
}

double ProtocolResult::exact_perplexity() const {
  return std::exp(exact_nll / static_cast<double>(predicted));
}
double ProtocolResult::coded_perplexity() const {
  return std::exp(coded_nll / static_cast<double>(predicted));
}

void add_quality(CLI::App& app, std::function<Exit()>& chosen) {
  CLI::App* sub = app.add_subcommand(
      "quality", "what codings of keys and values do to a model's predictions, measured");
  auto options = std::make_shared<QualityOptions>();
  sub->add_option("MODEL", options->model, "a GGUF file, or what the teacher takes")->required();
  sub->add_option("--teacher", options->teacher, kTeacherHelp);
  sub->add_option("--text", options->texts,
                  "text files, each of --tokens tokens or more; else four of our own");
  sub->add_option("--tokens", options->tokens,
                  "of each text; three quarters of them are the prefix of a hit")
      ->capture_default_str();
  sub->add_option("--settings", options->settings,
                  "presets, PRESET-mean, PRESET-plain, q8_0, q4_0, words3, profile files")
      ->capture_default_str();
  sub->add_option("--llama", options->llama,
                  "also llama.cpp on its own quantised cache, by this program: \"PYTHON "
                  "tools/quality_llama.py\" with a Python that has xllamacpp");
  sub->add_option("--json", options->json, "write everything to this file");
  sub->add_option("--svg", options->svg, "write plots to this file");
  sub->add_option("--threads", options->threads)->check(CLI::Range(1u, kMaxEngineThreads));
  sub->add_flag("--hit-only", options->hit_only, "leave out the slower protocol, whole");
  sub->callback([options, &chosen] { chosen = [options] { return exit_of(measure(*options)); }; });
}

}  // namespace kv::cachectl
