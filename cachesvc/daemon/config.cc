// The table of keys, the TOML file, and the order in which sources win.
#include "cachesvc/daemon/config.h"

#include <sys/statvfs.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cachesvc/daemon/config_check.h"
#include "codec/preset.h"
#include "codec/profile_file.h"

namespace kv {
namespace {

using Set = std::function<Status(Config&, const std::string&)>;
using Get = std::function<std::string(const Config&)>;
struct Key {
  std::string name, flag, help;
  Set set;
  Get get;
};

// Member paths are given once, as a function from Config to the field.
template <typename Field>
Key count_key(const char* name, const char* help, Field field, uint64_t low, uint64_t high) {
  using T = std::remove_reference_t<decltype(field(std::declval<Config&>()))>;
  return {name, "", help,
          [=](Config& c, const std::string& v) -> Status {
            KV_ASSIGN_OR_RETURN(uint64_t n, parse_count(v, low, high));
            field(c) = static_cast<T>(n);
            return {};
          },
          [=](const Config& c) { return std::to_string(field(const_cast<Config&>(c))); }};
}

template <typename Field>
Key size_key(const char* name, const char* help, Field field, uint64_t low, uint64_t high) {
  return {name, "", help,
          [=](Config& c, const std::string& v) -> Status {
            KV_ASSIGN_OR_RETURN(uint64_t n, parse_size(v));
            if (n < low || n > high) {
              return invalid_argument("\"" + v + "\": expected a size from " + format_size(low) +
                                      " to " + format_size(high));
            }
            field(c) = n;
            return {};
          },
          [=](const Config& c) { return format_size(field(const_cast<Config&>(c))); }};
}

template <typename Field>
Key duration_key(const char* name, const char* help, Field field, Milliseconds low) {
  return {name, "", help,
          [=](Config& c, const std::string& v) -> Status {
            KV_ASSIGN_OR_RETURN(Milliseconds ms, parse_duration(v));
            if (ms < low) {
              return invalid_argument("\"" + v + "\": expected at least " + format_duration(low));
            }
            field(c) = ms;
            return {};
          },
          [=](const Config& c) { return format_duration(field(const_cast<Config&>(c))); }};
}

template <typename Field>
Key amount_key(const char* name, const char* help, Field field) {
  return {name, "", help,
          [=](Config& c, const std::string& v) -> Status {
            KV_ASSIGN_OR_RETURN(field(c), parse_amount(v));
            return {};
          },
          [=](const Config& c) { return format_amount(field(const_cast<Config&>(c))); }};
}

template <typename Field>
Key fraction_key(const char* name, const char* help, Field field) {
  return {name, "", help,
          [=](Config& c, const std::string& v) -> Status {
            auto share = parse_amount(v);
            if (!share.ok() || share->fraction <= 0) {
              return invalid_argument("\"" + v + "\": expected a share such as 25%");
            }
            field(c) = share->fraction;
            return {};
          },
          [=](const Config& c) {
            return format_amount(Amount{0, field(const_cast<Config&>(c))});
          }};
}

template <typename Field>
Key text_key(const char* name, const char* help, Field field, std::vector<std::string> choices) {
  return {name, "", help,
          [=](Config& c, const std::string& v) -> Status {
            if (!choices.empty() && std::find(choices.begin(), choices.end(), v) == choices.end()) {
              std::string list;
              for (const auto& choice : choices) list += (list.empty() ? "" : ", ") + choice;
              return invalid_argument("\"" + v + "\": expected one of " + list);
            }
            field(c) = v;
            return {};
          },
          [=](const Config& c) { return field(const_cast<Config&>(c)); }};
}

// A choice that stands for an enumerator or a number.
template <typename T, typename Field>
Key choice_key(const char* name, const char* help, Field field,
               std::vector<std::pair<std::string, T>> choices) {
  return {name, "", help,
          [=](Config& c, const std::string& v) -> Status {
            std::string list;
            for (const auto& [text, value] : choices) {
              if (text == v) {
                field(c) = value;
                return {};
              }
              list += (list.empty() ? "" : ", ") + text;
            }
            return invalid_argument("\"" + v + "\": expected one of " + list);
          },
          [=](const Config& c) {
            for (const auto& [text, value] : choices) {
              if (value == field(const_cast<Config&>(c))) return text;
            }
            return std::string("?");
          }};
}

Key with_flag(Key key, const char* flag) {
  key.flag = flag;
  return key;
}

// A preset, or a number of bits for both sides.
Result<Preset> parse_coding(const std::string& v) {
  if (auto bits = parse_count(v, 0, 8); bits.ok()) {
    const auto n = static_cast<uint8_t>(*bits);
    if (n == 0 || n == 2 || n == 3 || n == 4 || n == 8) return Preset{"", n, n};
  }
  return find_preset(v);
}

Status set_side(const std::string& v, uint8_t& bits) {
  KV_ASSIGN_OR_RETURN(Preset preset, parse_coding(v));
  if (preset.k_bits != preset.v_bits) {
    return invalid_argument("\"" + v + "\": K and V differ in it, give it as codec.default");
  }
  bits = preset.k_bits;
  return {};
}

// Said only where it says all: one coding on both sides, or a preset.
std::string default_coding(const Config& c) {
  const auto& s = c.cache.coding;
  const std::string name = preset_name(s.k_bits, s.v_bits);
  return s.k_bits == s.v_bits || find_preset(name).ok() ? name : "";
}

#define FIELD(path) \
  [](Config & c) -> auto& { return c.path; }

void add_server_keys(std::vector<Key>& keys) {
  using namespace std::chrono_literals;
  keys.push_back(with_flag(
      text_key("server.socket", "path of the Unix socket", FIELD(server.socket), {}), "--socket"));
  keys.push_back(count_key("server.max_connections", "connections at a time",
                           FIELD(server.max_connections), 1, 65'536));
  keys.push_back(count_key("server.max_in_flight", "unanswered requests per connection",
                           FIELD(server.max_in_flight), 1, 1'024));
  keys.push_back(size_key("server.max_put", "longest put frame", FIELD(server.max_put_bytes),
                          64u << 10, kMaxObjectFrameBytes));
  keys.push_back(size_key("server.max_unsent",
                          "queued reply bytes per connection before it is not "
                          "read any more",
                          FIELD(server.max_unsent_bytes), 64u << 10, 1ull << 40));
  keys.push_back(duration_key("server.handshake_timeout", "accept to hello",
                              FIELD(server.handshake_timeout), 1ms));
  keys.push_back(duration_key("server.progress_timeout", "a frame half read or written, no byte",
                              FIELD(server.progress_timeout), 1ms));
  keys.push_back(duration_key("server.idle_timeout", "nothing asked; 0: never",
                              FIELD(server.idle_timeout), 0ms));
  keys.push_back(duration_key("server.request_timeout", "longest wait of one request",
                              FIELD(server.request_timeout), 1ms));
  keys.push_back(with_flag(
      duration_key("server.drain_timeout", "SIGTERM to exit", FIELD(server.drain_timeout), 0ms),
      "--drain-timeout"));
  keys.push_back({"server.allow_uids", "",
                  "user ids that may connect beside the service's own and root; with any, the "
                  "socket is 0666 (others are refused by their id) and its directory, if made "
                  "here, 0711",
                  [](Config& c, const std::string& v) -> Status {
                    KV_ASSIGN_OR_RETURN(c.server.allow_uids, parse_uids(v));
                    return {};
                  },
                  [](const Config& c) {
                    std::string list;
                    for (uint32_t uid : c.server.allow_uids) {
                      list += (list.empty() ? "" : ",") + std::to_string(uid);
                    }
                    return list;
                  }});
}

void add_ram_keys(std::vector<Key>& keys) {
  keys.push_back(with_flag(amount_key("tier.ram.budget",
                                      "all RAM of the cache: a size, or a share "
                                      "of the memory available at start",
                                      FIELD(ram_budget)),
                           "--ram"));
  keys.push_back(fraction_key("tier.ram.staging", "share of the budget for bytes in transit",
                              FIELD(cache.staging_fraction)));
  keys.push_back(fraction_key("tier.ram.index", "share of the budget for the index",
                              FIELD(cache.index_fraction)));
  keys.push_back(size_key("tier.ram.ready",
                          "fresh memory that waits for the next promotion from the SSD, at most an "
                          "eighth of the budget; 0: none",
                          FIELD(cache.ready_bytes), 0, 1ull << 40));
  keys.push_back(size_key("tier.ram.warm_start",
                          "most recently used prompts promoted at start, in the background",
                          FIELD(cache.warm_start_bytes), 0, 1ull << 50));
  keys.push_back(count_key("tier.ram.verify_hits",
                           "one in so many uses of an object has its checksum compared first; "
                           "0: only spills and copies have",
                           FIELD(cache.verify_hits), 0, 1u << 30));
}

void add_ssd_keys(std::vector<Key>& keys) {
  using namespace std::chrono_literals;
  keys.push_back(with_flag(
      text_key("tier.ssd.dir", "directory of the store", FIELD(cache.ssd_dir), {}), "--dir"));
  keys.push_back(with_flag(amount_key("tier.ssd.limit",
                                      "allocated bytes in the directory, or a share "
                                      "of its file system; 0: no SSD tier",
                                      FIELD(ssd_limit)),
                           "--ssd"));
  keys.push_back(
      amount_key("tier.ssd.min_free", "left free on the file system", FIELD(ssd_min_free)));
  keys.push_back(text_key("tier.ssd.key_file",
                          "seals what is written: a private file of 32 bytes or 64 hex digits, or "
                          "ephemeral (a key in memory, gone with the process)",
                          FIELD(key_file), {}));
  keys.push_back(size_key("tier.ssd.quarantine", "damaged files kept for inspection",
                          FIELD(cache.ssd_quarantine_bytes), 0, 1ull << 50));
  keys.push_back(count_key("tier.ssd.adopt_at_start",
                           "files without a catalog row that are read before serving",
                           FIELD(cache.adopt_at_start), 0, 1u << 30));
  keys.push_back(count_key("tier.ssd.reconcile_rate",
                           "the others: files a second read in the background; 0: no limit",
                           FIELD(cache.reconcile_rate), 0, 10'000'000));
  keys.push_back(size_key("tier.ssd.scrub_rate",
                          "bytes a second that are read and verified though nobody asks for them; "
                          "0: none",
                          FIELD(cache.scrub_bytes_per_second), 0, 1ull << 50));
  keys.push_back(
      choice_key<SpillWhen>("tier.ssd.spill", "when objects are written", FIELD(cache.spill_when),
                            {{"commit", SpillWhen::commit}, {"evict", SpillWhen::evict}}));
  keys.push_back(size_key("tier.ssd.spill_queue", "bytes waiting to be written; more waits in RAM",
                          FIELD(cache.spill_queue_bytes), 1u << 20, 1ull << 40));
  keys.push_back(size_key("tier.ssd.write_rate", "bytes written a second; 0: no limit",
                          FIELD(cache.write_bytes_per_second), 0, 1ull << 50));
  keys.push_back(size_key("tier.ssd.write_per_day",
                          "bytes written in any 24 hours, restarts included; 0: no limit",
                          FIELD(cache.write_bytes_per_day), 0, 1ull << 60));
  keys.push_back(choice_key<PackCodes>(
      "tier.ssd.pack_codes",
      "codes take 5 % less and longer to read back; scarce: once the tier is three quarters full, "
      "or where writes have a budget",
      FIELD(cache.pack_codes),
      {{"scarce", PackCodes::scarce}, {"always", PackCodes::always}, {"never", PackCodes::never}}));
  keys.push_back(count_key("tier.ssd.spill_batch_files", "files written by one job",
                           FIELD(cache.spill_batch_files), 1, kMaxBatchFiles));
  keys.push_back(duration_key("tier.ssd.io_timeout",
                              "a slower read is a miss, a slower write is waited for no longer",
                              FIELD(cache.io_timeout), 1ms));
  keys.push_back(count_key("tier.ssd.threads", "reads and writes at a time",
                           FIELD(cache.disk_threads), 1, 256));
  keys.push_back(duration_key("tier.ssd.durable_group_delay", "longest wait for a shared fsync",
                              FIELD(cache.durable_group_delay), 0ms));
}

void add_codec_keys(std::vector<Key>& keys) {
  keys.push_back({"codec.default", "--codec",
                  "lossless, tq8, tq84, tq4, tq3, tq2 or auto, for models that come without a "
                  "profile; what is stored keeps the one it has",
                  [](Config& c, const std::string& v) -> Status {
                    KV_ASSIGN_OR_RETURN(Preset preset, parse_coding(v));
                    c.cache.coding.k_bits = preset.k_bits;
                    c.cache.coding.v_bits = preset.v_bits;
                    return {};
                  },
                  default_coding});
  keys.push_back(
      {"codec.k_bits", "", "K alone",
       [](Config& c, const std::string& v) { return set_side(v, c.cache.coding.k_bits); },
       [](const Config& c) { return preset_name(c.cache.coding.k_bits, c.cache.coding.k_bits); }});
  keys.push_back(
      {"codec.v_bits", "", "V alone",
       [](Config& c, const std::string& v) { return set_side(v, c.cache.coding.v_bits); },
       [](const Config& c) { return preset_name(c.cache.coding.v_bits, c.cache.coding.v_bits); }});
  keys.push_back(text_key("codec.profiles",
                          "profile files of `cachectl tune`, separated by commas: for the models "
                          "they were made for, where the client brings none",
                          FIELD(profile_files), {}));
  keys.push_back(count_key("codec.exact_tokens", "first tokens that are never coded",
                           FIELD(cache.coding.exact_tokens), 0, kMaxBlockTokens));
  keys.push_back(count_key("codec.block_tokens", "tokens per block",
                           FIELD(cache.coding.block_tokens), 1, kMaxBlockTokens));
  keys.push_back(count_key("codec.raw_first_layers", "first layers left raw",
                           FIELD(cache.coding.raw_first_layers), 0, kMaxLayers));
  keys.push_back(count_key("codec.raw_last_layers", "last layers left raw",
                           FIELD(cache.coding.raw_last_layers), 0, kMaxLayers));
  keys.push_back(
      choice_key<DType>("codec.raw_dtype", "of exact rows", FIELD(cache.coding.raw_dtype),
                        {{"f16", DType::f16}, {"bf16", DType::bf16}, {"f32", DType::f32}}));
  keys.push_back(choice_key<PrefillMode>(
      "codec.prefill", "what prefill attends to", FIELD(cache.coding.prefill),
      {{"exact", PrefillMode::exact}, {"coded", PrefillMode::coded}}));
}

void add_limit_keys(std::vector<Key>& keys) {
  using namespace std::chrono_literals;
  keys.push_back(count_key("limits.workers", "worker threads", FIELD(cache.workers), 1, 256));
  keys.push_back(
      count_key("limits.max_models", "models open at a time", FIELD(cache.max_models), 1, 65'536));
  keys.push_back(count_key("limits.max_reservations", "stores under way",
                           FIELD(cache.max_reservations), 1, 1u << 20));
  keys.push_back(count_key("limits.max_waiting_calls", "calls waiting for room or a promotion",
                           FIELD(cache.max_waiting_calls), 1, 1u << 20));
  keys.push_back(duration_key("limits.reservation_timeout", "a store without a call",
                              FIELD(cache.reservation_timeout), 1ms));
  keys.push_back(
      duration_key("limits.room_wait", "longest wait for RAM", FIELD(cache.room_wait), 1ms));
  keys.push_back(duration_key("limits.io_backoff",
                              "a miss after a failed read, no other try after a failed spill",
                              FIELD(cache.io_backoff), 1ms));
  keys.push_back(choice_key<Nonfinite>("policy.nonfinite", "NaN or infinite values in a store",
                                       FIELD(cache.nonfinite),
                                       {{"refuse", Nonfinite::refuse}, {"raw", Nonfinite::raw}}));
  keys.push_back(count_key("policy.min_prefix_tokens", "shorter hits are misses",
                           FIELD(cache.min_prefix_tokens), 1, kMaxTokens));
  keys.push_back(with_flag(
      count_key("policy.block_end_interval",
                "window rows, carries and checkpoints are kept at every so many block ends; "
                "0: only at an entry's own ends and where entries part",
                FIELD(cache.block_end_interval), 0, kMaxBlockTokens),
      "--block-end-interval"));
  keys.push_back(with_flag(
      text_key("log.level", "trace, debug, info, warn, error, critical, off", FIELD(log.level),
               {"trace", "debug", "info", "warn", "error", "critical", "off"}),
      "--log-level"));
  keys.push_back(with_flag(text_key("log.format", "text, json, or auto: text on a terminal",
                                    FIELD(log.format), {"auto", "text", "json"}),
                           "--log-format"));
}

#undef FIELD

const std::vector<Key>& keys() {
  static const std::vector<Key> all = [] {
    std::vector<Key> list;
    add_server_keys(list);
    add_ram_keys(list);
    add_ssd_keys(list);
    add_codec_keys(list);
    add_limit_keys(list);
    return list;
  }();
  return all;
}

Status unknown_key(const std::string& where, const std::string& key) {
  std::vector<std::string> names;
  for (const auto& k : keys()) names.push_back(k.name);
  std::string guess = nearest(key, names);
  return invalid_argument(where + ": unknown key \"" + key + "\"" +
                          (guess.empty() ? "" : ", did you mean \"" + guess + "\"?"));
}

// Applies settings in the table's order, so that codec.default comes before codec.k_bits.
Status apply_settings(Config& config, const std::vector<Setting>& settings) {
  for (const auto& s : settings) {
    bool known =
        std::any_of(keys().begin(), keys().end(), [&](const Key& k) { return k.name == s.key; });
    if (!known) return unknown_key(s.where, s.key);
  }
  for (const Key& key : keys()) {
    for (const auto& s : settings) {
      if (s.key != key.name) continue;
      Status status = key.set(config, s.value);
      if (!status.ok()) {
        return invalid_argument(s.where + ": " + s.key + " = " + status.message());
      }
      config.source[s.key] = s.where;
    }
  }
  return {};
}

std::string at_line(const std::string& file, const toml::node& node) {
  return file + ":" + std::to_string(node.source().begin.line);
}

Status flatten(const toml::table& table, const std::string& prefix, const std::string& file,
               std::vector<Setting>& out) {
  for (const auto& [k, node] : table) {
    std::string key = prefix + std::string(k.str());
    std::string where = at_line(file, node);
    if (const auto* sub = node.as_table()) {
      KV_RETURN_IF_ERROR(flatten(*sub, key + ".", file, out));
    } else if (auto text = node.value_exact<std::string>()) {
      out.push_back({key, *text, where});
    } else if (auto number = node.value_exact<int64_t>()) {
      out.push_back({key, std::to_string(*number), where});
    } else if (node.is_array() && key == "server.allow_uids") {
      std::string list;
      for (const auto& item : *node.as_array()) {
        auto uid = item.value_exact<int64_t>();
        if (!uid) return invalid_argument(where + ": " + key + ": expected user ids");
        list += (list.empty() ? "" : ",") + std::to_string(*uid);
      }
      out.push_back({key, list, where});
    } else {
      bool known =
          std::any_of(keys().begin(), keys().end(), [&](const Key& x) { return x.name == key; });
      if (!known) return unknown_key(where, key);
      return invalid_argument(where + ": " + key + ": expected a string or a whole number");
    }
  }
  return {};
}

Result<std::vector<Setting>> read_file(const std::string& file) {
  toml::table table;
  try {
    table = toml::parse_file(file);
  } catch (const toml::parse_error& e) {
    return invalid_argument(file + ":" + std::to_string(e.source().begin.line) + ": " +
                            std::string(e.description()));
  }
  std::vector<Setting> settings;
  KV_RETURN_IF_ERROR(flatten(table, "", file, settings));
  return settings;
}

using Env = std::function<std::optional<std::string>(const std::string&)>;

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// $XDG_..., else below $HOME, else the system's place.
std::string place(const Env& env, const char* xdg, const char* below_home, const char* system) {
  if (auto dir = env(xdg); dir && dir->starts_with('/')) return *dir;
  auto home = env("HOME");
  if (::geteuid() != 0 && home && home->starts_with('/')) return *home + below_home;
  return system;
}

void set_default_paths(Config& config, const Env& env) {
  std::string per_user = "/tmp/cachesvc-" + std::to_string(::geteuid());
  auto runtime = env("XDG_RUNTIME_DIR");
  if (runtime && runtime->starts_with('/')) {
    config.server.socket = *runtime + "/cachesvc/cachesvc.sock";
  } else {
    config.server.socket = (::geteuid() == 0 ? "/run/cachesvc" : per_user) + "/cachesvc.sock";
  }
  config.cache.ssd_dir = place(env, "XDG_CACHE_HOME", "/.cache", "/var/cache") + "/cachesvc";
}

// Bytes of the file system that `path`, or its nearest existing parent, lies on.
Result<uint64_t> file_system_bytes(const std::string& path) {
  std::filesystem::path at = std::filesystem::absolute(path);
  struct statvfs info;
  while (::statvfs(at.c_str(), &info) != 0) {
    if (at == at.root_path()) return invalid_argument("tier.ssd.dir: no file system at " + path);
    at = at.parent_path();
  }
  return uint64_t{info.f_blocks} * info.f_frsize;
}

Result<uint64_t> resolve(const Amount& amount, const std::string& path) {
  if (amount.fraction <= 0) return amount.bytes;
  KV_ASSIGN_OR_RETURN(uint64_t whole, file_system_bytes(path));
  return static_cast<uint64_t>(amount.fraction * static_cast<double>(whole));
}

Status read_profiles(Config& config) {
  std::stringstream list(config.profile_files);
  for (std::string path; std::getline(list, path, ',');) {
    auto file = read_profile_file(path);
    if (!file.ok()) return invalid_argument("codec.profiles: " + file.status().message());
    config.cache.profiles[file->fingerprint] =
        std::make_shared<const Profile>(std::move(file->profile));
  }
  return {};
}

// As the printed configuration has it.
std::string value_of(const Config& config, const std::string& name) {
  auto key =
      std::find_if(keys().begin(), keys().end(), [&](const Key& k) { return k.name == name; });
  return key->get(config);
}

Status finish(Config& config) {
  CacheOptions& cache = config.cache;
  cache.ram_budget_bytes = config.ram_budget.bytes;
  if (config.ram_budget.fraction > 0) cache.ram_fraction = config.ram_budget.fraction;
  if (config.ram_budget.fraction <= 0 && config.ram_budget.bytes == 0) {
    return invalid_argument(config.source.at("tier.ram.budget") +
                            ": tier.ram.budget = 0: the RAM tier can't be off");
  }
  bool ssd = config.ssd_limit.bytes > 0 || config.ssd_limit.fraction > 0;
  if (ssd && cache.ssd_dir.empty()) return invalid_argument("tier.ssd.dir is empty");
  if (ssd) {
    KV_ASSIGN_OR_RETURN(cache.ssd_limit_bytes, resolve(config.ssd_limit, cache.ssd_dir));
    KV_ASSIGN_OR_RETURN(cache.ssd_min_free_bytes, resolve(config.ssd_min_free, cache.ssd_dir));
    auto key = seal_key_of(config.key_file);
    if (!key.ok()) return invalid_argument("tier.ssd.key_file: " + key.status().message());
    cache.ssd_key = *key;
  } else {
    cache.ssd_dir.clear();
  }
  if (config.server.socket.empty()) return invalid_argument("server.socket is empty");
  KV_RETURN_IF_ERROR(read_profiles(config));
  cache.max_sessions = config.server.max_connections;
  cache.drain_timeout = config.server.drain_timeout;
  KV_RETURN_IF_ERROR(check_together(config, value_of));
  return validate(cache);
}

}  // namespace

std::string env_name(const std::string& key) {
  std::string name = "CACHESVC_";
  for (char c : key) name += c == '.' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

Result<Config> load_config(const ConfigSources& sources) {
  Config config;
  Env env = sources.env ? sources.env : process_env;
  set_default_paths(config, env);
  for (const auto& key : keys()) config.source[key.name] = "default";

  std::string file = sources.file.value_or("");
  if (!sources.file && sources.read_default_file) {
    std::string usual =
        place(env, "XDG_CONFIG_HOME", "/.config", "/etc") + "/cachesvc/cachesvc.toml";
    std::error_code ec;
    if (std::filesystem::exists(usual, ec)) file = usual;
  }
  if (!file.empty()) {
    KV_ASSIGN_OR_RETURN(auto settings, read_file(file));
    KV_RETURN_IF_ERROR(apply_settings(config, settings));
    config.file = file;
  }
  std::vector<Setting> from_env;
  std::vector<std::string> names;
  for (const auto& key : keys()) names.push_back(env_name(key.name));
  KV_RETURN_IF_ERROR(
      check_names(sources.env_names ? sources.env_names() : process_env_names(), names));
  for (const auto& key : keys()) {
    std::string name = env_name(key.name);
    if (auto value = env(name)) from_env.push_back({key.name, *value, name});
  }
  KV_RETURN_IF_ERROR(apply_settings(config, from_env));
  KV_RETURN_IF_ERROR(apply_settings(config, sources.flags));
  KV_RETURN_IF_ERROR(finish(config));
  return config;
}

std::vector<KeyHelp> config_keys() {
  std::vector<KeyHelp> list;
  for (const auto& k : keys()) list.push_back({k.name, k.flag, k.help});
  return list;
}

std::string print_config(const Config& config) {
  std::string out;
  for (const auto& key : keys()) {
    std::string value = key.get(config);
    if (value.empty() && key.name == "codec.default") continue;  // K and V differ
    std::string line = key.name + " = \"" + value + "\"";
    line.resize(std::max<size_t>(line.size() + 2, 48), ' ');
    out += line + "# " + config.source.at(key.name) + "\n";
  }
  return out;
}

}  // namespace kv
