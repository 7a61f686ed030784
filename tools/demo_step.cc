// demo_step: one engine process of tools/demo. Reads one JSON command a line, answers one JSON
// line.
//
//   {"cmd":"tokenize","file":PATH}                         -> {"tokens":[…]}
//   {"cmd":"run","tokens":[…],"lookup":bool,"logits":PATH} -> one generation (keys: see run())
//   {"cmd":"batch","prompts":[[…],…],"logits":[PATH,…]}    -> {"rows":[…]}, decoded together
// Every run commits, and waits at its end until the prompt's whole entry is `spilled`, so that the
// caller may kill this process (embedded) or the daemon (socket) at once. One thread.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cachesvc/tiered_cache.h"
#include "codec/preset.h"
#include "engine/generator.h"
#include "proto/socket_client.h"
#include "tools/demo_network.h"

namespace kv {
namespace {

using nlohmann::json;

struct Options {
  std::string model, mode, place, ns, calibration, coding = "tq4", prefill = "exact";
  uint32_t new_tokens = 64;
  uint32_t threads = 2;
  uint32_t checkpoint_interval = 0;
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

// A preset, or the path of a profile file.
Result<CodingOptions> coding_of(const Options& options) {
  CodingOptions coding;
  coding.prefill = options.prefill == "coded" ? PrefillMode::coded : PrefillMode::exact;
  coding.calibration_file = options.calibration;
  if (options.coding.find('/') != std::string::npos) {
    coding.profile_file = options.coding;
    return coding;
  }
  KV_ASSIGN_OR_RETURN(Preset preset, find_preset(options.coding));
  coding.k_bits = preset.k_bits;
  coding.v_bits = preset.v_bits;
  return coding;
}

json error(const Status& status) { return {{"error", status.to_string()}}; }

// Blocks until the prompt's first N-1 tokens, with coded prefill their complete blocks, are
// spilled: an empty store of what is there already.
Status wait_spilled(Client& client, const OpenReply& opened, const std::vector<Token>& prompt) {
  ReserveRequest request{opened.model, opened.realm.profile, {}};
  request.query.tokens.assign(prompt.begin(), prompt.end() - 1);
  auto& tokens = request.query.tokens;
  if (opened.profile->prefill == PrefillMode::coded) {
    tokens.resize(tokens.size() - tokens.size() % opened.profile->block_tokens);
  }
  if (tokens.empty()) return {};
  KV_ASSIGN_OR_RETURN(auto reserved, client.reserve(request, soon()));
  KV_ASSIGN_OR_RETURN(auto commit,
                      client.commit(reserved.reservation, Durability::spilled, soon()));
  if (commit.level >= Durability::spilled) return {};
  return {StatusCode::io_error, "the prompt's entry did not reach the SSD"};
}

GenerateOptions how_to(const Options& options) {
  GenerateOptions how;
  how.max_new_tokens = options.new_tokens;
  how.keep_logits = true;
  how.stop_at_eos = false;
  how.checkpoint_interval = options.checkpoint_interval;
  return how;
}

// What is said of one generation; its logits, if they were kept, go to a file.
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
  const auto logits_path = command.value("logits", std::string());
  how.keep_logits = !logits_path.empty();
  auto result = generator.generate(prompt, how);
  if (!result.ok()) return error(result.status());
  if (Status s = wait_spilled(client, generator.opened(), prompt); !s.ok()) return error(s);
  return describe(*result, logits_path);
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

json tokenize(const Network& network, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) return error({StatusCode::io_error, "cannot read " + path});
  auto ids = network.encode(text.str());
  return ids.ok() ? json{{"tokens", *ids}} : error(ids.status());
}

Result<std::unique_ptr<Generator>> open(std::unique_ptr<Network> network, const Options& options,
                                        Client& client) {
  KV_ASSIGN_OR_RETURN(CodingOptions coding, coding_of(options));
  return Generator::open(std::move(network), client, coding, soon());
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
  Client& client = **made;
  std::unique_ptr<Generator> generator;
  std::string line;
  while (std::getline(std::cin, line)) {
    json command = json::parse(line);
    if (command.at("cmd") == "tokenize") {
      const Network& taught = generator ? generator->network() : **network;
      std::cout << tokenize(taught, command.at("file")) << std::endl;
      continue;
    }
    if (!generator) {
      auto opened = open(std::move(*network), options, client);
      if (!opened.ok()) {
        std::cout << error(opened.status()) << std::endl;
        return 1;
      }
      generator = std::move(*opened);
    }
    std::cout << (command.at("cmd") == "batch" ? run_batch(*generator, options, command)
                                               : run(*generator, client, options, command))
              << std::endl;
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
  app.add_option("--coding", options.coding, "a preset, or the path of a profile file (with a /)");
  app.add_option("--prefill", options.prefill)->check(CLI::IsMember({"exact", "coded"}));
  app.add_option("--checkpoint-interval", options.checkpoint_interval,
                 "states are stored every so many tokens too; 0: at ends only");
  app.add_option("--calibration", options.calibration, "file that keeps the calibrated profile");
  CLI11_PARSE(app, argc, argv);
  return kv::serve(options);
}
