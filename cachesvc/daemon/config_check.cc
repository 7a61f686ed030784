// What is wrong between settings, and with the environment's names.
#include "cachesvc/daemon/config_check.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "storage/ssd_tier.h"

namespace kv {
namespace {

// A setting with its place, for messages.
struct Words {
  const Config& config;
  const ValueOf& value_of;
  std::string given(const char* name) const {
    return std::string(name) + " = \"" + value_of(config, name) + "\" (" + config.source.at(name) +
           ")";
  }
  Status wrong(const char* name, const std::string& why) const {
    return invalid_argument(config.source.at(name) + ": " + name + " = \"" +
                            value_of(config, name) + "\": " + why);
  }
};

}  // namespace

// Settings that are right alone and can't hold together. What nobody set gives way.
Status check_together(const Config& config, const ValueOf& value_of) {
  const Words words{config, value_of};
  const CacheOptions& cache = config.cache;
  constexpr uint64_t kLeastRam = 1u << 20;
  const uint64_t ram = cache.ram_budget_bytes;
  if (ram > 0 && ram < kLeastRam) {
    return words.wrong("tier.ram.budget", "expected at least 1MiB");
  }
  if (!cache.ssd_dir.empty() && cache.ssd_limit_bytes < kMinLimitBytes) {
    return words.wrong("tier.ssd.limit", "expected 0 (no SSD) or at least " +
                                             std::to_string(kMinLimitBytes >> 20) + "MiB");
  }
  if (cache.staging_fraction + cache.index_fraction > 0.95) {
    return words.wrong("tier.ram.staging", "with " + words.given("tier.ram.index") +
                                               " nothing is left of the budget for what is stored");
  }
  auto set = [&](const char* name) { return config.source.at(name) != "default"; };
  const auto staging = static_cast<uint64_t>(cache.staging_fraction * static_cast<double>(ram));
  if (ram > 0 && set("server.max_put") && config.server.max_put_bytes > staging) {
    return words.wrong("server.max_put", "a put lies in RAM's staging, which is " +
                                             std::to_string(staging) + " bytes of " +
                                             words.given("tier.ram.budget"));
  }
  for (const char* name : {"tier.ram.ready", "tier.ram.warm_start"}) {
    const bool ready = std::string_view(name) == "tier.ram.ready";
    const uint64_t bytes = ready ? cache.ready_bytes : cache.warm_start_bytes;
    if (ram == 0 || !set(name) || bytes <= ram) continue;
    return words.wrong(name, "more than all of " + words.given("tier.ram.budget"));
  }
  for (const char* name : {"tier.ssd.key_file", "tier.ssd.write_rate", "tier.ssd.write_per_day"}) {
    if (!cache.ssd_dir.empty() || !set(name)) continue;
    return words.wrong(name, "there is no SSD tier: " + words.given("tier.ssd.limit"));
  }
  return {};
}

std::vector<std::string> process_env_names() {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    std::string_view entry = *at;
    out.emplace_back(entry.substr(0, entry.find('=')));
  }
  return out;
}

Status check_names(const std::vector<std::string>& given, const std::vector<std::string>& names) {
  for (const std::string& name : given) {
    if (!name.starts_with("CACHESVC_")) continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string guess = nearest(name, names);
    return invalid_argument(name + ": the environment has no such setting" +
                            (guess.empty() ? std::string() : ", did you mean " + guess + "?"));
  }
  return {};
}

}  // namespace kv
