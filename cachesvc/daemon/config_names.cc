// Former settings, and guesses.
#include "cachesvc/daemon/config_names.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "cachesvc/daemon/config_keys.h"

namespace kv {
namespace {

constexpr char kEnvPrefix[] = "CACHESVC_";

// Settings of cachesvc 0.1.0 before there were 25.
struct Removed {
  const char* name;
  const char* instead;
};
constexpr char kFixed[] = "leave it out: it is a constant now";
constexpr Removed kRemoved[] = {
    {"server.max_in_flight", kFixed},
    {"server.max_put", "leave it out: write codec.block_tokens for shorter puts"},
    {"server.max_unsent", kFixed},
    {"server.handshake_timeout", kFixed},
    {"server.progress_timeout", kFixed},
    {"server.idle_timeout", "leave it out: after an hour, and clients connect again"},
    {"server.request_timeout", kFixed},
    {"tier.ram.staging", "leave it out: a quarter of tier.ram.budget"},
    {"tier.ram.ready", kFixed},
    {"tier.ram.verify_hits", kFixed},
    {"tier.ssd.quarantine", kFixed},
    {"tier.ssd.adopt_at_start", kFixed},
    {"tier.ssd.reconcile_rate", kFixed},
    {"tier.ssd.spill_queue", "leave it out: write tier.ssd.spill for when objects are written"},
    {"tier.ssd.pack_codes", "leave it out: codes are packed once the SSD tier is scarce"},
    {"tier.ssd.spill_batch_files", kFixed},
    {"tier.ssd.io_timeout", kFixed},
    {"tier.ssd.threads", kFixed},
    {"tier.ssd.durable_group_delay", kFixed},
    {"codec.k_bits", "write codec.default: a word for both sides, such as \"tq84\""},
    {"codec.v_bits", "write codec.default: a word for both sides, such as \"tq84\""},
    {"codec.exact_tokens", "write codec.profiles: a profile says it for its model"},
    {"codec.raw_first_layers", "write codec.profiles: a profile says it for its model"},
    {"codec.raw_last_layers", "write codec.profiles: a profile says it for its model"},
    {"codec.prefill", "leave it out: the client says it when it opens a model"},
    {"limits.max_reservations", kFixed},
    {"limits.max_waiting_calls", kFixed},
    {"limits.reservation_timeout", kFixed},
    {"limits.room_wait", kFixed},
    {"limits.io_backoff", kFixed},
    {"policy.min_prefix_tokens", "leave it out: the client sees how long a hit is"},
};

// The key that was meant: all of it with a slip or two, or its end alone.
std::string guess_key(const std::string& given) {
  std::vector<std::string> names;
  for (const Key& key : config_keys()) names.push_back(key.name);
  for (const std::string& name : names) {
    if (name.ends_with("." + given)) return name;
  }
  return nearest(given, names);
}

const Removed* find_removed(const std::string& key) {
  auto gone = std::find_if(std::begin(kRemoved), std::end(kRemoved),
                           [&](const Removed& r) { return r.name == key; });
  return gone == std::end(kRemoved) ? nullptr : gone;
}

Status unknown_variable(const std::string& name, const std::vector<std::string>& names) {
  for (const Removed& gone : kRemoved) {
    if (env_name(gone.name) == name) return unknown_key(name, gone.name);
  }
  const std::string guess = nearest(name, names);
  return invalid_argument(name + ": the environment has no such setting" +
                          (guess.empty() ? std::string() : ", did you mean " + guess + "?"));
}

}  // namespace

std::string env_name(const std::string& key) {
  std::string name = kEnvPrefix;
  for (char c : key) {
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

Status unknown_key(const std::string& where, const std::string& key) {
  if (const Removed* gone = find_removed(key)) {
    return invalid_argument(where + ": \"" + key + "\" is no setting any more: " + gone->instead);
  }
  const std::string guess = guess_key(key);
  return invalid_argument(where + ": unknown key \"" + key + "\"" +
                          (guess.empty() ? "" : ", did you mean \"" + guess + "\"?"));
}

std::vector<std::string> process_env_names() {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    std::string_view entry = *at;
    out.emplace_back(entry.substr(0, entry.find('=')));
  }
  return out;
}

void check_env_names(const std::vector<std::string>& given, Mistakes& mistakes) {
  std::vector<std::string> names;
  for (const Key& key : config_keys()) names.push_back(env_name(key.name));
  for (const std::string& name : given) {
    if (!name.starts_with(kEnvPrefix)) continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    mistakes.add(unknown_variable(name, names));
  }
}

}  // namespace kv
