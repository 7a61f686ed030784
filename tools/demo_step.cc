// demo_step: one engine process of tools/demo. Reads one JSON command a line, answers one JSON
// line.
//
//   {"cmd":"tokenize","file":PATH or "text":TEXT}          -> {"tokens":[…]}
//   {"cmd":"run","tokens":[…],"lookup":bool,"logits":PATH} -> one generation (keys: describe())
//     "new": tokens to generate, else --new; "stop": at the end of an answer; "store": false;
//     "ends": [numbers of tokens from which others will go on]
//   {"cmd":"batch","prompts":[[…],…],"logits":[PATH,…]}    -> {"rows":[…]}, decoded together
//   {"cmd":"compare","a":PATH,"b":PATH,"positions":N}      -> {"kld":mean}, of logits files
// Every run that stores waits at its end until all of it is `spilled`, so that the caller may kill
// this process (embedded) or the daemon (socket) at once. One thread.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cachesvc/tiered_cache.h"
#include "codec/preset.h"
#include "engine/generator.h"
#include "engine/teacher.h"
#include "proto/socket_client.h"
#include "tools/demo_network.h"

namespace kv {
namespace {

using nlohmann::json;

struct Options {
  std::string model, mode, place, ns, calibration, coding, prefill = "exact";
  uint32_t new_tokens = 64;
  uint32_t threads = 2;
};

Deadline soon() { return deadline_in(std::chrono::minutes(10)); }

Result<std::unique_ptr<Client>> make_client(const Options& options) {
  if (options.mode == "socket") {
    KV_ASSIGN_OR_RETURN(auto client, SocketClient::connect(options.place, options.ns, {}));
    return std::unique_ptr<Client>(std::move(client));
  }
  CacheOptions cache;
  cache.ssd_dir = options.place;
  KV_ASSIGN_OR_RETURN(auto client, TieredCache::create(cache, options.ns));
  return std::unique_ptr<Client>(std::move(client));
}

// A preset, the path of a profile file, or nothing: what a service codes by if it isn't told.
Result<CodingOptions> coding_of(const Options& options) {
  CodingOptions coding;
  coding.prefill = options.prefill == "coded" ? PrefillMode::coded : PrefillMode::exact;
  coding.calibration_file = options.calibration;
  if (options.coding.find('/') != std::string::npos) {
    coding.profile_file = options.coding;
    return coding;
  }
  if (options.coding.empty()) {
    coding.k_bits = CacheOptions().coding.k_bits;
    coding.v_bits = CacheOptions().coding.v_bits;
    return coding;
  }
  KV_ASSIGN_OR_RETURN(Preset preset, find_preset(options.coding));
  coding.k_bits = preset.k_bits;
  coding.v_bits = preset.v_bits;
  return coding;
}

json error(const Status& status) { return {{"error", status.to_string()}}; }

// Blocks until the entry of a prompt and its answer, with coded prefill their complete blocks, is
// spilled: an empty store of what is there already.
Status wait_spilled(Client& client, const OpenReply& opened, std::vector<Token> tokens) {
  if (opened.profile->prefill == PrefillMode::coded) {
    tokens.resize(tokens.size() - tokens.size() % opened.profile->block_tokens);
  }
  if (tokens.empty()) return {};
  ReserveRequest request{opened.model, opened.realm.profile, {}};
  request.query.tokens = std::move(tokens);
  KV_ASSIGN_OR_RETURN(auto reserved, client.reserve(request, soon()));
  KV_ASSIGN_OR_RETURN(auto commit,
                      client.commit(reserved.reservation, Durability::spilled, soon()));
  if (commit.level >= Durability::spilled) return {};
  return {StatusCode::io_error, "the answer's entry did not reach the SSD"};
}

// True: all that the run stored is spilled: the prompt's entry, for which it has waited, and the
// answer's, which a cache holds less the last token.
Status all_spilled(Client& client, const OpenReply& opened, std::vector<Token> tokens,
                   const GenerateResult& result) {
  if (!result.prompt_objects.empty() && result.level < Durability::spilled) {
    return {StatusCode::io_error, "the prompt's entry did not reach the SSD"};
  }
  if (result.tokens.size() < 2) return {};
  tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end() - 1);
  return wait_spilled(client, opened, std::move(tokens));
}

GenerateOptions how_to(const Options& options) {
  GenerateOptions how;
  how.max_new_tokens = options.new_tokens;
  how.keep_logits = true;
  how.stop_at_eos = false;
  return how;
}

// The words on one generation; its logits, if they were kept, go to a file.
json describe(const GenerateResult& result, const std::string& logits_path) {
  if (!result.cache_error.empty()) return {{"error", "cache: " + result.cache_error}};
  if (!result.logits.empty()) {
    std::ofstream logits(logits_path, std::ios::binary);
    logits.write(reinterpret_cast<const char*>(result.logits.data()),
                 static_cast<std::streamsize>(result.logits.size() * sizeof(float)));
  }
  json objects = json::array();
  for (const auto& name : result.prompt_objects) objects.push_back(name.id.hex());
  return {{"tier", to_string(result.tier)},
          {"form", to_string(result.form)},
          {"reason", result.reason},
          {"reused_tokens", result.reused_tokens},
          {"ttft_ms", result.ttft_ms},
          {"fetch_ms", result.fetch_ms},
          {"prefill_ms", result.prefill_ms},
          {"store_ms", result.store_ms},
          {"decode_ms_per_token", result.decode_ms_per_token},
          {"tokens", result.tokens},
          {"objects", objects},
          {"block_bytes", result.block_bytes},
          {"fp16_bytes", result.fp16_bytes}};
}

json run(Generator& generator, Client& client, const Options& options, const json& command) {
  auto prompt = command.at("tokens").get<std::vector<Token>>();
  if (prompt.size() < 2) return error(invalid_argument("a prompt of at least 2 tokens"));
  GenerateOptions how = how_to(options);
  how.use_lookup = command.at("lookup").get<bool>();
  how.max_new_tokens = command.value("new", options.new_tokens);
  how.stop_at_eos = command.value("stop", false);
  how.commit = command.value("store", true);
  how.ends = command.value("ends", std::vector<uint32_t>());
  how.wait_for = Durability::spilled;
  const auto logits_path = command.value("logits", std::string());
  how.keep_logits = !logits_path.empty();
  auto result = generator.generate(prompt, how);
  if (!result.ok()) return error(result.status());
  json said = describe(*result, logits_path);
  const Profile& profile = *generator.opened().profile;
  said["coding"] = preset_name(profile.requested_k_bits, profile.requested_v_bits);
  if (said.contains("error") || !how.commit) return said;
  Status stored = all_spilled(client, generator.opened(), std::move(prompt), *result);
  if (!stored.ok()) return error(stored);
  return said;
}

json run_batch(Generator& generator, const Options& options, const json& command) {
  auto prompts = command.at("prompts").get<std::vector<std::vector<Token>>>();
  auto paths = command.value("logits", std::vector<std::string>(prompts.size()));
  if (paths.size() != prompts.size()) return error(invalid_argument("a logits path per prompt"));
  json rows = json::array();
  GenerateOptions how = how_to(options);
  how.keep_logits = command.contains("logits");
  auto results = generator.generate_all(prompts, how);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].ok()) return error(results[i].status());
    rows.push_back(describe(*results[i], paths[i]));
    if (rows.back().contains("error")) return rows.back();
  }
  return {{"rows", rows}};
}

json tokenize(const Network& network, const json& command) {
  std::stringstream text;
  if (command.contains("text")) {
    text << command.at("text").get<std::string>();
  } else {
    std::ifstream in(command.at("file").get<std::string>(), std::ios::binary);
    text << in.rdbuf();
    if (!in) return error({StatusCode::io_error, "cannot read " + command.at("file").dump()});
  }
  auto ids = network.encode(text.str());
  return ids.ok() ? json{{"tokens", *ids}} : error(ids.status());
}

// The divergence of two runs' first predictions, mean of those positions.
json compare(const Network& network, const json& command) {
  const auto positions = command.at("positions").get<uint32_t>();
  std::vector<std::vector<float>> runs;
  for (const char* which : {"a", "b"}) {
    std::vector<float>& logits = runs.emplace_back(size_t{positions} * network.vocab());
    std::ifstream in(command.at(which).get<std::string>(), std::ios::binary);
    in.read(reinterpret_cast<char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(float)));
    if (!in) return error({StatusCode::io_error, "too few logits in " + command.at(which).dump()});
  }
  auto found = compare_logits(runs, network.vocab(), std::vector<Token>(positions, -1));
  double sum = 0;
  for (float kld : found[0].kld) sum += kld;
  return {{"kld", positions > 0 ? sum / positions : 0}};
}

Result<std::unique_ptr<Generator>> open(std::unique_ptr<Network> network, const Options& options,
                                        Client& client) {
  KV_ASSIGN_OR_RETURN(CodingOptions coding, coding_of(options));
  return Generator::open(std::move(network), client, coding, soon());
}

// The answer to one command. Opens the generator, with the network, for the first one that runs.
json answer(std::unique_ptr<Network>& network, std::unique_ptr<Generator>& generator,
            Client& client, const Options& options, const json& command) {
  const std::string what = command.at("cmd");
  const Network& taught = generator ? generator->network() : *network;
  if (what == "tokenize") return tokenize(taught, command);
  if (what == "compare") return compare(taught, command);
  if (!generator) {
    auto opened = open(std::move(network), options, client);
    if (!opened.ok()) return error(opened.status());
    generator = std::move(*opened);
    if (Status warm = generator->warm_up(); !warm.ok()) return error(warm);
  }
  return what == "batch" ? run_batch(*generator, options, command)
                         : run(*generator, client, options, command);
}

int serve(const Options& options) {
  auto made = make_client(options);  // an embedded cache starts while the model is loaded
  if (!made.ok()) {
    std::cout << error(made.status()) << std::endl;
    return 1;
  }
  auto network = demo_network(options.model, options.threads);
  if (!network.ok()) {
    std::cout << error(network.status()) << std::endl;
    return 1;
  }
  std::unique_ptr<Generator> generator;
  std::string line;
  while (std::getline(std::cin, line)) {
    json said = answer(*network, generator, **made, options, json::parse(line));
    std::cout << said << std::endl;
    if (!generator && !*network) return 1;  // it could not be opened
  }
  return 0;
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) {
  kv::Options options;
  CLI::App app{"one engine process of tools/demo"};
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--mode", options.mode)->required()->check(CLI::IsMember({"embedded", "socket"}));
  app.add_option("--place", options.place, "cache directory (embedded) or socket path")->required();
  app.add_option("--namespace", options.ns)->required();
  app.add_option("--new", options.new_tokens, "tokens to generate");
  app.add_option("--threads", options.threads);
  app.add_option("--coding", options.coding,
                 "a preset, or the path of a profile file (with a /); none: the daemon's default");
  app.add_option("--prefill", options.prefill)->check(CLI::IsMember({"exact", "coded"}));
  app.add_option("--calibration", options.calibration, "file that keeps the calibrated profile");
  CLI11_PARSE(app, argc, argv);
  return kv::serve(options);
}
