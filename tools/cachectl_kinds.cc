// cachectl kinds: which kind of cache each layer of a model has, and what a coding does with it,
// from its configuration (a Hugging Face config.json) or its GGUF, before anything is stored.
#include "tools/cachectl_kinds.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "codec/plan.h"
#include "codec/preset.h"
#include "engine/attention_kinds.h"
#include "engine/model.h"
#include "proto/end_price.h"
#include "tools/cachectl_coding.h"
#include "tools/cachectl_quality.h"

namespace kv::cachectl {
namespace {

struct KindsOptions {
  std::string path;
  std::string coding = "auto";
  bool json = false;
};

bool is_gguf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == "GGUF";
}

struct Kinds {
  ModelSpec spec;
  uint64_t state_bytes = 0;  // at one position; of a GGUF file not known
};

Result<Kinds> read_kinds(const std::string& path) {
  if (is_gguf(path)) {
    KV_ASSIGN_OR_RETURN(auto model, Model::load(path));
    return Kinds{model->spec()};
  }
  const auto known = known_configs();
  const auto named = std::find_if(known.begin(), known.end(),
                                  [&](const KnownConfig& k) { return k.name == path; });
  std::string config;
  if (named != known.end()) {
    config = named->config;
  } else {
    auto read = read_text(path);
    if (!read.ok() && read.status().code() == StatusCode::not_found) {
      return Status(StatusCode::not_found,
                    path + ": no readable file, and no name of the table of `cachectl kinds`");
    }
    KV_ASSIGN_OR_RETURN(config, std::move(read));
  }
  Kinds kinds;
  KV_ASSIGN_OR_RETURN(kinds.spec, spec_of_config(config));
  KV_ASSIGN_OR_RETURN(kinds.state_bytes, state_bytes_of_config(config));
  kinds.spec.name = path;
  kinds.spec.fingerprint = sha256({reinterpret_cast<const uint8_t*>(config.data()), config.size()});
  return kinds;
}

// "window of 512 and the first 4, 1 head, K 256 V 256"
std::string described(const PartSpec& p) {
  std::string out = to_string(p.kind);
  if (p.kind == PartKind::window) out += " of " + std::to_string(p.window);
  if (p.keep > 0) out += " and the first " + std::to_string(p.keep);
  if (p.kind == PartKind::chunk) out += " of " + std::to_string(p.chunk);
  if (p.kind == PartKind::pooled) out += " by " + std::to_string(p.rate);
  if (p.overlap) out += " with overlap";
  if (!p.has_rows()) return out + ", at checkpoints";
  out += ", " + counted(p.heads, "head");
  std::string k = std::to_string(p.k_dim), v = std::to_string(p.v_dim);
  return out + (p.v_dim > 0 ? ", K " + k + " V " + v : ", K and V in one storage of " + k);
}

Json parts_json(const ModelSpec& spec) {
  Json out = Json::array();
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    for (size_t i = 0; i < spec.layers[l].parts.size(); ++i) {
      const PartSpec& p = spec.layers[l].parts[i];
      out.push_back({{"layer", l},
                     {"part", i},
                     {"kind", to_string(p.kind)},
                     {"heads", p.heads},
                     {"k_dim", p.k_dim},
                     {"v_dim", p.v_dim},
                     {"window", p.window},
                     {"keep", p.keep},
                     {"chunk", p.chunk},
                     {"rate", p.rate},
                     {"overlap", p.overlap}});
    }
  }
  return out;
}

void print_kinds(const ModelSpec& spec) {
  std::vector<LayerLine> said;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    for (size_t i = 0; i < spec.layers[l].parts.size(); ++i) {
      said.push_back({static_cast<uint32_t>(l),
                      "part " + std::to_string(i) + " " + described(spec.layers[l].parts[i])});
    }
  }
  std::printf("%zu layers\n", spec.layers.size());
  for (const std::string& line : lines_by_text(said)) std::printf("  %s\n", line.c_str());
}

constexpr uint64_t kGib = 1ull << 30;
constexpr uint32_t kTableTokens = 4096;
constexpr uint32_t kPricedTokens[] = {1024, 4096, 16384};

// The price of hits for prompts that part inside an entry, where nobody names its ends.
Json prices_json(const EndPrice& price, uint32_t block, uint64_t state_bytes) {
  Json out = Json::array();
  for (uint32_t n : kPricedTokens) {
    const uint32_t interval = price.interval(n);
    const uint64_t entry = price.entry(n) + state_bytes;
    out.push_back({{"tokens", n},
                   {"entry_bytes", entry},
                   {"state_bytes", state_bytes},
                   {"bytes_per_token", entry / n},
                   {"prompts_per_gib", entry == 0 ? 0 : kGib / entry},
                   {"end_interval", interval * block},
                   {"end_bytes", interval == 0 ? 0 : price.ends(n, interval)}});
  }
  return out;
}

void print_prices(const Json& prices, bool any_length) {
  for (const Json& p : prices) {
    const std::string entry = std::to_string(p["tokens"].get<uint32_t>()) + " tokens take " +
                              human_bytes(p["entry_bytes"].get<uint64_t>()) + ", " +
                              human_bytes(p["bytes_per_token"].get<uint64_t>()) + " a token, " +
                              std::to_string(p["prompts_per_gib"].get<uint64_t>()) + " in a GiB";
    const uint32_t interval = p["end_interval"];
    std::string said = ", ends kept: its own";
    if (any_length) said = ", any length is served";
    if (interval > 0) {
      said = ", ends kept every " + std::to_string(interval) + " tokens at most " +
             human_bytes(p["end_bytes"].get<uint64_t>()) + " more";
    }
    const uint64_t states = p["state_bytes"];
    if (states > 0) said = ", " + human_bytes(states) + " of it states" + said;
    std::printf("  %s%s\n", entry.c_str(), said.c_str());
  }
}

bool some_part(const ModelSpec& spec, const std::function<bool(const PartSpec&)>& is) {
  for (const LayerSpec& layer : spec.layers) {
    if (std::any_of(layer.parts.begin(), layer.parts.end(), is)) return true;
  }
  return false;
}

Exit run_kinds(const KindsOptions& options) {
  auto preset = find_preset(options.coding);
  if (!preset.ok()) return exit_of(preset.status());
  auto kinds = read_kinds(options.path);
  if (!kinds.ok()) return report_error(kinds.status());
  const ModelSpec& spec = kinds->spec;
  if (!options.json) print_kinds(spec);
  CodingSettings settings;
  settings.k_bits = preset->k_bits;
  settings.v_bits = preset->v_bits;
  auto profile = plain_profile(spec, settings);
  if (!profile.ok()) return report_error(profile.status());
  std::vector<PartReport> coding = report(spec, *profile);
  const Json prices =
      prices_json(EndPrice(spec, *profile), profile->block_tokens, kinds->state_bytes);
  if (options.json) {
    print_json({{"layers", spec.layers.size()},
                {"parts", parts_json(spec)},
                {"coding", report_json(coding)},
                {"ends", prices}});
    return Exit::ok;
  }
  std::printf("coding %s\n", preset->name);
  for (const std::string& line : report_lines(coding)) std::printf("  %s\n", line.c_str());
  std::printf("ends, where nobody names any\n");
  const bool any_length = !some_part(spec, [](const PartSpec& p) {
    return p.kind == PartKind::pooled || !p.has_rows() || !p.rows_in_block();
  });
  print_prices(prices, any_length);
  return Exit::ok;
}

// "window 512 + full": the kinds of a model's layers, each once, the rarest last.
std::string kinds_of(const ModelSpec& spec) {
  std::vector<std::pair<size_t, std::string>> kinds;
  for (const LayerSpec& layer : spec.layers) {
    for (const PartSpec& p : layer.parts) {
      std::string kind = to_string(p.kind);
      if (p.kind == PartKind::window) kind += " " + std::to_string(p.window);
      auto found =
          std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.second == kind; });
      if (found == kinds.end()) {
        kinds.emplace_back(1, kind);
      } else {
        ++found->first;
      }
    }
  }
  std::sort(kinds.rbegin(), kinds.rend());
  std::string out;
  for (const auto& [n, kind] : kinds) out += (out.empty() ? "" : " + ") + kind;
  return out;
}

Result<uint64_t> price_of(const ModelSpec& spec, const Preset& preset) {
  CodingSettings settings;
  settings.k_bits = preset.k_bits;
  settings.v_bits = preset.v_bits;
  KV_ASSIGN_OR_RETURN(const Profile profile, plain_profile(spec, settings));
  return EndPrice(spec, profile).entry(kTableTokens);
}

// Rows of the known models, states included.
Result<Json> known_json(const Preset& preset) {
  Json out = Json::array();
  for (const KnownConfig& known : known_configs()) {
    KV_ASSIGN_OR_RETURN(const ModelSpec spec, spec_of_config(known.config));
    KV_ASSIGN_OR_RETURN(const uint64_t states, state_bytes_of_config(known.config));
    KV_ASSIGN_OR_RETURN(const uint64_t whole_rows, price_of(spec, {"", 0, 0}));
    KV_ASSIGN_OR_RETURN(const uint64_t coded_rows, price_of(spec, preset));
    const uint64_t whole = whole_rows + states, coded = coded_rows + states;
    out.push_back({{"model", known.name},
                   {"source", std::string("https://huggingface.co/") + known.name},
                   {"layers", spec.layers.size()},
                   {"kinds", kinds_of(spec)},
                   {"tokens", kTableTokens},
                   {"lossless_bytes_per_token", whole / kTableTokens},
                   {"bytes_per_token", coded / kTableTokens},
                   {"prompts_per_gib", kGib / coded},
                   {"state_bytes", states}});
  }
  return out;
}

Exit run_known(const KindsOptions& options) {
  auto preset = find_preset(options.coding);
  if (!preset.ok()) return exit_of(preset.status());
  auto known = known_json(*preset);
  if (!known.ok()) return report_error(known.status());
  if (options.json) {
    print_json(*known);
    return Exit::ok;
  }
  Table table({"MODEL", "CACHE", "LAYERS", "LOSSLESS", "CODED", "PROMPTS IN A GIB"}, 2);
  for (const Json& m : *known) {
    table.add({m["model"], m["kinds"], std::to_string(m["layers"].get<uint64_t>()),
               human_bytes(m["lossless_bytes_per_token"].get<uint64_t>()),
               human_bytes(m["bytes_per_token"].get<uint64_t>()),
               std::to_string(m["prompts_per_gib"].get<uint64_t>())});
  }
  table.print();
  std::printf(
      "bytes a token of a prompt of %u tokens, and how many such prompts, coded as %s, states "
      "included\nfrom the models' config.json at huggingface.co/MODEL; `cachectl kinds MODEL` says "
      "more of one\n",
      kTableTokens, preset->name);
  return Exit::ok;
}

}  // namespace

void add_kinds(CLI::App& app, std::function<Exit()>& chosen) {
  CLI::App* sub = app.add_subcommand(
      "kinds", "which kind of cache each layer of a model has, and how it would be coded");
  auto options = std::make_shared<KindsOptions>();
  sub->add_option("MODEL", options->path,
                  "its config.json, or a GGUF file, or a name of the table; none: that table");
  sub->add_option("--coding", options->coding, "a preset")->capture_default_str();
  sub->add_flag("--json", options->json, "for programs");
  sub->callback([options, &chosen] {
    chosen = [options] {
      return options->path.empty() ? run_known(*options) : run_kinds(*options);
    };
  });
}

}  // namespace kv::cachectl
