// Recorded prompts replayed through the order of eviction alone: how much of them a tier of a given
// size would have served, with and without what prefill costs.
//
// KV_TRACES: a folder with mooncake_conversation.jsonl and agentic/*.json; without it nothing runs.
// Arguments: capacity in % of the blocks of all prompts; models: 1, or 2 of which every other
// conversation has one, whose bytes cost 8 times as much to compute as the other's; worth: 1, the
// order knows that. Counters: share of blocks served, and of what computing them costs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "index/eviction.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kDear = 8;

struct Prompt {
  double time = 0;
  uint64_t conversation = 0;
  std::vector<uint64_t> blocks;  // each named by all tokens up to its end
};
using Trace = std::vector<Prompt>;

Prompt prompt_of(const json& ids, double time, uint64_t conversation, uint64_t scope) {
  Prompt p{time, conversation, {}};
  for (uint64_t id : ids) p.blocks.push_back(scope << 40 | id);
  return p;
}

Trace mooncake(const fs::path& folder) {
  Trace trace;
  std::ifstream in(folder / "mooncake_conversation.jsonl");
  for (std::string line; std::getline(in, line);) {
    const json given = json::parse(line);
    const json& ids = given.at("hash_ids");
    // The second block tells conversations apart: the first is a system prompt.
    const uint64_t conversation = ids.size() > 1 ? ids[1].get<uint64_t>() : 0;
    trace.push_back(prompt_of(ids, given.at("timestamp"), conversation, 0));
  }
  return trace;
}

// Sessions begin over six hours, and their prompts mix.
Trace agentic(const fs::path& folder) {
  Trace trace;
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder / "agentic")) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (uint64_t i = 0; i < files.size(); ++i) {
    const json given = json::parse(std::ifstream(files[i]));
    const double start = 21'600.0 * static_cast<double>(i) / static_cast<double>(files.size());
    for (const json& request : given.at("requests")) {
      if (!request.contains("hash_ids")) continue;
      trace.push_back(prompt_of(request["hash_ids"], start + request.value("t", 0.0), i, i + 1));
    }
  }
  std::stable_sort(trace.begin(), trace.end(),
                   [](const Prompt& a, const Prompt& b) { return a.time < b.time; });
  return trace;
}

struct Served {
  double blocks = 0, all = 0, saved = 0, cost = 0;
};

Served replay(const Trace& trace, size_t capacity, bool two_models, bool worth) {
  EvictionOrder order;
  Served served;
  for (const Prompt& p : trace) {
    const uint64_t model = two_models ? p.conversation % 2 : 0;
    const double cost = model == 1 ? kDear : 1;
    const int dearer = worth && two_models ? (model == 1 ? 1 : -1) * 2 : 0;
    std::vector<EntryKey> keys;
    for (uint64_t block : p.blocks) keys.push_back(block | model << 62);
    size_t hit = 0;
    while (hit < keys.size() && order.resident(keys[hit])) ++hit;
    order.touch_all(std::span(keys).first(hit), static_cast<Worth>(dearer));
    served.blocks += static_cast<double>(hit);
    served.saved += static_cast<double>(hit) * cost;
    served.all += static_cast<double>(keys.size());
    served.cost += static_cast<double>(keys.size()) * cost;
    for (size_t i = hit; i < keys.size(); ++i) {
      EntryOptions options;
      options.parent = i == 0 ? kNoEntry : keys[i - 1];
      options.charge_bytes = 1;
      options.worth = static_cast<Worth>(dearer);
      if (order.insert(keys[i], options)) order.pin(keys[i]);
    }
    while (order.size() > capacity) {
      const auto victims = order.next_victims(order.size() - capacity, true);
      if (victims.keys.empty()) break;  // the prompt alone is larger
      for (EntryKey key : victims.keys) order.erase(key);
    }
    for (size_t i = hit; i < keys.size(); ++i) order.unpin(keys[i]);
  }
  return served;
}

void run(benchmark::State& state, const Trace& trace) {
  if (trace.empty()) return state.SkipWithError("KV_TRACES names no traces");
  std::map<uint64_t, bool> unique;
  const bool two_models = state.range(1) == 2;
  for (const Prompt& p : trace) {
    for (uint64_t b : p.blocks) unique[b | (two_models ? p.conversation % 2 : 0) << 62] = true;
  }
  const size_t capacity = unique.size() * static_cast<size_t>(state.range(0)) / 100;
  Served served;
  for (auto _ : state) served = replay(trace, capacity, two_models, state.range(2) == 1);
  state.counters["hit"] = served.blocks / served.all;
  state.counters["saved"] = served.saved / served.cost;
}

Trace read(Trace (*trace)(const fs::path&)) {
  const char* folder = std::getenv("KV_TRACES");
  return folder == nullptr ? Trace() : trace(folder);
}

void BM_Conversation(benchmark::State& state) {
  static const Trace trace = read(mooncake);
  run(state, trace);
}
BENCHMARK(BM_Conversation)
    ->ArgsProduct({{5, 10, 20}, {1, 2}, {0, 1}})
    ->ArgNames({"capacity", "models", "worth"})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void BM_Agentic(benchmark::State& state) {
  static const Trace trace = read(agentic);
  run(state, trace);
}
BENCHMARK(BM_Agentic)
    ->ArgsProduct({{5, 10, 20}, {1, 2}, {0, 1}})
    ->ArgNames({"capacity", "models", "worth"})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
